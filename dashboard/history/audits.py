"""Reads the audit job's output (`fenceline.audit.manifest`): the newest manifest of each pipeline. Saves the
violated pipelines, and reads them for the rules.

No function raises for content at the URL: every problem is a `ReportTrouble` in words. Results are valid for
some seconds. Each store is read in its own thread: no page waits long for a hanging one.

The collector's lease alone guards the rows. A pipeline that exists and is unreadable keeps its row and is a
gap. One that is no longer violated, or is deleted, has no row.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import fsspec
from django.db.models import QuerySet

from dashboard.history.job_outputs import JobOutput, ReportTrouble, begin_reading, names_in, newest_manifest
from dashboard.models import AuditViolationRecord, Query
from dashboard.runtime import collector_store, loop
from dashboard.runtime.collector_names import AUDITS
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import prepared, write_rows
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.audit.manifest import (
    AuditManifest,
    AuditViolation,
    audits_folder,
    find_violation,
    read_audit,
)
from fenceline.decode.typed import fields_of, read_json
from fenceline.grouping import grouped
from fenceline.spark.paths import both_spellings, to_url

#: The lifetime of an answer, and the time that a page waits for one, in seconds.
POLL_EVERY_S = 5.0
PATIENCE_S = 3.0
NOT_CONFIGURED = ReportTrouble(
    "The audit is not configured",
    "[audit] url is not set: nothing is proved at Kafka.",
    "Run spark_pipeline/audit.py on your Spark, and name its --output there.",
)
_NONE_YET, _RUN = "No audit yet", "Run the audit job."
_OUTPUT = JobOutput("audit", "[audit] url", _NONE_YET, "The audits cannot be read")
_MOST_PIPELINES = 100
_PREFIX = "pipeline="


@dataclass(frozen=True, slots=True)
class AuditStatus:
    """The audits of one cluster, by the folder name of their pipeline, and the unreadable ones."""

    #: The newest readable manifest, or the reason why there is none.
    pipelines: Mapping[str, AuditManifest | ReportTrouble] = field(default_factory=dict)
    #: Why no pipeline is known; None if one is.
    trouble: ReportTrouble | None = None
    #: The start of the poll.
    at_ms: int = 0

    @property
    def manifests(self) -> Sequence[AuditManifest]:
        """Return the newest manifests of pipelines."""
        return [pipeline for pipeline in self.pipelines.values() if isinstance(pipeline, AuditManifest)]

    @property
    def troubles(self) -> Sequence[ReportTrouble]:
        """Return the distinct reasons why manifests are missing."""
        troubles = [trouble for trouble in self.pipelines.values() if isinstance(trouble, ReportTrouble)]
        return list(dict.fromkeys([*([self.trouble] if self.trouble else []), *troubles]))

    @property
    def unreadable(self) -> Mapping[str, ReportTrouble]:
        """Return the pipelines without a usable manifest, with the reason."""
        return {
            name: pipeline
            for name, pipeline in self.pipelines.items()
            if isinstance(pipeline, ReportTrouble) and pipeline.what != _NONE_YET
        }

    @property
    def why_blind(self) -> ReportTrouble | None:
        """Return why the store is unreadable; None if it is readable, even if empty."""
        return None if self.trouble is None or self.trouble.what == _NONE_YET else self.trouble


#: Polls by URL and cluster, each with its start; the lock lets concurrent requests share one poll.
_polls: dict[tuple[str, str], tuple[float, Future[AuditStatus]]] = {}
_lock = threading.Lock()


def read_audits(url: str, cluster: str, *, patience_s: float | None = None) -> AuditStatus:
    """Return the audits of a cluster below `url`; "" if none is configured.

    A store that does not answer within `patience_s`, for pages `PATIENCE_S`, counts as unreadable.
    """
    if not url:
        return AuditStatus(trouble=NOT_CONFIGURED)
    patience_s = PATIENCE_S if patience_s is None else patience_s
    begun, poll = _newest_poll(url, cluster)
    try:
        return poll.result(max(0.0, begun + patience_s - time.monotonic()))
    except TimeoutError:
        silent = TimeoutError(f"no answer for {patience_s:.0f} s")
        return AuditStatus(trouble=_OUTPUT.trouble(_where(url, cluster), silent))


def audited_markers(url: str, cluster: str, query_id: str, batch_id: int) -> Mapping[str, int]:
    """Return the offsets of a batch's commit markers by partition, from the newest audit."""
    manifests = (
        manifest for manifest in read_audits(url, cluster).manifests if manifest.query_id == query_id
    )
    batches = (batch for manifest in manifests for batch in manifest.batches if batch.batch_id == batch_id)
    return {
        f"{marker.topic}-{marker.partition}": marker.offset for batch in batches for marker in batch.markers
    }


