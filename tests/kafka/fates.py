"""Scripted random transactions whose fate is known, and how the transitions derived from the log compare.

Each life logs what truly happens to its transactional id as marks: one for every record that its
coordinator must write, but for Complete* and for further partitions of an open transaction. So truth and
log are compared record by record, and a record that the truth does not know fails the comparison itself.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from confluent_kafka import KafkaException

from fenceline.decode.transaction_state import decode
from fenceline.facts import ABORTS, Confidence, Kind, State, TransactionRecord, Transition
from fenceline.transitions import Life as Folded
from fenceline.transitions import derive, lived
from sandbox.wire import Refused
from tests.java.clients import JavaError, JavaProducer
from tests.kafka.lives import LONG_MS, SHORT_MS, Life, World
from tests.kafka.observe import RawRecord
from tests.kafka.producers import TransactionalProducer, wait_until_it_refuses
from tests.kafka.raw import RawProducer
from tests.kafka.victim import kill_in_mid_transaction
from tests.waiting import wait_for

#: The topic that takes no record of more than `max.message.bytes` = 2000.
NARROW = "fates-narrow"
TOO_LARGE = "x" * 5_000


class Mark(NamedTuple):
    """What one record truly is: its state, the kind that it makes, and whose fate it belongs to."""

    state: State
    #: None where the record only completes what the one before has begun: the Empty of a takeover.
    kind: Kind | None
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
        self.mark(State.EMPTY, Kind.INIT)
        for fate in fates:
            self.fate = fate.__name__
            fate(self)
        self.producer.abandon()
        return self.marks

    @property
    def protocol(self) -> str:
        """Which transaction protocol the producer of the moment speaks."""
        return "2" if self.java_speaks_2 and isinstance(self.producer, JavaProducer) else "0/1"

    def mark(self, state: State, kind: Kind | None, protocol: str = "") -> None:
        """Log a record."""
        self.marks.append(Mark(state, kind, self.fate, protocol or self.protocol))

    def go_on_with(self, producer: TransactionalProducer) -> None:
        """Initialise a producer while nothing is open; the one before is gone."""
        producer.init()
        self.mark(State.EMPTY, Kind.REINIT)
        self.producer = producer

    def again(self, timeout_ms: int = LONG_MS) -> None:
        """The producer is gone, and another one comes while nothing is open."""
        self.producer.abandon()
        self.go_on_with(self.make(timeout_ms))

    def opened(self) -> None:
        """Open a transaction."""
        self.open()
        self.mark(State.ONGOING, Kind.BEGIN)

    def aborted_for(self, kind: Kind, protocol: str = "") -> None:
        """The coordinator aborted what was open, and wrote what it gave to whoever asked for that."""
        self.mark(State.PREPARE_ABORT, kind, protocol)
        self.mark(State.EMPTY, None, protocol)

    def wait_until(self, state: str) -> None:
        """Wait until the coordinator has the id in this state."""
        wait_for(lambda: self.state() == state, f"{self.transactional_id} is {state}")


def commit(life: ToldLife) -> None:
    """The usual end."""
    life.opened()
    life.producer.commit()
    life.mark(State.PREPARE_COMMIT, Kind.COMMIT)


def abort(life: ToldLife) -> None:
    """The client's own abort."""
    life.opened()
    life.producer.abort()
    life.mark(State.PREPARE_ABORT, Kind.CLIENT_ABORT)


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
    life.mark(State.PREPARE_ABORT, Kind.EMPTY_ABORT, "2")
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
    life.aborted_for(Kind.TAKEOVER)
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
    with suppress(Refused):
        stranger.init_once()
        raise AssertionError(f"{life.transactional_id}: initialised while a transaction was open")
    stranger.abandon()
    life.wait_until("CompleteAbort")
    life.mark(State.PREPARE_ABORT, Kind.TAKEOVER)
    life.again()


