"""Proves that old batches, runs and decisions are deleted; the newest and open ones of a query never."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.models import Batch, Query, Run, SinkDecision
from dashboard.runtime import retention
from fenceline.limits import Retention
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import batch, decision, decision_end, decision_row, prune_all, query
from tests.db.test_snapshots import plans

pytestmark = pytest.mark.sql

DAY_MS = 86_400_000
KEEP = Retention(batches_d=10)


def add_old_batches(of: Query, number: int, *, days: float) -> None:
    """Let `number` batches be that old, each with its decision."""
    at_ms = NOW_MS - int(days * DAY_MS)
    for batch_id in range(number):
        batch(of, batch_id, planned_ms=at_ms, committed_ms=at_ms + 10)
        row = decision_row(of, decision(batch_id, at_ms=at_ms), decision_end(batch_id))
        SinkDecision.objects.filter(pk=row.pk).update(done_ms=at_ms)


def remaining_batches(table: type[Batch] | type[SinkDecision], of: Query) -> list[int]:
    return sorted(table.objects.filter(query=of).values_list("batch_id", flat=True))


def test_old_batches_are_deleted_and_the_newest_stay(take: Take) -> None:
    old, young, short = (query(each, checkpoint=each) for each in ("old", "young", "short"))
    add_old_batches(old, 120, days=11)
    add_old_batches(young, 120, days=9)
    add_old_batches(short, 100, days=400)
    prune_all(take(retention.NAME), KEEP)
    for table in (Batch, SinkDecision):
        assert remaining_batches(table, old) == list(range(20, 120))
        assert (len(remaining_batches(table, young)), len(remaining_batches(table, short))) == (120, 100)


def test_open_decisions_stay(take: Take) -> None:
    row = query()
    add_old_batches(row, 120, days=11)
    SinkDecision.objects.filter(batch_id=3).update(outcome="")
    prune_all(take(retention.NAME), KEEP)
    assert remaining_batches(SinkDecision, row) == [3, *range(20, 120)]


def test_batches_known_only_from_a_listener_are_deleted_too(take: Take) -> None:
    row = query()
    for batch_id in range(105):
        batch(row, batch_id, planned_ms=None, offsets=[], started_ms=NOW_MS - 11 * DAY_MS)
    prune_all(take(retention.NAME), KEEP)
    assert len(remaining_batches(Batch, row)) == 100


def test_rows_are_deleted_in_portions(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 7)
    row = query()
    add_old_batches(row, 120, days=11)
    assert prune_all(take(retention.NAME), KEEP) == 6
    assert len(remaining_batches(Batch, row)) == 100


def test_runs_are_deleted_except_the_newest(take: Take) -> None:
    row = query(run_id="newest")
    for run_id, days in (("newest", 20), ("old", 20), ("young", 9)):
        at_ms = NOW_MS - days * DAY_MS
        Run.objects.create(query=row, run_id=run_id, first_heard_ms=at_ms, heard_ms=at_ms)
    prune_all(take(retention.NAME), KEEP)
    assert sorted(Run.objects.values_list("run_id", flat=True)) == ["newest", "young"]


# It asks SQLite for its plans.
@pytest.mark.sql("sqlite")
def test_finding_old_rows_scans_no_table(take: Take) -> None:
    add_old_batches(query(), 101, days=1)
    lease = take(retention.NAME)
    with CaptureQueriesContext(connection) as captured:
        retention.prune(lease, KEEP, now_ms=NOW_MS)
    asked = [(sql, plan) for sql, plan in plans(captured) if "_batch" in sql or "_sinkdecision" in sql]
    assert asked
    assert not [sql for sql, plan in asked if "SCAN" in plan and "SCAN dashboard_query" not in plan]
