"""Fold many records into newest states, transitions and counters. One pass per id.

Folding is a pure function of the records and of the known history. A stream of records may be cut anywhere:
folding the rest onto the result of a first fold gives the result of a single fold
(tests/unit/test_aggregate.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType

from fenceline.decode.transaction_state import Peek, decode_key, decode_value, peek_value, record_of
from fenceline.facts import (
    ABORTS,
    EVERYDAY,
    NOT_FROM_LOG,
    Confidence,
    RawRecord,
    Records,
    Tombstone,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
    Undecoded,
)
from fenceline.kafka.applications import application_of
from fenceline.kafka.attributions import CausesByRecord, action_of, attribute_step
from fenceline.kafka.fold import counting, transition_ring
from fenceline.kafka.fold.folded import Folded, Lived, Newest, NotableTransition, Prior
from fenceline.kafka.fold.marker_history import InferredRecord, temper_step
from fenceline.kafka.transitions import IdHistory, TransitionStep, derive_transition, next_history

MINUTE_MS = 60_000


def fold_records(
    folded: Folded,
    partition: int,
    records: Records,
    priors: Mapping[bytes, Prior],
    holes: Sequence[int],
    actions: Mapping[bytes, CausesByRecord] = MappingProxyType({}),
) -> None:
    """Fold the records of one partition onto the known history of their ids; results are added to `folded`.

    `priors` and `actions` are by key; `actions` has the records that our own actions caused. `holes` are the
    first offsets after stretches that compaction had removed before we read them, ascending. Of the holes
    before the offsets of `priors`, the last is enough. Never raises: undecodable records are counted by
    reason.
    """
    for key, raws in records.items():
        name = decode_key(key)
        if isinstance(name, Undecoded):
            for raw in raws:
                count_undecoded(folded, name, partition, raw.offset)
        else:
            ours = actions.get(key, _NO_ACTIONS)
            IdFold(folded, partition, key, name, priors.get(key, _UNKNOWN), ours).fold_all(raws, holes)


def fold_inferred(
    folded: Folded,
    key: bytes,
    name: str,
    prior: Prior,
    inferred: Sequence[InferredRecord],
    first_offset: int,
    causes: CausesByRecord = MappingProxyType({}),
) -> None:
    """Fold the inferred records of one id whose log cannot be read.

    No log has these records. Offsets from `first_offset` on, in partition NOT_FROM_LOG, identify them.
    """
    fold = IdFold(folded, NOT_FROM_LOG, key, name, prior, causes)
    for offset, each in enumerate(inferred, first_offset):
        fold.take(each.record, offset, temper=partial(temper_step, each))
    fold.close()


_UNKNOWN = Prior()
_FORGOTTEN = IdHistory()
_NO_ACTIONS: CausesByRecord = {}
_NO_COMMIT: tuple[int, ...] = ()
_NO_TALLY = counting.MinuteTally()
_add, _count_commit, _NO_LINK = counting.add_duration, counting.count_commit, counting.NO_LINK

_BEGAN, _EXTENDED, _COMMITTED = TransitionKind.BEGIN, TransitionKind.EXTEND, TransitionKind.COMMIT
#: The states that an everyday step may follow, with their status bytes.
_EVERYDAY = {TransactionState.ONGOING: 1, TransactionState.COMPLETE_COMMIT: 4}
#: The first fields of an entry for each everyday verdict of `transitions.derive_transition`.
_BEGIN = transition_ring.kind_codes(
    TransitionKind.BEGIN, Confidence.CERTAIN, TransitionReason.PARTITION_ADDED
)
_EXTEND = transition_ring.kind_codes(
    TransitionKind.EXTEND, Confidence.CERTAIN, TransitionReason.PARTITION_ADDED
)
_ENDED = transition_ring.kind_codes(TransitionKind.COMMIT, Confidence.CERTAIN, TransitionReason.SAME_EPOCH)
_BUMPED = transition_ring.kind_codes(TransitionKind.COMMIT, Confidence.CERTAIN, TransitionReason.ROUTINE_BUMP)
_NONE, _pack = transition_ring.NONE, transition_ring.pack_plain


class IdFold:
    """The fold of one id's records."""

    __slots__ = (
        "actions", "application", "folded", "found", "fresh", "key", "life", "lost", "name", "offset",
        "older", "partition", "prior",
    )  # fmt: skip

    def __init__(
        self,
        folded: Folded,
        partition: int,
        key: bytes,
        name: str,
        prior: Prior,
        actions: CausesByRecord = _NO_ACTIONS,
    ) -> None:
        self.folded, self.partition, self.key, self.name, self.prior = folded, partition, key, name, prior
        self.actions = actions
        self.application = application_of(name).application
        self.offset = prior.offset
        #: Entries of transitions made here, oldest first; `older` holds those from before.
        self.fresh: list[bytes] = []
        self.older = prior.packed
        seen_elsewhere = prior.record is None and prior.state is not None
        self.life = (
            _FORGOTTEN
            if seen_elsewhere
            else IdHistory(prior.record, transition_ring.newest_transition(self.older, partition))
        )
        self.found: TransactionRecord | Tombstone | None = None
        #: Whether the last record could not be decoded, which makes the record before it useless.
        self.lost = False

    def fold_all(self, raws: Sequence[RawRecord], holes: Sequence[int]) -> None:
        """Fold all records, then note the id's newest state."""
        at = 0
        while at < len(raws):
            # The everyday loop ignores our own actions, and few ids have any.
            if not self.actions and (not holes or self.offset >= holes[-1]):
                at = self._everyday(raws, at)
            if at < len(raws):
                self.step(raws[at], holes)
                at += 1
        self.close()

    def close(self) -> None:
        """Note the id's newest state."""
        if self.found is not None:
            self._note(self.found)
        elif self.lost:
            self.folded.lost.add(self.key)

    def take_run(self, record: TransactionRecord, offset: int, entries: bytes) -> None:
        """Take the result of records folded elsewhere: the last record, and all entries, newest first."""
        size = transition_ring.SIZE
        self.fresh += [entries[at : at + size] for at in range(len(entries) - size, -1, -size)]
        newest = transition_ring.newest_transition(
            self.fresh[-1] if self.fresh else self.older, self.partition
        )
        self.life, self.found, self.offset, self.lost = IdHistory(record, newest), record, offset, False

    def step(self, raw: RawRecord, holes: Sequence[int]) -> None:
        """Fold one record of any kind."""
        value, offset, at_ms = raw
        record = Tombstone(self.name, at_ms) if value is None else decode_value(self.name, value)
        if isinstance(record, Undecoded):
            count_undecoded(self.folded, record, self.partition, offset)
            if self.life.record is not None:
                self.life, self.lost = _FORGOTTEN, True
            return
        if holes and self._beyond_a_hole(offset, holes):
            self.life = _FORGOTTEN
        self.take(record, offset, whole=not holes or offset < holes[0])

    def take(
        self,
        record: TransactionRecord | Tombstone,
        offset: int,
        *,
        whole: bool = False,
        temper: Callable[[TransitionStep], TransitionStep] = lambda step: step,
    ) -> None:
        """Derive the step of a record, and keep it; `temper` lowers its confidence."""
        if isinstance(record, TransactionRecord):
            counting.count_end(self.folded.links, self.application, self.life.record, record)
        step = temper(derive_transition(self.life, record, self.partition, offset, whole=whole))
        if self.actions:
            step = attribute_step(self.life, record, step, self.actions)
        if step.revised is not None and self.life.newest is not None:
            self._revise(self.life.newest, step.revised)
        if step.made is not None:
            self._made(step.made, record)
        self.life = next_history(self.life, record, step)
        self.found, self.offset, self.lost = record, offset, False

    def _beyond_a_hole(self, offset: int, holes: Sequence[int]) -> bool:
        # Binary search: a compacted topic may have a hole before every other record.
        following = bisect_right(holes, self.offset)
        return following < len(holes) and holes[following] <= offset

    def _everyday(self, raws: Sequence[RawRecord], at: int) -> int:  # noqa: C901 - one loop, see below
        """Fold a run of everyday records from `at` on; return the end of the run.

        Everyday records are a begin after a commit, an extend, a commit and its completion, of one producer.
        Nine of ten records take this loop on plain numbers. Its results equal those of `step`, in a third of
        the time (tests/unit/test_aggregate.py compares the two).
        """
        last = self.life.record
        if last is None or last.state not in _EVERYDAY:
            return at
        # The status byte; it becomes 2 only after a commit in this loop, which is then the last entry.
        state = _EVERYDAY[last.state]
        producer_id, epoch, started = last.producer_id, last.producer_epoch, last.started_ms
        minute_ms, tally, seen, commit = -MINUTE_MS, _NO_TALLY, None, _NO_COMMIT
        fresh, held, links, linked = self.fresh, last.partitions, self.folded.links, _NO_LINK
        for value, offset, _ in islice(raws, at, None):
            fields = None if value is None else peek_value(value)
            if fields is None or fields[1] != producer_id:
                break
            status, _, now, timeout_ms, at_ms, started_ms, version, partitions, _ = fields
            if status == 1 and now == epoch and (state == 4 or (state == 1 and started_ms == started)):
                kind, verdict, open_ms = (
                    (_BEGAN, _BEGIN, _NONE) if state == 4 else (_EXTENDED, _EXTEND, _NONE)
                )
                started = started_ms
            elif status == 2 and state == 1 and started_ms == started and now - epoch == version >> 1:
                kind, verdict, open_ms = _COMMITTED, _BUMPED if version else _ENDED, at_ms - started_ms
                if started_ms < 0 or open_ms > transition_ring.LONGEST_MS:
                    break
            elif (
                status == 4
                and state == 2
                and now == epoch
                and abs(at_ms - commit[3]) <= transition_ring.LONGEST_MS
            ):
                marker_ms = at_ms - commit[3]
                fresh[-1] = _pack(*commit[:-2], marker_ms, *commit[-2:])
                same = minute_ms <= commit[3] < minute_ms + MINUTE_MS
                _add((tally if same else self._tally_at(commit[3])).marker_times, marker_ms)
                if held:
                    open_ms = marker_ms + commit[8]
                    linked = _count_commit(links, self.application, at_ms, held, open_ms, linked)
                state, seen, at = 4, fields, at + 1
                continue
            else:
                break
            if not minute_ms <= at_ms < minute_ms + MINUTE_MS:
                minute_ms = at_ms - at_ms % MINUTE_MS
                tally = self._tally_at(at_ms)
            counts = tally.counts
            counts[kind] = counts.get(kind, 0) + 1
            ids = *verdict, at_ms, producer_id, now, epoch, timeout_ms, open_ms
            fresh.append(_pack(*ids, _NONE, _NONE, offset))
            if status == 2:
                _add(tally.open_times, open_ms)
                commit, held = (*ids, _NONE, offset), partitions
            state, epoch, seen, at = status, now, fields, at + 1
        if seen is not None:
            self._resume(seen, raws[at - 1])
        return at

    def _resume(self, fields: Peek, raw: RawRecord) -> None:
        """Continue after the last record that `_everyday` folded."""
        value, self.offset, _ = raw
        self.found = record_of(self.name, fields, value or b"")
        newest = transition_ring.newest_transition(self.fresh[-1], self.partition)
        self.life = IdHistory(self.found, newest)

    def _made(self, made: Transition, record: TransactionRecord | Tombstone) -> None:
        self.fresh.append(transition_ring.pack_entry(made))
        if made.kind is not TransitionKind.BASELINE:
            self._tally_at(made.at_ms).count_transition(made.counted_kind)
        if made.kind is TransitionKind.COMMIT and made.open_ms is not None and made.open_ms >= 0:
            _add(self._tally_at(made.at_ms).open_times, made.open_ms)
        if made.kind not in EVERYDAY:
            held = (
                record.partitions if made.kind in ABORTS and isinstance(record, TransactionRecord) else None
            )
            self._report(made, partitions=held or ())

    def _revise(self, before: Transition, now: Transition) -> None:
        """Replace the newest transition by its revision, in `fresh` or `older`."""
        if self.fresh:
            self.fresh[-1] = transition_ring.pack_entry(now)
        else:
            self.older = transition_ring.pack_entry(now) + self.older[transition_ring.SIZE :]
        if now.kind is TransitionKind.COMMIT and now.completed_ms is not None:
            _add(self._tally_at(now.at_ms).marker_times, now.completed_ms - now.at_ms)
        if now.kind is not before.kind:
            self._tally_at(now.at_ms).count_transition(before.counted_kind, -1)
            self._tally_at(now.at_ms).count_transition(now.counted_kind)
        if now.kind not in EVERYDAY:
            changed = (now.kind, now.confidence) != (before.kind, before.confidence)
            self._report(now, before.kind.value if changed else "")

    def _report(
        self,
        transition: Transition,
        revised_from: str = "",
        partitions: tuple[TopicPartitions, ...] = (),
    ) -> None:
        place = transition.partition, transition.offset
        earlier = self.folded.notable.get(place)
        if earlier is not None:
            revised_from = earlier.revised_from or revised_from
            partitions = earlier.partitions
        action = action_of(transition, self.actions)
        self.folded.notable[place] = NotableTransition(
            self.key, self.name, self.application, transition, revised_from, partitions, action
        )

    def _tally_at(self, at_ms: int) -> counting.MinuteTally:
        return tally_at(self.folded, self.application, at_ms)

    def _note(self, newest: TransactionRecord | Tombstone) -> None:
        if self.folded.lives is not None:
            before, after = self.prior.packed[: transition_ring.SIZE], self.older[: transition_ring.SIZE]
            changed = (before, after) if after != before else (b"", b"")
            self.folded.lives[self.key] = Lived(self.name, self.application, *changed, b"".join(self.fresh))
        self.fresh.reverse()
        packed = transition_ring.pack_ring(self.fresh, self.older)
        expired_ms = (newest.at_ms or 0) if isinstance(newest, Tombstone) else None
        record = None if isinstance(newest, Tombstone) else newest
        place = self.partition, NOT_FROM_LOG if self.lost else self.offset
        known = Newest(self.name, self.application, record, expired_ms, *place, packed)
        note_newest(self.folded, self.key, known, self.prior.state)


def note_newest(folded: Folded, key: bytes, newest: Newest, before: TransactionState | None) -> None:
    """Note an id's newest state, and count the change of state."""
    record, folded.newest[key] = newest.record, newest
    if record is not None and record.partitions:
        # Still open: its topics are linked before it ends.
        counting.link_tally_at(folded.links, newest.application, record.updated_ms, record.partitions)
    now = None if record is None else record.state
    if now is not before:
        if before is not None:
            folded.states[before] -= 1
        if now is not None:
            folded.states[now] += 1


def tally_at(folded: Folded, application: str, at_ms: int) -> counting.MinuteTally:
    """Return an application's tally for the minute of `at_ms`."""
    where = application, at_ms - at_ms % MINUTE_MS
    tally = folded.tallies.get(where)
    if tally is None:
        tally = folded.tallies[where] = counting.MinuteTally()
    return tally


def count_undecoded(folded: Folded, undecoded: Undecoded, partition: int, offset: int) -> None:
    folded.undecoded[undecoded.reason] += 1
    here = partition, offset, undecoded.detail
    folded.strange[undecoded.reason] = min(here, folded.strange.get(undecoded.reason, here))
