"""Proves what became of a transaction of the sink, by its coordinator and by later transitions of its id,
and how many rows a batch wrote."""

from typing import Any

import pytest

from fenceline.facts import TransactionState, Transition, TransitionKind
from fenceline.spark.records import Decided, Decision, DecisionOutcome, Done
from fenceline.spark.sink_fates import (
    Coordinated,
    TransactionFate,
    outcome_by_coordinator,
    outcome_by_history,
    rows_written,
)
from tests.unit.factories import transition_of
from tests.unit.sink_batches import BAD, DARK, GOING, GOOD, NOW_MS, OPEN, STARTED_MS, decided, done, written


@pytest.mark.parametrize(
    ("number", "decision", "outcome", "rows"),
    [
        (1, decided(), done(), 1_000),
        (2, decided(), None, None),
        (3, decided(), done(DecisionOutcome.LOST, written(1).transactional_id), 500),
        (4, decided(Decided.ABORTED), done(DecisionOutcome.ABORTED), None),
        (5, decided(number=0), done(), 0),
    ],
)
def test_rows_written_are_the_ledgers(
    number: int, decision: Decision, outcome: Done | None, rows: int | None
) -> None:
    assert rows_written(decision, outcome) == rows, f"case {number}"


def newest(state: TransactionState, *, epoch: int = 3, version: int = 0, **more: Any) -> Coordinated:
    values = {"producer_id": 4_000, "started_ms": STARTED_MS, **more}
    return Coordinated(state, producer_epoch=epoch, updated_ms=NOW_MS, client_version=version, **values)


@pytest.mark.parametrize(
    ("number", "now", "fate", "why"),
    [
        (1, newest(TransactionState.ONGOING), OPEN, "as it was left"),
        (2, newest(TransactionState.PREPARE_COMMIT), GOING, "decided, markers are being written"),
        (
            3,
            newest(TransactionState.COMPLETE_COMMIT),
            GOOD,
            "the same epoch: a client of librdkafka, ended by EndTxn v4",
        ),
        (
            4,
            newest(TransactionState.COMPLETE_COMMIT, epoch=4, version=2),
            GOOD,
            "protocol 2 commits under the next epoch",
        ),
        (
            5,
            newest(TransactionState.COMPLETE_COMMIT, epoch=4),
            DARK,
            "an older one does not: another's commit",
        ),
        (
            6,
            newest(TransactionState.PREPARE_ABORT, epoch=4),
            BAD,
            "the coordinator's timeout raises the epoch",
        ),
        (7, newest(TransactionState.COMPLETE_ABORT, epoch=4, version=2), BAD, "so does protocol 2"),
        (8, newest(TransactionState.COMPLETE_ABORT), BAD, "aborted under its own epoch"),
        (9, newest(TransactionState.COMPLETE_ABORT, epoch=5), DARK, "two epochs on: another's abort"),
        (
            10,
            newest(TransactionState.EMPTY, epoch=4, started_ms=None),
            DARK,
            "initialised again: after what?",
        ),
        (11, newest(TransactionState.ONGOING, epoch=4), DARK, "another's transaction"),
        (12, newest(TransactionState.ONGOING, started_ms=NOW_MS), DARK, "the next one of the same producer"),
        (
            13,
            newest(TransactionState.COMPLETE_ABORT, started_ms=NOW_MS),
            DARK,
            "of the same epoch, and not ours",
        ),
        (14, newest(TransactionState.COMPLETE_COMMIT, producer_id=9), DARK, "another producer id"),
        (15, newest(TransactionState.COMPLETE_COMMIT, epoch=2), DARK, "older than ours: the row is old"),
        (
            16,
            newest(TransactionState.COMPLETE_COMMIT, started_ms=None),
            GOOD,
            "no start is told, the rest agrees",
        ),
        (17, None, DARK, "no such id is known"),
    ],
)
def test_the_outcome_of_a_transaction_follows_its_coordinator(
    number: int, now: Coordinated | None, fate: TransactionFate, why: str
) -> None:
    assert outcome_by_coordinator(written(), now).fate is fate, f"case {number}: {why}"


@pytest.mark.parametrize(
    ("number", "now", "again"),
    [
        (1, newest(TransactionState.ONGOING, epoch=4), True),
        (2, newest(TransactionState.ONGOING, started_ms=NOW_MS), True),
        (3, newest(TransactionState.COMPLETE_COMMIT, producer_id=9), True),
        (4, newest(TransactionState.EMPTY, epoch=4, started_ms=None), True),
        (5, newest(TransactionState.COMPLETE_COMMIT, epoch=2), False),
        (
            6,
            newest(TransactionState.COMPLETE_COMMIT, producer_id=9)._replace(updated_ms=STARTED_MS - 1),
            False,
        ),
        (7, None, False),
    ],
)
def test_an_id_is_used_again_only_by_a_later_record(
    number: int, now: Coordinated | None, again: bool
) -> None:
    assert outcome_by_coordinator(written(), now).id_used_again is again, f"case {number}"


def transition(kind: TransitionKind, *, started_ms: int = STARTED_MS, producer_id: int = 4_000) -> Transition:
    at_ms = NOW_MS - 700
    return transition_of(kind, at_ms=at_ms, producer_id=producer_id, open_ms=at_ms - started_ms)


@pytest.mark.parametrize(
    ("number", "past", "fate", "why"),
    [
        (1, [transition(TransitionKind.COMMIT)], GOOD, "what began when ours did was committed"),
        (2, [transition(TransitionKind.TIMEOUT)], BAD, "or aborted"),
        (3, [transition(TransitionKind.COMMIT, started_ms=STARTED_MS + 1)], DARK, "that was another one"),
        (4, [transition(TransitionKind.COMMIT, producer_id=9)], DARK, "another producer's"),
        (
            5,
            [transition(TransitionKind.BEGIN), transition(TransitionKind.CLIENT_ABORT)],
            BAD,
            "the next one is of no interest",
        ),
        (6, [], DARK, "nothing is known"),
    ],
)
def test_the_outcome_of_a_transaction_follows_later_transitions_of_its_id(
    number: int, past: list[Transition], fate: TransactionFate, why: str
) -> None:
    assert outcome_by_history(written(), past).fate is fate, f"case {number}: {why}"