def clear_cache() -> None:
    """Discard all polls, so that the next request polls again."""
    _polls.clear()


def _newest_poll(url: str, cluster: str) -> tuple[float, Future[AuditStatus]]:
    """Return the current or still valid poll, or a new one, with its start."""
    with _lock:
        begun, poll = _polls.get((url, cluster), (0.0, None))
        if poll is None or (poll.done() and time.monotonic() > begun + POLL_EVERY_S):
            begun, poll = time.monotonic(), begin_reading(lambda: _poll(url, cluster))
            _polls[url, cluster] = begun, poll
        return begun, poll


def _where(url: str, cluster: str) -> str:
    return f"{both_spellings(url, to_url(url))}/{audits_folder(cluster)}"


def _poll(url: str, cluster: str) -> AuditStatus:
    where, at_ms = _where(url, cluster), loop.now_ms()
    try:
        fs, root = fsspec.core.url_to_fs(to_url(url))
        fs.invalidate_cache()
        folder = f"{root.rstrip('/')}/{audits_folder(cluster)}"
        names = [name for name in names_in(fs, folder) if name.startswith(_PREFIX)]
    except FileNotFoundError:
        return AuditStatus(trouble=ReportTrouble(_NONE_YET, f"{where} does not exist.", _RUN), at_ms=at_ms)
    except Exception as error:  # Every store has its own errors; none may fail a page.
        return AuditStatus(trouble=_OUTPUT.trouble(where, error), at_ms=at_ms)
    if not names:
        return AuditStatus(trouble=ReportTrouble(_NONE_YET, f"{where} holds no pipeline.", _RUN), at_ms=at_ms)
    read = {
        name: _newest(fs, f"{folder}/{name}/log", f"{where}/{name}/log") for name in names[:_MOST_PIPELINES]
    }
    why = f"{where} holds {len(names):,} pipelines; the first {_MOST_PIPELINES} by name are read."
    remedy = "Delete folders of pipelines that are gone."
    left_out = ReportTrouble("Not all audits are read", why, remedy)
    pipelines = {**read, **dict.fromkeys(names[_MOST_PIPELINES:], left_out)}
    return AuditStatus(
        {name.removeprefix(_PREFIX): pipeline for name, pipeline in pipelines.items()}, at_ms=at_ms
    )


def _newest(fs: Any, log: str, where: str) -> AuditManifest | ReportTrouble:
    try:
        names = names_in(fs, log)
    except FileNotFoundError:
        names = []
    except Exception as error:  # For the same reason as above.
        return _OUTPUT.trouble(where, error)
    return newest_manifest(fs, log, where, names, read_audit, _OUTPUT)


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
        known = {row.pipeline: row for row in _violation_rows(lease.cluster_id)}
        gone = [row.pk for name, row in known.items() if name not in {*violated, *polled.unreadable}]
        AuditViolationRecord.objects.filter(pk__in=gone).delete()
        rows = [_row(lease, violation, known.get(name), now_ms) for name, violation in violated.items()]
        write_rows(AuditViolationRecord, filter(None, rows), ("cluster_id", "pipeline"))
        collector_store.save_gaps(lease, _gaps(polled.unreadable, now_ms), now_ms)
        collector_store.clear_error(write.collector, now_ms)


def read_violations(cluster_id: int) -> tuple[AuditViolation, ...]:
    """Return the violated pipelines of a cluster, by name, with their streaming queries."""
    violations = [_violation_of(row) for row in _violation_rows(cluster_id)]
    # Copied checkpoints share a query's own id.
    query_ids = {violation.query_id for violation in violations if violation.query_id}
    rows = Query.objects.filter(cluster_id=cluster_id, query_id__in=query_ids).order_by("ident")
    idents = grouped(rows.values_list("query_id", "ident"))
    return tuple(
        replace(violation, queries=tuple(f"query:{ident}" for ident in idents[violation.query_id]))
        for violation in violations
    )


@prepared
def _violation_rows(cluster_id: int) -> QuerySet[AuditViolationRecord]:
    return AuditViolationRecord.objects.filter(cluster_id=cluster_id).order_by("pipeline")


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
