"""Proves that a fold does not depend on where the stream is cut, and that what it keeps adds up.

Any sequence of records, cut anywhere into saves, leaves the same states, the same last transitions, the
same notable ones and the same counters as one fold of all of it.

The fold of a whole table gives what the fold of single records gives, row by row: random histories in three
partitions, with bytes flipped, values cut, keys spoiled, tombstones, unknown and Kafka 4.3's tags, holes,
ids in two partitions; packed in batches of one or many, compressed or not; cut into several polls anywhere.
`pytest -m matrix` compares ten million records.
"""

import gc
import os
import random
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.kafka.compression import decompress
from fenceline.decode.log_parts import LogPart, read_parts, whole_batches
from fenceline.decode.record_table import RecordTable
from fenceline.facts import EVERYDAY, RawRecord, TransactionRecord, TransactionState, TransitionKind
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.aggregate import IdFold, fold_records
from fenceline.kafka.fold.columnar import bucket_column, fold_table
from fenceline.kafka.fold.folded import Folded, NotableTransition, Prior
from fenceline.series.histograms import bucket_of, merge_histograms
from tests.raw_batches import CODECS, raw_batch
from tests.transaction_state_records import encode_key, encode_value
from tests.unit.random_histories import RandomHistory

PARTITION = 4
#: Examples of single streams of 120 steps.
CUTS = 40
Stream = list[tuple[bytes, RawRecord]]


def stream_of(seed: int, ids: int, steps: int) -> Stream:
    """Return the records of some random histories, mixed as a coordinator's partition mixes them."""
    dice = random.Random(seed)
    walks = [RandomHistory(f"app-{number}", random.Random(f"{seed} {number}")) for number in range(ids)]
    stream: Stream = []
    for _ in range(steps):
        walk = dice.choice(walks)
        for record in walk.step():
            gone = not isinstance(record, TransactionRecord)
            value, at_ms = (None, record.at_ms) if gone else (encode_value(record), None)
            stream.append((encode_key(walk.name), RawRecord(value, len(stream), at_ms)))
    return stream


class AggregatedRows:
    """The rows of a database after several folds."""

    def __init__(self) -> None:
        self.priors: dict[bytes, Prior] = {}
        self.told: dict[tuple[int, int], NotableTransition] = {}
        self.counts: Counter[tuple[str, int, TransitionKind]] = Counter()
        self.open_times: dict[int, int] = {}
        self.marker_times: dict[int, int] = {}
        self.states: Counter[TransactionState] = Counter()

    def save(self, stream: Stream, holes: tuple[int, ...] = ()) -> None:
        records: dict[bytes, list[RawRecord]] = {}
        for key, raw in stream:
            records.setdefault(key, []).append(raw)
        folded = Folded()
        fold_records(folded, PARTITION, records, self.priors, holes)
        for key, newest in folded.newest.items():
            state = newest.record.state if newest.record else None
            self.priors[key] = Prior(state, newest.record, newest.offset, newest.packed)
        for place, told in folded.notable.items():
            earlier = self.told.get(place)
            first = earlier.revised_from if earlier and earlier.revised_from else told.revised_from
            held = told.partitions or (earlier.partitions if earlier else ())
            self.told[place] = told._replace(revised_from=first, partitions=held)
        for (application, minute), tally in folded.tallies.items():
            for kind, n in tally.counts.items():
                self.counts[application, minute, kind] += n
            self.open_times = merge_histograms([self.open_times, tally.open_times])
            self.marker_times = merge_histograms([self.marker_times, tally.marker_times])
        self.states.update(folded.states)

    def everything(self) -> tuple[object, ...]:
        counts = {where: n for where, n in self.counts.items() if n}
        states = {state: n for state, n in self.states.items() if n}
        return self.priors, self.told, counts, self.open_times, self.marker_times, states


@settings(max_examples=CUTS)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 400), max_size=12))
def test_where_the_stream_is_cut_changes_nothing(seed: int, cuts: list[int]) -> None:
    stream = stream_of(seed, ids=5, steps=120)
    whole, parts = AggregatedRows(), AggregatedRows()
    whole.save(stream)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in pairwise(edges):
        parts.save(stream[start:end])
    assert parts.everything() == whole.everything()


@settings(max_examples=CUTS)
@given(st.integers(0, 10**6))
def test_the_fast_path_gives_the_same_result_as_the_full_one(seed: int) -> None:
    stream = stream_of(seed, ids=5, steps=120)
    short, long = AggregatedRows(), AggregatedRows()
    short.save(stream)
    with patch.object(IdFold, "_everyday", lambda self, raws, at: at):
        long.save(stream)
    assert short.everything() == long.everything()


@settings(max_examples=CUTS)
@given(st.integers(0, 10**6), st.integers(1, 300))
def test_a_hole_discards_earlier_state_wherever_the_stream_is_cut(seed: int, hole: int) -> None:
    stream = stream_of(seed, ids=3, steps=120)
    left = [(key, raw) for key, raw in stream if not hole - 30 < raw.offset < hole]
    whole, parts = AggregatedRows(), AggregatedRows()
    whole.save(left, (hole,))
    before = [each for each in left if each[1].offset <= hole - 30]
    parts.save(before)
    parts.save(left[len(before) :], (hole,))
    assert parts.everything() == whole.everything()


