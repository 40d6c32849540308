"""Proves on random lives of an id that reports and markers claim nothing certain that is not true.

Reports and markers arrive as `collectors.kafka.reconcile` has them. The lives follow Kafka's rules for states
and epochs (protocol versions 0 and 2), independently of `fenceline.kafka.fold.marker_history`.
"""

import random
from dataclasses import dataclass, field

import pytest

from fenceline.facts import (
    ABORTS,
    NOT_FROM_LOG,
    NOT_REPORTED,
    OPEN_STATES,
    Confidence,
    TopicPartition,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
)
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.aggregate import fold_inferred
from fenceline.kafka.fold.folded import Folded, Prior
from fenceline.kafka.fold.marker_history import EndMarker, infer_records

START_MS, LAST_EPOCH = 1_795_000_000_000, 32_766
_PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


@dataclass(frozen=True)
class TrueEnd:
    """The decision on a transaction; `started_ms` is None for an abort of nothing."""

    started_ms: int | None
    ended_ms: int
    is_commit: bool


@dataclass
class SimulatedId:
    """An id on its coordinator: its states, each from an instant on, its markers and its true ends."""

    dice: random.Random
    version: int
    skew_ms: int
    now_ms: int = START_MS
    ends: list[TrueEnd] = field(default_factory=list)
    #: Each with the instant, by the coordinator's clock, at which it can be read.
    markers: list[tuple[int, EndMarker]] = field(default_factory=list)

    def __post_init__(self) -> None:
        epoch = self.dice.choice((3, LAST_EPOCH - 2))
        self.states = [
            TransactionRecord("pay", TransactionState.EMPTY, 7, epoch, 60_000, None, START_MS, None)
        ]
        #: In a life of long transactions alone none is missed, so that an end told twice is one too many.
        self.durations = self.dice.choice(((5, 40, 400, 1_200, 2_000), (2_000, 2_600, 4_000)))
        self.skews = [self.dice.randint(-self.skew_ms, self.skew_ms) for _ in range(3)]

    def live(self, until_ms: int) -> None:
        """Begin and end transactions until an instant."""
        while self.now_ms < until_ms:
            self.now_ms += self.dice.choice((1, 5, 300, 900, 2_500))
            self.dice.choices((self._transact, self._initialise, self._abort_nothing), (12, 2, 1))[0]()

    def state_at(self, at_ms: int) -> TransactionRecord:
        """Return what the coordinator reports at an instant."""
        return next(state for state in reversed(self.states) if state.updated_ms <= at_ms)

    def _write(self, **changes: object) -> None:
        self.states.append(self.states[-1]._replace(updated_ms=self.now_ms, **changes))  # type: ignore[arg-type]

    def _transact(self) -> None:
        if self.states[-1].producer_epoch > LAST_EPOCH:
            return self._initialise()
        where = tuple(sorted(self.dice.sample(range(3), self.dice.randint(1, 3))))
        held = (TopicPartitions("orders", where),)
        self._write(state=TransactionState.ONGOING, partitions=held, started_ms=self.now_ms)
        self.now_ms += self.dice.choice(self.durations)
        end = self.dice.choice(("commit", "commit", "abort", "timeout", "takeover"))
        self._end(end == "commit", where, by_client=end in ("commit", "abort"))
        if end == "takeover":
            self.now_ms += self.dice.choice((20, 100, 500))
            self._initialise()

    def _end(self, is_commit: bool, where: tuple[int, ...], *, by_client: bool) -> None:
        last = self.states[-1]
        epoch = last.producer_epoch + (self.version == 2 or not by_client)
        started_ms = last.started_ms if where else None
        self.ends.append(TrueEnd(started_ms, self.now_ms, is_commit))
        self._write(state=_PREPARED[is_commit], producer_epoch=epoch)
        for number in where:
            self.now_ms += self.dice.choice((1, 3, 30))
            at_ms = self.now_ms + self.skews[number]
            marker = EndMarker(
                TopicPartition("orders", number), len(self.markers), last.producer_id, epoch, is_commit, at_ms
            )
            self.markers.append((self.now_ms + self.dice.choice((0, 0, 0, 200)), marker))
        self.now_ms += 2
        new = {"producer_id": last.producer_id + 1, "producer_epoch": 0} if epoch > LAST_EPOCH else {}
        self._write(
            state=_COMPLETE[is_commit], partitions=(), **(new if self.version == 2 and by_client else {})
        )

    def _initialise(self) -> None:
        last = self.states[-1]
        new = {"producer_epoch": last.producer_epoch + 1}
        if last.producer_epoch >= LAST_EPOCH:
            new = {"producer_id": last.producer_id + 1, "producer_epoch": 0}
        self._write(state=TransactionState.EMPTY, partitions=None, started_ms=None, **new)

    def _abort_nothing(self) -> None:
        if self.version == 2 and self.states[-1].producer_epoch < LAST_EPOCH:
            self._write(partitions=(), started_ms=self.now_ms)
            self._end(False, (), by_client=True)


