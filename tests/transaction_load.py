"""Transactional clients whose fate is known, for tests that break things while they run."""

import random
import threading
import time
from typing import Self

from confluent_kafka import Producer

#: A client's rest between two transactions: what a test breaks needs the cores to come back.
_REST_S = 0.1


class Load:
    """Clients that commit and abort about 35 transactions a second, and remember what they were told."""

    def __init__(self, bootstrap: str, ids: int) -> None:
        self._bootstrap, self._ids = bootstrap, ids
        self._stop = threading.Event()
        self.told: dict[str, str] = {}
        #: Transactions that ended, for tests that wait for some more of them.
        self.ended = 0
        #: By id, how long its longest transaction was open, in seconds.
        self.longest: dict[str, float] = {}
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(4)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop after what is under way; `told` is then final."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        dice = random.Random(number)
        producers = {f"load-{n}": self._producer(f"load-{n}") for n in range(number, self._ids, 4)}
        while not self._stop.is_set():
            name, began = dice.choice(list(producers)), time.monotonic()
            self.told[name] = self._transaction(producers[name], commits=dice.random() < 0.8)
            self.longest[name] = max(self.longest.get(name, 0.0), time.monotonic() - began)
            self.ended += 1
            self._stop.wait(_REST_S)

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


def commit(bootstrap: str, name: str, times: int = 1) -> None:
    """Commit transactions of one record on topic `t`, which must be there, as a client named `name`."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    for _ in range(times):
        producer.begin_transaction()
        producer.produce("t", b"x")
        producer.commit_transaction(30)
