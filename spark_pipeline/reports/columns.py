"""Transitions as columns: entries of `fenceline.kafka.fold.transition_ring` -> Arrow tables of transitions
and of sums.

All tables of the job share one schema, and a row fills only the columns of its table. So a micro-batch is one
Spark job that writes once. Columns of nulls cost Parquet nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import Any

import numpy as np
import pyarrow as pa

from fenceline.facts import ABORTS, Confidence, TransitionKind, TransitionReason
from fenceline.history.reports import APPLICATIONS, IDS, TRANSITIONS
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.columnar import bucket_column
from fenceline.kafka.fold.folded import Lived

_COUNTS = pa.map_(pa.string(), pa.int64())
_HISTOGRAM = pa.map_(pa.int32(), pa.int64())
SCHEMA = pa.schema(
    {
        "table": pa.string(),
        #: The day of the record's own instant, UTC.
        "day": pa.string(),
        "transactional_id": pa.string(),
        "application": pa.string(),
        "kind": pa.string(),
        "confidence": pa.string(),
        "reason": pa.string(),
        "at_ms": pa.int64(),
        "producer_id": pa.int64(),
        "producer_epoch": pa.int32(),
        "previous_epoch": pa.int32(),
        "timeout_ms": pa.int32(),
        "open_ms": pa.int64(),
        "completed_ms": pa.int64(),
        "gap_ms": pa.int64(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        #: The offset up to which the partition was folded when this row was written.
        "known_to": pa.int64(),
        "commits": pa.int64(),
        "aborts": pa.int64(),
        "epochs": pa.int64(),
        "counts": _COUNTS,
        "open_times": _HISTOGRAM,
        "marker_times": _HISTOGRAM,
        "n": pa.int64(),
        "detail": pa.string(),
        "key": pa.binary(),
        "state": pa.binary(),
    }
)
_SPARK = {
    pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint", pa.binary(): "binary",
    _COUNTS: "map<string,bigint>", _HISTOGRAM: "map<int,bigint>",
}  # fmt: skip
#: The same for Spark.
DDL = ", ".join(f"`{column.name}` {_SPARK[column.type]}" for column in SCHEMA)

#: An entry of `fenceline.kafka.fold.transition_ring`, field by field (tests/spark/test_history_task.py
#: compares the two).
ENTRY = np.dtype(
    [
        ("kind", "u1"), ("confidence", "u1"), ("reason", "u1"), ("at_ms", ">i8"), ("producer_id", ">i8"),
        ("epoch", ">i2"), ("before", ">i2"), ("timeout_ms", ">i4"), ("open", ">i4"), ("done", ">i4"),
        ("gap", ">i4"), ("offset", ">i8"),
    ]
)  # fmt: skip
_KINDS = pa.array([str(kind) for kind in TransitionKind])
_CONFIDENCES = pa.array([str(confidence) for confidence in Confidence])
_REASONS = pa.array([str(reason) for reason in TransitionReason])
_BASELINE, _COMMIT, _REINIT, _RECOVERY = (
    tuple(TransitionKind).index(kind)
    for kind in (
        TransitionKind.BASELINE,
        TransitionKind.COMMIT,
        TransitionKind.REINIT,
        TransitionKind.SELF_RECOVERY,
    )
)
_ABORTS = np.array([kind in ABORTS for kind in TransitionKind])
_DAY_MS = 86_400_000


def record_batch(table: str, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return rows of one table in the common schema; absent columns are null."""
    length = len(next(iter(columns.values())))
    arrays = [
        pa.array([table] * length)
        if column.name == "table"
        else pa.array(columns[column.name], column.type)
        if column.name in columns
        else pa.nulls(length, column.type)
        for column in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def of_lives(lives: Sequence[Lived], partition: int, known_to: int) -> list[pa.RecordBatch]:
    """Return the results of folds: transitions, and the sums of ids and of applications.

    `known_to` is the last offset of the partition that was folded. Unchanged transitions are
    not written again; sums take back what a revised transition counted before.
    """
    packed = [life.made + life.after for life in lives]
    entries = np.frombuffer(b"".join(packed), ENTRY)
    owners = np.repeat(np.arange(len(lives)), [len(ring) // transition_ring.SIZE for ring in packed])
    if not len(entries):
        return []
    before = np.frombuffer(b"".join(life.before for life in lives), ENTRY)
    befores = np.repeat(np.arange(len(lives)), [len(life.before) // transition_ring.SIZE for life in lives])
    names = pa.array([life.transactional_id for life in lives])
    applications = pa.array([life.application for life in lives]).dictionary_encode()
    columns = _transitions(entries, names.take(pa.array(owners)), applications.take(pa.array(owners)))
    places = {"partition": np.full(len(entries), partition), "known_to": np.full(len(entries), known_to)}
    counted = np.concatenate([entries, before])
    weights = np.repeat([1, -1], [len(entries), len(before)])
    holders = np.concatenate([owners, befores])
    sums = _Sums(counted[counted["kind"] != _BASELINE], weights[counted["kind"] != _BASELINE])
    holders = holders[counted["kind"] != _BASELINE]
    tables = [record_batch(TRANSITIONS, columns | places)]
    if len(holders):
        tables += [_ids(sums, holders, names, applications), _applications(sums, holders, applications)]
    return tables


def _ids(sums: _Sums, holders: Any, names: Any, applications: Any) -> pa.RecordBatch:
    whose, columns = sums.sums_by(holders)
    who = pa.array(whose)
    named = {"transactional_id": names.take(who), "application": applications.take(who).dictionary_decode()}
    return record_batch(IDS, named | columns)


def _applications(sums: _Sums, holders: Any, applications: Any) -> pa.RecordBatch:
    codes = applications.indices.to_numpy()
    whose, columns = sums.sums_by(codes[holders])
    return record_batch(
        APPLICATIONS, {"application": applications.dictionary.take(pa.array(whose))} | columns
    )


def _transitions(entries: Any, names: Any, applications: Any) -> dict[str, Any]:
    days, which = np.unique(_days(entries), return_inverse=True)
    at_ms, done = _whole(entries["at_ms"]), _whole(entries["done"])
    epoch_before = _whole(entries["before"])
    return {
        "day": _words(days).take(pa.array(which)),
        "transactional_id": names,
        "application": applications.dictionary_decode(),
        "kind": _KINDS.take(pa.array(entries["kind"])),
        "confidence": _CONFIDENCES.take(pa.array(entries["confidence"])),
        "reason": _REASONS.take(pa.array(entries["reason"])),
        "at_ms": at_ms,
        "producer_id": _whole(entries["producer_id"]),
        "producer_epoch": pa.array(_whole(entries["epoch"]), pa.int32()),
        "previous_epoch": pa.array(epoch_before, pa.int32(), mask=epoch_before == -1),
        "timeout_ms": pa.array(_whole(entries["timeout_ms"]), pa.int32()),
        "open_ms": _or_null(entries["open"]),
        "completed_ms": pa.array(at_ms + done, pa.int64(), mask=done == transition_ring.NONE),
        "gap_ms": _or_null(entries["gap"]),
        "offset": _whole(entries["offset"]),
    }


class _Sums:
    """Weighted sums over entries, by owner and by day."""

    def __init__(self, entries: Any, weights: Any) -> None:
        self._weights = weights
        kinds, opens = entries["kind"].astype(np.int64), entries["open"]
        # As `Transition.counted_kind`.
        self._kinds = np.where((kinds == _RECOVERY) & (opens == transition_ring.NONE), _REINIT, kinds)
        self._days, self._day = np.unique(_days(entries), return_inverse=True)
        opened, done = _whole(entries["open"]), _whole(entries["done"])
        commits = self._kinds == _COMMIT
        self._opened = np.where(commits & (opened >= 0), bucket_column(opened), -1)
        ended = commits & (opened != transition_ring.NONE) & (done != transition_ring.NONE)
        self._marked = np.where(ended, bucket_column(done), -1)
        before = _whole(entries["before"])
        self._raised = np.where(before >= 0, np.maximum(_whole(entries["epoch"]) - before, 0), 0)

    def sums_by(self, holders: Any) -> tuple[Any, dict[str, Any]]:
        """Return the holder of each row, and the rows' columns without the holders' names."""
        groups, group = np.unique(holders * len(self._days) + self._day, return_inverse=True)
        weights, as_buckets = self._weights, methodcaller("cast", pa.int32())
        return groups // len(self._days), {
            "day": _words(self._days).take(pa.array(groups % len(self._days))),
            "commits": _added(group, weights * (self._kinds == _COMMIT)),
            "aborts": _added(group, weights * _ABORTS[self._kinds]),
            "epochs": _added(group, weights * self._raised),
            "counts": _map(group, len(groups), self._kinds, weights, _KINDS.take),
            "open_times": _map(group, len(groups), self._opened, weights, as_buckets),
            "marker_times": _map(group, len(groups), self._marked, weights, as_buckets),
        }


def _map(group: Any, groups: int, codes: Any, weights: Any, keys: Any) -> Any:
    """Return a map for each group: code -> sum of weights. Codes below 0 and sums of 0 are left out."""
    known = codes >= 0
    group, codes, weights = group[known], codes[known], weights[known]
    wide = int(codes.max(initial=0)) + 1
    pairs, which = np.unique(group * wide + codes, return_inverse=True)
    sums = _added(which, weights) if len(pairs) else np.zeros(0, np.int64)
    pairs, sums = pairs[sums != 0], sums[sums != 0]
    offsets = np.searchsorted(pairs // wide, np.arange(groups + 1)).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys(pa.array(pairs % wide)), pa.array(sums))


def _added(group: Any, weights: Any) -> Any:
    # Exact: no chunk comes near a sum of 2^53.
    return np.bincount(group, weights=weights).astype(np.int64)


def _days(entries: Any) -> Any:
    return _whole(entries["at_ms"]) // _DAY_MS


def _words(days: Any) -> Any:
    return pa.array(days.astype("datetime64[D]").astype(str).tolist(), pa.string())


def _whole(numbers: Any) -> Any:
    return numbers.astype(np.int64)


def _or_null(numbers: Any) -> Any:
    return pa.array(_whole(numbers), pa.int64(), mask=numbers == transition_ring.NONE)
