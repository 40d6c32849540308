"""Generated scenarios of one partition each, with the truth about what is open in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaException, Producer
from py4j.java_gateway import JavaGateway

from dashboard.runtime import loop
from fenceline.kafka.partitions import PartitionVerdict, VerdictReason
from sandbox.kafka import Broker
from sandbox.scenes.wire import Identity
from tests.java.clients import JavaAdmin, JavaError, JavaProducer
from tests.kafka.killed_producer import kill_in_mid_transaction
from tests.kafka.producers import LibrdkafkaProducer, TransactionalProducer
from tests.kafka.random_transactions import LONG_MS, SHORT_MS
from tests.kafka.raw_producers import RawProducer
from tests.kafka.stray_records import identity_of, write_stray_records
from tests.waiting import wait_for

MINUTE_MS = 60_000
OWNED = PartitionVerdict.OPEN, VerdictReason.OWNED
NOT_ITS = PartitionVerdict.HANGING, VerdictReason.NOT_ITS_PARTITION
NO_PRODUCER = PartitionVerdict.HANGING, VerdictReason.NO_SUCH_PRODUCER

#: What is open in the partition: transactional id, verdict and ground of each, the first in the log first.
Truth = list[tuple[str, PartitionVerdict, VerdictReason]]


@dataclass
class PartitionScenario:
    """A partition and an id of its own. Its randomness is its own, whatever other threads do."""

    broker: Broker
    gateway: JavaGateway
    admin: JavaAdmin
    topic: str
    number: int
    dice: random.Random
    #: Partitions that this one's id may write to as well.
    elsewhere: str
    kind: str = ""
    truth: Truth = field(default_factory=list)
    #: Producers that live on: what is open stays open.
    alive: list[TransactionalProducer] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The transactional id, and how further ones begin."""
        return f"{self.topic}-{self.number}"

    @property
    def where(self) -> tuple[str, int]:
        """The partition."""
        return self.topic, self.number

    def play(self, kind: Callable[[PartitionScenario], None]) -> PartitionScenario:
        """Bring it about."""
        self.kind = kind.__name__
        kind(self)
        return self

    def producer(self, name: str = "", timeout_ms: int = LONG_MS) -> TransactionalProducer:
        """Return an initialised producer of either library."""
        settings = {"transaction.timeout.ms": str(timeout_ms), "linger.ms": "0"}
        where = self.broker.bootstrap, name or self.name, settings
        made: TransactionalProducer
        java = self.dice.random() < 0.5
        made = JavaProducer(self.gateway, *where) if java else LibrdkafkaProducer(*where)
        made.init()
        return made

    def open(self, name: str = "") -> TransactionalProducer:
        """Open a transaction here; it may have ended others here or elsewhere before, and may block more."""
        producer = self.producer(name)
        for _ in range(self.dice.randrange(3)):
            self.transact(producer, self.dice.choice([self.where, (self.elsewhere, 0)]))
            producer.commit() if self.dice.random() < 0.7 else producer.abort()
        self.transact(producer, self.where)
        if self.dice.random() < 0.3:
            producer.send(self.elsewhere, 1)
            producer.flush()
        self.alive.append(producer)
        return producer

    def transact(self, producer: TransactionalProducer, where: tuple[str, int]) -> None:
        """Begin a transaction and write to a partition."""
        producer.begin()
        for _ in range(self.dice.randint(1, 3)):
            producer.send(*where)
        producer.flush()

    def identity(self) -> Identity:
        """What its coordinator has given to the id's producer now."""
        said = self.admin.describe_transactions([self.name])[self.name]
        return Identity(said.producer_id, said.producer_epoch)

    def wait_until(self, state: str) -> None:
        """Wait until the coordinator has the id in this state."""
        wait_for(
            lambda: self.admin.describe_transactions([self.name])[self.name].state == state,
            f"{self.name} is {state}",
            60,
        )

    def stray(self, given: Identity, name: str = "", **more: int) -> None:
        """Write records of a transaction that is unknown to every coordinator."""
        records = self.dice.randint(1, 3)
        write_stray_records(self.broker, name or self.name, given, self.where, records=records, **more)


# With verification on, as brokers are by default.


def untouched(it: PartitionScenario) -> None:
    """Nothing at all, or a producer without transactions."""
    if it.dice.random() < 0.5:
        plain = Producer({"bootstrap.servers": it.broker.bootstrap, "enable.idempotence": True})
        plain.produce(it.topic, b"x", partition=it.number)
        plain.flush(30)


def opened(it: PartitionScenario) -> None:
    """A transaction is open, and its producer is running."""
    it.open()
    it.truth = [(it.name, *OWNED)]


def abandoned(it: PartitionScenario) -> None:
    """A transaction is open, and its producer is not running."""
    it.open().abandon()
    it.truth = [(it.name, *OWNED)]


def killed(it: PartitionScenario) -> None:
    """Another process was killed with SIGKILL while it had one open."""
    kill_in_mid_transaction(it.broker.bootstrap, it.name, it.topic, LONG_MS, it.number)
    it.truth = [(it.name, *OWNED)]


def ended(it: PartitionScenario) -> None:
    """Transactions were committed or aborted."""
    producer = it.open()
    producer.commit() if it.dice.random() < 0.5 else producer.abort()


