"""Proves that no finding becomes critical from one poll of its sources, and that none waits for ever."""

from typing import Any

import pytest

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.second_polls import SecondPolls
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.models import FindingRecord, Query
from dashboard.runtime.leases import Lease
from fenceline.limits import Limits
from fenceline.rules import RULES, source_collectors
from tests.db import factories
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import query


@pytest.fixture
def lease(take: Take) -> Lease:
    return take(evaluate_rules.NAME)


@pytest.fixture
def reader(lease: Lease) -> SnapshotReader:
    factories.collectors("transaction_state", "checkpoints")
    return SnapshotReader("prod")


def damage_checkpoint(severity: str, words: str = "fails") -> Query:
    """A query whose restart would fail, by the last poll of its checkpoint."""
    row = Query.objects.filter(ident__isnull=False).first() or query()
    row.restart, row.restart_words = "previous_missing", words
    row.detail = {**row.detail, "restart": {"first_batch": None, "severity": severity, "remedy": "r"}}
    row.rev += 1
    row.save()
    return row


def severities(lease: Lease, reader: SnapshotReader, ticks: int = 1) -> list[str]:
    for _ in range(ticks):
        evaluate_rules.evaluate_cluster(lease, reader, now_ms=NOW_MS)
    rows = FindingRecord.objects.filter(closed_at=None, rule="restart_fails")
    return list(rows.values_list("severity", flat=True))


def test_ticks_over_a_single_poll_open_nothing_critical(lease: Lease, reader: SnapshotReader) -> None:
    damage_checkpoint("critical")
    assert severities(lease, reader, ticks=5) == []
    factories.complete_next_polls()
    # This may be the look that was being saved.
    assert severities(lease, reader, ticks=5) == []
    factories.complete_next_polls()
    assert severities(lease, reader) == ["critical"]
    assert severities(lease, reader) == ["critical"]


def test_a_warning_opens_at_once_and_is_raised_by_a_second_poll(lease: Lease, reader: SnapshotReader) -> None:
    damage_checkpoint("warning", "is odd")
    assert severities(lease, reader) == ["warning"]
    damage_checkpoint("critical", "fails")
    for _ in range(2):
        assert severities(lease, reader, ticks=2) == ["warning"]
        assert FindingRecord.objects.get(rule="restart_fails").evidence == "A restart is odd"
        factories.complete_next_polls()
    assert severities(lease, reader) == ["critical"]
    assert FindingRecord.objects.get(rule="restart_fails").evidence == "A restart fails"


def test_a_finding_missing_in_the_next_poll_restarts_its_confirmation(
    lease: Lease, reader: SnapshotReader
) -> None:
    for _ in range(4):
        damage_checkpoint("critical")
        assert severities(lease, reader) == []
        factories.complete_next_polls()
        damage_checkpoint("info")
        assert severities(lease, reader) == []
        factories.complete_next_polls()


def test_a_new_evaluator_restarts_confirmations_and_keeps_open_findings(
    lease: Lease, reader: SnapshotReader, take: Take
) -> None:
    damage_checkpoint("critical")
    severities(lease, reader)
    factories.complete_next_polls()
    severities(lease, reader)
    factories.complete_next_polls()
    second = take(evaluate_rules.NAME, previous=lease.token)
    assert severities(second, reader) == []
    for _ in range(2):
        factories.complete_next_polls()
        severities(second, reader)
    assert severities(second, reader) == ["critical"]
    third = take(evaluate_rules.NAME, previous=second.token)
    assert severities(third, SnapshotReader("prod")) == ["critical"]


def test_a_reported_finding_needs_no_second_poll(lease: Lease, reader: SnapshotReader) -> None:
    query(state="failed", exception="boom")
    evaluate_rules.evaluate_cluster(lease, reader, now_ms=NOW_MS)
    assert FindingRecord.objects.get(rule="query_failed").severity == "critical"


def test_a_source_that_is_behind_is_not_waited_for(reader: SnapshotReader) -> None:
    factories.collectors("transaction_state-1", "transaction_state-2")
    factories.collectors("transaction_state-2", seen_ms=NOW_MS - 3_600_000)
    snapshot = reader.read(now_ms=NOW_MS, limits=Limits())
    how: dict[str, Any] = {"now_ms": NOW_MS, "limits": Limits()}
    assert "transaction_state-1" in source_collectors("coordinator_overdue", snapshot, **how)
    assert "transaction_state-2" not in source_collectors("coordinator_overdue", snapshot, **how)
    assert [name for name in RULES if RULES[name].settled] == [
        "aborted_under_commit",
        "hanging",
        "lso_pinned",
        "flink_commit_lost",
    ]
    assert list(source_collectors("hanging", snapshot, **how)) == []


def test_every_source_must_have_polled_again() -> None:
    waits = SecondPolls()
    looks = [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 2}, {"a": 3, "b": 3}, {"a": 4, "b": 3}]
    assert [bool(waits.unconfirmed_findings("t", {b"k": marks})) for marks in looks] == [True] * 4 + [False]
    assert waits.unconfirmed_findings("t", {b"other": {"a": None}}) == {b"other"}
    assert waits.unconfirmed_findings("t", {b"event": {}}) == set()
