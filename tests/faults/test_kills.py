"""Proves that any part may be killed at any time under load: the state is right again by itself, soon.

The oracle is what the clients were told: the last acknowledged commit or abort of every id.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sandbox.kafka import Broker
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.kafka

KILLS = 10
IDS = 12
#: Five times the figure of the issue (right again within 10 s), as every wait in a test.
DEADLINE_S = 50
PARTS = ("worker-tail-0", "worker-pollers", "beat", "redis", "web")


class Load:
    """Clients that commit and abort as fast as they are answered, and remember what they were told."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self.told: dict[str, str] = {}
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(4)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        dice = random.Random(number)
        producers = {f"load-{n}": self._producer(f"load-{n}") for n in range(number, IDS, 4)}
        while not self._stop.is_set():
            name = dice.choice(list(producers))
            self.told[name] = self._transaction(producers[name], commits=dice.random() < 0.8)

    def _producer(self, name: str) -> Producer:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": name, "linger.ms": 0})
        producer.init_transactions(30)
        return producer

    def _transaction(self, producer: Producer, *, commits: bool) -> str:
        producer.begin_transaction()
        producer.produce("load", b"x")
        producer.flush(30)
        producer.commit_transaction(30) if commits else producer.abort_transaction(30)
        return "CompleteCommit" if commits else "CompleteAbort"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "kafka") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("load", 4, 1)])["load"].result(30)
        yield broker


def states(stack: Stack) -> dict[str, str]:
    try:
        return {row["transactional_id"]: row["state"] for row in stack.api("transactions?q=load-")["items"]}
    except OSError:
        return {}


def is_fresh(stack: Stack, since: float) -> bool:
    """Whether everything up to `since`, an instant of now, has been seen."""
    try:
        as_of = stack.api("collectors")["as_of"]
    except OSError:
        return False
    return as_of is not None and as_of > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since))


def test_any_part_may_be_killed_under_load(tmp_path: Path, broker: Broker) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    with Stack(tmp_path, BOOTSTRAP=broker.bootstrap, DEMO="0") as stack:
        with Load(broker.bootstrap) as load:
            wait_for(lambda: len(states(stack)) == IDS, DEADLINE_S, "every id is seen")
            for part in (dice.choice(PARTS) for _ in range(KILLS)):
                stack.kill(part)
                killed_at = time.time()
                wait_for(
                    lambda at=killed_at: is_fresh(stack, at + 1), DEADLINE_S, f"sight again after {part}"
                )
                print(f"killed {part}: everything seen again after {time.time() - killed_at:.1f} s")
            load.finish()
        wait_for(lambda: states(stack) == load.told, DEADLINE_S, "what the clients were told")
        collectors = stack.api("collectors")["items"]
        assert all(row["error"] == "" and row["undecoded"] == {} for row in collectors)
