"""Delete rows older than `[retention]`, in portions small enough not to delay collectors."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django.contrib.sessions.models import Session
from django.db.models import Exists, F, Model, OuterRef, Q, QuerySet, Subquery

from dashboard.models import (
    SIGN_INS,
    AbortedCommit,
    AddedOffsetsRecord,
    Alert,
    AlertChange,
    AuditEntry,
    Batch,
    Channel,
    CoordinatorMoveRecord,
    DeletedPartition,
    Delivery,
    DroppedOffset,
    FindingRecord,
    GapRecord,
    Incident,
    ObservedSpan,
    Query,
    Recent,
    Recovery,
    Run,
    Series,
    SeriesChunk,
    SinkDecision,
    Tally,
    TopicTally,
    TransitionRecord,
)
from dashboard.runtime import collector_names, leases
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.limits import Retention
from fenceline.series.points import KINDS, Resolution

NAME = "retention"
#: Maximum rows of one database transaction, which takes some milliseconds.
AT_ONCE = 1_000
_DAY_MS = 86_400_000
#: Tables guarded by a single lease.
_GUARDS: Mapping[type[Model], str] = {
    FindingRecord: collector_names.JUDGE,
    Incident: collector_names.JUDGE,
    Alert: collector_names.ALERTS,
    AlertChange: collector_names.ALERTS,
    Delivery: collector_names.ALERTS,
    Recovery: collector_names.RECOVERIES,
    AbortedCommit: collector_names.RECOVERIES,
    CoordinatorMoveRecord: collector_names.COORDINATORS,
}
#: Batches kept per query regardless of age: as many as Spark keeps.
_NEWEST = 100


@retry_write
def prune(lease: leases.Lease, keep: Retention, *, now_ms: int) -> int:
    """Delete up to 1,000 expired rows of one table; return their number. Raises `leases.LeaseLost`."""
    for rows in _outdated(lease.cluster_id, keep, now_ms):
        keys = list(rows.values_list("pk", flat=True)[:AT_ONCE])
        if keys:
            with write_transaction(lease, {"seen_through_ms": now_ms}, **_locks(rows.model)):
                doomed = rows.model._base_manager.filter(pk__in=keys)
                list(doomed.select_for_update().order_by("pk").values_list("pk", flat=True))
                doomed.delete()
            return len(keys)
    leases.renew(lease, seen_through_ms=now_ms)
    return 0


def _locks(table: type[Model]) -> dict[str, Any]:
    """Return the guard of a table's rows: a lease, else the cluster's row."""
    guard = _GUARDS.get(table)
    return {} if guard is None else {"guards": (guard,), "lock_cluster": False}


def _outdated(cluster_id: int, keep: Retention, now_ms: int) -> Iterator[QuerySet[Any]]:
    """Yield the expired rows, table by table."""

    def before_ms(days: float) -> int:
        return now_ms - int(days * _DAY_MS)

    closed_ms = before_ms(keep.closed_d)
    closed_at = _instant(closed_ms)
    yield TransitionRecord.objects.filter(cluster_id=cluster_id, at_ms__lt=before_ms(keep.transitions_d))
    yield Tally.objects.filter(cluster_id=cluster_id, span_s=60, start_ms__lt=before_ms(keep.minutes_d))
    yield Tally.objects.filter(cluster_id=cluster_id, span_s=3600, start_ms__lt=before_ms(keep.hours_d))
    for days, spans in ((keep.minutes_d, Q(span_s__lt=3600)), (keep.transitions_d, Q(span_s__gt=3600))):
        yield TopicTally.objects.filter(spans, cluster_id=cluster_id, start_ms__lt=before_ms(days))
    yield Recent.objects.filter(cluster_id=cluster_id, expired_ms__lt=before_ms(keep.transitions_d))
    yield AddedOffsetsRecord.objects.filter(cluster_id=cluster_id, read_ms__lt=before_ms(keep.transitions_d))
    yield DeletedPartition.objects.filter(cluster_id=cluster_id, deleted_ms__lt=before_ms(keep.transitions_d))
    yield CoordinatorMoveRecord.objects.filter(
        cluster_id=cluster_id, seen_ms__lt=before_ms(keep.transitions_d)
    )
    yield DroppedOffset.objects.filter(cluster_id=cluster_id, dropped_ms__lt=before_ms(keep.transitions_d))
    yield AbortedCommit.objects.filter(cluster_id=cluster_id, committed_ms__lt=before_ms(keep.transitions_d))
    yield Recovery.objects.filter(cluster_id=cluster_id, closed_ms__lt=before_ms(keep.transitions_d))
    yield GapRecord.objects.filter(cluster_id=cluster_id, until_ms__lt=closed_ms)
    yield FindingRecord.objects.filter(cluster_id=cluster_id, closed_at__lt=closed_at)
    yield Incident.objects.filter(cluster_id=cluster_id, closed_ms__lt=before_ms(keep.incidents_d))
    yield from _of_alerts(cluster_id, closed_ms, now_ms)
    yield from _of_queries(cluster_id, before_ms(keep.batches_d))
    yield from _of_series(cluster_id, keep, now_ms)
    # Rows without a cluster: the pruning of any cluster deletes them.
    yield AuditEntry.objects.filter(event__in=SIGN_INS, at__lt=_instant(before_ms(keep.sign_ins_d)))
    yield Session.objects.filter(expire_date__lt=_instant(now_ms))


def _of_alerts(cluster_id: int, closed_ms: int, now_ms: int) -> Iterator[QuerySet[Any]]:
    """Yield resolved alerts, settled changes, and messages that are not a group's newest."""
    over = Alert.objects.filter(cluster_id=cluster_id, seen_ms__lt=closed_ms, state=Alert.State.RESOLVED)
    # An alert's changes are deleted with it, so all must be settled.
    unsettled = AlertChange.objects.filter(alert=OuterRef("pk"), processed_at=None)
    yield over.filter(~Exists(unsettled), resolved_ms__lt=closed_ms)
    yield AlertChange.objects.filter(alert__cluster_id=cluster_id, at_ms__lt=closed_ms).exclude(
        processed_at=None
    )
    ended = Delivery.objects.exclude(state=Delivery.State.PENDING).filter(standing=False)
    mine = ended.filter(Q(cluster_id=cluster_id) | Q(cluster=None))
    yield mine.filter(created_at__lt=_instant(closed_ms))
    # An Alertmanager is notified of firing alerts every other minute.
    again = mine.filter(channel__kind=Channel.Kind.ALERTMANAGER, reason="repeat_interval_elapsed")
    yield again.filter(state=Delivery.State.DELIVERED, created_at__lt=_instant(now_ms - _DAY_MS))


