"""Proves by cases what a commit has lost to abort markers before it, and whose a marker is."""

import pytest

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition, Transition, TransitionKind
from fenceline.losses.aborted_commits import CommittedTransaction, end_of, lost_before_commit
from tests.unit.factories import transition_of

P0 = TopicPartition("payments", 0)
OURS, OTHERS, EPOCH = 7, 8, 4
BEGUN_MS, COMMITTED_MS = 1_000_000, 1_060_000
WITH_OWN_EPOCH = CommittedTransaction(OURS, EPOCH, BEGUN_MS, COMMITTED_MS, own_epoch=True)


def log(text: str) -> list[RecordBatch]:
    """Read batches from text: `x2@0` two records at offset 0, `abort@5+20` a marker 20 s after the beginning.

    A leading `o` is another producer's, `e` an earlier epoch's.
    """
    return [_batch(word) for word in text.split()]


def _batch(word: str) -> RecordBatch:
    what, _, at = word.partition("@")
    offset, _, seconds = at.partition("+")
    producer = OTHERS if what.startswith("o") else OURS
    epoch = EPOCH - 1 if what.startswith("e") else EPOCH
    marker = next((each for each in ("abort", "commit") if what.endswith(each)), "")
    records = 1 if marker else int(what[-1])
    first = int(offset)
    at_ms = BEGUN_MS + int(float(seconds or 0) * 1_000)
    return RecordBatch(first, first + records - 1, producer, epoch, True, marker, records, at_ms)


@pytest.mark.parametrize(
    ("number", "text", "expected", "why"),
    [
        (1, "x3@0 abort@3+20 x2@4 commit@6+60", (0, 2, 3), "what came before the marker is lost"),
        (2, "x3@0 abort@3+20 commit@4+60", (0, 2, 3), "nothing came behind it"),
        (3, "x3@0 commit@3+60", (None, None, 0), "no marker"),
        (4, "abort@0+20 x3@1 commit@4+60", (None, None, 0), "a marker before any record"),
        (5, "x3@0 abort@3+20 abort@4+21 commit@5+60", (0, 2, 3), "the second marker takes no more"),
        (6, "x3@0 abort@3+20 x2@4 abort@6+30 x1@7 commit@8+60", (0, 5, 5), "each marker takes its part"),
        (7, "x3@0 oabort@3+20 commit@4+60", (None, None, 0), "the marker is another producer's"),
        (8, "x2@0 o5@2 x1@7 abort@8+20 ocommit@9+30 commit@10+60", (0, 7, 3), "others write between"),
        (9, "e3@0 abort@3+-1 x2@4 commit@6+60", (None, None, 0), "the abort before is of an earlier epoch"),
        (10, "e3@0 commit@3+-1 x2@4 abort@6+9 commit@7+60", (4, 5, 2), "the commit before is of another"),
        (11, "x3@0 abort@3+20 x2@4", None, "its commit marker is not read yet"),
        (12, "x3@0 commit@3+60 x2@4 abort@6+70", (None, None, 0), "what follows is the next transaction's"),
    ],
)
def test_lost_before_commit(
    number: int, text: str, expected: tuple[int | None, int | None, int] | None, why: str
) -> None:
    found = lost_before_commit(P0, log(text), WITH_OWN_EPOCH)
    told = None if found is None else (found.first, found.last, found.records)
    assert told == expected, f"case {number}: {why}"


@pytest.mark.parametrize(
    ("number", "text", "first_offset", "expected", "why"),
    [
        (1, "x3@0 abort@3+-1 x2@4 commit@6+60", None, 0, "it is the abort of the one before"),
        (2, "x3@0 abort@3+1 x2@4 commit@6+60", None, 3, "it was written after the beginning"),
        (3, "x3@0 abort@3+-1 x2@4 abort@6+20 commit@7+60", None, 2, "the second marker is foreign"),
        (4, "x3@0 abort@3+7 x2@4 commit@6+68", None, 0, "the leader's clock is ahead by 8 s: before it"),
        (5, "x3@0 abort@3+9 x2@4 commit@6+68", None, 3, "the same: after it"),
        (6, "x3@0 abort@3+-7 x2@4 commit@6+52", None, 3, "the leader's clock is behind by 8 s: after it"),
        (7, "x3@0 abort@3+-9 x2@4 commit@6+52", None, 0, "the same: before it"),
        (8, "x3@0 abort@3+0 x2@4 commit@6+62", 0, 3, "its records were seen open before the marker"),
        (9, "x3@0 abort@3+0 x2@4 commit@6+62", 4, 0, "its records were seen open behind the marker only"),
        (10, "x3@0 commit@3+-1 x2@4 commit@6+60", None, 0, "the first commit is of the one before"),
    ],
)
def test_a_marker_may_be_of_an_earlier_transaction_of_the_same_epoch(
    number: int, text: str, first_offset: int | None, expected: int, why: str
) -> None:
    found = lost_before_commit(P0, log(text), WITH_OWN_EPOCH._replace(own_epoch=False), first_offset)
    assert found is not None
    assert found.records == expected, f"case {number}: {why}"


def transition(kind: TransitionKind, at_s: float, open_s: float | None = None) -> Transition:
    at_ms, open_ms = BEGUN_MS + int(at_s * 1_000), None if open_s is None else int(open_s * 1_000)
    return transition_of(
        kind, at_ms=at_ms, producer_id=OURS, producer_epoch=EPOCH, open_ms=open_ms, completed_ms=at_ms + 5
    )


COMMIT = transition(TransitionKind.COMMIT, 60, 60)


def test_the_end_is_that_of_the_very_transaction() -> None:
    later, begin = transition(TransitionKind.COMMIT, 90, 10), transition(TransitionKind.BEGIN, 0)
    assert end_of([later, COMMIT, begin], BEGUN_MS) == COMMIT
    assert end_of([later, begin], BEGUN_MS) is None
    aborted = transition(TransitionKind.TIMEOUT, 30, 30)
    assert end_of([aborted, begin], BEGUN_MS) == aborted
