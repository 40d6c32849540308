"""Proves that old rows are deleted in small portions, and no others: the newest and open ones of a query
never, and of alerts, their changes and messages those that have ended long enough ago."""

from datetime import UTC, datetime

import pytest
from django.contrib.sessions.models import Session
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.models import (
    AbortedCommit,
    AddedOffsetsRecord,
    Alert,
    AlertChange,
    Batch,
    Cluster,
    DeletedPartition,
    Delivery,
    DroppedOffset,
    FindingRecord,
    GapRecord,
    Query,
    Recent,
    Recovery,
    Run,
    SinkDecision,
    Tally,
    TransitionRecord,
)
from dashboard.runtime import retention
from dashboard.runtime.leases import LeaseLost
from fenceline.limits import Retention
from tests.db import factories
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import batch, decision, decision_end, decision_row, prune_all, query
from tests.db.scenarios import AlertScenario, channel, finding
from tests.db.test_snapshots import plans

pytestmark = pytest.mark.sql
DAY_MS = 86_400_000
KEEP = Retention(transitions_d=2, minutes_d=1, hours_d=10, closed_d=3)


def add(days_ago: float, number: int = 0) -> None:
    """Add one row of everything that is kept for a time, so many days old."""
    cluster, at_ms = Cluster.objects.get(), NOW_MS - int(days_ago * DAY_MS)
    TransitionRecord.objects.create(
        cluster=cluster, rev=1, key=b"k", transactional_id="a", application="a", kind="timeout",
        confidence="certain", reason="broker_late", at_ms=at_ms, producer_id=1, producer_epoch=1,
        timeout_ms=1, log_partition=0, log_offset=number + at_ms, topic_id="t",
    )  # fmt: skip
    for span in (60, 3600):
        Tally.objects.create(
            cluster=cluster, application=f"a-{number}", span_s=span, start_ms=at_ms, shard=0, counts="{}"
        )
    Recent.objects.create(cluster=cluster, key=f"{number} {at_ms}".encode(), packed=b"", expired_ms=at_ms)
    AddedOffsetsRecord.objects.create(
        cluster=cluster, producer_id=number + at_ms, log_partition=1, producer_epoch=0, offsets="[]", total=0,
        unread=0, read_ms=at_ms,
    )  # fmt: skip
    DeletedPartition.objects.create(cluster=cluster, topic=f"t-{at_ms}", partition=number, deleted_ms=at_ms)
    DroppedOffset.objects.create(
        cluster=cluster, group_id="g", topic="t", partition=number, offset=0, dropped_ms=at_ms
    )
    GapRecord.objects.create(cluster=cluster, source="s", scope="s", since_ms=0, until_ms=at_ms, reason="r")
    FindingRecord.objects.create(
        cluster=cluster, rule="r", subject="s", fingerprint=f"{number} {at_ms}".encode(), severity="info",
        since_ms=0, seen_at=datetime.now(UTC), closed_at=datetime.fromtimestamp(at_ms / 1000, UTC),
    )  # fmt: skip
    Recovery.objects.create(
        cluster=cluster, key=b"k", transactional_id="a", application="a", cause="timeout",
        confidence="certain", producer_id=1, producer_epoch=1, topic_id="t", log_partition=0,
        log_offset=number + at_ms, opened_ms=at_ms, closed_ms=at_ms, outcome="resumed", rev=1,
    )  # fmt: skip
    AbortedCommit.objects.create(
        cluster=cluster, key=b"k", transactional_id="a", producer_id=1, started_ms=number + at_ms,
        committed_ms=at_ms,
    )  # fmt: skip


TABLES = {
    "transitions": TransitionRecord,
    "recents": Recent,
    "offsets": AddedOffsetsRecord,
    "deleted": DeletedPartition,
    "dropped": DroppedOffset,
    "gaps": GapRecord,
    "findings": FindingRecord,
    "recoveries": Recovery,
    "commits": AbortedCommit,
}


def remaining_rows() -> dict[str, int]:
    spans = {name: Tally.objects.filter(span_s=s).count() for name, s in (("minutes", 60), ("hours", 3600))}
    return spans | {name: table.objects.count() for name, table in TABLES.items()}


def test_each_table_has_its_own_retention(take: Take) -> None:
    for days in (0.5, 1.5, 2.5, 3.5, 9, 11):
        add(days)
    prune_all(take(retention.NAME), KEEP)
    assert remaining_rows() == {
        "transitions": 2, "minutes": 1, "hours": 5, "recents": 2, "offsets": 2, "gaps": 3, "findings": 3,
        "recoveries": 2, "deleted": 2, "dropped": 2, "commits": 2,
    }  # fmt: skip


def test_sessions_that_are_over_are_deleted_and_open_rows_never(take: Take) -> None:
    cluster = Cluster.objects.get()
    Recent.objects.create(cluster=cluster, key=b"alive", packed=b"")
    GapRecord.objects.create(cluster=cluster, source="s", scope="s", since_ms=0, reason="open")
    for name, ends_ms in (("over", NOW_MS - 1_000), ("open", NOW_MS + 1_000)):
        ends = datetime.fromtimestamp(ends_ms / 1_000, UTC)
        Session.objects.create(session_key=name, session_data="", expire_date=ends)
    prune_all(take(retention.NAME), KEEP)
    assert [row.session_key for row in Session.objects.all()] == ["open"]
    assert remaining_rows() | {"recents": 1, "gaps": 1} == remaining_rows()


