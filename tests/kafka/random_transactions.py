"""Random transactions of many ids: producer after producer, of either library, with every outcome."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from py4j.java_gateway import JavaGateway

from tests.java.clients import JavaAdmin, JavaError, JavaProducer
from tests.kafka.producers import LibrdkafkaProducer, TransactionalProducer
from tests.waiting import wait_for

#: Long enough that nothing left open ends during a test; the broker's own maximum.
LONG_MS = 900_000
#: Short enough to wait for.
SHORT_MS = 1_000


@dataclass(frozen=True)
class ClientCluster:
    """The cluster of the clients. `topics` have three partitions each."""

    bootstrap: str
    gateway: JavaGateway
    admin: JavaAdmin
    topics: tuple[str, ...]
    #: Further settings of Java's producers.
    java_settings: Mapping[str, str] = field(default_factory=dict)


@dataclass
class RandomClient:
    """One transactional id. Its randomness is its own, so a seed plays the same whatever the threads do."""

    cluster: ClientCluster
    transactional_id: str
    dice: random.Random
    outcomes: Counter[str] = field(default_factory=Counter)
    producer: TransactionalProducer = field(init=False)

    def run(self, transactions: int) -> Counter[str]:
        """Run transactions, the last with one of LAST_OUTCOMES; return how often each outcome came."""
        self.producer = self.start()
        kinds, weights = zip(*OUTCOMES.items(), strict=True)
        for outcome in self.dice.choices(kinds, weights, k=transactions - 1):
            self.play(outcome)
        self.play(self.dice.choice(LAST_OUTCOMES))
        self.producer.abandon()
        return self.outcomes

    def play(self, outcome: Callable[[RandomClient], None]) -> None:
        """Run one transaction with this outcome."""
        outcome(self)
        self.outcomes[outcome.__name__] += 1

    def start(self, timeout_ms: int = LONG_MS) -> TransactionalProducer:
        """Return another producer for the id, of either library, initialised."""
        producer = self.make(timeout_ms)
        producer.init()
        return producer

    def make(self, timeout_ms: int = LONG_MS) -> TransactionalProducer:
        """Return another producer for the id, of either library."""
        settings = {"transaction.timeout.ms": str(timeout_ms), "linger.ms": "0"}
        where = self.cluster.bootstrap, self.transactional_id
        if self.dice.random() < 0.5:
            return JavaProducer(self.cluster.gateway, *where, settings | self.cluster.java_settings)
        return LibrdkafkaProducer(*where, settings)

    def open(self) -> None:
        """Begin a transaction, and have its records at the brokers."""
        self.producer.begin()
        for _ in range(self.dice.randint(1, 3)):
            self.producer.send(self.dice.choice(self.cluster.topics), self.dice.randrange(3))
        self.producer.flush()

    def time_out(self) -> None:
        """Start anew with a short timeout, open a transaction, and wait for the coordinator to end it."""
        wait_for(self._open_for_a_moment, f"{self.transactional_id} has a transaction")
        wait_for(lambda: self.state() == "CompleteAbort", f"{self.transactional_id} times out")

    def _open_for_a_moment(self) -> bool:
        """Open a transaction with a short timeout; return whether its coordinator has it.

        On a busy machine the timeout may pass before the last record is there, or before the first.
        """
        self.producer.abandon()
        self.producer = self.start(SHORT_MS)
        with suppress(JavaError, KafkaException):
            self.open()
        return self.state() != "Empty"

    def state(self) -> str:
        """Return the coordinator's state of the id."""
        found = self.cluster.admin.describe_transactions([self.transactional_id])
        return found[self.transactional_id].state


def commit(client: RandomClient) -> None:
    """The usual end."""
    client.open()
    client.producer.commit()


def abort(client: RandomClient) -> None:
    """The client's own abort."""
    client.open()
    client.producer.abort()


def nothing(client: RandomClient) -> None:
    """A transaction without a record."""
    client.producer.begin()
    client.producer.commit()


def offsets(client: RandomClient) -> None:
    """A group's offsets in a transaction."""
    client.producer.begin()
    client.producer.send_offsets("group-of-clients", {(client.cluster.topics[0], 0): 1})
    client.producer.commit()


def takeover(client: RandomClient) -> None:
    """Another producer initialises while a transaction is open; sometimes the first one tries to continue."""
    client.open()
    zombie, client.producer = client.producer, client.start()
    if client.dice.random() < 0.5:
        with suppress(JavaError, KafkaException):
            zombie.commit()
            raise AssertionError(f"{client.transactional_id}: a zombie could commit")
    zombie.abandon()


def reinit(client: RandomClient) -> None:
    """Another producer initialises while nothing is open, after a commit."""
    commit(client)
    client.producer.abandon()
    client.producer = client.start()


def timeout(client: RandomClient) -> None:
    """A producer hangs with a transaction open, the coordinator ends it, and another producer comes."""
    client.time_out()
    client.producer.abandon()
    client.producer = client.start()


def timed_out(client: RandomClient) -> None:
    """The same, without a later producer."""
    client.time_out()


def left_open(client: RandomClient) -> None:
    """A producer stops with a transaction open whose timeout is far away."""
    client.open()


#: How often each comes, among a hundred.
OUTCOMES: dict[Callable[[RandomClient], None], float] = {
    commit: 72, abort: 15, nothing: 3, offsets: 3, takeover: 3.5, reinit: 3, timeout: 0.5
}  # fmt: skip
LAST_OUTCOMES = (commit, abort, takeover, reinit, timed_out, left_open, left_open)


def run_clients(
    cluster: ClientCluster, ids: list[str], transactions: int, seed: int, threads: int = 16
) -> Counter[str]:
    """Run `transactions` in total and one at least of each id; return how often each outcome came."""
    dice = random.Random(seed)
    amounts = Counter(ids) + Counter(dice.choices(ids, k=transactions - len(ids)))
    clients = [RandomClient(cluster, name, random.Random(f"{seed} {name}")) for name in ids]
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda client: client.run(amounts[client.transactional_id]), clients), Counter())
