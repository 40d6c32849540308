"""The embedded Redis: only its owner reaches it, and no client reaches the machine through it.

Celery and Channels work through its address, wherever the folder is; each platform has a server or one line.
Without Redis nothing is lost: collectors continue, pages answer, all is live again after it.
"""

import asyncio
import json
import os
import stat
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import psutil
import pytest
import redis as clients
from channels_redis.pubsub import RedisPubSubChannelLayer
from kombu import Connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from dashboard.celery import broker_url
from sandbox import SandboxError, redis
from sandbox.kafka import Broker
from sandbox.ports import free_port
from tests.brokers import create_topics
from tests.cases import cases
from tests.deployment import Stack
from tests.stack.redis_server import RedisServer
from tests.transaction_load import Load
from tests.waiting import wait_for

#: By default a client that is refused waits, and asks three times more.
NOT_AGAIN = Retry(NoBackoff(), 0)
DEADLINE_S = 60
#: Longer than a slice of 30 s: its end, where the next one is sent through Redis, falls into the outage.
OUTAGE_S = 40


@contextmanager
def running(server: redis.Server) -> Iterator[psutil.Process]:
    """Run it for a while."""
    process = subprocess.Popen(server.command(), stdout=subprocess.DEVNULL)
    try:
        wait_for(server.is_ready, "Redis answers")
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Server]:
    """A server in a folder with blanks in its name."""
    made = redis.Server(tmp_path_factory.mktemp("my data") / "the redis")
    with running(made):
        yield made


@cases(
    "CONFIG SET dir /tmp", "CONFIG GET dir", "SAVE", "BGSAVE", "BGREWRITEAOF", "MODULE LOAD /tmp/x.so",
    "DEBUG SLEEP 0", "SHUTDOWN NOSAVE", "SLAVEOF 127.0.0.1 1", "REPLICAOF 127.0.0.1 1", "ACL LIST",
    "MONITOR", "FLUSHALL", "KEYS *", "MIGRATE 127.0.0.1 1 k 0 1", "CLIENT LIST",
)  # fmt: skip
def test_no_client_reaches_the_machine_through_it(server: redis.Server, command: str) -> None:
    refused = pytest.raises(clients.exceptions.ResponseError, match=r"no permissions|command not allowed")
    with clients.Redis.from_url(server.url) as client, refused:
        client.execute_command(*command.split())


@pytest.mark.parametrize(("user", "password"), [("", ""), ("default", ""), ("fenceline", "guessed")])
def test_a_client_without_the_password_is_refused(server: redis.Server, user: str, password: str) -> None:
    client = clients.Redis(
        unix_socket_path=str(server.socket), username=user, password=password, retry=NOT_AGAIN
    )
    with client, pytest.raises(clients.exceptions.AuthenticationError):
        client.ping()


def test_only_its_owner_reaches_the_socket_and_no_command_line_has_the_password(tmp_path: Path) -> None:
    server = redis.Server(tmp_path / "redis")
    with running(server) as process:
        assert server.password not in " ".join(process.cmdline())
        assert [each.laddr for each in process.net_connections("inet")] == []
    private = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (server.folder, *server.folder.iterdir())
    }
    assert {name for name, mode in private.items() if mode & 0o077} == set()


def test_tcp_is_optional_and_on_the_loopback_only(tmp_path: Path) -> None:
    server = redis.Server(tmp_path / "redis", port=free_port())
    with running(server) as process:
        assert [tuple(each.laddr) for each in process.net_connections("inet")] == [("127.0.0.1", server.port)]
        with (
            clients.Redis(port=server.port, retry=NOT_AGAIN) as stranger,
            pytest.raises(clients.exceptions.AuthenticationError),
        ):
            stranger.ping()
        with clients.Redis(port=server.port, username=redis.USER, password=server.password) as owner:
            assert owner.ping()