def kill(life: ToldLife) -> None:
    """A process is killed in mid-transaction, and another instance comes."""
    life.producer.abandon()
    kill_in_mid_transaction(life.world.bootstrap, life.transactional_id, life.world.topics[0], LONG_MS)
    life.mark(State.EMPTY, Kind.REINIT)
    life.producer = life.start()
    # The victim was librdkafka's, whatever comes after it.
    life.mark(State.ONGOING, Kind.BEGIN, "0/1")
    life.aborted_for(Kind.TAKEOVER, "0/1")


def timeout(life: ToldLife) -> None:
    """A producer hangs with a transaction open, the coordinator ends it, and another producer comes."""
    life.again(SHORT_MS)
    # On a busy machine the coordinator may be there before the last record is.
    with suppress(JavaError, KafkaException):
        life.open()
    life.wait_until("CompleteAbort")
    life.mark(State.ONGOING, Kind.BEGIN)
    life.mark(State.PREPARE_ABORT, Kind.TIMEOUT)
    life.again()


def fence(life: ToldLife) -> None:
    """Admin.fenceProducers in mid-transaction; later another producer comes."""
    life.opened()
    life.world.admin.fence_producers([life.transactional_id])
    life.aborted_for(Kind.ADMIN_FENCE)
    life.again()


def fence_idle(life: ToldLife) -> None:
    """Admin.fenceProducers while nothing is open; later another producer comes."""
    life.world.admin.fence_producers([life.transactional_id])
    life.mark(State.EMPTY, Kind.ADMIN_FENCE)
    life.again()


def recovery(life: ToldLife) -> None:
    """A record is refused, and the client aborts; Java without protocol 2 then raises its epoch (KIP-360)."""
    life.opened()
    life.producer.send(NARROW, 0, TOO_LARGE)
    wait_until_it_refuses(life.producer, life.world.topics[0])
    life.producer.abort()
    life.mark(State.PREPARE_ABORT, Kind.CLIENT_ABORT)
    if isinstance(life.producer, JavaProducer) and life.protocol != "2":
        life.wait_until("Empty")
        life.mark(State.EMPTY, Kind.REINIT)


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
    life.aborted_for(Kind.SELF_RECOVERY)
    commit(life)
    life.again()


#: How many of a hundred; at least one of each is dealt.
FATES: Mapping[Callable[[ToldLife], None], float] = {
    commit: 40, abort: 16, empty: 2, empty_abort: 3, reinit: 10, takeover: 12, takeover_and_gone: 3,
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


class Verdict(NamedTuple):
    """What was derived of one marked record."""

    mark: Mark
    told: Transition | None
    #: "certain" or "probable" where it is right, "ambiguous" whatever it is, else "wrong".
    is_: str
    #: Whether the log can tell, by kafka.md §0.
    can_tell: bool
    where: str

    def __str__(self) -> str:
        told = f"{self.told.confidence} {self.told.kind} ({self.told.reason})" if self.told else "nothing"
        return f"{self.where}: {self.mark.kind} of {self.mark.fate}, protocol {self.mark.protocol}: {told}"


class Seen(NamedTuple):
    """A record, and what is derived of it in the end, after every revision."""

    record: TransactionRecord
    told: Transition | None


def judge(logs: Mapping[str, list[Mark]], records: Iterable[RawRecord]) -> list[Verdict]:
    """Compare the logs with the transitions that the records of `__transaction_state` give.

    Raises AssertionError where the records are not those that the log knows of.
    """
    by_id: dict[str, list[Seen]] = defaultdict(list)
    for seen in _derived(sorted(records), set(logs)):
        by_id[seen.record.transactional_id].append(seen)
    return [verdict for name, marks in logs.items() for verdict in _judged(name, marks, by_id[name])]


def _derived(records: Iterable[RawRecord], names: set[str]) -> Iterator[Seen]:
    lives: dict[str, Folded] = defaultdict(Folded)
    found: dict[tuple[int, int], TransactionRecord] = {}
    told: dict[tuple[int, int], Transition] = {}
    for raw in records:
        record = decode(raw.key, raw.value)
        if isinstance(record, TransactionRecord) and record.transactional_id in names:
            life = lives[record.transactional_id]
            step = derive(life, record, raw.partition, raw.offset, whole=True)
            lives[record.transactional_id] = lived(life, record, step)
            found[raw.partition, raw.offset] = record
            told |= {(each.partition, each.offset): each for each in step if each is not None}
    for at, record in found.items():
        yield Seen(record, told.get(at))


def _judged(name: str, marks: list[Mark], seen: list[Seen]) -> Iterator[Verdict]:
    """Compare one id's log with its records."""
    telling = [each for last, each in zip([None, *seen], seen, strict=False) if _is_marked(last, each)]
    states = [each.record.state for each in telling]
    common = list(takewhile(lambda pair: pair[0].state == pair[1], zip(marks, states, strict=False)))
    context = slice(max(0, len(common) - 5), len(common) + 5)
    assert len(common) == len(marks) == len(states), (
        f"{name}, record {len(common)}: the log knows of {[tuple(mark) for mark in marks[context]]}, "
        f"the coordinator wrote {[each.record for each in telling[context]]}"
    )
    before = None
    for number, (mark, each) in enumerate(zip(marks, telling, strict=True)):
        after = marks[number + 1] if number + 1 < len(marks) else None
        is_, can = _right(mark, each.told, before), _can_tell(mark, each.told, before, after)
        # Where nothing was told, all was said of the abort before.
        told = each.told or (before and before.told)
        before = Verdict(mark, told, is_, can, f"{name} at {each.record.updated_ms}")
        yield before


def _is_marked(last: Seen | None, each: Seen) -> bool:
    further = last is not None and last.record.state is each.record.state is State.ONGOING
    return each.record.state not in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT) and not further


