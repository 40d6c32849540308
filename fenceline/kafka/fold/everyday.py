"""Find all everyday steps of a table of records at once, and pack their entries of the last transitions.

A row is everyday if it follows from the previous record of its id like nine of ten records: first seen,
begin, extend, commit, completion. `transitions.derive_transition` gives the same results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fenceline.compat import SLOTS, zip_equal
from fenceline.decode.columns import Flags, Ints
from fenceline.decode.record_table import RecordTable
from fenceline.decode.transaction_columns import TransactionColumns
from fenceline.decode.transaction_state import STATES
from fenceline.facts import NOT_FROM_LOG, Confidence, TransitionKind, TransitionReason
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.folded import Prior
from fenceline.tuples import new_tuple

_EMPTY, _ONGOING, _PREPARED, _COMPLETE = 0, 1, 2, 4
_STATUSES = {state: status for status, state in enumerate(STATES)}
#: The step of a row; ODD and DONE make no transition of their own here.
ODD, BASELINE, INIT, BEGIN, EXTEND, COMMIT, BUMPED, DONE = range(8)
#: The transition kind of each step, in that order.
KINDS = (
    TransitionKind.BASELINE, TransitionKind.BASELINE, TransitionKind.INIT, TransitionKind.BEGIN,
    TransitionKind.EXTEND, TransitionKind.COMMIT, TransitionKind.COMMIT, TransitionKind.COMMIT,
)  # fmt: skip
_REASONS = (
    TransitionReason.FIRST_SEEN, TransitionReason.FIRST_SEEN, TransitionReason.NEW_ID,
    TransitionReason.PARTITION_ADDED, TransitionReason.PARTITION_ADDED, TransitionReason.SAME_EPOCH,
    TransitionReason.ROUTINE_BUMP, TransitionReason.SAME_EPOCH,
)  # fmt: skip
_CODES = np.array(
    [
        transition_ring.kind_codes(kind, Confidence.CERTAIN, reason)
        for kind, reason in zip_equal(KINDS, _REASONS)
    ],
    np.uint8,
)
#: An entry of `transition_ring`.
_ENTRY = np.dtype(
    [
        ("kind", "u1"), ("confidence", "u1"), ("reason", "u1"), ("at_ms", ">i8"), ("producer_id", ">i8"),
        ("epoch", ">i2"), ("previous_epoch", ">i2"), ("timeout_ms", ">i4"), ("open_ms", ">i4"),
        ("done_ms", ">i4"), ("gap_ms", ">i4"), ("offset", ">i8"),
    ]
)  # fmt: skip
_NONE, _LONGEST = transition_ring.NONE, transition_ring.LONGEST_MS


class _Before(NamedTuple):
    """The previous record of each row's id: fields by row."""

    #: Whether it exists, with a usual layout and no hole after it.
    known: Flags
    #: Whether the id is unknown before this row, so that the row is its first.
    none: Flags
    #: Whether a hole lies between the previous record and the row.
    crossed: Flags
    status: Ints
    producer_id: Ints
    epoch: Ints
    started_ms: Ints


class EverydayRun(NamedTuple):
    """Consecutive everyday rows of one key, up to `end`, with their `entries`, newest first."""

    end: int
    entries: bytes


@dataclass(**SLOTS)
class EverydaySteps:
    """The steps of a table's rows."""

    step: Ints
    #: For a commit: from its begin to the decision; for a completion: from the decision to the last marker.
    span_ms: Ints
    #: The runs of everyday rows.
    run_starts: Ints
    run_ends: Ints
    #: The entries of all rows, the last row's first, and the number of entries of the rows before each row.
    _entries: bytes
    _made_before: Ints

    def runs(self) -> Iterator[EverydayRun]:
        """Yield the runs in order."""
        size, entries, total = transition_ring.SIZE, self._entries, self._made_before[-1]
        edges = (
            self.run_ends,
            total - self._made_before[self.run_ends],
            total - self._made_before[self.run_starts],
        )
        for end, first, last in zip_equal(*(column.tolist() for column in edges)):
            yield new_tuple(EverydayRun, (end, entries[first * size : last * size]))


def find_steps(
    table: RecordTable,
    fields: TransactionColumns,
    priors: Sequence[Prior | None],
    holes: Mapping[int, Sequence[int]],
) -> EverydaySteps:
    """Find the everyday steps; `priors` are by the numbers of keys, `holes` by partition.

    If a key's prior is `None`, the key is not examined, and all its rows are odd.
    """
    before = _before(table, fields, priors, holes)
    status, epoch, at_ms, started_ms = fields.status, fields.epoch, fields.updated_ms, fields.started_ms
    first = fields.plain & before.none
    same = fields.plain & before.known & (fields.producer_id == before.producer_id)
    level = same & (epoch == before.epoch)
    open_ms = at_ms - started_ms
    whole = _is_whole(table, before, priors, holes)
    step = np.zeros(len(status), np.int64)
    step[first] = np.where(whole & (status == _EMPTY) & (epoch == 0), INIT, BASELINE)[first]
    begins = (before.status == _COMPLETE) | ((before.status == _EMPTY) & _shifted(first, table.starts))
    step[level & (status == _ONGOING) & begins] = BEGIN
    known_start = started_ms == before.started_ms
    step[level & (status == _ONGOING) & (before.status == _ONGOING) & known_start] = EXTEND
    raised = epoch - before.epoch == fields.client_version >> 1
    commits = same & (status == _PREPARED) & (before.status == _ONGOING) & known_start & raised
    commits &= (started_ms >= 0) & (open_ms <= _LONGEST)
    step[commits] = np.where(fields.client_version > 0, BUMPED, COMMIT)[commits]
    marked_ms = at_ms - np.concatenate((at_ms[:1], at_ms[:-1]))
    done = level & (status == _COMPLETE) & _shifted(commits, table.starts) & (np.abs(marked_ms) <= _LONGEST)
    step[done] = DONE
    made = (step != ODD) & (step != DONE)
    entries = _entries(table, fields, before, step, made, np.where(done, marked_ms, _NONE))
    edge = np.zeros(len(step) + 1, np.bool_)
    edge[table.starts] = True
    usual = step != ODD
    run_starts = np.flatnonzero(usual & (edge[:-1] | ~_shifted(usual, table.starts)))
    run_ends = np.flatnonzero(usual & (edge[1:] | ~np.concatenate((usual[1:], [False])))) + 1
    made_before = np.concatenate(([0], np.cumsum(made)))
    return EverydaySteps(step, np.where(done, marked_ms, open_ms), run_starts, run_ends, entries, made_before)