def test_celery_and_channels_work_through_its_address(server: redis.Server) -> None:
    with Connection(broker_url(server.url)) as broker:
        assert server.password not in broker.as_uri()
        with broker.SimpleQueue("tasks") as queue:
            queue.put({"task": 1})
            message = queue.get(timeout=10)
            message.ack()
            assert message.payload == {"task": 1}
    assert asyncio.run(send_and_receive(server.url)) == {"type": "bell"}


async def send_and_receive(url: str) -> Any:
    """Send to a group; return what its one member hears."""
    layer = RedisPubSubChannelLayer(hosts=[url])
    channel = await layer.new_channel()
    await layer.group_add("live", channel)
    await layer.group_send("live", {"type": "bell"})
    return await asyncio.wait_for(layer.receive(channel), 10)


def test_kombu_gets_other_addresses_as_they_are() -> None:
    assert broker_url("rediss://redis.example:6379/1") == "rediss://redis.example:6379/1"
    assert broker_url("unix:///run/redis.sock") == "redis+socket:///run/redis.sock?virtual_host=0"
    assert broker_url("unix://a:b@/r.sock?db=2") == "redis+socket://a:b@/r.sock?virtual_host=2"


def test_a_path_too_long_for_a_socket_gets_a_private_one_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = redis.Server(tmp_path / ("x" * 100) / "redis")
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setattr("tempfile.tempdir", short)
        with running(server):
            assert server.socket.parent.parent == Path(short)
            assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700
        monkeypatch.setattr("tempfile.tempdir", f"{short}/{'y' * 100}")
        with pytest.raises(SandboxError, match=r"too long for a socket: choose a shorter folder"):
            _ = server.socket


def test_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root to make another user's link")
    (tmp_path / "own").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "own")
    os.lchown(tmp_path / "link", 65534, 65534)
    with pytest.raises(SandboxError, match=r"link: this folder is not yours alone: choose another"):
        redis.Server(tmp_path / "link").command()


def test_a_platform_without_a_server_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(
        SandboxError, match=r"Unsupported architecture: riscv64.* Name a server with REDIS_URL="
    ):
        redis.find_redis()


def readiness(stack: Stack) -> dict[str, object]:
    try:
        with urllib.request.urlopen(f"{stack.url}/readyz", timeout=10) as answer:
            return dict(json.load(answer))
    except HTTPError as refused:
        return dict(json.load(refused))


def seen_through_s(stack: Stack) -> float:
    """Return the instant up to which everything was seen, in seconds; 0 before the first look."""
    seen = stack.api("collectors")["as_of"]
    return datetime.fromisoformat(seen).timestamp() if seen else 0


@pytest.mark.kafka
@pytest.mark.soak
def test_collectors_and_pages_continue_without_redis(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker, RedisServer(tmp_path) as server:
        create_topics(broker.bootstrap, "load", partitions=2)
        variables = {"BOOTSTRAP": broker.bootstrap, "REDIS_URL": server.url}
        with Stack(tmp_path, DEMO="0", **variables) as stack, Load(broker.bootstrap, ids=4) as load:
            assert readiness(stack) == {"database": True, "redis": True, "migrations": True}
            began = wait_for(lambda: seen_through_s(stack), "the first look", DEADLINE_S)
            server.kill()
            wait_for(
                lambda: seen_through_s(stack) > began + OUTAGE_S, "collectors read on", OUTAGE_S + DEADLINE_S
            )
            assert "Error" in str(readiness(stack)["redis"])
            assert "live-words" in stack.page("/")
            server.start()
            wait_for(lambda: readiness(stack)["redis"] is True, "Redis is used again", DEADLINE_S)
            back = seen_through_s(stack)
            load.finish()
            wait_for(lambda: seen_through_s(stack) > back + 5, "collectors go on behind it", DEADLINE_S)
            rows = stack.api("transactions")["items"]
            assert {row["transactional_id"]: row["state"] for row in rows} == load.told
            assert "Traceback" not in stack.log()
