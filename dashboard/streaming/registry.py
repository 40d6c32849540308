"""Look up or create the rows of streaming queries, for both the collector and the listeners.

A listener knows only a query's id. A checkpoint is a folder, and two folders may have the same id (a copy) or
no id (lost metadata). So a folder's row is found by its path. A new folder takes the row that a listener
created for its id, else it gets a row with its own `ident`.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence

from django.conf import settings

from dashboard.models import Batch, Query
from dashboard.runtime.sql import in_portions
from fenceline.spark.drivers import Driver, DriverStatus, driver_by_heartbeat
from fenceline.spark.records import Checkpoint, CheckpointObservation, QueryState


def find_or_add(cluster_id: int, query_id: str, name: str = "", *, rev: int = 0) -> Query:
    """Return the row of a query that a listener reports; it is created with `name` if missing.

    Of several folders with the id it takes one that still exists, preferably the first seen. Call it in the
    transaction of the save, after locking the cluster's row, which excludes other writers.
    """
    rows = list(Query.objects.filter(cluster_id=cluster_id, query_id=query_id))
    if rows:
        return min(rows, key=_preference)
    return _made(cluster_id, query_id, query_id=query_id, name=name, rev=rev)


def rows_of(
    cluster_id: int, observations: Sequence[CheckpointObservation], *, rev: int
) -> Mapping[str, Query]:
    """Return the rows of checkpoints by path; missing rows are created. Call it like `find_or_add`.

    A folder that now has another, new query gets a new row; the earlier row is kept as history.
    """
    known = by_path(cluster_id, [observation.checkpoint.path for observation in observations])
    rows: dict[str, Query] = {}
    for observation in observations:
        folder = observation.checkpoint
        row = known.get(folder.path)
        if row is not None and _is_another(row, observation):
            _detach_folder(row, folder, rev)
            row = None
        rows[folder.path] = row or _adopted(cluster_id, folder, rev) or _new(cluster_id, folder, rev)
    return rows


def by_path(cluster_id: int, paths: Collection[str]) -> Mapping[str, Query]:
    """Return the known rows of checkpoints, by path."""
    known = Query.objects.filter(cluster_id=cluster_id)
    return {row.checkpoint: row for rows in in_portions(known, "checkpoint", paths) for row in rows}


def driver_of(row: Query, now_ms: int) -> Driver:
    """Return the state of a query's driver."""
    if row.state in (QueryState.STOPPED, QueryState.FAILED):
        failed = row.state == QueryState.FAILED
        return Driver(DriverStatus.ENDED, row.heard_ms, row.ended_ms, failed)
    if row.state == QueryState.UNHEARD:
        status = DriverStatus.UNKNOWN if row.heard_ms is None else DriverStatus.NO_HEARTBEAT
        return Driver(status, row.heard_ms)
    return driver_by_heartbeat(
        row.heard_ms,
        interval_ms=row.heartbeat_every_ms,
        least_ms=settings.FENCELINE.limits.listener_silent_s * 1_000,
        now_ms=now_ms,
    )


def is_alive(row: Query, now_ms: int) -> bool | None:
    """Whether a driver runs a query, by its listener; None without a recent report."""
    return driver_of(row, now_ms).alive


def state_now(row: Query, now_ms: int) -> QueryState:
    """Return a query's state: its listener's last report, or UNHEARD if the heartbeat is late."""
    if driver_of(row, now_ms).status in (DriverStatus.NO_HEARTBEAT, DriverStatus.UNKNOWN):
        return QueryState.UNHEARD
    return QueryState(row.state)


def _preference(row: Query) -> tuple[bool, bool, bool, int]:
    return row.checkpoint == "", row.error != "", row.ident != row.query_id, row.pk


def _is_another(row: Query, observation: CheckpointObservation) -> bool:
    """Whether a folder now has another query: another id, and logs that do not continue.

    Spark up to 4.1 gives a folder with lost metadata a new id and continues; that is the same query.
    """
    folder = observation.checkpoint
    planned = {entry.batch_id: entry.planned_ms for entry in observation.planned}
    if not row.query_id or folder.query_id is None or folder.query_id == row.query_id:
        return False
    batches = Batch.objects.filter(query=row, batch_id__in=list(planned)).exclude(planned_ms=None)
    recorded = dict(batches.values_list("batch_id", "planned_ms"))
    if recorded:
        return all(planned[number] != at_ms for number, at_ms in recorded.items())
    finished = folder.newest_finished
    return row.finished is None or finished is None or finished < row.finished


def _detach_folder(row: Query, folder: Checkpoint, rev: int) -> None:
    row.error = f"its folder {folder.path} holds another query now: {folder.query_id}"
    row.detail = {**row.detail, "gone": True}
    row.checkpoint, row.rev = "", rev
    row.save(update_fields=["checkpoint", "error", "detail", "rev"])


def _adopted(cluster_id: int, folder: Checkpoint, rev: int) -> Query | None:
    """Return the row that a listener created for a folder's query."""
    if folder.query_id is None:
        return None
    rows = Query.objects.filter(cluster_id=cluster_id, query_id=folder.query_id, checkpoint="")
    row = rows.exclude(detail__has_key="gone").order_by("pk").first()
    if row is not None:
        row.checkpoint, row.rev = folder.path, rev
        row.save(update_fields=["checkpoint", "rev"])
    return row


def _new(cluster_id: int, folder: Checkpoint, rev: int) -> Query:
    digest = hashlib.sha256(folder.path.encode()).hexdigest()
    if folder.query_id is None:
        ident = f"path-{digest[:16]}"
    elif Query.objects.filter(cluster_id=cluster_id, ident=folder.query_id).exists():
        ident = f"{folder.query_id}@{digest[:8]}"
    else:
        ident = folder.query_id
    columns = {"query_id": folder.query_id or "", "checkpoint": folder.path}
    return _made(cluster_id, ident, **columns, rev=rev)


def _made(cluster_id: int, ident: str, **columns: object) -> Query:
    row, _ = Query.objects.get_or_create(
        cluster_id=cluster_id, ident=ident, defaults={"state": QueryState.UNHEARD.value, **columns}
    )
    return row


_KIND = "query:"


def names_by_subject(cluster_id: int, subjects: Collection[str]) -> Mapping[str, str]:
    """Return the names of the cluster's streaming queries among the subjects (`query:IDENT`)."""
    idents = sorted({subject.removeprefix(_KIND) for subject in subjects if subject.startswith(_KIND)})
    names: dict[str, str] = {}
    for rows in in_portions(Query.objects.filter(cluster_id=cluster_id), "ident", idents):
        for row in rows.only("ident", "name", "checkpoint"):
            names[f"{_KIND}{row.ident}"] = str(row)
    return names
