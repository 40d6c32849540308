"""Saves what `collectors.flink` and `collectors.engines` observed, each in one short write transaction.

A checkpoint of a Flink job is inserted once and never changed. A job whose folder is gone is deleted with all
of its rows: nothing can be restored from it. Of a REST API the present report is saved. An earlier report
stays, with its time, while an API does not answer; rows that it no longer reports are deleted.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db.models import Model, Q

from dashboard.models import ConnectorRecord, FlinkCheckpointRecord, FlinkJob, FlinkRunRecord
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import ENGINES
from dashboard.runtime.leases import Lease
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.engines.flink.records import FlinkCheckpoint, FlinkJobObservation, UnreadCheckpoint
from fenceline.engines.status import ConnectorStatus, EngineAnswer, FlinkRun, ReportedCheckpoint

NAME = ENGINES
_LONGEST_NAME, _LONGEST_WORD = 255, 20


#: The columns that may change, by key.
_Rows = Mapping[str, Mapping[str, Any]]


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
            for model, key, rows in _tables(answer, groups.get(answer.url, "")):
                changed += _save(lease.cluster_id, answer.url, model, key, rows, now_ms)
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


def _tables(answer: EngineAnswer, group: str) -> Sequence[tuple[type[Model], str, _Rows]]:
    """Return the rows of an API with their models, and their keys' columns."""
    runs = {run.job_id: _run(run, answer.version) for run in answer.runs}
    connectors = {
        status.name[:_LONGEST_NAME]: _connector(status, answer.version, group) for status in answer.connectors
    }
    return (FlinkRunRecord, "job_id", runs), (ConnectorRecord, "name", connectors)


def _save(cluster_id: int, url: str, model: type[Model], key_column: str, rows: _Rows, now_ms: int) -> int:
    mine = model._default_manager.filter(cluster_id=cluster_id, url=url)
    known = {getattr(row, key_column): row for row in mine}
    gone = [row.pk for key, row in known.items() if key not in rows]
    mine.filter(pk__in=gone).delete()
    changed = len(gone)
    for key, columns in sorted(rows.items()):
        row = known.get(key) or model(cluster_id=cluster_id, url=url, **{key_column: key})
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


_LONGEST_FOLDER = 80
#: Beginnings of the scopes of gaps about a folder, or a root.
_FOLDER, _ROOT = "checkpoint:", "root:"


@retry_write
def save_jobs(
    lease: Lease,
    observations: Sequence[FlinkJobObservation],
    searched: Collection[str],
    *,
    gaps: Mapping[str, tuple[int, str]],
    now_ms: int,
) -> int:
    """Save observed jobs; return the number of changed ones. Raises `LeaseLost`. `searched` are the
    completely searched roots: an unobserved job below one is removed. `gaps` are all current gaps by scope,
    each with its start and reason.
    """
    with write_transaction(lease, {"seen_through_ms": now_ms}) as write:
        rows = {row.path: row for row in FlinkJob.objects.filter(cluster_id=lease.cluster_id)}
        there = {observation.path for observation in observations}
        gone = [row for path, row in rows.items() if path not in there and _is_below(path, searched)]
        FlinkJob.objects.filter(pk__in=[row.pk for row in gone]).delete()
        changed = [
            observation
            for observation in observations
            if _save_one(
                lease.cluster_id, rows.get(observation.path), observation, gaps, write.next_rev, now_ms
            )
        ]
        blamed = [row for path, row in rows.items() if path not in there and row not in gone]
        changed_rows = sum(_blame(row, gaps, write.next_rev) for row in blamed)
        FlinkJob.objects.filter(cluster_id=lease.cluster_id, path__in=there).update(seen_ms=now_ms)
        collector_store.save_gaps(lease, gaps, now_ms)
        collector_store.clear_error(write.collector, now_ms)
        number = len(changed) + len(gone) + changed_rows
        if number:
            write.notify_after_commit("flink")
        write.notify_after_commit("collectors")
    return number


def remove_unrooted_jobs(roots: Mapping[str, Collection[str]]) -> None:
    """Remove jobs below no configured root; `roots` are folders by cluster."""
    for row in FlinkJob.objects.select_related("cluster"):
        if not _is_below(row.path, roots.get(row.cluster.name, ())):
            row.delete()


