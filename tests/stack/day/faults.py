"""What goes wrong on a busy day: each fault begins when it is entered, and is mended when it is left."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Self
from urllib.parse import urlsplit

import psycopg
import redis
from confluent_kafka.admin import AdminClient

from sandbox.cluster import SIZE, KafkaCluster
from sandbox.kafka import Broker
from sandbox.options import ROOT
from tests import databases
from tests.deployment import Stack
from tests.java.clients import JavaAdmin, JavaError
from tests.kafka.topic_records import TOPIC
from tests.stack.day.cutting_proxy import CuttingProxy
from tests.stack.postgres.server import Server
from tests.stack.test_broker import good_message
from tests.waiting import wait_for

_DEADLINE_S = 60
_RETRY_S = 0.01
_LEASE = (
    "SELECT holder, token FROM dashboard_collector WHERE name IN ('transaction_state', 'transaction_state-0')"
)
#: Parts beside the tails that a supervisor starts again.
_PARTS = ("worker-pollers", "beat", "web", "redis")


class SecondWorker:
    """A second worker of the tails' queues, as a second machine has it; who kills it starts it again."""

    def __init__(self, stack: Stack, log: Path) -> None:
        self._stack, self._log = stack, log

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGTERM)

    def end(self, how: signal.Signals) -> None:
        """End it, and wait for that."""
        self.process.send_signal(how)
        self.process.wait(60)

    @property
    def log(self) -> str:
        """What it has printed."""
        return self._log.read_text()

    def start(self) -> None:
        """Start it, and do not wait for it."""
        queues = ("-Q", "tail-0,offsets-0", "-P", "threads", "-c", "2", "-n", "second@fenceline")
        command = [sys.executable, "-m", "celery", "-q", "-A", "dashboard.celery", "worker", *queues]
        alone = ("--without-mingle", "--without-gossip", "--without-heartbeat")
        environment = os.environ | dict(self._stack.environment()) | self._stack.variables
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [*command, *alone, "-l", "INFO"], cwd=ROOT, env=environment, stdout=log, stderr=log
            )


@dataclass(frozen=True)
class Deployment:
    """All that may fail. `database` is the server where the stack's database is on PostgreSQL."""

    stack: Stack
    second: SecondWorker
    brokers: KafkaCluster
    proxy: CuttingProxy
    admin: JavaAdmin
    dice: random.Random
    database: Server | None

    def lasts(self, least_s: float, most_s: float) -> None:
        """Wait, while a fault lasts; the load goes on."""
        Event().wait(self.dice.uniform(least_s, most_s))

    def tails(self) -> list[str]:
        """Return the tails' workers, one for each shard, without the second one of the first shard."""
        return [f"worker-tail-{shard}" for shard in range(int(self.stack.variables["SHARDS"]))]

    def lease(self) -> tuple[int, int]:
        """Return who holds, or held last, the lease of the first shard's tail: its process, and the token."""
        with databases.reading(self.stack.described()["database"]) as cursor:
            cursor.execute(_LEASE)
            name, token = cursor.fetchone()
        return int(name.rpartition(":")[2].partition("/")[0]), int(token)


Fault = Callable[[Deployment], AbstractContextManager[None]]


def _ends_part(part: str, how: signal.Signals) -> Fault:
    @contextmanager
    def fault(world: Deployment) -> Iterator[None]:
        os.kill(world.stack.pid(part), how)
        yield

    return fault


def _ends_tail(how: signal.Signals) -> Fault:
    @contextmanager
    def fault(world: Deployment) -> Iterator[None]:
        os.kill(world.stack.pid(world.dice.choice(world.tails())), how)
        yield

    return fault


def _pauses_part(part: str, least_s: float, most_s: float) -> Fault:
    @contextmanager
    def fault(world: Deployment) -> Iterator[None]:
        with _paused(world.stack.pid(part)):
            world.lasts(least_s, most_s)
            yield

    return fault


@contextmanager
def _paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _is_locked(url: str) -> bool:
    """Whether the lock of SQLite's writers is held for a second: who stops amid a write never releases it."""
    if not url.startswith("sqlite:///"):
        return False
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=1.0)) as opened:
        try:
            opened.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


@contextmanager
def kill_the_second_tail(world: Deployment) -> Iterator[None]:
    """Whether it holds a lease or not."""
    world.second.end(signal.SIGKILL)
    yield
    world.second.start()


@contextmanager
def pause_the_holder(world: Deployment) -> Iterator[None]:
    """Until its lease is another's: what it has read must not be saved when it wakes."""
    pid, token = world.lease()
    with _paused(pid):
        while _is_locked(world.stack.described()["database"]):
            os.kill(pid, signal.SIGCONT)
            Event().wait(_RETRY_S)
            os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: world.lease()[1] > token, "another slice has the lease", _DEADLINE_S)
        world.lasts(0, 1)
        yield


@contextmanager
def kill_the_dashboard(world: Deployment) -> Iterator[None]:
    """All of it at once, as a machine goes."""
    for part in (*world.tails(), *_PARTS):
        world.stack.kill(part)
    world.second.end(signal.SIGKILL)
    yield
    world.second.start()


@contextmanager
def restart_the_dashboard(world: Deployment) -> Iterator[None]:
    """It is off for a moment, and comes back with another number of shards."""
    world.second.end(signal.SIGTERM)
    world.stack.stop()
    world.lasts(0, 3)
    world.stack.variables["SHARDS"] = "1" if world.tails()[1:] else "2"
    world.stack.start()
    world.second.start()
    yield