def _before(
    table: RecordTable,
    fields: TransactionColumns,
    priors: Sequence[Prior | None],
    holes: Mapping[int, Sequence[int]],
) -> _Before:
    starts = table.starts[:-1]
    columns = [fields.status, fields.producer_id, fields.epoch, fields.started_ms, table.columns.offset]
    status, producer_id, epoch, started_ms, offset = (np.concatenate((c[:1], c[:-1])) for c in columns)
    known = np.concatenate((fields.plain[:1], fields.plain[:-1]))
    known[starts] = False
    offset[starts] = [NOT_FROM_LOG if prior is None else prior.offset for prior in priors]
    none = np.zeros(len(known), np.bool_)
    none[starts] = [prior is not None and prior.record is None for prior in priors]
    rows, states = [], []
    for row, prior in zip_equal(starts.tolist(), priors):
        if prior is not None and (record := prior.record) is not None:
            rows.append(row)
            started = -1 if record.started_ms is None else record.started_ms
            states.append((_STATUSES[record.state], record.producer_id, record.producer_epoch, started))
    if rows:
        known[rows] = True
        status[rows], producer_id[rows], epoch[rows], started_ms[rows] = np.array(states, np.int64).T
    known &= np.repeat([prior is not None for prior in priors], np.diff(table.starts))
    crossed = np.zeros(len(known), np.bool_)
    for number, edges in holes.items():
        here = _rows_of(table, number)
        passed, seen = (
            np.searchsorted(edges, offsets[here], "right") for offsets in (offset, table.columns.offset)
        )
        crossed[here] = passed != seen
    # A record before a hole is not the previous record.
    none |= crossed & known
    return _Before(known & ~crossed, none, crossed, status, producer_id, epoch, started_ms)


def _is_whole(
    table: RecordTable, before: _Before, priors: Sequence[Prior | None], holes: Mapping[int, Sequence[int]]
) -> Flags:
    """Whether no record before a row is missing, so that a first record is the id's true first."""
    whole = np.ones(len(table.columns.offset), np.bool_)
    for number, edges in holes.items():
        here = _rows_of(table, number)
        whole[here] = table.columns.offset[here] < edges[0]
    # An expired id proves that no record is missing since its expiry.
    reborn = np.zeros(len(whole), np.bool_)
    reborn[table.starts[:-1]] = [
        prior is not None and bool(prior.packed) and prior.record is None and prior.state is None
        for prior in priors
    ]
    return whole | (reborn & ~before.crossed)


def _rows_of(table: RecordTable, partition: int) -> slice:
    numbers = table.columns.partition
    return slice(*np.searchsorted(numbers, (partition, partition + 1)).tolist())


def _shifted(flags: Flags, starts: Ints) -> Flags:
    """Return each previous row's flag; False for the first row of a key."""
    shifted = np.concatenate((flags[:1], flags[:-1]))
    shifted[starts[:-1]] = False
    return shifted


def _entries(
    table: RecordTable,
    fields: TransactionColumns,
    before: _Before,
    step: Ints,
    made: Flags,
    marked_ms: Ints,
) -> bytes:
    rows = np.flatnonzero(made)[::-1]
    done_ms = np.concatenate((marked_ms[1:], [_NONE]))
    steps, started_ms = step[rows], fields.started_ms[rows]
    open_ms = np.clip(fields.updated_ms[rows] - started_ms, -_LONGEST, _LONGEST)
    decided = (fields.status[rows] == _PREPARED) | (fields.status[rows] == _PREPARED + 1)
    entries = np.zeros(len(rows), _ENTRY)
    values: Mapping[str, npt.NDArray[Any] | int] = {
        **dict(zip_equal(("kind", "confidence", "reason"), _CODES[steps].T)),
        "at_ms": fields.updated_ms[rows],
        "producer_id": fields.producer_id[rows],
        "epoch": fields.epoch[rows],
        "previous_epoch": np.where(steps <= INIT, -1, before.epoch[rows]),
        "timeout_ms": fields.timeout_ms[rows],
        "open_ms": np.where(decided & (started_ms != -1), open_ms, _NONE),
        "done_ms": np.where(steps >= COMMIT, done_ms[rows], _NONE),
        "gap_ms": _NONE,
        "offset": table.columns.offset[rows],
    }
    for name, column in values.items():
        entries[name] = column
    return entries.tobytes()