KEY, NOTHING_KNOWN = b"\0\0\0\0pay", Prior()


@dataclass
class Observer:
    """What reports and markers make of an id, in one poll after the other."""

    life: SimulatedId
    prior: Prior = NOTHING_KNOWN
    held: list[EndMarker] = field(default_factory=list)
    read_ms: int = 0
    found: dict[int, Transition] = field(default_factory=dict)

    def poll(self, at_ms: int, *, full: bool) -> int:
        """Read markers, then the report, then late markers where an end lacks its own; return the instant."""
        last, markers = self.prior.record, self.held + self._read(at_ms)
        at_ms += self.life.dice.choice((0, 3, 40))
        now, self.held = self.life.state_at(at_ms)._replace(updated_ms=at_ms), []
        was_open = last is not None and last.state in OPEN_STATES
        if not (full or was_open or now.state in OPEN_STATES) or _same(last, now):
            return at_ms
        if last is not None and was_open and last.producer_id not in {each.producer_id for each in markers}:
            at_ms += self.life.dice.choice((0, 3, 40))
            late = self._read(at_ms)
            markers += [each for each in late if each.producer_id == last.producer_id]
            self.held = [each for each in late if each.producer_id != last.producer_id]
        self._save(now._replace(client_version=0), markers)
        return at_ms

    def _read(self, at_ms: int) -> list[EndMarker]:
        after_ms, self.read_ms = self.read_ms, at_ms
        return [marker for seen_ms, marker in self.life.markers if after_ms < seen_ms <= at_ms]

    def _save(self, now: TransactionRecord, markers: list[EndMarker]) -> None:
        inferred = infer_records(self.prior.record, now, markers)
        folded = Folded(lives={})
        fold_inferred(folded, KEY, "pay", self.prior, inferred, now.updated_ms * 1_000)
        for entry in (folded.lives or {}).values():
            entries = transition_ring.unpack_ring(entry.after + entry.made, NOT_FROM_LOG)
            self.found |= {each.offset: each for each in entries}
        last = inferred[-1].record if inferred else self.prior.record
        version = last.client_version if isinstance(last, TransactionRecord) else NOT_REPORTED
        packed = folded.newest[KEY].packed if folded.newest else self.prior.packed
        self.prior = Prior(now.state, now._replace(client_version=version), packed=packed)


def _same(last: TransactionRecord | None, now: TransactionRecord) -> bool:
    return last is not None and now == last._replace(updated_ms=now.updated_ms, client_version=0)


def observe(life: SimulatedId, paces_ms: tuple[int, ...]) -> list[Transition]:
    """Return what is known of a minute of an id in the end."""
    life.live(START_MS + 60_000)
    observer, at_ms = Observer(life), START_MS + 100
    while at_ms < life.now_ms + 10_000:
        at_ms = observer.poll(at_ms, full=life.dice.random() < 0.1) + life.dice.choice(paces_ms)
    return list(observer.found.values())


def is_true(life: SimulatedId, told: Transition) -> bool:
    """Whether a certain transition happened as it is told."""
    if told.kind is TransitionKind.BEGIN:
        return any(state.started_ms == told.at_ms and state.partitions for state in life.states)
    if told.kind is not TransitionKind.COMMIT:
        return told.kind is TransitionKind.BASELINE
    assert told.open_ms is not None
    own = [end for end in life.ends if end.started_ms == told.at_ms - told.open_ms]
    return any(end.is_commit for end in own)


def is_end(told: Transition) -> bool:
    return told.kind is TransitionKind.COMMIT or (told.kind in ABORTS and told.open_ms is not None)


@pytest.mark.parametrize("skew_ms", [0, 200])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("paces_ms", [(1_000,), (50, 1_000, 7_000)])
def test_nothing_false_is_certain_and_no_end_is_told_twice(
    version: int, skew_ms: int, paces_ms: tuple[int, ...]
) -> None:
    for seed in range(60):
        life = SimulatedId(random.Random(f"{seed} {version} {skew_ms} {paces_ms}"), version, skew_ms)
        told = observe(life, paces_ms)
        false = [each for each in told if each.confidence is Confidence.CERTAIN and not is_true(life, each)]
        assert not false, (seed, false, life.ends)
        ends = [each for each in told if is_end(each)]
        assert len(ends) <= len(life.ends), (seed, ends, life.ends)


@pytest.mark.parametrize("version", [0, 2])
def test_transactions_of_two_seconds_are_named_with_their_ends(version: int) -> None:
    named = missed = 0
    for seed in range(50):
        life = SimulatedId(random.Random(f"{seed} {version}"), version, 0)
        told = [each for each in observe(life, (1_000,)) if is_end(each)]
        known = {each.at_ms - (each.open_ms or 0): each.kind is TransitionKind.COMMIT for each in told}
        for end in life.ends:
            if end.started_ms is not None and end.ended_ms - end.started_ms >= 2_000:
                right = known.get(end.started_ms) is end.is_commit
                named, missed = named + right, missed + (not right)
    assert named >= 9 * missed > 0 or not missed, (named, missed)
