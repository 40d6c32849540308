"""A day's load: rates that follow the hour, and ids that stay, come and go, are fenced, or time out."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Self

from confluent_kafka import KafkaException

from tests.java.clients import JavaError, JavaProducer
from tests.kafka.random_transactions import (
    LAST_OUTCOMES,
    OUTCOMES,
    ClientCluster,
    RandomClient,
    commit,
    offsets,
)

#: Transactions a second from an hour on: night, morning peak, noon, afternoon, evening, batch window.
RATES = {0: 3, 6: 12, 8: 30, 12: 14, 14: 22, 18: 8, 22: 25}
#: The share of them by ids that are new, from the same hours on.
NEW_IDS = {0: 0.02, 6: 0.1, 8: 0.1, 12: 0.05, 14: 0.1, 18: 0.02, 22: 0.5}
#: Ids that stay, of several applications, and with names that a careless writer would get wrong.
_STABLE = ("orders-gateway-{}", "payments-sink-0-{}", "back\\slash-{}", "tab\t-end-{}")
_NEW = ("batch", "nightly-job", "stream")
_WORKERS = 6
#: How often the last transaction of an id that came is this one.
_GOES = 0.3
#: How often, beside OUTCOMES' hundred, an operator fences an id whose transaction is open.
_FENCED = 1.5
#: No transaction takes longer, whatever the brokers do.
_LONGEST_S = 150
#: The shortest rest of a worker: who pauses the load takes its lock in it.
_REST_S = 0.01


@dataclass
class _Worker:
    """Who plays one transaction after the other, of ids that no other worker has."""

    number: int
    dice: random.Random
    clients: dict[str, RandomClient] = field(default_factory=dict)
    #: Held while a transaction is played, and by who pauses the load.
    playing: threading.Lock = field(default_factory=threading.Lock)
    #: The id whose transaction that is.
    plays: str = ""


class BusyDay:
    """Clients that go on through every failure of the brokers: one that fails starts anew."""

    def __init__(self, cluster: ClientCluster, seed: int) -> None:
        self.hour = 0.0
        self.outcomes: Counter[str] = Counter()
        self._cluster, self._seed = cluster, seed
        self._numbers = count()
        self._stopped = threading.Event()
        self._workers = [_Worker(number, random.Random(f"{seed} {number}")) for number in range(_WORKERS)]
        self._threads = [threading.Thread(target=self._run, args=(worker,)) for worker in self._workers]
        self._wrong: list[AssertionError] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for what is under way; nothing begins before this is left. Raises what a client may not do."""
        with ExitStack() as held:
            for worker in self._workers:
                late = f"{worker.plays} goes on for {_LONGEST_S} s"
                assert worker.playing.acquire(timeout=_LONGEST_S), late
                held.callback(worker.playing.release)
            for wrong in self._wrong:
                raise wrong
            yield

    def _run(self, worker: _Worker) -> None:
        while not self._stopped.is_set():
            with worker.playing:
                self._play(worker)
            rest_s = worker.dice.expovariate(_at(RATES, self.hour) / _WORKERS)
            self._stopped.wait(max(_REST_S, min(rest_s, 2.0)))

    def _play(self, worker: _Worker) -> None:
        name = worker.plays = self._choose(worker)
        client = worker.clients.pop(name, None)
        goes = name.startswith(_NEW) and worker.dice.random() < _GOES
        try:
            if client is None:
                client = RandomClient(self._cluster, name, random.Random(f"{self._seed} {name}"))
                client.producer = client.start()
            self._end(client) if goes else self._go_on(client)
        except (JavaError, KafkaException, AssertionError) as error:
            self._note(error)
            if client is not None and hasattr(client, "producer"):
                with suppress(Exception):
                    client.producer.abandon()
        else:
            if not goes:
                worker.clients[name] = client

    def _choose(self, worker: _Worker) -> str:
        """Return a new id, or one that was there before."""
        if worker.dice.random() < _at(NEW_IDS, self.hour):
            return f"{worker.dice.choice(_NEW)}-{next(self._numbers)}"
        stable = [name.format(worker.number) for name in _STABLE]
        return worker.dice.choice([*stable, *worker.clients])

    def _go_on(self, client: RandomClient) -> None:
        kinds, weights = zip(*OUTCOMES.items(), (fence, _FENCED), strict=True)
        (outcome,) = client.dice.choices(kinds, weights)
        # librdkafka 2.16 never returns from adding offsets where it loses its coordinator meanwhile.
        if outcome is offsets and not isinstance(client.producer, JavaProducer):
            outcome = commit
        client.play(outcome)
        self.outcomes[outcome.__name__] += 1

    def _end(self, client: RandomClient) -> None:
        outcome = client.dice.choice(LAST_OUTCOMES)
        client.play(outcome)
        client.producer.abandon()
        self.outcomes[outcome.__name__] += 1

    def _note(self, error: Exception) -> None:
        """Count a failure: brokers may be away, but a fenced producer may never commit."""
        self.outcomes["failed"] += 1
        if "zombie" in str(error):
            self._wrong.append(AssertionError(str(error)))


def fence(client: RandomClient) -> None:
    """An operator's tool fences the id while its transaction is open; another producer goes on."""
    client.open()
    client.cluster.admin.fence_producers([client.transactional_id])
    client.producer.abandon()
    client.producer = client.start()


def _at(figures: dict[int, float], hour: float) -> float:
    return next(figure for since, figure in reversed(figures.items()) if hour >= since)
