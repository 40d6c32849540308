"""Random lives of transactional ids: producer after producer, of either library, with every sort of end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from py4j.java_gateway import JavaGateway

from tests.java.clients import JavaAdmin, JavaError, JavaProducer
from tests.kafka.producers import LibrdkafkaProducer, TransactionalProducer
from tests.waiting import wait_for

#: Long enough that nothing left open ends while a test looks at it; the broker's own maximum.
LONG_MS = 900_000
#: Short enough to wait for.
SHORT_MS = 1_000


@dataclass(frozen=True)
class World:
    """Where lives are lived. `topics` have three partitions each."""

    bootstrap: str
    gateway: JavaGateway
    admin: JavaAdmin
    topics: tuple[str, ...]


@dataclass
class Life:
    """One transactional id. Its randomness is its own, so a seed plays the same whatever the threads do."""

    world: World
    transactional_id: str
    dice: random.Random
    fates: Counter[str] = field(default_factory=Counter)
    producer: TransactionalProducer = field(init=False)

    def run(self, transactions: int) -> Counter[str]:
        """Live through so many transactions, and one of the last states; return how often each fate came."""
        self.producer = self.start()
        kinds, weights = zip(*FATES.items(), strict=True)
        for fate in self.dice.choices(kinds, weights, k=transactions - 1):
            self.meet(fate)
        self.meet(self.dice.choice(LAST))
        self.producer.abandon()
        return self.fates

    def meet(self, fate: Callable[[Life], None]) -> None:
        """Let one fate come."""
        fate(self)
        self.fates[fate.__name__] += 1

    def start(self, timeout_ms: int = LONG_MS) -> TransactionalProducer:
        """Return another producer for the id, of either library, initialised."""
        producer = self.make(timeout_ms)
        producer.init()
        return producer

    def make(self, timeout_ms: int = LONG_MS) -> TransactionalProducer:
        """Return another producer for the id, of either library."""
        settings = {"transaction.timeout.ms": str(timeout_ms), "linger.ms": "0"}
        where = self.world.bootstrap, self.transactional_id, settings
        if self.dice.random() < 0.5:
            return JavaProducer(self.world.gateway, *where)
        return LibrdkafkaProducer(*where)

    def open(self) -> None:
        """Begin a transaction, and have its records at the brokers."""
        self.producer.begin()
        for _ in range(self.dice.randint(1, 3)):
            self.producer.send(self.dice.choice(self.world.topics), self.dice.randrange(3))
        self.producer.flush()

    def time_out(self) -> None:
        """Start anew with a short timeout, open a transaction, and wait for the coordinator to end it."""
        self.producer.abandon()
        self.producer = self.start(SHORT_MS)
        # On a busy machine the coordinator may be there before the last record is.
        with suppress(JavaError, KafkaException):
            self.open()
        wait_for(lambda: self.state() == "CompleteAbort", f"{self.transactional_id} times out")

    def state(self) -> str:
        """What the coordinator says."""
        found = self.world.admin.describe_transactions([self.transactional_id])
        return found[self.transactional_id].state


def commit(life: Life) -> None:
    """The usual end."""
    life.open()
    life.producer.commit()


def abort(life: Life) -> None:
    """The client's own abort."""
    life.open()
    life.producer.abort()


def nothing(life: Life) -> None:
    """A transaction without a record."""
    life.producer.begin()
    life.producer.commit()


def offsets(life: Life) -> None:
    """A group's offsets in a transaction."""
    life.producer.begin()
    life.producer.send_offsets("group-of-lives", {(life.world.topics[0], 0): 1})
    life.producer.commit()


def takeover(life: Life) -> None:
    """Another producer initialises while a transaction is open; now and then the first one tries to go on."""
    life.open()
    zombie, life.producer = life.producer, life.start()
    if life.dice.random() < 0.5:
        with suppress(JavaError, KafkaException):
            zombie.commit()
            raise AssertionError(f"{life.transactional_id}: a zombie could commit")
    zombie.abandon()


def reinit(life: Life) -> None:
    """Another producer initialises while nothing is open, after a commit."""
    commit(life)
    life.producer.abandon()
    life.producer = life.start()


def timeout(life: Life) -> None:
    """A producer hangs with a transaction open, the coordinator ends it, and another producer comes."""
    life.time_out()
    life.producer.abandon()
    life.producer = life.start()


def timed_out(life: Life) -> None:
    """The same, and nobody comes after."""
    life.time_out()


def left_open(life: Life) -> None:
    """A producer dies with a transaction open that has long to go."""
    life.open()


#: How often each comes, among a hundred.
FATES: dict[Callable[[Life], None], float] = {
    commit: 72, abort: 15, nothing: 3, offsets: 3, takeover: 3.5, reinit: 3, timeout: 0.5
}  # fmt: skip
LAST = (commit, abort, takeover, reinit, timed_out, left_open, left_open)


def live(world: World, ids: list[str], transactions: int, seed: int, threads: int = 16) -> Counter[str]:
    """Live all lives, `transactions` in total and one at least of each id; return the fates that came."""
    dice = random.Random(seed)
    amounts = Counter(ids) + Counter(dice.choices(ids, k=transactions - len(ids)))
    lives = [Life(world, name, random.Random(f"{seed} {name}")) for name in ids]
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda life: life.run(amounts[life.transactional_id]), lives), Counter())
