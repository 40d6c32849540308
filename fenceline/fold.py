"""Many records -> what is worth keeping of them: newest states, transitions, counters. One pass per id.

Folding is a pure function of the records and of what was known before, and it does not matter where a
stream of records is cut: folding twice, the second time with what the first one left, gives what folding
once gives (tests/fenceline/test_fold.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline import recent
from fenceline.applications import application_of
from fenceline.decode.transaction_state import decode_key, decode_value
from fenceline.facts import (
    EVERYDAY,
    Kind,
    RawRecord,
    Records,
    State,
    Tombstone,
    TransactionRecord,
    Transition,
    Undecoded,
)
from fenceline.histograms import Histogram, bucket_of
from fenceline.transitions import Life, derive, lived

MINUTE_MS = 60_000


class Prior(NamedTuple):
    """What was known of an id before these records.

    `record` is None where its last record is not known; `state` is what is shown of it all the same, None
    where nothing is. `packed` are its last transitions (`fenceline.recent`).
    """

    state: State | None = None
    record: TransactionRecord | None = None
    offset: int = -1
    packed: bytes = b""


class Newest(NamedTuple):
    """What is known of an id now."""

    transactional_id: str
    application: str
    #: None when the coordinator forgot it, at `expired_ms`.
    record: TransactionRecord | None
    expired_ms: int | None
    partition: int
    offset: int
    packed: bytes


class Told(NamedTuple):
    """A notable transition, new or revised; `revised_from` is what it was, "" where the verdict stands."""

    key: bytes
    transactional_id: str
    application: str
    transition: Transition
    revised_from: str = ""


@dataclass(slots=True)
class Tally:
    """What happened to an application in one minute; counts below zero take back a revised verdict."""

    counts: dict[Kind, int] = field(default_factory=dict)
    #: Begin to decision, and decision to the last marker, of commits.
    open_times: Histogram = field(default_factory=dict)
    marker_times: Histogram = field(default_factory=dict)

    def count(self, kind: Kind, by: int = 1) -> None:
        """Count one transition, or take one back."""
        self.counts[kind] = self.counts.get(kind, 0) + by


@dataclass(slots=True)
class Folded:
    """What a fold found: everything that must be saved with the positions it read to."""

    #: By the key's raw bytes.
    newest: dict[bytes, Newest] = field(default_factory=dict)
    #: By the record's place, so that a verdict made and revised in one fold is told once.
    told: dict[tuple[int, int], Told] = field(default_factory=dict)
    #: By application and start of the minute.
    tallies: dict[tuple[str, int], Tally] = field(default_factory=dict)
    #: By how much the number of ids in each state changed.
    states: Counter[State] = field(default_factory=Counter)
    undecoded: Counter[str] = field(default_factory=Counter)
    #: The first record of each reason that could not be decoded: where it lies, and what is wrong with it.
    strange: dict[str, tuple[int, int, str]] = field(default_factory=dict)


def fold(
    folded: Folded, partition: int, records: Records, priors: Mapping[bytes, Prior], holes: Sequence[int]
) -> None:
    """Fold the records of one partition onto what was known of their ids; `folded` grows by what is found.

    `priors` are by key. `holes` are the first offsets after stretches that compaction had removed before we
    came, ascending; of those before what `priors` know, the last is enough. Never raises: what cannot be
    decoded is counted by reason.
    """
    for key, raws in records.items():
        name = decode_key(key)
        if isinstance(name, Undecoded):
            for raw in raws:
                _count_undecoded(folded, name, partition, raw.offset)
        else:
            _IdFold(folded, partition, key, name, priors.get(key, _UNKNOWN)).run(raws, holes)


_UNKNOWN = Prior()
_FORGOTTEN = Life()


class _IdFold:
    """The fold of one id's records."""

    __slots__ = ("application", "folded", "fresh", "key", "name", "offset", "older", "partition", "prior")

    def __init__(self, folded: Folded, partition: int, key: bytes, name: str, prior: Prior) -> None:
        self.folded, self.partition, self.key, self.name, self.prior = folded, partition, key, name, prior
        self.application = application_of(name).application
        self.offset = prior.offset
        #: Transitions made here, oldest first; `older` holds those from before.
        self.fresh: list[Transition] = []
        self.older = prior.packed

    def run(self, raws: Sequence[RawRecord], holes: Sequence[int]) -> None:
        """Fold all of them, and note what is known of the id then."""
        life = Life(self.prior.record, recent.newest(self.older, self.partition))
        found: TransactionRecord | Tombstone | None = None
        for value, offset, at_ms in raws:
            record = Tombstone(self.name, at_ms) if value is None else decode_value(self.name, value)
            if isinstance(record, Undecoded):
                _count_undecoded(self.folded, record, self.partition, offset)
                continue
            if holes and any(self.offset < hole <= offset for hole in holes):
                life = _FORGOTTEN
            whole = not holes or offset < holes[0]
            step = derive(life, record, self.partition, offset, whole=whole)
            if step.revised is not None and life.newest is not None:
                self._revise(life.newest, step.revised)
            if step.made is not None:
                self._made(step.made)
            life = lived(life, record, step)
            found, self.offset = record, offset
        if found is not None:
            self._note(found)

    def _made(self, made: Transition) -> None:
        self.fresh.append(made)
        if made.kind is not Kind.BASELINE:
            self._tally(made).count(made.kind)
        if made.kind is Kind.COMMIT and made.open_ms is not None and made.open_ms >= 0:
            _add(self._tally(made).open_times, made.open_ms)
        if made.kind not in EVERYDAY:
            self._tell(made)

    def _revise(self, before: Transition, now: Transition) -> None:
        """Replace the newest transition by what it reads as from now on, wherever it is kept."""
        if self.fresh:
            self.fresh[-1] = now
        else:
            self.older = recent.pack([now], self.older[recent.SIZE :])
        if now.kind is Kind.COMMIT and now.completed_ms is not None:
            _add(self._tally(now).marker_times, now.completed_ms - now.at_ms)
        if now.kind is not before.kind:
            self._tally(now).count(before.kind, -1)
            self._tally(now).count(now.kind)
        if now.kind not in EVERYDAY:
            changed = (now.kind, now.confidence) != (before.kind, before.confidence)
            self._tell(now, before.kind.value if changed else "")

    def _tell(self, transition: Transition, revised_from: str = "") -> None:
        place = transition.partition, transition.offset
        earlier = self.folded.told.get(place)
        if earlier is not None and earlier.revised_from:
            revised_from = earlier.revised_from
        told = Told(self.key, self.name, self.application, transition, revised_from)
        self.folded.told[place] = told

    def _tally(self, transition: Transition) -> Tally:
        where = self.application, transition.at_ms - transition.at_ms % MINUTE_MS
        tally = self.folded.tallies.get(where)
        if tally is None:
            tally = self.folded.tallies[where] = Tally()
        return tally

    def _note(self, found: TransactionRecord | Tombstone) -> None:
        self.fresh.reverse()
        packed = recent.pack(self.fresh, self.older)
        record, expired_ms, now = None, None, None
        if isinstance(found, Tombstone):
            expired_ms = found.at_ms or 0
        else:
            record, now = found, found.state
        place = self.partition, self.offset
        newest = Newest(self.name, self.application, record, expired_ms, *place, packed)
        self.folded.newest[self.key] = newest
        if now is not self.prior.state:
            _move(self.folded.states, self.prior.state, now)


def _add(histogram: Histogram, ms: int) -> None:
    bucket = bucket_of(ms)
    histogram[bucket] = histogram.get(bucket, 0) + 1


def _move(states: Counter[State], before: State | None, now: State | None) -> None:
    if before is not None:
        states[before] -= 1
    if now is not None:
        states[now] += 1


def _count_undecoded(folded: Folded, undecoded: Undecoded, partition: int, offset: int) -> None:
    folded.undecoded[undecoded.reason] += 1
    folded.strange.setdefault(undecoded.reason, (partition, offset, undecoded.detail))
