"""Saves what `collectors.checkpoints.collector` saw: queries, their batches, and what their sinks decided.

As `dashboard.transactions.store` does: the lease by its token, the revision, then what has changed, in
database transactions of a few checkpoints each. What a listener reports of the same rows stays
(`dashboard.streaming.progress_store`). Nothing is deleted because a folder is gone: these rows are the
history that Spark does not keep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from django.conf import settings

from dashboard.models import Batch, Query, SinkDecision
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import CHECKPOINTS as NAME
from dashboard.runtime.leases import Lease
from dashboard.runtime.write_transactions import retry_write, write_transaction
from dashboard.streaming.mapping import (
    decision_rows,
    decision_states,
    finished_rows,
    planned_rows,
    query_columns,
)
from dashboard.streaming.operator_state import save_operator_state
from dashboard.streaming.registry import Folder, by_path, is_alive, rows_of
from fenceline.kafka.families import fit_name
from fenceline.spark.records import CheckpointObservation, Decided, DecisionOutcome, Ledger, LedgerState

__all__ = ["NAME", "known_folders", "save_checkpoints"]

#: Rows in one save, so that no other writer waits for long: some twenty checkpoints that have moved.
_SAVE_AT_ONCE = 100
_ASK_AT_ONCE = 5_000
_LONGEST_SCOPE = 300
#: Scopes of gaps that name a checkpoint's folder.
_FOLDER = "checkpoint:"
_PLANNED = ["planned_ms", "watermark_ms", "offsets", "rev"]
_FINISHED = ["committed_ms", "next_watermark_ms", "rev"]
_DECISION = [
    "decided", "by", "decided_ms", "run_id", "generation", "reason", "transactions", "input", "outcome",
    "done_ms", "done_by", "lost",
]  # fmt: skip
#: The columns that are reset when a batch's id is planned anew: they were reported of the one before.
_ANEW: Mapping[str, Any] = {
    "committed_ms": None, "next_watermark_ms": None, "run_id": "", "started_ms": None, "duration_ms": None,
    "input_rows": None, "output_rows": None, "input_rate": None, "processed_rate": None, "durations": {},
    "sources": [], "operators": [],
}  # fmt: skip


def known_folders(lease: Lease) -> Sequence[str]:
    """Return the folders of checkpoints that were there when a poll was saved last."""
    rows = Query.objects.filter(cluster_id=lease.cluster_id).exclude(checkpoint="")
    return list(rows.exclude(detail__has_key="gone").values_list("checkpoint", flat=True))


def save_checkpoints(
    lease: Lease,
    observations: Sequence[CheckpointObservation],
    gone: Collection[str],
    *,
    gaps: Mapping[str, tuple[int, str]],
    now_ms: int,
) -> int:
    """Save observed checkpoints; return how many queries they changed. Raises `LeaseLost`.

    `gone` are the folders that are there no more. `gaps` is everything that cannot be seen now: since when
    and why, by scope; `checkpoint:PATH` becomes that query's own.
    """
    reasons = {scope.removeprefix(_FOLDER): why for scope, (_, why) in gaps.items()}
    paths = [each.checkpoint.path for each in observations]
    wrong = _outside(lease) | {path: f"the folder {path} is gone" for path in gone} | reasons
    known_rows = by_path(lease.cluster_id, paths)
    fresh = [
        each for each in observations if _is_news(known_rows.get(each.checkpoint.path), each, wrong, now_ms)
    ]
    for part in _parts(fresh):
        _save_some(lease, part, wrong, now_ms)
    return len(fresh) + _save_rest(lease, paths, gone, wrong, gaps, now_ms)


@retry_write
def _save_rest(
    lease: Lease,
    paths: Sequence[str],
    gone: Collection[str],
    wrong: Mapping[str, str],
    gaps: Mapping[str, tuple[int, str]],
    now_ms: int,
) -> int:
    """Save what is no checkpoint's own; return of how many queries it is news that they cannot be read."""
    with write_transaction(lease, {"seen_through_ms": now_ms}) as write:
        for some in _some(paths):
            Query.objects.filter(cluster_id=lease.cluster_id, checkpoint__in=some).update(seen_ms=now_ms)
        rows = list(by_path(lease.cluster_id, wrong).values())
        names = [row.ident for row in _blame(rows, wrong, set(gone))]
        idents = {row.checkpoint: row.ident for row in rows}
        collector_store.save_gaps(lease, {_scope(scope, idents): why for scope, why in gaps.items()}, now_ms)
        collector_store.clear_error(lease, now_ms)
        if names:
            rows_named = Query.objects.filter(cluster_id=lease.cluster_id, ident__in=names)
            rows_named.update(rev=write.next_rev())
            write.notify_after_commit("queries", names)
        write.notify_after_commit("collectors")
    return len(names)


def _outside(lease: Lease) -> dict[str, str]:
    """Return why known folders that no root of the configuration holds any more are not polled."""
    mine = [each for each in settings.FENCELINE.checkpoints if each.cluster == lease.cluster]
    roots = [each.root.rstrip("/") for each in mine]
    return {
        path: f"no root in [[checkpoints]] holds {path} any more: it is as it was seen last"
        for path in known_folders(lease)
        if roots and not any(f"{path}/".startswith(f"{root}/") for root in roots)
    }


def _is_news(
    row: Query | None, observation: CheckpointObservation, wrong: Mapping[str, str], now_ms: int
) -> bool:
    return row is None or bool(
        observation.planned
        or observation.finished
        or observation.state
        or _changes(row, observation, wrong, now_ms)
    )


