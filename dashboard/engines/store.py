"""Saves the results of `collectors.engines`: each API's present report, in one short write
transaction. An earlier report stays, with its time, while an API does not answer; rows that it no longer
reports are deleted.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import Model

from dashboard.models import ConnectorRecord, FlinkRunRecord
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import ENGINES
from dashboard.runtime.leases import Lease
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.engines.answers import EngineAnswer
from fenceline.engines.connect import ConnectorStatus
from fenceline.engines.flink.job_status import FlinkRun, ReportedCheckpoint

NAME = ENGINES
_LONGEST_NAME, _LONGEST_WORD = 255, 20


class _Table(NamedTuple):
    """Rows of one API in one table: their model, key and columns."""

    model: type[Model]
    key: str
    #: The columns that may change, by key.
    rows: Mapping[str, Mapping[str, Any]]


@retry_write
def save_engines(
    lease: Lease,
    answers: Sequence[EngineAnswer],
    groups: Mapping[str, str],
    *,
    gaps: Mapping[str, tuple[int, str]],
    now_ms: int,
) -> int:
    """Save the APIs' reports; return the number of changed rows. Raises `LeaseLost`.

    `groups` are Connect's groups by the URL of their API.
    """
    with write_transaction(lease, {"seen_through_ms": now_ms}) as write:
        changed = 0
        for answer in sorted(answers):
            for table in _tables(answer, groups.get(answer.url, "")):
                changed += _save(lease.cluster_id, answer.url, table, now_ms)
        collector_store.save_gaps(lease, gaps, now_ms)
        collector_store.clear_error(write.collector, now_ms)
        if changed:
            write.next_rev()
            write.notify_after_commit("flink")
        write.notify_after_commit("collectors")
    return changed


def remove_unnamed_apis(urls: Mapping[str, Collection[str]]) -> None:
    """Remove the reports of APIs that are no longer configured; `urls` are the configured ones by cluster."""
    for model in (FlinkRunRecord, ConnectorRecord):
        for row in model.objects.select_related("cluster"):
            if row.url not in urls.get(row.cluster.name, ()):
                row.delete()


def _tables(answer: EngineAnswer, group: str) -> Sequence[_Table]:
    runs = {run.job_id: _run(run, answer.version) for run in answer.runs}
    connectors = {
        status.name[:_LONGEST_NAME]: _connector(status, answer.version, group) for status in answer.connectors
    }
    return _Table(FlinkRunRecord, "job_id", runs), _Table(ConnectorRecord, "name", connectors)


def _save(cluster_id: int, url: str, table: _Table, now_ms: int) -> int:
    mine = table.model._default_manager.filter(cluster_id=cluster_id, url=url)
    known = {getattr(row, table.key): row for row in mine}
    gone = [row.pk for key, row in known.items() if key not in table.rows]
    mine.filter(pk__in=gone).delete()
    changed = len(gone)
    for key, columns in sorted(table.rows.items()):
        row = known.get(key) or table.model(cluster_id=cluster_id, url=url, **{table.key: key})
        if row.pk is not None and all(getattr(row, name) == value for name, value in columns.items()):
            continue
        for name, value in {**columns, "seen_ms": now_ms}.items():
            setattr(row, name, value)
        row.save()
        changed += 1
    mine.update(seen_ms=now_ms)
    return changed


def _run(run: FlinkRun, version: str) -> Mapping[str, Any]:
    return {
        "version": version[:40],
        "name": run.name,
        "state": run.state[:_LONGEST_WORD],
        "started_ms": run.started_ms,
        "ended_ms": run.ended_ms,
        "operators": [list(operator) for operator in run.operators],
        "checkpoints": {
            "counts": dict(run.counts),
            "completed": _packed(run.completed),
            "failed": _packed(run.failed),
            "restored": _packed(run.restored),
        },
    }


def _packed(checkpoint: ReportedCheckpoint | None) -> list[Any] | None:
    return None if checkpoint is None else list(checkpoint)


def _connector(status: ConnectorStatus, version: str, group: str) -> Mapping[str, Any]:
    return {
        "version": version[:40],
        "group": group,
        "kind": status.kind[:10],
        "connector": status.connector,
        "state": status.state[:_LONGEST_WORD],
        "worker": status.worker,
        "reason": status.reason,
        "tasks": [list(task) for task in status.tasks],
        "debezium": None if status.debezium is None else list(status.debezium),
    }