def _of_series(cluster_id: int, keep: Retention, now_ms: int) -> Iterator[QuerySet[Any]]:
    """Yield expired closed chunks, and series whose subject disappeared that long ago."""
    kept_ms = series_kept_ms(keep)
    for kind in KINDS:
        rows = SeriesChunk.objects.filter(cluster_id=cluster_id, kind=kind.code)
        for resolution, ms in kept_ms.items():
            yield rows.filter(resolution=resolution.value, until_ms__lt=now_ms - ms)
    longest_ms = max(kept_ms.values())
    yield Series.objects.filter(cluster_id=cluster_id, ended_ms__lt=now_ms - longest_ms)
    spans = ObservedSpan.objects.filter(cluster_id=cluster_id)
    for source in (collector_names.PARTITIONS, collector_names.GROUPS, collector_names.JUDGE):
        yield spans.filter(source=source, to_ms__lt=now_ms - longest_ms)


def series_kept_ms(keep: Retention) -> Mapping[Resolution, int]:
    """Return the retention of series in milliseconds, by resolution."""
    days = {
        Resolution.DETAIL: keep.series_detail_d,
        Resolution.MINUTE: keep.series_minutes_d,
        Resolution.HOUR: keep.series_hours_d,
    }
    return {resolution: int(number * _DAY_MS) for resolution, number in days.items()}


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(max(0, ms) / 1_000, UTC)


def _of_queries(cluster_id: int, before_ms: int) -> Iterator[QuerySet[Any]]:
    """Yield the expired rows of queries in portions, without the newest and the unfinished ones."""
    runs = Run.objects.filter(query__cluster=cluster_id, heard_ms__lt=before_ms)
    yield runs.exclude(run_id=F("query__run_id"))
    ended = SinkDecision.objects.exclude(outcome="")
    for table, is_old in (
        (Batch.objects.all(), _was_before(before_ms, "planned_ms", "committed_ms", "started_ms")),
        (ended, _was_before(before_ms, "decided_ms", "done_ms")),
    ):
        for query, oldest, newest in _spans(cluster_id, table):
            upto = min(oldest + AT_ONCE, newest - _NEWEST + 1)
            yield table.filter(is_old, query=query, batch_id__gte=oldest, batch_id__lt=upto)


def _spans(cluster_id: int, table: QuerySet[Any]) -> Iterator[tuple[int, int, int]]:
    """Yield queries with more batches in a table than are kept, with their oldest and newest batch."""
    ids = table.filter(query=OuterRef("pk")).values("batch_id")
    rows = Query.objects.filter(cluster_id=cluster_id).annotate(
        oldest=Subquery(ids.order_by("batch_id")[:1]), newest=Subquery(ids.order_by("-batch_id")[:1])
    )
    yield from rows.filter(newest__gte=F("oldest") + _NEWEST).values_list("pk", "oldest", "newest")


def _was_before(instant_ms: int, *columns: str) -> Q:
    """Return the condition that all known times of a row are before an instant."""
    condition = Q()
    for column in columns:
        condition &= Q(**{f"{column}__lt": instant_ms}) | Q(**{column: None})
    return condition