def timed_out(it: PartitionScenario) -> None:
    """Its coordinator ended it."""
    producer = it.producer(timeout_ms=SHORT_MS)
    # On a busy machine the coordinator may be there before the last record is.
    with suppress(JavaError, KafkaException):
        it.transact(producer, it.where)
    it.wait_until("CompleteAbort")
    producer.abandon()


def taken_over(it: PartitionScenario) -> None:
    """Another producer ended it; now and then that one has one open itself."""
    it.open()
    if it.dice.random() < 0.5:
        it.open()
        it.truth = [(it.name, *OWNED)]
    else:
        it.alive.append(it.producer())


def two(it: PartitionScenario) -> None:
    """Two ids have one open here."""
    names = [it.name, f"{it.name}-other"]
    for name in names:
        it.open(name)
    it.truth = [(name, *OWNED) for name in names]


# With verification off: what brokers before 3.6 took from requests that came too late.


def hanging_from_nothing(it: PartitionScenario) -> None:
    """The id has nothing open."""
    it.stray(identity_of(it.broker, it.name))
    it.truth = [(it.name, *NOT_ITS)]


def hanging_after_an_end(it: PartitionScenario) -> None:
    """A record comes after its transaction's commit or abort, with the epoch that it had before."""
    producer = it.producer()
    it.transact(producer, (it.elsewhere, 0))
    given = it.identity()
    producer.commit() if it.dice.random() < 0.5 else producer.abort()
    it.stray(given)
    it.truth = [(it.name, *NOT_ITS)]
    it.alive.append(producer)


def hanging_after_a_timeout(it: PartitionScenario) -> None:
    """A record comes after its coordinator has ended the transaction."""
    producer = it.producer(timeout_ms=SHORT_MS)
    given = it.identity()
    with suppress(JavaError, KafkaException):
        it.transact(producer, (it.elsewhere, 0))
    it.wait_until("CompleteAbort")
    it.stray(given)
    it.truth = [(it.name, *NOT_ITS)]


def hanging_after_a_takeover(it: PartitionScenario) -> None:
    """A zombie's record comes after another producer has taken its id over and continues elsewhere."""
    zombie = it.producer()
    given = it.identity()
    owner = it.producer()
    it.transact(owner, (it.elsewhere, 2))
    it.stray(given)
    it.truth = [(it.name, *NOT_ITS)]
    it.alive += [zombie, owner]


def hanging_with_another_elsewhere(it: PartitionScenario) -> None:
    """The id has another transaction open, with the same epoch, and this partition is none of its own."""
    producer = it.producer()
    it.transact(producer, (it.elsewhere, it.dice.randrange(3)))
    it.stray(it.identity())
    it.truth = [(it.name, *NOT_ITS)]
    it.alive.append(producer)


def hanging_of_an_unknown_producer(it: PartitionScenario) -> None:
    """No id has the producer id, as when it expired."""
    it.stray(Identity(900_000_000_000 + it.dice.getrandbits(30), it.dice.randrange(9)))
    it.truth = [("", *NO_PRODUCER)]


def hanging_backdated(it: PartitionScenario) -> None:
    """Its producer's clock is behind, by less than the hour that the test broker keeps records."""
    given = identity_of(it.broker, it.name)
    it.stray(given, stamped_ms=loop.now_ms() - it.dice.randint(1, 30) * MINUTE_MS)
    it.truth = [(it.name, *NOT_ITS)]


def hanging_dated_ahead(it: PartitionScenario) -> None:
    """Its producer's clock is ahead: brokers take what is dated ahead for up to an hour."""
    given = identity_of(it.broker, it.name)
    it.stray(given, stamped_ms=loop.now_ms() + it.dice.randint(40, 55) * MINUTE_MS)
    it.truth = [(it.name, *NOT_ITS)]


def adopted(it: PartitionScenario) -> None:
    """A record came before its partition was added, and then that was: the end will end it too."""
    given = identity_of(it.broker, it.name, LONG_MS)
    it.stray(given)
    RawProducer(it.broker.bootstrap, it.name, LONG_MS, given).send(*it.where)
    it.truth = [(it.name, *OWNED)]


def hanging_behind_an_open_one(it: PartitionScenario) -> None:
    """An open one blocks the LSO, and one behind it hangs."""
    it.open()
    other = f"{it.name}-other"
    it.stray(identity_of(it.broker, other), other)
    it.truth = [(it.name, *OWNED), (other, *NOT_ITS)]


def open_behind_a_hanging_one(it: PartitionScenario) -> None:
    """One that hangs blocks the LSO, and an open one is behind it."""
    other = f"{it.name}-other"
    it.stray(identity_of(it.broker, other), other)
    it.open()
    it.truth = [(other, *NOT_ITS), (it.name, *OWNED)]


VERIFIED: Sequence[Callable[[PartitionScenario], None]] = (
    untouched, opened, abandoned, killed, ended, timed_out, taken_over, two,
)  # fmt: skip
UNVERIFIED: Sequence[Callable[[PartitionScenario], None]] = (
    *VERIFIED, hanging_from_nothing, hanging_after_an_end, hanging_after_a_timeout, hanging_after_a_takeover,
    hanging_with_another_elsewhere, hanging_of_an_unknown_producer, hanging_backdated, hanging_dated_ahead,
    adopted, hanging_behind_an_open_one, open_behind_a_hanging_one,
)  # fmt: skip
