"""Proves that a worker goes on whatever Redis does: killed at random instants under load, or with messages
that nobody can read, after each of which its state is Kafka's own list of transactions; and that a lost
connection takes no message from the next one."""

import base64
import json
import os
import random
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis as clients
from celery.worker import state
from kombu import Connection, Producer
from kombu.asynchronous import Hub
from py4j.java_gateway import JavaGateway

from dashboard.celery import broker_url
from fenceline.decode import text
from sandbox.kafka import Broker
from tests.brokers import create_topics, java, kafka_42
from tests.databases import reading
from tests.java.clients import JavaAdmin, Listing
from tests.kafka.random_transactions import ClientCluster, run_clients
from tests.seeds import SEED
from tests.stack.redis_server import RedisServer
from tests.waiting import wait_for

__all__ = ["java", "kafka_42"]

ROOT = Path(__file__).resolve().parents[2]
QUEUES = ("default", "tail-0", "offsets-0")
DEADLINE_S = 60
#: Transactional ids of the load.
IDS = 6
#: tests/stack/day has more.
KILLS = 3


class Worker:
    """A worker of every queue with a database of its own."""

    def __init__(self, folder: Path, server: RedisServer, kafka: Broker) -> None:
        (folder / "fenceline.toml").write_text(
            f'[clusters.prod]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
        )
        self.database = f"sqlite:///{folder}/fenceline.db"
        environment = {
            **os.environ,
            "SECRET_KEY": "only for tests",
            "FENCELINE_CONFIG": str(folder / "fenceline.toml"),
            "FENCELINE_DATA": str(folder),
            "DATABASE_URL": self.database,
            "REDIS_URL": server.url,
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
        }
        self._log = folder / "worker.log"
        alone = ("--without-mingle", "--without-gossip", "--without-heartbeat")
        command = [
            sys.executable, "-m", "celery", "-q", "-A", "dashboard.celery", "worker", "-l", "INFO",
            "-P", "threads", "-c", "30", "-Q", ",".join(QUEUES), *alone,
        ]  # fmt: skip
        prepare = [sys.executable, "manage.py", "prepare"]
        subprocess.run(prepare, cwd=ROOT, env=environment, check=True, capture_output=True)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        wait_for(lambda: " ready." in self.log, "the worker is ready", DEADLINE_S)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def take_all(self, client: clients.Redis) -> None:
        """Wait until it has taken every message, a new one of each tail's queue among them, or has ended."""
        for queue in QUEUES[1:]:
            client.lpush(queue, good_message("collectors.start_missing"))
        wait_for(
            lambda: self.process.poll() is not None or not any(map(client.llen, QUEUES[1:])),
            "the worker takes every message",
            DEADLINE_S,
        )

    def assert_works(self, client: clients.Redis) -> None:
        """Wait until it has taken every message, and its tasks have saved something new."""
        client.lpush(QUEUES[0], good_message("collectors.start_missing"))
        self.take_all(client)
        before = self.newest_lease()
        wait_for(lambda: self.newest_lease() > before, "the evaluation goes on", DEADLINE_S)
        assert self.process.poll() is None, self.log[-3_000:]

    def newest_lease(self) -> str:
        """Return until when the evaluation holds its lease."""
        with reading(self.database) as cursor:
            cursor.execute("SELECT expires_at FROM dashboard_collector WHERE name = 'judge'")
            return str((cursor.fetchone() or [""])[0])

    def transactions(self) -> dict[str, Listing]:
        """Return what is stored of each transactional id, in the form of Kafka's list."""
        with reading(self.database) as cursor:
            cursor.execute("SELECT transactional_id, producer_id, state FROM dashboard_transaction")
            return {name: Listing(producer_id, state) for name, producer_id, state in cursor.fetchall()}

    def assert_is_current(self, admin: JavaAdmin) -> None:
        """Wait until what is stored is Kafka's own list."""
        assert self.process.poll() is None, self.log[-3_000:]
        wait_for(
            lambda: (self.transactions(), listed_transactions(admin)),
            "the state is Kafka's list",
            DEADLINE_S,
            until=lambda both: both[0] == both[1],
        )


def listed_transactions(admin: JavaAdmin) -> dict[str, Listing]:
    """Return Kafka's own list, its ids as they are stored."""
    return {text.escape_bytes(name.encode()): said for name, said in admin.list_transactions().items()}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def worker(
    tmp_path_factory: pytest.TempPathFactory, server: RedisServer, kafka_42: Broker
) -> Iterator[Worker]:
    worker = Worker(tmp_path_factory.mktemp("worker"), server, kafka_42)
    yield worker
    worker.process.kill()
    worker.process.wait()


def good_message(task: str, **changes: Any) -> str:
    """Return a message as Celery sends it; `changes` replace its members, and those of headers by `h_`."""
    message: dict[str, Any] = {
        "body": base64.b64encode(b"[[], {}, {}]").decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": task,
            "id": "a",
            "root_id": "a",
            "retries": 0,
            "ignore_result": True,
        },
        "properties": {
            "delivery_info": {"exchange": "", "routing_key": "default"},
            "body_encoding": "base64",
            "delivery_tag": "a",
        },
    }
    for name, value in changes.items():
        of = message["headers"] if name.startswith("h_") else message
        of[name.removeprefix("h_").replace("_", "-")] = value
    return json.dumps(message)


