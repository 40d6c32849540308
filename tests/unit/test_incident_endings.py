"""Proves how an incident says in one sentence how it ended: by whom, and never surer than the verdict."""

import pytest

from fenceline.facts import Confidence, Transition, TransitionKind, TransitionReason
from fenceline.incidents.outcomes import (
    ActionTaken,
    BatchEnd,
    batch_ending,
    end_of_transaction,
    transaction_ending,
)

Kind, Reason = TransitionKind, TransitionReason
#: 02:16:07 UTC.
NOW_MS = 1_795_486_567_000
BY_ADA = ActionTaken(2, "ada", "INC-4411")


def end(
    kind: Kind,
    confidence: Confidence = Confidence.CERTAIN,
    reason: Reason = Reason.BROKER_LATE,
    open_ms: int | None = 50,
) -> Transition:
    return Transition(kind, confidence, reason, NOW_MS, 7, 1, 1, 60_000, open_ms, None, None, 3, 9)


ENDS = [
    (end(Kind.COMMIT), None, "Its producer committed it at 02:16:07 UTC; nothing was lost."),
    (end(Kind.CLIENT_ABORT), None, "Its producer aborted it at 02:16:07 UTC."),
    (end(Kind.TIMEOUT), None, "Its coordinator aborted it at its timeout at 02:16:07 UTC."),
    (
        end(Kind.TAKEOVER, Confidence.PROBABLE),
        None,
        "Another producer with the same id fenced it at 02:16:07 UTC (probable).",
    ),
    (
        end(Kind.TAKEOVER, Confidence.AMBIGUOUS),
        None,
        "It was aborted at 02:16:07 UTC; records cannot decide by whom.",
    ),
    (
        end(Kind.ADMIN_FENCE, reason=Reason.FENCED_BY_ACTION),
        BY_ADA,
        "Fenced by ada, action 2, reason INC-4411 at 02:16:07 UTC.",
    ),
    (
        end(Kind.ADMIN_FENCE, Confidence.PROBABLE, Reason.ADMIN_TIMEOUT),
        BY_ADA,
        "An administrator fenced it from outside at 02:16:07 UTC (probable).",
    ),
]


@pytest.mark.parametrize(("ended", "action", "words"), ENDS)
def test_a_transaction_ends_in_one_sentence(
    ended: Transition, action: ActionTaken | None, words: str
) -> None:
    assert transaction_ending(ended, action) == words


def test_an_end_is_that_of_the_transaction_that_began_then() -> None:
    ring = [end(Kind.INIT), end(Kind.COMMIT, open_ms=None), end(Kind.COMMIT, open_ms=900), end(Kind.TIMEOUT)]
    found = end_of_transaction(ring, f"7@{NOW_MS - 50}")
    assert found is not None
    assert found.kind is Kind.TIMEOUT
    assert end_of_transaction(ring, f"7@{NOW_MS - 51}") is None
    assert end_of_transaction(ring, "") is None


@pytest.mark.parametrize(
    ("outcome", "lost", "restarted_ms", "action", "words"),
    [
        ("committed", 0, NOW_MS - 7_000, None,
         "The driver came back at 02:16:00 UTC and committed all 322 rows; nothing was lost."),
        ("committed", 0, None, None, "Its driver committed all 322 rows at 02:16:07 UTC; nothing was lost."),
        ("committed", 0, None, BY_ADA,
         "Finished by ada, action 2, reason INC-4411 at 02:16:07 UTC: all 322 rows committed, "
         "nothing was lost."),
        ("lost", 20, None, None,
         "Batch 1,204 was lost in part: 20 rows of 322 aborted, recorded at 02:16:07 UTC."),
        ("aborted", 0, None, None,
         "Batch 1,204 was aborted at 02:16:07 UTC; the next run reads its input again."),
    ],
)  # fmt: skip
def test_a_batch_ends_in_one_sentence(
    outcome: str, lost: int, restarted_ms: int | None, action: ActionTaken | None, words: str
) -> None:
    assert batch_ending(BatchEnd(1_204, outcome, NOW_MS, 322, lost, restarted_ms), action) == words
