"""Proves that a closed incident says how it ended, from the rows that stores keep of its cause."""

from typing import Any

import pytest

from dashboard.incidents.endings import outcome_of
from dashboard.models import AbortedCommit, Action, Incident, IncidentFinding, PartitionRecord, Run
from fenceline.facts import TransitionKind
from fenceline.kafka.transactional_ids import key_of
from fenceline.spark.records import DecisionOutcome
from tests.db import factories
from tests.db.conftest import NOW_MS
from tests.db.factories import prod

pytestmark = pytest.mark.sql
PART = "partition:orders-0"


def closed(rule: str, subject: str, instance: str = "", **columns: Any) -> Incident:
    given = {"opened_ms": NOW_MS, "since_ms": NOW_MS - 5_000, "closed_ms": NOW_MS + 60_000, **columns}
    return Incident.objects.create(
        cluster=prod(), rule=rule, subject=subject, instance=instance, severity="warning", **given
    )


def action(subject: str, **columns: Any) -> Action:
    given = {
        "state": "done",
        "ended_ms": NOW_MS + 50_000,
        "executed_by": "ada",
        "reason": "INC-4411",
        **columns,
    }
    return Action.objects.create(
        cluster=prod(), act="fence", plan={}, digest="d", subjects=subject, planned_by="ada",
        expires_ms=NOW_MS, **given,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (TransitionKind.COMMIT, "Its producer committed it at"),
        (TransitionKind.TIMEOUT, "Its coordinator aborted it at its timeout at"),
    ],
)
def test_a_transaction_that_ended_by_itself(kind: TransitionKind, words: str) -> None:
    factories.recent_end("payments-7", kind, producer_id=7, started_ms=NOW_MS)
    outcome = outcome_of(closed("open_too_long", "transaction:payments-7", f"7@{NOW_MS}"))
    assert outcome.startswith(words)
    assert outcome_of(closed("open_too_long", "transaction:payments-7", f"7@{NOW_MS - 1}")) == ""


def test_a_commit_that_lost_records_before_says_so() -> None:
    factories.recent_end("payments-7", TransitionKind.COMMIT, producer_id=7, started_ms=NOW_MS)
    row = closed("open_too_long", "transaction:payments-7", f"7@{NOW_MS}")
    assert outcome_of(row).endswith("; nothing was lost.")
    AbortedCommit.objects.create(
        cluster=prod(), key=key_of(b"payments-7"), transactional_id="payments-7", producer_id=7,
        started_ms=NOW_MS, committed_ms=NOW_MS, lost=[["orders", 0, 3, 9, 5, True]],
    )  # fmt: skip
    assert outcome_of(row).endswith("; 5 records had been lost before.")


def test_a_transaction_whose_topics_are_gone() -> None:
    row = closed("open_too_long", "transaction:payments-7", f"7@{NOW_MS}")
    IncidentFinding.objects.create(
        incident=row, finding=1, rule="lso_pinned", subject=PART, role="effect", severity="info",
        summary="s", since_ms=NOW_MS,
    )  # fmt: skip
    factories.partition("orders", 0)
    assert outcome_of(row) == ""
    PartitionRecord.objects.all().delete()
    assert outcome_of(row) == "The topic orders was deleted."


def test_a_partition_was_released_by_an_action_or_its_topic_is_gone() -> None:
    factories.partition("orders", 0)
    PartitionRecord.objects.update(pinned_ms=None)
    row = closed("hanging", PART, "7@40")
    assert outcome_of(row).startswith("The last stable offset moved on at")
    action("partition:orders-01\nmore")
    assert outcome_of(row).startswith("The last stable offset moved on at"), "of another subject"
    done = action(f"{PART}\nmore")
    assert outcome_of(row) == f"Aborted by ada, action {done.pk}, reason INC-4411."
    PartitionRecord.objects.all().delete()
    assert outcome_of(row) == "The topic orders was deleted."


def test_a_batch_that_the_next_run_committed_and_one_that_an_operator_finished() -> None:
    query = factories.query()
    subject = f"query:{query.ident}"
    decision = factories.decision_row(query, factories.decision(3), factories.decision_end(3))
    row = closed("batch_prepared", subject, "batch 3")
    assert outcome_of(row).startswith("Its driver committed all 500 rows at")
    Run.objects.create(query=query, run_id="r-2", first_heard_ms=NOW_MS + 40_000, heard_ms=NOW_MS + 50_000)
    assert outcome_of(row).startswith("The driver came back at ")
    decision.done_by = "operator"
    decision.save()
    done = action(subject)
    assert outcome_of(row).startswith(f"Finished by ada, action {done.pk}, reason INC-4411 at")


def test_a_batch_that_was_lost_says_how_many_rows() -> None:
    query = factories.query()
    lost = factories.sink_transaction(batch=3).transactional_id
    end = factories.decision_end(3, DecisionOutcome.LOST, lost)
    factories.decision_row(query, factories.decision(3, number=2), end)
    outcome = outcome_of(closed("batch_lost", f"query:{query.ident}", "batch 3"))
    assert outcome.startswith("Batch 3 was lost in part: 500 rows of 1,000 aborted")


def test_what_nothing_shows_is_not_claimed() -> None:
    assert outcome_of(closed("group_stalled", "group:billing")) == ""
    assert outcome_of(closed("query_failed", f"query:{factories.query().ident}")) == ""