@contextmanager
def kill_redis(world: Deployment) -> Iterator[None]:
    """While hundreds of messages a second go through it."""
    client = redis.Redis.from_url(world.stack.described()["redis"], socket_timeout=10)
    with suppress(redis.RedisError):
        for _ in range(world.dice.randrange(1_000)):
            client.lpush("default", good_message("collectors.start_missing"))
    world.stack.kill("redis")
    client.close()
    yield


@contextmanager
def empty_redis(world: Deployment) -> Iterator[None]:
    """Every message is lost: tasks, notifications, locks."""
    client = redis.Redis.from_url(world.stack.described()["redis"], socket_timeout=10)
    with suppress(redis.RedisError):
        for key in client.scan_iter(count=1_000):
            client.delete(key)
    client.close()
    yield


def _kills_broker(how: signal.Signals) -> Fault:
    @contextmanager
    def fault(world: Deployment) -> Iterator[None]:
        _wait_until_in_sync(world.brokers)
        broker = world.dice.choice(world.brokers.brokers)
        broker.kill() if how == signal.SIGKILL else broker.stop()
        world.lasts(0, 2)
        yield
        broker.start()

    return fault


@contextmanager
def kill_all_brokers(world: Deployment) -> Iterator[None]:
    """A loss of power, but for the disks."""
    _wait_until_in_sync(world.brokers)
    world.brokers.kill()
    yield
    world.brokers.start()
    world.brokers.wait_ready()


@contextmanager
def pause_a_broker(world: Deployment) -> Iterator[None]:
    """For less or more than its session."""
    _wait_until_in_sync(world.brokers)
    broker = world.dice.choice(world.brokers.brokers)
    assert broker.process
    with _paused(broker.process.pid):
        world.lasts(2, 11)
        yield


def _wait_until_in_sync(brokers: KafkaCluster) -> None:
    """Wait for what the fault before has left: two brokers of three that lack records may lose some."""
    wait_for(lambda: all(map(_is_in_sync, brokers.brokers)), "all brokers are in sync", 120)


def _is_in_sync(broker: Broker) -> bool:
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    with suppress(Exception):
        metadata = client.list_topics(timeout=5)
        partitions = [row for topic in metadata.topics.values() for row in topic.partitions.values()]
        full = all(len(row.isrs) == SIZE and row.leader > 0 for row in partitions)
        return full and len(metadata.brokers) == SIZE
    return False


@contextmanager
def move_coordinators(world: Deployment) -> Iterator[None]:
    """Some partitions of the log get other leaders, which load what the coordinator knows."""
    _wait_until_in_sync(world.brokers)
    order = [1, 2, 3]
    for number in world.dice.sample(range(10), 4):
        world.dice.shuffle(order)
        # The leader may be the one already.
        with suppress(JavaError):
            world.admin.lead_by(TOPIC, number, order)
    yield


@contextmanager
def cut_answers(world: Deployment) -> Iterator[None]:
    """Connections to brokers break in the middle of answers, again and again."""
    with world.proxy.cutting(world.dice.choice((0.02, 0.2, 0.6))):
        world.lasts(2, 6)
        yield


@contextmanager
def hold_answers_back(world: Deployment) -> Iterator[None]:
    """Brokers answer nothing, for less or more than a request may take."""
    with world.proxy.stalled():
        world.lasts(1, 6)
        yield


@contextmanager
def lock_the_database(world: Deployment) -> Iterator[None]:
    """Another writer holds SQLite's lock."""
    path = world.stack.described()["database"].removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as locked:
        locked.execute("BEGIN IMMEDIATE")
        world.lasts(2, 10)
        yield


@contextmanager
def end_database_sessions(world: Deployment) -> Iterator[None]:
    """PostgreSQL ends every session of the stack, some times."""
    url = world.stack.described()["database"]
    for _ in range(3):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = %s AND pid <> pg_backend_pid()",
                [urlsplit(url).path.removeprefix("/")],
            )
        world.lasts(0, 1)
    yield


def _restarts_database(how: signal.Signals) -> Fault:
    @contextmanager
    def fault(world: Deployment) -> Iterator[None]:
        assert world.database
        world.database.stop(how)
        world.lasts(0, 3)
        world.database.start()
        yield

    return fault


_DASHBOARD: Mapping[str, Fault] = {
    **{f"kill {part}": _ends_part(part, signal.SIGKILL) for part in ("worker-pollers", "beat", "web")},
    "kill a tail": _ends_tail(signal.SIGKILL),
    "stop a tail": _ends_tail(signal.SIGTERM),
    "kill redis": kill_redis,
    "pause worker-pollers": _pauses_part("worker-pollers", 2, 8),
    "pause redis": _pauses_part("redis", 1, 6),
    "kill the second tail": kill_the_second_tail,
    "pause the holder of the tail's lease": pause_the_holder,
    "kill the dashboard": kill_the_dashboard,
    "restart the dashboard": restart_the_dashboard,
    "empty redis": empty_redis,
    "cut answers": cut_answers,
    "hold answers back": hold_answers_back,
}
_BROKERS: Mapping[str, Fault] = {
    "kill a broker": _kills_broker(signal.SIGKILL),
    "stop a broker": _kills_broker(signal.SIGTERM),
    "pause a broker": pause_a_broker,
    "kill all brokers": kill_all_brokers,
    "move coordinators": move_coordinators,
}
SQLITE: Mapping[str, Fault] = {**_DASHBOARD, **_BROKERS, "lock the database": lock_the_database}
POSTGRESQL: Mapping[str, Fault] = {
    **_DASHBOARD,
    **_BROKERS,
    "end database sessions": end_database_sessions,
    "kill the database": _restarts_database(signal.SIGQUIT),
    "restart the database": _restarts_database(signal.SIGINT),
}
