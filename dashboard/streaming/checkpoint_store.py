"""Save the polls of `collectors.checkpoints.collector`: queries, batches, and their sinks' decisions.

As in `dashboard.transactions.store`, a save checks the lease by its token, takes a revision, then writes the
changes, in database transactions of a few checkpoints each. Columns reported by a listener are not written
(`dashboard.streaming.progress_store`). Rows outlive their folder, as the history that Spark does not keep.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.conf import settings

from dashboard.models import Batch, Query, SinkDecision
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import CHECKPOINTS
from dashboard.runtime.leases import Lease, collector_row
from dashboard.runtime.sql import in_portions, weighted_portions, write_rows
from dashboard.runtime.write_transactions import retry_write, write_transaction
from dashboard.streaming.mapping import (
    decision_rows,
    decision_states,
    finished_rows,
    planned_rows,
    query_columns,
)
from dashboard.streaming.queries import save_operator_state
from dashboard.streaming.registry import by_path, is_alive, rows_of
from fenceline.spark.records import (
    CheckpointObservation,
    Decided,
    DecisionOutcome,
    Ledger,
    LedgerState,
)

NAME = CHECKPOINTS
#: Maximum rows in one save, about twenty checkpoints with new batches, so that other writers wait briefly.
_SAVE_AT_ONCE = 100
#: The prefix of scopes of gaps that name a checkpoint's folder.
_FOLDER = "checkpoint:"
_BATCH_KEY = ("query_id", "batch_id")
#: Columns that are reset when a batch's id is planned again, because they belong to the earlier batch.
_ANEW: Mapping[str, Any] = {
    "committed_ms": None, "next_watermark_ms": None, "run_id": "", "started_ms": None, "duration_ms": None,
    "input_rows": None, "output_rows": None, "input_rate": None, "processed_rate": None, "durations": {},
    "sources": [], "operators": [],
}  # fmt: skip


def known_folders(lease: Lease) -> Sequence[str]:
    """Return the folders of checkpoints that existed at the last saved poll."""
    rows = Query.objects.filter(cluster_id=lease.cluster_id).exclude(checkpoint="")
    return list(rows.exclude(detail__has_key="gone").values_list("checkpoint", flat=True))


def save_checkpoints(
    lease: Lease,
    observations: Sequence[CheckpointObservation],
    gone: Collection[str],
    *,
    gaps: Mapping[str, tuple[int, str]],
    now_ms: int,
    skipped: Mapping[str, Sequence[tuple[str, int, str]]] | None = None,
) -> int:
    """Save observed checkpoints; return the number of changed queries. Raises `LeaseLost`.

    `gone` are the deleted folders. `gaps` are all current gaps by scope, each with its start and reason; the
    scope `checkpoint:PATH` becomes the query's scope. `skipped` has the folders that were not searched, by
    root: name, count, and the first one.
    """
    reasons = {scope.removeprefix(_FOLDER): why for scope, (_, why) in gaps.items()}
    paths = [observation.checkpoint.path for observation in observations]
    wrong = _outside(lease) | {path: f"the folder {path} is gone" for path in gone} | reasons
    known_rows = by_path(lease.cluster_id, paths)
    fresh = [
        observation
        for observation in observations
        if _is_news(known_rows.get(observation.checkpoint.path), observation, wrong, now_ms)
    ]
    for part in weighted_portions(fresh, _row_count, _SAVE_AT_ONCE):
        _save_some(lease, part, wrong, now_ms)
    if skipped is not None:
        _save_skipped(lease, skipped)
    return len(fresh) + _save_rest(lease, paths, gone, wrong, gaps, now_ms)


@retry_write
def _save_skipped(lease: Lease, skipped: Mapping[str, Sequence[tuple[str, int, str]]]) -> None:
    """Save the folders that are not searched, if they changed."""
    wanted = {root: [list(folder) for folder in folders] for root, folders in sorted(skipped.items())}
    row = collector_row(lease).get()
    if row.detail.get("skipped", {}) != wanted:
        with write_transaction(lease) as write:
            collector_row(lease).update(detail={**row.detail, "skipped": wanted})
            write.notify_after_commit("collectors")


@retry_write
def _save_rest(
    lease: Lease,
    paths: Sequence[str],
    gone: Collection[str],
    wrong: Mapping[str, str],
    gaps: Mapping[str, tuple[int, str]],
    now_ms: int,
) -> int:
    """Save the data beyond single checkpoints; return the number of queries that became unreadable."""
    with write_transaction(lease, {"seen_through_ms": now_ms}) as write:
        for polled in in_portions(Query.objects.filter(cluster_id=lease.cluster_id), "checkpoint", paths):
            polled.update(seen_ms=now_ms)
        rows = list(by_path(lease.cluster_id, wrong).values())
        names = [row.ident for row in _blame(rows, wrong, set(gone))]
        idents = {row.checkpoint: row.ident for row in rows}
        collector_store.save_gaps(lease, {_scope(scope, idents): why for scope, why in gaps.items()}, now_ms)
        collector_store.clear_error(write.collector, now_ms)
        if names:
            rows_named = Query.objects.filter(cluster_id=lease.cluster_id, ident__in=names)
            rows_named.update(rev=write.next_rev())
            write.notify_after_commit("queries", names)
        write.notify_after_commit("collectors")
    return len(names)


def _outside(lease: Lease) -> dict[str, str]:
    """Return the reasons why known folders outside the configured roots are no longer polled."""
    roots = [
        entry.root.rstrip("/") for entry in settings.FENCELINE.checkpoints if entry.cluster == lease.cluster
    ]
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
    checkpoint = observation.checkpoint
    newest = (checkpoint.newest_planned, row.planned), (checkpoint.newest_finished, row.finished)
    # Whether a log has a newer batch than at the previous poll.
    has_advanced = row.seen_ms is not None and any(
        now is not None and (before is None or now > before) for now, before in newest
    )
    columns = {
        "advanced_ms": now_ms if has_advanced else row.advanced_ms,
        **query_columns(observation, row, alive=is_alive(row, now_ms)),
        "error": wrong.get(checkpoint.path, ""),
    }
    return {name: value for name, value in columns.items() if getattr(row, name) != value}


def _row_count(observation: CheckpointObservation) -> int:
    # Every new batch may have a decision.
    return 1 + 2 * (len(observation.planned) + len(observation.finished))


@retry_write
def _save_some(
    lease: Lease, observations: Sequence[CheckpointObservation], wrong: Mapping[str, str], now_ms: int
) -> None:
    with write_transaction(lease) as write:
        rev = write.next_rev()
        rows = rows_of(lease.cluster_id, observations, rev=rev)
        for observation in observations:
            _save_one(rows[observation.checkpoint.path], observation, wrong, rev=rev, now_ms=now_ms)
        names = [rows[observation.checkpoint.path].ident for observation in observations]
        write.notify_after_commit("queries", names)


def _save_one(
    row: Query, observation: CheckpointObservation, wrong: Mapping[str, str], *, rev: int, now_ms: int
) -> None:
    changed = _changes(row, observation, wrong, now_ms)
    # Each log has its own columns of a batch.
    planned = planned_rows(row, observation.planned, rev)
    _begin_anew(row, planned)
    write_rows(Batch, planned, _BATCH_KEY)
    finished = finished_rows(row, observation.finished, observation.committed_ms, rev, now_ms)
    write_rows(Batch, finished, _BATCH_KEY)
    save_operator_state(row, observation.state)
    if observation.ledger is not None and "detail" in changed:
        _save_decisions(row, observation.ledger, observation.checkpoint.newest_finished, now_ms)
    for name, value in changed.items():
        setattr(row, name, value)
    row.rev = rev
    row.save(update_fields=[*changed, "rev"])


def _begin_anew(row: Query, planned: Sequence[Mapping[str, Any]]) -> None:
    """Clear batches whose planning time has changed: the checkpoint was restored since."""
    times = {batch["batch_id"]: batch["planned_ms"] for batch in planned}
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
    rows = [{**decision, "first_seen_ms": now_ms} for decision in decision_rows(row, ledger, news)]
    write_rows(SinkDecision, rows, (*_BATCH_KEY, "round"), keep=("first_seen_ms",))
    if isinstance(ledger.ledger, Ledger) and not ledger.broken:
        _close_removed_decisions(row, states.keys(), finished)


def _close_removed_decisions(row: Query, held: Collection[tuple[int, int]], finished: int | None) -> None:
    """Close open decisions that the ledger no longer has.

    The sink removes finished decisions, and Spark goes on only after a finished batch. An unfinished decision
    can be missing only because the folder was restored to an older state.
    """
    for decision in SinkDecision.objects.filter(query=row, outcome=""):
        if (decision.batch_id, decision.round) in held:
            continue
        if finished is None or finished < decision.batch_id:
            decision.delete()
            continue
        prepared = decision.decided == Decided.PREPARED
        decision.outcome = DecisionOutcome.COMMITTED.value if prepared else DecisionOutcome.ABORTED.value
        decision.save(update_fields=["outcome"])


def _blame(rows: Sequence[Query], wrong: Mapping[str, str], gone: Collection[str]) -> list[Query]:
    """Save why checkpoints of queries cannot be read; return the queries with a new reason."""
    news = [row for row in rows if row.error != wrong[row.checkpoint]]
    for row in news:
        row.error = wrong[row.checkpoint]
        if row.checkpoint in gone:
            row.detail = {**row.detail, "gone": True}
        row.save(update_fields=["error", "detail"])
    return news


def _scope(scope: str, idents: Mapping[str, str]) -> str:
    ident = idents.get(scope.removeprefix(_FOLDER))
    return scope if ident is None else f"query:{ident}"
