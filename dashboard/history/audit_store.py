"""Saves which pipelines an audit shows to be violated, and reads it for the rules.

The collector's lease alone guards these rows. A pipeline that is there and cannot be read keeps its row and
is a gap; one that is not violated any more, or is gone, has none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from dashboard.history.audits import AuditStatus
from dashboard.history.report_types import ReportTrouble
from dashboard.models import AuditViolationRecord, Query
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import AUDITS as NAME
from dashboard.runtime.leases import Lease
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.audit.manifest import AuditedRange, AuditManifest, AuditMode
from fenceline.audit.violations import AuditViolation, find_violation

__all__ = ["NAME", "read_violations", "save_audits"]

_COLUMNS = ("since_ms", "missing", "duplicated", "detail")
_DETAIL = ("mode", "query_id", "sources", "targets", "batches", "losses", "duplicates")


@retry_write
def save_audits(lease: Lease, polled: AuditStatus, *, now_ms: int) -> None:
    """Save what a poll of a store that can be read found. Raises `LeaseLost`."""
    violated = {
        name: found
        for name, each in sorted(polled.pipelines.items())
        if isinstance(each, AuditManifest) and (found := find_violation(name, each)) is not None
    }
    with write_transaction(lease, {"seen_through_ms": polled.at_ms}, lock_cluster=False):
        _save_violations(lease, violated, polled.unreadable, now_ms)
        collector_store.save_gaps(lease, _gaps(polled.unreadable, now_ms), now_ms)
        collector_store.clear_error(lease, now_ms)


def read_violations(cluster_id: int) -> tuple[AuditViolation, ...]:
    """Return the pipelines of a cluster that are violated, by name, with their streaming queries."""
    rows = AuditViolationRecord.objects.filter(cluster_id=cluster_id)
    found = [_violation_of(row) for row in rows.order_by("pipeline")]
    queries = _queries(cluster_id, {each.query_id for each in found if each.query_id})
    return tuple(replace(each, queries=queries.get(each.query_id, ())) for each in found)


def _save_violations(
    lease: Lease, violated: Mapping[str, AuditViolation], unreadable: Collection[str], now_ms: int
) -> None:
    known = {row.pipeline: row for row in AuditViolationRecord.objects.filter(cluster_id=lease.cluster_id)}
    gone = [row.pk for name, row in known.items() if name not in violated and name not in unreadable]
    AuditViolationRecord.objects.filter(pk__in=gone).delete()
    rows = [_row(lease, each, known.get(name), now_ms) for name, each in violated.items()]
    AuditViolationRecord.objects.bulk_create(
        [row for row in rows if row is not None],
        update_conflicts=True,
        unique_fields=["cluster", "pipeline"],
        update_fields=_COLUMNS,
    )


def _row(
    lease: Lease, found: AuditViolation, known: AuditViolationRecord | None, now_ms: int
) -> AuditViolationRecord | None:
    """Return the row to write; None where nothing has changed. A violation keeps its earliest instant."""
    since_ms = max(0, min(found.since_ms, known.since_ms if known else now_ms))
    if known is not None and replace(found, since_ms=since_ms) == _violation_of(known):
        return None
    return AuditViolationRecord(
        cluster_id=lease.cluster_id,
        pipeline=found.pipeline,
        since_ms=since_ms,
        missing=found.missing,
        duplicated=found.duplicated,
        detail={name: getattr(found, name) for name in _DETAIL},
    )


def _violation_of(row: AuditViolationRecord) -> AuditViolation:
    of = row.detail
    return AuditViolation(
        row.pipeline,
        AuditMode(of["mode"]),
        row.since_ms,
        row.missing,
        row.duplicated,
        of["query_id"],
        *(tuple(of[name]) for name in ("sources", "targets", "batches")),
        *(tuple(AuditedRange(*each) for each in of[name]) for name in ("losses", "duplicates")),
    )


def _queries(cluster_id: int, query_ids: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the subjects of streaming queries by their own id; a copied checkpoint has the same."""
    found: dict[str, tuple[str, ...]] = defaultdict(tuple)
    if query_ids:
        rows = Query.objects.filter(cluster_id=cluster_id, query_id__in=query_ids).order_by("ident")
        for query_id, ident in rows.values_list("query_id", "ident"):
            found[query_id] += (f"query:{ident}",)
    return found


def _gaps(unreadable: Mapping[str, ReportTrouble], now_ms: int) -> Mapping[str, tuple[int, str]]:
    """Return a gap for each reason: pipelines that are too many have one together."""
    names: dict[ReportTrouble, list[str]] = defaultdict(list)
    for name, trouble in unreadable.items():
        names[trouble].append(name)
    return {
        f"pipeline:{first}{f' and {len(more):,} more' if more else ''}": (now_ms, f"{each.why} {each.remedy}")
        for each, (first, *more) in names.items()
    }
