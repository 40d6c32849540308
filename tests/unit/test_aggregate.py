"""Proves that a fold does not depend on where the stream is cut, and that what it keeps adds up.

Any sequence of records, cut anywhere into saves, leaves the same states, the same last transitions, the same
notable ones and the same counters as one fold of all of it.
"""

import random
from collections import Counter
from itertools import pairwise
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import EVERYDAY, RawRecord, TransactionRecord, TransactionState, TransitionKind
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.aggregate import IdFold, fold_records
from fenceline.kafka.fold.folded import Folded, NotableTransition, Prior
from fenceline.series.histograms import merge_histograms
from tests.transaction_state_records import encode_key, encode_value
from tests.unit.random_histories import RandomHistory

PARTITION = 4
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


@given(st.integers(0, 10**6), st.lists(st.integers(0, 400), max_size=12))
def test_where_the_stream_is_cut_changes_nothing(seed: int, cuts: list[int]) -> None:
    stream = stream_of(seed, ids=5, steps=120)
    whole, parts = AggregatedRows(), AggregatedRows()
    whole.save(stream)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in pairwise(edges):
        parts.save(stream[start:end])
    assert parts.everything() == whole.everything()


@given(st.integers(0, 10**6))
def test_the_fast_path_gives_the_same_result_as_the_full_one(seed: int) -> None:
    stream = stream_of(seed, ids=5, steps=120)
    short, long = AggregatedRows(), AggregatedRows()
    short.save(stream)
    with patch.object(IdFold, "_everyday", lambda self, raws, at: at):
        long.save(stream)
    assert short.everything() == long.everything()


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
