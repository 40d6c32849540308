"""Proves that old rows are deleted in small portions, and no others."""

from datetime import UTC, datetime

import pytest
from django.contrib.sessions.models import Session

from dashboard.models import (
    AbortedCommit,
    AddedOffsetsRecord,
    Cluster,
    DeletedPartition,
    DroppedOffset,
    FindingRecord,
    GapRecord,
    Recent,
    Recovery,
    Tally,
    TransitionRecord,
)
from dashboard.runtime import retention
from dashboard.runtime.leases import LeaseLost
from fenceline.limits import Retention
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import prune_all

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


def remaining_rows() -> dict[str, int]:
    return {
        "transitions": TransitionRecord.objects.count(),
        "minutes": Tally.objects.filter(span_s=60).count(),
        "hours": Tally.objects.filter(span_s=3600).count(),
        "recents": Recent.objects.count(),
        "offsets": AddedOffsetsRecord.objects.count(),
        "deleted": DeletedPartition.objects.count(),
        "dropped": DroppedOffset.objects.count(),
        "gaps": GapRecord.objects.count(),
        "findings": FindingRecord.objects.count(),
        "recoveries": Recovery.objects.count(),
        "commits": AbortedCommit.objects.count(),
    }


def test_each_table_has_its_own_retention(take: Take) -> None:
    for days in (0.5, 1.5, 2.5, 3.5, 9, 11):
        add(days)
    prune_all(take(retention.NAME), KEEP)
    assert remaining_rows() == {
        "transitions": 2, "minutes": 1, "hours": 5, "recents": 2, "offsets": 2, "gaps": 3, "findings": 3,
        "recoveries": 2, "deleted": 2, "dropped": 2, "commits": 2,
    }  # fmt: skip


def test_sessions_that_are_over_are_deleted(take: Take) -> None:
    for name, ends_ms in (("over", NOW_MS - 1_000), ("open", NOW_MS + 1_000)):
        ends = datetime.fromtimestamp(ends_ms / 1_000, UTC)
        Session.objects.create(session_key=name, session_data="", expire_date=ends)
    prune_all(take(retention.NAME), KEEP)
    assert [row.session_key for row in Session.objects.all()] == ["open"]


def test_open_rows_are_never_deleted(take: Take) -> None:
    cluster = Cluster.objects.get()
    Recent.objects.create(cluster=cluster, key=b"alive", packed=b"")
    GapRecord.objects.create(cluster=cluster, source="s", scope="s", since_ms=0, reason="open")
    prune_all(take(retention.NAME), KEEP)
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