def test_counters_and_rows_agree() -> None:
    kept = AggregatedRows()
    kept.save(stream_of(seed=7, ids=40, steps=4_000))
    rows = Counter(told.transition.counted_kind for told in kept.told.values())
    counted: Counter[TransitionKind] = Counter()
    for (_, _, kind), n in kept.counts.items():
        counted[kind] += n
    assert {kind: n for kind, n in counted.items() if kind not in EVERYDAY and n} == rows
    assert sum(kept.open_times.values()) == counted[TransitionKind.COMMIT]


def test_the_recent_transitions_are_the_last_twenty() -> None:
    kept, stream = AggregatedRows(), stream_of(seed=11, ids=1, steps=200)
    for start in range(0, len(stream), 7):
        kept.save(stream[start : start + 7])
    (prior,) = kept.priors.values()
    entries = transition_ring.unpack_ring(prior.packed, PARTITION)
    assert len(entries) == 20
    assert [entry.offset for entry in entries] == sorted((entry.offset for entry in entries), reverse=True)


def test_what_cannot_be_decoded_is_counted_and_everything_else_is_folded() -> None:
    record = TransactionRecord("a-1", TransactionState.EMPTY, 7, 0, 60_000, None, 1_000, None)
    bad = RawRecord(b"\x00\x63" + encode_value(record)[2:], 1)
    good = RawRecord(encode_value(record), 2)
    folded = Folded()
    fold_records(folded, 0, {encode_key("a-1"): [bad, good], b"\x00\x07xyz": [good]}, {}, ())
    assert folded.undecoded == {"value_version": 1, "key_version": 1}
    assert folded.strange["value_version"] == (0, 1, "value version 99")
    assert folded.newest[encode_key("a-1")].offset == 2


def test_a_row_that_came_from_the_coordinators_list_makes_the_next_record_a_baseline() -> None:
    record = TransactionRecord("a-1", TransactionState.COMPLETE_ABORT, 7, 4, 60_000, (), 1_000, 900)
    folded = Folded()
    records = {encode_key("a-1"): [RawRecord(encode_value(record), 50)]}
    fold_records(folded, 0, records, {encode_key("a-1"): Prior(TransactionState.ONGOING)}, (10,))
    assert folded.states == {TransactionState.ONGOING: -1, TransactionState.COMPLETE_ABORT: 1}
    (only,) = transition_ring.unpack_ring(folded.newest[encode_key("a-1")].packed, 0)
    assert only.kind is TransitionKind.BASELINE


PARTITIONS = (0, 4, 49)
#: Examples of tables in the gate, where each is 400 records on average.
FEW = 30
MILLIONS = float(os.environ.get("FENCELINE_MILLIONS", "10"))
Priors = dict[int, dict[bytes, Prior]]


def spoiled(dice: random.Random, key: bytes, raw: RawRecord) -> tuple[bytes, RawRecord]:
    """Return a record as it was, or with one thing wrong with it."""
    value, chance = raw.value or b"", dice.random()
    if chance < 0.005:
        return key, raw._replace(value=value[: dice.randrange(len(value) + 1)], at_ms=None)
    if chance < 0.01 and value:
        at = dice.randrange(len(value))
        return key, raw._replace(
            value=value[:at] + bytes([value[at] ^ 1 << dice.randrange(8)]) + value[at + 1 :]
        )
    if chance < 0.012:
        return dice.choice((b"", b"\0\7xx", key + b"x", key[:-1])), raw
    return key, raw


def tagged(dice: random.Random, raw: RawRecord) -> RawRecord:
    """Return a record of a client of version 0 with tags that later brokers write; 9 is known to nobody."""
    if raw.value is None or raw.value[:2] != b"\0\1" or raw.value[-1:] != b"\0":
        return raw
    number, epoch = raw.value[2:10], raw.value[10:12]
    tags = [b"\0\x08" + number, b"\1\x08" + number, b"\2\2\0\2", b"\4\2" + epoch, b"\x09\1x"]
    chosen = dice.choice(((0,), (0, 2), (0, 2, 3), (2,), (1, 2), (0, 1, 3), (4,)))
    return raw._replace(value=raw.value[:-1] + bytes([len(chosen)]) + b"".join(tags[tag] for tag in chosen))


def random_streams(dice: random.Random) -> dict[int, Stream]:
    streams = {}
    shared, tags = dice.random() < 0.3, dice.random() < 0.5
    for number in PARTITIONS:
        stream = stream_of(dice.randrange(10**9), dice.choice((1, 3, 6)), dice.choice((20, 120, 300)))
        if not shared:
            stream = [(_renamed(key, number), raw) for key, raw in stream]
        if tags:
            stream = [(key, tagged(dice, raw)) for key, raw in stream]
        streams[number] = [spoiled(dice, key, raw) for key, raw in stream]
    return streams


