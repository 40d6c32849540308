"""Saves the pipelines that an audit shows to be violated, and reads them for the rules.

The collector's lease alone guards these rows. A pipeline that exists and is unreadable keeps its row and is a
gap. One that is no longer violated, or is deleted, has no row.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from django.db.models import QuerySet

from dashboard.history.audits import AuditStatus
from dashboard.history.job_outputs import ReportTrouble
from dashboard.models import AuditViolationRecord, Query
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import AUDITS
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import prepared, write_rows
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.audit.manifest import AuditManifest, AuditViolation, find_violation
from fenceline.decode.typed import fields_of, read_json
from fenceline.grouping import grouped

NAME = AUDITS
#: The fields of a violation that are columns; the others are in `detail`, except its queries.
_COLUMNS = ("pipeline", "since_ms", "missing", "duplicated")


@retry_write
def save_audits(lease: Lease, polled: AuditStatus, *, now_ms: int) -> None:
    """Save a poll of a readable store. Raises `LeaseLost`."""
    violated = {
        name: violation
        for name, pipeline in sorted(polled.pipelines.items())
        if isinstance(pipeline, AuditManifest) and (violation := find_violation(name, pipeline)) is not None
    }
    with write_transaction(lease, {"seen_through_ms": polled.at_ms}, lock_cluster=False) as write:
        _save_violations(lease, violated, polled.unreadable, now_ms)
        collector_store.save_gaps(lease, _gaps(polled.unreadable, now_ms), now_ms)
        collector_store.clear_error(write.collector, now_ms)


def read_violations(cluster_id: int) -> tuple[AuditViolation, ...]:
    """Return the violated pipelines of a cluster, by name, with their streaming queries."""
    violations = [_violation_of(row) for row in _violation_rows(cluster_id)]
    queries = _queries(cluster_id, {violation.query_id for violation in violations if violation.query_id})
    return tuple(replace(violation, queries=queries.get(violation.query_id, ())) for violation in violations)


@prepared
def _violation_rows(cluster_id: int) -> QuerySet[AuditViolationRecord]:
    return AuditViolationRecord.objects.filter(cluster_id=cluster_id).order_by("pipeline")


def _save_violations(
    lease: Lease, violated: Mapping[str, AuditViolation], unreadable: Collection[str], now_ms: int
) -> None:
    known = {row.pipeline: row for row in _violation_rows(lease.cluster_id)}
    gone = [row.pk for name, row in known.items() if name not in violated and name not in unreadable]
    AuditViolationRecord.objects.filter(pk__in=gone).delete()
    rows = [_row(lease, violation, known.get(name), now_ms) for name, violation in violated.items()]
    write_rows(AuditViolationRecord, [row for row in rows if row is not None], ("cluster_id", "pipeline"))


def _row(
    lease: Lease, violation: AuditViolation, known: AuditViolationRecord | None, now_ms: int
) -> Mapping[str, Any] | None:
    """Return the row to write; None without a change. A violation keeps its earliest instant."""
    since_ms = max(0, min(violation.since_ms, known.since_ms if known else now_ms))
    earliest = replace(violation, since_ms=since_ms)
    if known is not None and earliest == _violation_of(known):
        return None
    detail = fields_of(earliest)
    del detail["queries"]
    columns = {name: detail.pop(name) for name in _COLUMNS}
    return {"cluster_id": lease.cluster_id, **columns, "detail": detail}


def _violation_of(row: AuditViolationRecord) -> AuditViolation:
    return read_json(AuditViolation, {**row.detail, **{name: getattr(row, name) for name in _COLUMNS}})


def _queries(cluster_id: int, query_ids: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the subjects of streaming queries by their own id, which a copied checkpoint shares."""
    names_by_query: dict[str, tuple[str, ...]] = defaultdict(tuple)
    if query_ids:
        rows = Query.objects.filter(cluster_id=cluster_id, query_id__in=query_ids).order_by("ident")
        for query_id, ident in rows.values_list("query_id", "ident"):
            names_by_query[query_id] += (f"query:{ident}",)
    return names_by_query


def _gaps(unreadable: Mapping[str, ReportTrouble], now_ms: int) -> Mapping[str, tuple[int, str]]:
    """Return a gap for each reason; pipelines beyond the maximum share one gap."""
    names = grouped((trouble, name) for name, trouble in unreadable.items())
    return {
        f"pipeline:{first}{f' and {len(more):,} more' if more else ''}": (
            now_ms,
            f"{trouble.why} {trouble.remedy}",
        )
        for trouble, (first, *more) in names.items()
    }
