"""Scripted random transactions whose fate is known, and how the transitions derived from the log compare.

Each life logs what truly happens to its transactional id as marks: one for every record that its
coordinator must write, but for Complete* and for further partitions of an open transaction. So truth and
log are compared record by record, and a record that the truth does not know fails the comparison itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaException

from fenceline.facts import TransactionState, TransitionKind
from sandbox.scenes.wire import CoordinatorRefused
from tests.java.clients import JavaError, JavaProducer
from tests.kafka.lives import LONG_MS, SHORT_MS, Life, World
from tests.kafka.producers import TransactionalProducer, wait_until_it_refuses
from tests.kafka.raw import RawProducer, RawProducer2
from tests.kafka.victim import kill_in_mid_transaction
from tests.waiting import wait_for

#: The topic that takes no record of more than `max.message.bytes` = 2000.
NARROW = "fates-narrow"
TOO_LARGE = "x" * 5_000


class Mark(NamedTuple):
    """What one record truly is: its state, the kind that it makes, and whose fate it belongs to."""

    state: TransactionState
    #: None where the record only completes what the one before has begun: the Empty of a takeover.
    kind: TransitionKind | None
    fate: str
    #: Of the producer that the record is about: "2", or "0/1".
    protocol: str


@dataclass
class ToldLife(Life):
    """A life that keeps a log.

    `java_speaks_2` tells whether Java and this broker speak protocol 2, `recovers` whether the broker lets a
    producer raise its own epoch while its transaction is open.
    """

    java_speaks_2: bool = True
    recovers: bool = True
    marks: list[Mark] = field(default_factory=list)
    fate: str = "birth"

    def live(self, fates: Iterable[Callable[[ToldLife], None]]) -> list[Mark]:
        """Live through these fates; return the log."""
        self.producer = self.start()
        self.mark(TransactionState.EMPTY, TransitionKind.INIT)
        for fate in fates:
            self.fate = fate.__name__
            fate(self)
        self.producer.abandon()
        return self.marks

    @property
    def protocol(self) -> str:
        """Which transaction protocol the producer of the moment speaks."""
        speaks = isinstance(self.producer, JavaProducer | RawProducer2)
        return "2" if self.java_speaks_2 and speaks else "0/1"

    def mark(self, state: TransactionState, kind: TransitionKind | None, protocol: str = "") -> None:
        """Log a record."""
        self.marks.append(Mark(state, kind, self.fate, protocol or self.protocol))

    def go_on_with(self, producer: TransactionalProducer) -> None:
        """Initialise a producer while nothing is open; the one before is gone."""
        producer.init()
        self.mark(TransactionState.EMPTY, TransitionKind.REINIT)
        self.producer = producer

    def again(self, timeout_ms: int = LONG_MS) -> None:
        """The producer is gone, and another one comes while nothing is open."""
        self.producer.abandon()
        self.go_on_with(self.make(timeout_ms))

    def opened(self) -> None:
        """Open a transaction."""
        self.open()
        self.mark(TransactionState.ONGOING, TransitionKind.BEGIN)

    def aborted_for(self, kind: TransitionKind, protocol: str = "") -> None:
        """The coordinator aborted what was open, and wrote what it gave to whoever asked for that."""
        self.mark(TransactionState.PREPARE_ABORT, kind, protocol)
        self.mark(TransactionState.EMPTY, None, protocol)

    def wait_until(self, state: str) -> None:
        """Wait until the coordinator has the id in this state."""
        wait_for(lambda: self.state() == state, f"{self.transactional_id} is {state}")


def commit(life: ToldLife) -> None:
    """The usual end."""
    life.opened()
    life.producer.commit()
    life.mark(TransactionState.PREPARE_COMMIT, TransitionKind.COMMIT)


def abort(life: ToldLife) -> None:
    """The client's own abort."""
    life.opened()
    life.producer.abort()
    life.mark(TransactionState.PREPARE_ABORT, TransitionKind.CLIENT_ABORT)


def empty(life: ToldLife) -> None:
    """A transaction without a record, which leaves none either."""
    life.producer.begin()
    life.producer.commit()


def empty_abort(life: ToldLife) -> None:
    """A client of protocol 2 aborts before a record has left; without it the coordinator never hears.

    Spoken raw: Java's sender may get the record out in the very moment of the abort.
    """
    if not life.java_speaks_2:
        life.producer.begin()
        life.producer.abort()
        return
    life.producer.abandon()
    raw = RawProducer(life.world.bootstrap, life.transactional_id, LONG_MS)
    life.go_on_with(raw)
    raw.abort_nothing()
    life.mark(TransactionState.PREPARE_ABORT, TransitionKind.EMPTY_ABORT, "2")
    life.again()


