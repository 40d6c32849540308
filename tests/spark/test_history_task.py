"""Proves a task of the history job, without Spark: its rows are the offline replay's, wherever it is cut.

Random histories of ids, with tombstones, holes, undecodable records and epochs that run out, in random
micro-batches and Arrow batches; the transitions that its rows resolve to, the sums, and what it must refuse.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fenceline.decode.text import unescape_text
from fenceline.facts import (
    Confidence,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from fenceline.history.reports import APPLICATIONS, IDS, PROGRESS, STATE, STRANGE, TRANSITIONS
from fenceline.kafka.fold import transition_ring
from fenceline.owners import Owner
from fenceline.series.histograms import bucket_of
from spark_pipeline.job import named_application
from spark_pipeline.reports import columns, task
from spark_pipeline.reports.task import OutOfOrder, Start
from tests.kafka.topic_records import RawRecord
from tests.spark.offline_replay import Replay, replay, sums
from tests.transaction_state_records import encode_key, encode_value
from tests.unit.random_histories import RandomHistory

Row = dict[str, Any]
#: Two partitions; holes and records that nobody can read.
PARTITIONS = 2


def random_records(seed: int, ids: int, steps: int) -> list[RawRecord]:
    """Records of some ids, in the order in which they were written."""
    dice = random.Random(seed)
    walks = [RandomHistory(f"app-{number}", random.Random(f"{seed} {number}")) for number in range(ids)]
    offsets = [dice.choice((0, 0, 40)) for _ in range(PARTITIONS)]
    found = []
    for _ in range(steps):
        number = dice.randrange(ids)
        partition = number % PARTITIONS
        for record in walks[number].step():
            if dice.random() < 0.02:
                offsets[partition] += dice.randint(1, 5)
            alive = isinstance(record, TransactionRecord)
            value = encode_value(record) if alive else None
            if value and dice.random() < 0.01:
                value = b"\x00\x63" + value[2:]
            at_ms = dice.randrange(10**12, 2 * 10**12) if alive else record.at_ms
            key = encode_key(walks[number].name)
            if dice.random() < 0.95:
                found.append(RawRecord(partition, offsets[partition], at_ms, key, value))
            offsets[partition] += 1
    return found


class Output:
    """What the job would keep: rows of all micro-batches, and what its driver would pass to the next one."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.positions: dict[int, int] = {}
        self.holes: dict[int, int] = {}
        self.state: dict[tuple[int, bytes], Row] = {}
        self.owners: Sequence[Owner] = ()

    def run(self, records: Sequence[RawRecord], *, snapshot: bool = False, cut: int = 7) -> None:
        """Run a micro-batch, given in Arrow batches of at most `cut` rows."""
        start = Start(dict(self.positions), dict(self.holes), snapshot, self.owners)
        found = [row for each in task.fold_rows(start, self._input(records, cut)) for row in each.to_pylist()]
        for row in found:
            if row["table"] == PROGRESS:
                self.positions[row["partition"]] = row["offset"]
                if row["known_to"] is not None:
                    self.holes[row["partition"]] = row["known_to"]
            elif row["table"] == STATE:
                self.state[row["partition"], row["key"]] = row
        self.rows += found

    def _input(self, records: Sequence[RawRecord], cut: int) -> Iterator[pa.RecordBatch]:
        known = [
            (partition, False, row["known_to"], key, row["state"], None)
            for (partition, key), row in self.state.items()
        ]
        new = [(r.partition, True, r.offset, r.key, r.value, r.timestamp_ms) for r in records]
        rows = sorted(known + new, key=lambda row: row[:3])
        for at in range(0, len(rows), cut):
            names = ("partition", "is_record", "offset", "key", "value", "at_ms")
            types = (pa.int32(), pa.bool_(), pa.int64(), pa.binary(), pa.binary(), pa.int64())
            arrays = zip(*rows[at : at + cut], strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(each, kind) for each, kind in zip(arrays, types, strict=True)], names=list(names)
            )

    def of(self, table: str) -> list[Row]:
        return [row for row in self.rows if row["table"] == table]

    def transitions(self) -> Replay:
        """Those that count: of rows with one place, that with the largest `known_to`."""
        latest: dict[tuple[int, int], Row] = {}
        for row in self.of(TRANSITIONS):
            place = row["partition"], row["offset"]
            assert place not in latest or row["known_to"] > latest[place]["known_to"]
            latest[place] = row
        return {place: transition_of(row) for place, row in latest.items()}

    def sums(self, table: str) -> dict[tuple[str, ...], Row]:
        """The sums of a table's rows, by day and name."""
        found: dict[tuple[str, ...], Row] = {}
        for row in self.of(table):
            name = (row["transactional_id"],) if table == IDS else ()
            where = (str((date.fromisoformat(row["day"]) - date(1970, 1, 1)).days), row["application"], *name)
            into = found.setdefault(where, {})
            for field in "commits", "aborts", "epochs":
                into[field] = into.get(field, 0) + row[field]
            for field in "counts", "open_times", "marker_times":
                both = Counter(into.get(field, {}))
                both.update(dict(row[field]))
                into[field] = {key: n for key, n in both.items() if n}
        return found


def transition_of(row: Row) -> tuple[str, str, Transition]:
    words = TransitionKind(row["kind"]), Confidence(row["confidence"]), TransitionReason(row["reason"])
    names = (
        "at_ms", "producer_id", "producer_epoch", "previous_epoch", "timeout_ms", "open_ms", "completed_ms",
        "gap_ms", "partition", "offset",
    )  # fmt: skip
    assert row["day"] == str(np.datetime64(row["at_ms"], "ms").astype("datetime64[D]"))
    return row["transactional_id"], row["application"], Transition(*words, *(row[name] for name in names))