def _changes(
    row: Query, observation: CheckpointObservation, wrong: Mapping[str, str], now_ms: int
) -> Mapping[str, Any]:
    """Return the columns of a query that a poll changes."""
    columns = {
        **query_columns(observation, row, alive=is_alive(row, now_ms)),
        "error": wrong.get(observation.checkpoint.path, ""),
    }
    return {name: value for name, value in columns.items() if getattr(row, name) != value}


def _parts(observations: Sequence[CheckpointObservation]) -> Iterator[Sequence[CheckpointObservation]]:
    part: list[CheckpointObservation] = []
    size = 0
    for each in observations:
        # Where batches are new, as many decisions are.
        rows = 1 + 2 * (len(each.planned) + len(each.finished))
        if part and size + rows > _SAVE_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(each)
        size += rows
    if part:
        yield part


@retry_write
def _save_some(
    lease: Lease, observations: Sequence[CheckpointObservation], wrong: Mapping[str, str], now_ms: int
) -> None:
    folders = [
        Folder(each.checkpoint.path, each.checkpoint.query_id, each.checkpoint.newest_finished)
        for each in observations
    ]
    with write_transaction(lease) as write:
        rev = write.next_rev()
        rows = rows_of(lease.cluster_id, folders, rev=rev)
        for observation in observations:
            _save_one(rows[observation.checkpoint.path], observation, wrong, rev=rev, now_ms=now_ms)
        names = [rows[observation.checkpoint.path].ident for observation in observations]
        write.notify_after_commit("queries", names)


def _save_one(
    row: Query, observation: CheckpointObservation, wrong: Mapping[str, str], *, rev: int, now_ms: int
) -> None:
    changed = _changes(row, observation, wrong, now_ms)
    _save_batches(row, observation, rev, now_ms)
    save_operator_state(row, observation.state)
    if observation.ledger is not None and "detail" in changed:
        _save_decisions(row, observation.ledger, observation.checkpoint.newest_finished, now_ms)
    for name, value in changed.items():
        setattr(row, name, value)
    row.rev = rev
    row.save(update_fields=[*changed, "rev"])


def _save_batches(row: Query, observation: CheckpointObservation, rev: int, now_ms: int) -> None:
    """Save what is new in the two logs; each of them writes its own columns."""
    planned = planned_rows(row, observation.planned, rev)
    finished = finished_rows(row, observation.finished, observation.committed_ms, rev, now_ms)
    _begin_anew(row, planned)
    for rows, fields in ((planned, _PLANNED), (finished, _FINISHED)):
        Batch.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["query", "batch_id"], update_fields=fields
        )


def _begin_anew(row: Query, planned: Sequence[Batch]) -> None:
    """Clear batches that were planned before at another time: the checkpoint was put back since."""
    times = {each.batch_id: each.planned_ms for each in planned}
    recorded = Batch.objects.filter(query=row, batch_id__in=list(times)).exclude(planned_ms=None)
    anew = [batch for batch, at_ms in recorded.values_list("batch_id", "planned_ms") if at_ms != times[batch]]
    if anew:
        Batch.objects.filter(query=row, batch_id__in=anew).update(**_ANEW)


def _save_decisions(row: Query, ledger: LedgerState, finished: int | None, now_ms: int) -> None:
    states = decision_states(ledger)
    first = min((batch for batch, _ in states), default=0)
    kept = SinkDecision.objects.filter(query=row, batch_id__gte=first)
    stored = {
        (batch, number): (decided, outcome)
        for batch, number, decided, outcome in kept.values_list("batch_id", "round", "decided", "outcome")
    }
    news = {which for which, how in states.items() if stored.get(which) != how}
    rows = decision_rows(row, ledger, news)
    for each in rows:
        # Only a new row takes it: `_DECISION` does not name it.
        each.first_seen_ms = now_ms
    SinkDecision.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["query", "batch_id", "round"],
        update_fields=_DECISION,
    )
    if isinstance(ledger.ledger, Ledger) and not ledger.broken:
        _let_go(row, states.keys(), finished)


def _let_go(row: Query, held: Collection[tuple[int, int]], finished: int | None) -> None:
    """Close open decisions that the ledger does not hold any more.

    The sink sweeps what is over; Spark goes on only behind a batch that is. One that is not over can only be
    missing because the folder was put back to an older state, in which it never was.
    """
    for each in SinkDecision.objects.filter(query=row, outcome=""):
        if (each.batch_id, each.round) in held:
            continue
        if finished is None or finished < each.batch_id:
            each.delete()
            continue
        prepared = each.decided == Decided.PREPARED
        each.outcome = DecisionOutcome.COMMITTED.value if prepared else DecisionOutcome.ABORTED.value
        each.save(update_fields=["outcome"])


def _some(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    return (paths[start : start + _ASK_AT_ONCE] for start in range(0, len(paths), _ASK_AT_ONCE))


def _blame(rows: Sequence[Query], wrong: Mapping[str, str], gone: Collection[str]) -> list[Query]:
    """Note of queries why their checkpoints cannot be read; return those of which that is news."""
    news = [row for row in rows if row.error != wrong[row.checkpoint]]
    for row in news:
        row.error = wrong[row.checkpoint]
        if row.checkpoint in gone:
            row.detail = {**row.detail, "gone": True}
        row.save(update_fields=["error", "detail"])
    return news


def _scope(scope: str, idents: Mapping[str, str]) -> str:
    ident = idents.get(scope.removeprefix(_FOLDER))
    named = scope if ident is None else f"query:{ident}"
    return named if len(named) <= _LONGEST_SCOPE else fit_name(named)