def _save_one(
    cluster_id: int,
    row: FlinkJob | None,
    observed: FlinkJobObservation,
    gaps: Mapping[str, tuple[int, str]],
    next_rev: Any,
    now_ms: int,
) -> bool:
    columns = _columns(observed, _reason(observed.path, gaps), row)
    known = {} if row is None else _known(row)
    wanted = {_name(observed.path, checkpoint.path): checkpoint for checkpoint in observed.checkpoints}
    new = {
        name: checkpoint for name, checkpoint in wanted.items() if known.get(name) != _identity(checkpoint)
    }
    same = row is not None and all(getattr(row, name) == value for name, value in columns.items())
    if same and not new and known.keys() == wanted.keys():
        return False
    if row is None:
        row = FlinkJob(cluster_id=cluster_id, path=observed.path, ident=_ident(observed.path), seen_ms=now_ms)
    for name, value in columns.items():
        setattr(row, name, value)
    row.rev = next_rev()
    row.save()
    outdated = Q(name__in=new) | ~Q(name__in=wanted)
    FlinkCheckpointRecord.objects.filter(outdated, job=row).delete()
    FlinkCheckpointRecord.objects.bulk_create(
        _record(row, name, checkpoint) for name, checkpoint in new.items()
    )
    return True


def _columns(observed: FlinkJobObservation, reason: str, row: FlinkJob | None) -> Mapping[str, Any]:
    """Return the columns of a job; its prefixes are kept while its newest checkpoint is unreadable."""
    newest = observed.checkpoints[0]
    readable = next(
        (checkpoint for checkpoint in observed.checkpoints if isinstance(checkpoint, FlinkCheckpoint)), None
    )
    prefixes = list(readable.prefixes) if readable else row.prefixes if row else []
    if isinstance(newest, UnreadCheckpoint):
        return {
            "job_id": observed.job_id,
            "prefixes": prefixes,
            "checkpoint_id": None,
            "completed_ms": newest.completed_ms,
            "is_savepoint": None,
            "pending": 0,
            "error": reason or newest.reason,
        }
    return {
        "job_id": observed.job_id,
        "prefixes": prefixes,
        "checkpoint_id": newest.checkpoint_id,
        "completed_ms": newest.completed_ms,
        "is_savepoint": newest.is_savepoint,
        "pending": len(newest.committables),
        "error": reason,
    }


def _known(row: FlinkJob) -> Mapping[str, tuple[int | None, int | None, str]]:
    kept = FlinkCheckpointRecord.objects.filter(job=row)
    columns = kept.values_list("name", "checkpoint_id", "completed_ms", "error")
    return {name: (number, at_ms, error) for name, number, at_ms, error in columns}


def _identity(checkpoint: FlinkCheckpoint | UnreadCheckpoint) -> tuple[int | None, int | None, str]:
    if isinstance(checkpoint, UnreadCheckpoint):
        return None, checkpoint.completed_ms, checkpoint.reason
    return checkpoint.checkpoint_id, checkpoint.completed_ms, ""


def _record(row: FlinkJob, name: str, read: FlinkCheckpoint | UnreadCheckpoint) -> FlinkCheckpointRecord:
    made = FlinkCheckpointRecord(job=row, name=name, completed_ms=read.completed_ms)
    if isinstance(read, UnreadCheckpoint):
        made.error = read.reason
        return made
    made.checkpoint_id, made.version, made.is_savepoint = read.checkpoint_id, read.version, read.is_savepoint
    made.committables = [list(committable) for committable in read.committables]
    made.writers = [list(writer) for writer in read.writers]
    made.other_entries = read.other_entries
    return made


def _blame(row: FlinkJob, gaps: Mapping[str, tuple[int, str]], next_rev: Any) -> bool:
    """Save the reason why an unobserved job cannot be read; return whether the reason is new."""
    reason = _reason(row.path, gaps)
    if not reason or row.error == reason:
        return False
    row.error, row.rev = reason, next_rev()
    row.save(update_fields=["error", "rev"])
    return True


def _reason(path: str, gaps: Mapping[str, tuple[int, str]]) -> str:
    """Return the reason why a job cannot be read: its own, else its root's."""
    if (mine := gaps.get(_FOLDER + path)) is not None:
        return mine[1]
    roots = [scope for scope in gaps if scope.startswith(_ROOT)]
    held = (scope for scope in roots if _is_below(path, [scope.removeprefix(_ROOT)]))
    return next((gaps[scope][1] for scope in held), "")


def _ident(path: str) -> str:
    digest = hashlib.sha256(path.encode()).hexdigest()[:8]
    return f"{path.rstrip('/').rpartition('/')[2][: _LONGEST_FOLDER - 9]}@{digest}"


def _name(job: str, checkpoint: str) -> str:
    return "" if checkpoint == job else checkpoint.rpartition("/")[2][:_LONGEST_FOLDER]


def _is_below(path: str, roots: Collection[str]) -> bool:
    return any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in roots)