def check(output: Output, records: Sequence[RawRecord]) -> None:
    """Compare an output with the replay of its records."""
    expected, undecoded = replay(records)
    assert output.transitions() == expected
    strange: Counter[str] = Counter()
    for row in output.of(STRANGE):
        strange[row["reason"]] += row["n"]
    assert strange == undecoded
    for table in IDS, APPLICATIONS:
        told = {where: row for where, row in output.sums(table).items() if any(row.values())}
        assert told == sums(expected, by_id=table == IDS)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 400), max_size=6), st.integers(1, 60), st.booleans())
def test_rows_equal_the_replay_wherever_the_stream_is_cut(
    seed: int, cuts: list[int], cut: int, snapshots: bool
) -> None:
    records = random_records(seed, ids=6, steps=120)
    output = Output()
    edges = [0, *sorted(min(at, len(records)) for at in cuts), len(records)]
    with patch.object(task, "CHUNK", 25):
        for number, (start, end) in enumerate(pairwise(edges)):
            if start < end:
                output.run(records[start:end], snapshot=snapshots and number % 2 == 1, cut=cut)
    check(output, records)


def test_a_snapshot_has_all_ids_and_a_plain_batch_the_changed_ones() -> None:
    records = random_records(3, ids=20, steps=400)
    output = Output()
    output.run(records[:-4])
    before = dict(output.state)
    output.rows.clear()
    output.run(records[-4:])
    expected = {(each.partition, each.key) for each in records[-4:]}
    assert {(row["partition"], row["key"]) for row in output.of(STATE)} == expected
    output.rows.clear()
    output.run([], snapshot=True)
    assert {(row["partition"], row["key"]) for row in output.of(STATE)} == before.keys()


def test_a_snapshot_leaves_out_an_id_that_expired_long_ago() -> None:
    old = TransactionRecord("old", TransactionState.EMPTY, 7, 0, 60_000, None, 1_000, None)
    new = old._replace(transactional_id="new", updated_ms=40 * 86_400_000)
    output = Output()
    output.run(
        [
            RawRecord(0, 0, 0, encode_key("old"), encode_value(old)),
            RawRecord(0, 1, 2_000, encode_key("old"), None),
            RawRecord(0, 2, 0, encode_key("new"), encode_value(new)),
        ],
        snapshot=True,
    )
    assert {unescape_text(key[4:].decode()) for _, key in output.state} == {b"new"}


@pytest.mark.parametrize("offsets", [(0, 2, 1), (0, 0), (1, 0)])
def test_records_out_of_order_are_refused(offsets: tuple[int, ...]) -> None:
    value = encode_value(TransactionRecord("a", TransactionState.EMPTY, 7, 0, 60_000, None, 1_000, None))
    rows = pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "key": [encode_key("a")] * len(offsets),
            "value": [value] * len(offsets),
            "at_ms": [1] * len(offsets),
            "is_record": [True] * len(offsets),
        }
    )
    with pytest.raises(OutOfOrder, match="partition 0: offset"):
        list(task.fold_rows(Start(), [rows]))


def test_applications_are_called_as_their_owners_call_them() -> None:
    output = Output()
    output.owners = (named_application("app-*=Ledger service"), named_application("*="))
    output.run(random_records(1, ids=2, steps=10))
    assert {row["application"] for row in output.rows if row["application"]} == {"Ledger service"}
    with pytest.raises(argparse.ArgumentTypeError, match="write PATTERN=NAME"):
        named_application("app-*")


def test_records_that_were_read_before_are_refused() -> None:
    records = random_records(1, ids=2, steps=10)
    output = Output()
    output.run(records)
    with pytest.raises(OutOfOrder):
        output.run(records)


def test_entries_are_laid_out_as_recent_packs_them() -> None:
    told = Transition(
        TransitionKind.TIMEOUT,
        Confidence.PROBABLE,
        TransitionReason.BROKER_LATE,
        1_795_000_000_123,
        2**40,
        32_000,
        31_999,
        60_000,
        61_234,
        1_795_000_000_130,
        None,
        3,
        2**35,
    )
    (entry,) = np.frombuffer(transition_ring.pack_entry(told), columns.ENTRY)
    assert columns.ENTRY.itemsize == transition_ring.SIZE
    assert (entry["kind"], entry["confidence"], entry["reason"]) == transition_ring.kind_codes(*told[:3])
    assert [int(entry[name]) for name in ("at_ms", "producer_id", "epoch", "before", "timeout_ms")] == list(
        told[3:8]
    )
    expected = [61_234, 7, transition_ring.NONE, 2**35]
    assert [int(entry[name]) for name in ("open", "done", "gap", "offset")] == expected
    for code, kind in enumerate(TransitionKind):
        assert transition_ring.kind_codes(kind, Confidence.CERTAIN, TransitionReason.FIRST_SEEN)[0] == code


def test_buckets_are_those_of_histograms() -> None:
    spans = [
        0,
        1,
        15,
        16,
        17,
        4095,
        4096,
        4097,
        60_000,
        2**31 - 1,
        *(2**n - 1 for n in range(4, 31)),
        *range(9_000),
    ]
    assert columns.bucket_column(np.array(spans)).tolist() == [bucket_of(ms) for ms in spans]
    assert columns.bucket_column(np.array([-5])).tolist() == [bucket_of(-5)]