def reinit(life: ToldLife) -> None:
    """A producer ends its transaction either way, and at once another one comes."""
    life.dice.choice((commit, abort))(life)
    life.again()


def takeover(life: ToldLife) -> None:
    """Another producer initialises while a transaction is open; now and then the first one tries to go on."""
    life.opened()
    zombie, producer = life.producer, life.make()
    producer.init()
    life.aborted_for(TransitionKind.TAKEOVER)
    if life.dice.random() < 0.5:
        with suppress(JavaError, KafkaException):
            zombie.commit()
            raise AssertionError(f"{life.transactional_id}: a zombie could commit")
    zombie.abandon()
    life.producer = producer


def takeover_and_gone(life: ToldLife) -> None:
    """Somebody asks once while a transaction is open and never again; a producer comes after all is over."""
    life.opened()
    stranger = RawProducer(life.world.bootstrap, life.transactional_id)
    with suppress(CoordinatorRefused):
        stranger.init_once()
        raise AssertionError(f"{life.transactional_id}: initialised while a transaction was open")
    stranger.abandon()
    life.wait_until("CompleteAbort")
    life.mark(TransactionState.PREPARE_ABORT, TransitionKind.TAKEOVER)
    life.again()


def kill(life: ToldLife) -> None:
    """A process is killed in mid-transaction, and another instance comes."""
    life.producer.abandon()
    kill_in_mid_transaction(life.world.bootstrap, life.transactional_id, life.world.topics[0], LONG_MS)
    life.mark(TransactionState.EMPTY, TransitionKind.REINIT)
    life.producer = life.start()
    # The victim was librdkafka's, whatever comes after it.
    life.mark(TransactionState.ONGOING, TransitionKind.BEGIN, "0/1")
    life.aborted_for(TransitionKind.TAKEOVER, "0/1")


def timeout(life: ToldLife) -> None:
    """A producer hangs with a transaction open, the coordinator ends it, and another producer comes."""
    life.again(SHORT_MS)
    # On a busy machine the coordinator may be there before the last record is.
    with suppress(JavaError, KafkaException):
        life.open()
    life.wait_until("CompleteAbort")
    life.mark(TransactionState.ONGOING, TransitionKind.BEGIN)
    life.mark(TransactionState.PREPARE_ABORT, TransitionKind.TIMEOUT)
    life.again()


def fence(life: ToldLife) -> None:
    """Admin.fenceProducers in mid-transaction; later another producer comes."""
    life.opened()
    life.world.admin.fence_producers([life.transactional_id])
    life.aborted_for(TransitionKind.ADMIN_FENCE)
    life.again()


def fence_idle(life: ToldLife) -> None:
    """Admin.fenceProducers while nothing is open; later another producer comes."""
    life.world.admin.fence_producers([life.transactional_id])
    life.mark(TransactionState.EMPTY, TransitionKind.ADMIN_FENCE)
    life.again()


def recovery(life: ToldLife) -> None:
    """A record is refused, and the client aborts; Java without protocol 2 then raises its epoch (KIP-360)."""
    life.opened()
    life.producer.send(NARROW, 0, TOO_LARGE)
    wait_until_it_refuses(life.producer, life.world.topics[0])
    life.producer.abort()
    life.mark(TransactionState.PREPARE_ABORT, TransitionKind.CLIENT_ABORT)
    if isinstance(life.producer, JavaProducer) and life.protocol != "2":
        life.wait_until("Empty")
        life.mark(TransactionState.EMPTY, TransitionKind.REINIT)


def self_recovery(life: ToldLife) -> None:
    """A producer raises its own epoch while its transaction is open (KIP-360), and goes on.

    No library does so any more, and Kafka 3.9 and 4.0.0 refuse: there it is a recovery.
    """
    if not life.recovers:
        recovery(life)
        return
    life.producer.abandon()
    raw = RawProducer(life.world.bootstrap, life.transactional_id, LONG_MS)
    life.go_on_with(raw)
    life.opened()
    raw.recover()
    life.aborted_for(TransitionKind.SELF_RECOVERY)
    commit(life)
    life.again()


