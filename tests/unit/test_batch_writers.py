"""Proves who wrote some batches, and whether their sequences follow one another."""

import pytest

from fenceline.decode.record_batches import BatchWriters, RecordBatch, SequenceStep, count_writers
from fenceline.kafka.partitions import ProducerState
from fenceline.text.record_fates import explain_break, explain_progress, explain_sequences


def batch(
    first: int, records: int, producer_id: int = -1, *, is_open: bool = False, marker: str = ""
) -> RecordBatch:
    return RecordBatch(first, first + records - 1, producer_id, 0, is_open, marker, records)


def test_records_are_counted_by_their_kind_of_producer() -> None:
    seen = count_writers(
        [
            batch(10, 3, 7, is_open=True),
            batch(13, 1, 7, is_open=True, marker="commit"),
            batch(14, 2, 8),
            batch(16, 5, 9),
            batch(21, 4),
            batch(25, 1, 8),
        ]
    )
    assert seen == BatchWriters(10, 26, 3, 8, 4, ((9, 5), (8, 3)))
    assert count_writers([]) == BatchWriters(0, 0)


NEXT, GAP, REPEAT = SequenceStep


@pytest.mark.parametrize(
    ("sequences", "steps"),
    [
        ([0, 1, 2], []),
        ([2**31 - 2, 2**31 - 1, 0, 1], []),
        ([0, 1, 1, 2], [(2, 1, 1, REPEAT)]),
        ([5, 0], [(1, 5, 0, REPEAT)]),
        ([0, 3, 4], [(1, 0, 3, GAP)]),
        ([2**31 - 1, 2], [(1, 2**31 - 1, 2, GAP)]),
        ([1, 2**31 - 1], [(1, 1, 2**31 - 1, REPEAT)]),
    ],
)
def test_a_batch_that_does_not_follow_is_named(
    sequences: list[int], steps: list[tuple[int, int, int, SequenceStep]]
) -> None:
    seen = count_writers([numbered(at, sequence) for at, sequence in enumerate(sequences)])
    assert (seen.following, seen.broken) == (len(sequences) - 1, len(steps))
    assert [(each.offset, each.last, each.found, each.step) for each in seen.breaks] == steps
    assert bool(explain_sequences(seen))
    assert all(f"Offset {offset}:" in explain_break(seen.breaks[n]) for n, (offset, *_) in enumerate(steps))


def test_producers_epochs_markers_and_plain_records_are_told_apart() -> None:
    batches = [
        numbered(0, 7),
        numbered(1, 0, producer_id=2),
        numbered(2, 0, epoch=1),
        numbered(3, 8),
        batch(4, 1, 1, is_open=True, marker="commit"),
        batch(5, 1),
        numbered(6, 9),
    ]
    seen = count_writers(batches)
    assert (seen.following, seen.broken) == (2, 0)
    assert explain_sequences(count_writers(batches[:3])) == ""


def test_of_many_breaks_the_first_are_named_and_all_counted() -> None:
    seen = count_writers([numbered(at, 0) for at in range(100)])
    assert (seen.broken, len(seen.breaks)) == (99, 20)


def numbered(at: int, sequence: int, *, producer_id: int = 1, epoch: int = 0) -> RecordBatch:
    return RecordBatch(at, at, producer_id, epoch, False, "", 1, base_sequence=sequence)


@pytest.mark.parametrize(
    ("before", "now", "shown"),
    [
        (None, (0, 4), "not known then"),
        ((0, 4), (0, 4), "nothing new"),
        ((0, 4), (0, 1_304), "+1,300"),
        ((0, -1), (0, 2), "+3"),
        ((0, 2**31 - 1), (0, 4), "+5"),
        ((0, 4), (1, -1), "epoch 0 → 1"),
        ((0, 9), (0, 4), "went back from 9: its state was lost"),
    ],
)
def test_progress_between_two_answers_is_shown(
    before: tuple[int, int] | None, now: tuple[int, int], shown: str
) -> None:
    states = [ProducerState(1, *each, 0, None, None) if each else None for each in (before, now)]
    assert states[1]
    assert explain_progress(states[0], states[1]) == shown