def _right(mark: Mark, told: Transition | None, before: Verdict | None) -> str:
    """Judge what was told of a mark, given the verdict on the mark before it."""
    if told is not None:
        right = str(told.confidence) if told.kind is mark.kind else "wrong"
        return "ambiguous" if told.confidence is Confidence.AMBIGUOUS else right
    if mark.kind is None and before is not None:
        return before.is_
    # An initialisation that was taken for the end of the abort before it.
    merged = before is not None and (before.is_ == "ambiguous" or before.mark.kind is Kind.TAKEOVER)
    return "ambiguous" if mark.kind is Kind.REINIT and merged else "wrong"


def _can_tell(mark: Mark, told: Transition | None, before: Verdict | None, after: Mark | None) -> bool:
    """Whether the log can tell a mark from every other.

    It cannot where somebody initialises an id and what goes before may or may not have made it wait: after
    a protocol 2 client's end (unless that client goes on), and after a takeover by somebody who never came
    back.
    """
    if mark.kind is None or (mark.kind is Kind.REINIT and before and before.mark.kind in ABORTS):
        return before is not None and before.can_tell and before.mark.fate != "takeover_and_gone"
    if mark.kind not in ABORTS:
        return True
    if mark.kind is Kind.TIMEOUT:
        return True
    goes_on = mark.kind is Kind.CLIENT_ABORT and after is not None and after.state is not State.EMPTY
    return mark.protocol != "2" or goes_on or mark.kind is Kind.SELF_RECOVERY


def table(verdicts: Iterable[Verdict]) -> str:
    """Return the shares per fate, kind and protocol as text, but for the begins."""
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for mark, _, is_, _, _ in verdicts:
        if mark.kind not in (None, Kind.BEGIN):
            counts[mark.fate, str(mark.kind), mark.protocol][is_] += 1
    words = "certain", "probable", "ambiguous", "wrong"
    heads = f"{'fate':<18}{'kind':<15}{'protocol':<9}{'records':>8}"
    lines = [heads + "".join(f"{word:>11}" for word in words)]
    for (fate, kind, protocol), found in sorted(counts.items()):
        shares = "".join(f"{found[word] / found.total():>11.1%}" for word in words)
        lines.append(f"{fate:<18}{kind:<15}{protocol:<9}{found.total():>8}{shares}")
    return "\n".join(lines)