def speak_2(life: ToldLife, timeout_ms: int = LONG_MS) -> bool:
    """Go on with a producer of transaction version 2, Java's or as quick as franz-go, where brokers do."""
    life.producer.abandon()
    if not life.java_speaks_2:
        life.go_on_with(life.make(timeout_ms))
        return False
    where = life.world.bootstrap, life.transactional_id
    settings = {"transaction.timeout.ms": str(timeout_ms), "linger.ms": "0"}
    java = life.dice.random() < 0.5
    life.go_on_with(
        JavaProducer(life.world.gateway, *where, settings) if java else RawProducer2(*where, timeout_ms)
    )
    return True


def open_one(life: ToldLife) -> None:
    """Open a transaction by one record."""
    life.producer.begin()
    life.producer.send(life.world.topics[0], life.dice.randrange(3))
    life.producer.flush()


def late_abort(life: ToldLife) -> None:
    """A producer of version 2 aborts after the coordinator has, is answered with success, and goes on.

    Its next transaction times out, too: so it does on a busy machine, whatever we do.
    """
    speaks_2 = speak_2(life, SHORT_MS)
    time_out(life)
    if speaks_2:
        life.producer.abort()
        time_out(life)
    life.again()


def time_out(life: ToldLife) -> None:
    """Open a transaction, and wait until the coordinator has aborted it."""
    # On a busy machine the coordinator may be there before the answer is.
    with suppress(JavaError, KafkaException, CoordinatorRefused):
        open_one(life)
    life.wait_until("CompleteAbort")
    life.mark(TransactionState.ONGOING, TransitionKind.BEGIN)
    life.mark(TransactionState.PREPARE_ABORT, TransitionKind.TIMEOUT)


def foreign_init(life: ToldLife) -> None:
    """Somebody initialises once in mid-transaction; a producer of version 2 then aborts, and goes on."""
    speaks_2 = speak_2(life)
    open_one(life)
    life.mark(TransactionState.ONGOING, TransitionKind.BEGIN)
    stranger = RawProducer(life.world.bootstrap, life.transactional_id)
    with suppress(CoordinatorRefused):
        stranger.init_once()
        raise AssertionError(f"{life.transactional_id}: initialised while a transaction was open")
    stranger.abandon()
    life.wait_until("CompleteAbort")
    life.mark(TransactionState.PREPARE_ABORT, TransitionKind.TAKEOVER)
    if speaks_2:
        life.producer.abort()
        open_one(life)
        life.mark(TransactionState.ONGOING, TransitionKind.BEGIN)
        life.producer.commit()
        life.mark(TransactionState.PREPARE_COMMIT, TransitionKind.COMMIT)
    life.again()


def quick_takeover(life: ToldLife) -> None:
    """A takeover by a client that retries as soon as franz-go does."""
    speaks_2 = speak_2(life)
    open_one(life)
    life.mark(TransactionState.ONGOING, TransitionKind.BEGIN)
    rival = (RawProducer2 if speaks_2 else RawProducer)(life.world.bootstrap, life.transactional_id)
    rival.init_as_franz_go()
    life.aborted_for(TransitionKind.TAKEOVER)
    life.producer.abandon()
    life.producer = rival
    life.again()


#: How many of a hundred; at least one of each is dealt.
FATES: Mapping[Callable[[ToldLife], None], float] = {
    commit: 31, abort: 16, late_abort: 3, foreign_init: 3, quick_takeover: 3, empty: 2,
    empty_abort: 3, reinit: 10, takeover: 12, takeover_and_gone: 3,
    kill: 2, timeout: 3, fence: 4, fence_idle: 2, recovery: 2, self_recovery: 1,
}  # fmt: skip


def deal(amount: int, dice: random.Random) -> list[Callable[[ToldLife], None]]:
    """Return so many fates in random order, each in its share and at least once."""
    dealt = [fate for fate, share in FATES.items() for _ in range(max(1, int(amount * share / 100)))]
    dealt += dice.choices(list(FATES), list(FATES.values()), k=max(0, amount - len(dealt)))
    dice.shuffle(dealt)
    return dealt


def live(
    world: World,
    ids: list[str],
    amount: int,
    seed: int,
    *,
    java_speaks_2: bool,
    recovers: bool,
    threads: int = 16,
) -> dict[str, list[Mark]]:
    """Live `amount` transactions under these ids; return each id's log."""
    fates = deal(amount, random.Random(seed))
    lives = [
        ToldLife(world, name, random.Random(f"{seed} {name}"), java_speaks_2=java_speaks_2, recovers=recovers)
        for name in ids
    ]
    with ThreadPoolExecutor(threads) as pool:
        logs = pool.map(lambda number: lives[number].live(fates[number :: len(ids)]), range(len(ids)))
        return dict(zip(ids, logs, strict=True))