_TASK = "collectors.start_missing"
UNDECODABLE = (
    b"\xff\xfe\x00", b"", b"no JSON", good_message(_TASK)[:50], "5", "[]", '"text"', "null", "{}",
    "[" * 50_000,
    good_message(_TASK, properties=None), good_message(_TASK, properties={"delivery_tag": [1]}),
    good_message(_TASK, body="!!!"), good_message(_TASK, body=5), good_message(_TASK, content_type=7),
    good_message(_TASK, content_encoding="klingon"), good_message(_TASK, headers=[1]),
    good_message("no.such.task"), good_message(_TASK, h_task=[1]), good_message(_TASK, h_id={}),
    good_message(_TASK, h_eta={}), good_message(_TASK, h_expires=[1]), good_message(_TASK, h_timelimit="x"),
)  # fmt: skip


@pytest.fixture
def cluster(kafka_42: Broker, java: JavaGateway) -> Iterator[ClientCluster]:
    """Clients of the worker's Kafka, and a topic that no other test writes to."""
    topic = f"redis-{uuid.uuid4().hex[:8]}"
    create_topics(kafka_42.bootstrap, topic)
    with JavaAdmin(java, kafka_42.bootstrap) as admin:
        yield ClientCluster(kafka_42.bootstrap, java, admin, (topic,))


def play_transactions(cluster: ClientCluster, seed: int) -> None:
    """Let clients commit, abort, take over, time out, and leave some transactions open."""
    names = [f"{cluster.topics[0]}-{number}" for number in range(IDS)]
    run_clients(cluster, names, IDS, seed, threads=IDS)


@pytest.mark.kafka
def test_messages_that_nobody_can_read_end_no_worker(
    worker: Worker, server: RedisServer, cluster: ClientCluster
) -> None:
    worker.assert_works(server.client)
    assert len(UNDECODABLE) >= 20
    for queue in QUEUES:
        # Twice as many as there are slots: none of them holds one.
        for message in UNDECODABLE * 3:
            server.client.lpush(queue, message)
    play_transactions(cluster, SEED)
    worker.assert_works(server.client)
    assert "cannot be read, and is dropped" in worker.log
    worker.assert_is_current(cluster.admin)


@pytest.mark.kafka
def test_redis_is_killed_at_random_instants(
    worker: Worker, server: RedisServer, cluster: ClientCluster
) -> None:
    print(f"\nFENCELINE_SEED={SEED}")
    stopped = threading.Event()

    def load() -> None:
        while not stopped.wait(0.002):
            try:
                server.client.lpush("default", good_message("collectors.start_missing"))
            except clients.RedisError:
                stopped.wait(0.1)

    sender, instants = threading.Thread(target=load), random.Random(SEED)
    sender.start()
    try:
        with ThreadPoolExecutor(1) as pool:
            for number in range(KILLS):
                playing = pool.submit(play_transactions, cluster, SEED + number)
                stopped.wait(instants.uniform(0, 1))
                server.kill()
                stopped.wait(instants.uniform(0, 0.5))
                server.start()
                worker.take_all(server.client)
                playing.result()
                worker.assert_is_current(cluster.admin)
    finally:
        stopped.set()
        sender.join()
    worker.assert_works(server.client)


@pytest.mark.parametrize("name", ["active_requests", "reserved_requests"])
def test_threads_may_change_the_requests_that_a_worker_iterates(name: str) -> None:
    """A worker does so at each lost connection, and ended where a thread began or finished one just then."""
    requests, over = getattr(state, name), threading.Event()
    kept = [threading.Event() for _ in range(1_000)]

    def change() -> None:
        while not over.is_set():
            for request in kept:
                requests.add(request)
            for request in kept:
                requests.discard(request)

    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        try:
            for _ in range(2_000):
                assert len(tuple(requests)) <= len(kept)
        finally:
            over.set()
        changing.result()
    assert not tuple(requests)


def test_a_channel_of_a_closed_connection_reports_a_connection_error(server: RedisServer) -> None:
    """Celery goes on after those: another one, as of an attribute, ends a worker wherever it comes from."""
    connection = Connection(broker_url(server.url))
    channel = connection.channel()
    server.kill()
    connection.collect()
    server.start()
    with pytest.raises(connection.connection_errors):
        channel.queue_declare("q")
    connection.close()


def test_a_lost_connection_takes_nothing_from_the_next_one(server: RedisServer) -> None:
    hub, taken = Hub(), []

    def connect(name: str) -> Connection:
        connection = Connection(broker_url(server.url))
        connection.transport.register_with_event_loop(connection.connection, hub)
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_consume("q", no_ack=True, callback=lambda _: taken.append(name), consumer_tag=name)
        return connection

    loop = hub.create_loop()
    lost = connect("lost")
    next(loop)
    server.kill()
    lost.collect()
    hub.reset()
    server.start()
    with connect("next") as connection:
        Producer(connection).publish({"n": 1}, routing_key="q")
        Producer(connection).publish({"n": 2}, routing_key="q")
        loop = hub.create_loop()
        wait_for(lambda: next(loop) or len(taken) == 2, "both messages", DEADLINE_S)
    assert taken == ["next", "next"]
    assert len(hub.on_tick) == 1