def _renamed(key: bytes, number: int) -> bytes:
    name = key[4:] + f"-{number}".encode()
    return key[:2] + len(name).to_bytes(2, "big") + name


def with_holes(dice: random.Random, streams: dict[int, Stream]) -> dict[int, tuple[int, ...]]:
    """Take some records out of some streams; return the offsets behind them."""
    holes = {}
    for number, stream in streams.items():
        if stream and dice.random() < 0.4:
            holes[number] = tuple(
                sorted({dice.randrange(len(stream)) + 1 for _ in range(dice.choice((1, 2, 9)))})
            )
            streams[number] = [each for each in stream if each[1].offset + 1 not in holes[number]]
    return holes


def table_of(dice: random.Random, streams: Mapping[int, Stream]) -> RecordTable:
    """Return records as a tail reads them, in batches of any kind."""
    parts = []
    for number, stream in streams.items():
        batches, at, size = [], 0, dice.choice((1, 1, 30))
        while at < len(stream):
            batches.append(raw_batch(stream[at : at + size], codec=dice.choice((0, 0, 0, *CODECS))))
            at += size
        data = b"".join(batches)
        parts.append(LogPart(number, 0, data, whole_batches(data)))
    columns, _, bad = read_parts(parts, decompress)
    return RecordTable.sort(columns, bad)


def fold_singly(
    streams: Mapping[int, Stream], priors: Priors, holes: Mapping[int, tuple[int, ...]]
) -> Folded:
    folded = Folded()
    for number, stream in streams.items():
        records: dict[bytes, list[RawRecord]] = {}
        for key, raw in stream:
            records.setdefault(key, []).append(raw)
        known = dict(priors[number])
        for key in records.keys() & folded.newest.keys():
            record = folded.newest[key].record
            known[key] = Prior(record and record.state)
        fold_records(folded, number, records, known, holes.get(number, ()))
    return folded


def parts_of(streams: Mapping[int, Stream], polls: int) -> Iterable[dict[int, Stream]]:
    for poll in range(polls):
        yield {
            number: stream[len(stream) * poll // polls : len(stream) * (poll + 1) // polls]
            for number, stream in streams.items()
        }


def without_starts(stream: Stream) -> Stream:
    """Return records of the first days of 1970 that name no start, as no broker writes them."""
    return [(key, raw._replace(value=raw.value and _without_start(raw.value))) for key, raw in stream]


def _without_start(value: bytes) -> bytes:
    end = len(value) - {b"\0\0": 0}.get(value[:2], 1 if value[-1:] == b"\0" else 5)
    updated_ms = int.from_bytes(value[end - 16 : end - 8], "big") % 2**31
    return value[: end - 16] + updated_ms.to_bytes(8, "big") + b"\xff" * 8 + value[end:]


def compare(seed: int, change: Callable[[Stream], Stream] = list) -> int:
    """Fold random streams both ways; return how many records they had."""
    dice = random.Random(seed)
    streams = {number: change(stream) for number, stream in random_streams(dice).items()}
    holes = with_holes(dice, streams)
    priors: Priors = {number: {} for number in PARTITIONS}
    for part in parts_of(streams, dice.choice((1, 1, 2, 5, 20))):
        singly, together = fold_singly(part, priors, holes), Folded()
        fold_table(together, table_of(dice, part), priors, holes)
        assert together.newest == singly.newest, seed
        assert _counts(together) == _counts(singly), seed
        assert together == replace(singly, states=together.states), seed
        for key, newest in singly.newest.items():
            state = newest.record.state if newest.record else None
            priors[newest.partition][key] = Prior(state, newest.record, newest.offset, newest.packed)
    return sum(map(len, streams.values()))


def _counts(folded: Folded) -> dict[object, int]:
    return {state: n for state, n in folded.states.items() if n}


@settings(max_examples=FEW)
@given(st.integers(0, 10**9))
def test_a_table_is_folded_as_its_single_records_are(seed: int) -> None:
    """Of every third stream no record names a start."""
    compare(seed, list if seed % 3 else without_starts)


@pytest.mark.matrix
@pytest.mark.parametrize("half", [0, 1])
def test_so_are_ten_million_records(half: int) -> None:
    records, seed = 0, half
    while records < MILLIONS * 500_000:
        records += compare(seed)
        seed += 2
    print(f"{records:,} records of {seed // 2} streams: equal")


@given(st.lists(st.integers(-5, 2**33)))
def test_buckets_in_columns_are_those_of_single_durations(spans: list[int]) -> None:
    import numpy as np

    assert bucket_column(np.array(spans, np.int64)).tolist() == [bucket_of(ms) for ms in spans]


def test_a_folded_table_is_freed_without_a_search_for_cycles() -> None:
    dice = random.Random(8)
    table = table_of(dice, random_streams(dice))
    assert sum(len(raws) for some in table.values() for raws in some.values()) == table.count > 0
    freed = weakref.ref(table)
    gc.disable()
    try:
        fold_table(Folded(), table, {}, {})
        del table
        assert freed() is None
    finally:
        gc.enable()