def test_rows_are_deleted_in_portions(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 2)
    for number in range(5):
        add(400, number)
    assert prune_all(take(retention.NAME), KEEP) == 11 * 3
    assert set(remaining_rows().values()) == {0}


def test_a_pruner_that_lost_its_lease_deletes_nothing(take: Take) -> None:
    lost = take(retention.NAME)
    take(retention.NAME, previous=lost.token)
    add(500)
    with pytest.raises(LeaseLost):
        retention.prune(lost, KEEP, now_ms=NOW_MS)
    assert set(remaining_rows().values()) == {1}


KEEP_BATCHES = Retention(batches_d=10)


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
    prune_all(take(retention.NAME), KEEP_BATCHES)
    for table in (Batch, SinkDecision):
        assert remaining_batches(table, old) == list(range(20, 120))
        assert (len(remaining_batches(table, young)), len(remaining_batches(table, short))) == (120, 100)


def test_batches_known_only_from_a_listener_are_deleted_too_and_runs_except_the_newest(take: Take) -> None:
    row = query(run_id="newest")
    for batch_id in range(105):
        batch(row, batch_id, planned_ms=None, offsets=[], started_ms=NOW_MS - 11 * DAY_MS)
    for run_id, days in (("newest", 20), ("old", 20), ("young", 9)):
        at_ms = NOW_MS - days * DAY_MS
        Run.objects.create(query=row, run_id=run_id, first_heard_ms=at_ms, heard_ms=at_ms)
    prune_all(take(retention.NAME), KEEP_BATCHES)
    assert len(remaining_batches(Batch, row)) == 100
    assert sorted(Run.objects.values_list("run_id", flat=True)) == ["newest", "young"]


def test_batches_are_deleted_in_portions_and_open_decisions_stay(
    take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 7)
    row = query()
    add_old_batches(row, 120, days=11)
    SinkDecision.objects.filter(batch_id=3).update(outcome="")
    assert prune_all(take(retention.NAME), KEEP_BATCHES) == 6
    assert len(remaining_batches(Batch, row)) == 100
    assert remaining_batches(SinkDecision, row) == [3, *range(20, 120)]


# It asks SQLite for its plans.
@pytest.mark.sql("sqlite")
def test_finding_old_rows_scans_no_table(take: Take) -> None:
    add_old_batches(query(), 101, days=1)
    lease = take(retention.NAME)
    with CaptureQueriesContext(connection) as captured:
        retention.prune(lease, KEEP_BATCHES, now_ms=NOW_MS)
    asked = [(sql, plan) for sql, plan in plans(captured) if "_batch" in sql or "_sinkdecision" in sql]
    assert asked
    assert not [sql for sql, plan in asked if "SCAN" in plan and "SCAN dashboard_query" not in plan]


DAY_S = 86_400
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def test_ended_alerts_are_deleted_and_firing_ones_stay(take: Take) -> None:
    scenario = AlertScenario(take)
    scenario.tick()
    channel(group_by=["subject"])
    stays, goes = finding("group:stays"), finding("group:goes")
    scenario.run_seconds(8, stays, goes)
    scenario.run_seconds(10, stays)
    pruner = take(retention.NAME)
    # Rows are old by their own clock; messages by the database's.
    Delivery.objects.update(created_at=LONG_AGO)

    def prune(days: float) -> tuple[set[str], int, int]:
        at_ms = scenario.now_ms + int(days * DAY_S * 1_000)
        factories.prune_all(pruner, Retention(closed_d=3), at_ms)
        subjects = set(Alert.objects.values_list("subject", flat=True))
        return subjects, AlertChange.objects.count(), Delivery.objects.count()

    # Of the messages only that one is left on which its group stands.
    assert prune(2) == ({"group:stays", "group:goes"}, 3, 1)
    # So is what goes on, while what was told of it is settled.
    assert prune(4) == ({"group:stays"}, 0, 1)
    scenario.run_seconds(10)
    Delivery.objects.update(created_at=LONG_AGO)
    assert prune(8) == (set(), 0, 0)


def test_unsettled_alerts_and_unsent_messages_stay(take: Take) -> None:
    scenario = AlertScenario(take)
    scenario.tick()
    channel()
    scenario.run_seconds(4, finding())
    Delivery.objects.update(state="pending", created_at=LONG_AGO)
    for _ in range(5):
        scenario.evaluate()
        evaluate_alerts.evaluate_alerts(scenario.alerts, now_ms=scenario.now_ms)
    pruner = take(retention.NAME)
    factories.prune_all(pruner, Retention(closed_d=3), scenario.now_ms + 9 * DAY_S * 1_000)
    assert (Alert.objects.count(), Delivery.objects.count()) == (1, 1)
    assert AlertChange.objects.filter(processed_at=None).count() == 1
