"""Read the chains of batches, and whether queries are safe to restart.

A query's ledger is compared with the coordinators' states of its ids: by id, producer id, epoch and start.
This module opens no database transaction.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from django.conf import settings
from django.db.models import F, QuerySet

from dashboard.models import (
    IS_OPEN,
    Batch,
    Cluster,
    Collector,
    GapRecord,
    Query,
    SinkDecision,
    Transaction,
)
from dashboard.runtime.collector_names import CHECKPOINTS
from dashboard.runtime.loop import now_ms as clock_ms
from dashboard.runtime.sql import in_portions
from dashboard.streaming.positions import batches_by_number, missing_by_query
from dashboard.streaming.queries import newest_batches
from dashboard.streaming.registry import driver_of
from dashboard.transactions.sql import recent_rings
from fenceline.decode.typed import record_of
from fenceline.facts import NOT_FROM_LOG, Severity, TransactionState
from fenceline.findings import EVERYWHERE
from fenceline.grouping import grouped
from fenceline.kafka.applications import Shape, application_of, sink_id_stem
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.spark.batch_chain import BatchFacts, ChainLink, chain_links, no_chain
from fenceline.spark.queries import SourcePosition, missing_topics
from fenceline.spark.records import Decided, Decision, DecisionOutcome, Done, SinkTransaction
from fenceline.spark.safe_to_restart import (
    PreparedBatches,
    RestartFacts,
    RestartSafety,
    cluster_restart_safety,
    restart_safety,
)
from fenceline.spark.sink_fates import (
    Coordinated,
    EndedTransaction,
    TransactionFate,
    outcome_by_coordinator,
    outcome_by_history,
)

_NEWEST = (
    "key", "state", "producer_id", "producer_epoch", "updated_ms", "started_ms", "client_version",
)  # fmt: skip


def chain_of(query: Query, batch: Batch | None, *, now_ms: int | None = None) -> tuple[ChainLink, ...]:
    """Return the six links of a query's batch; without a batch, the links before the first batch."""
    if batch is None:
        return no_chain(query.sink)
    decisions = SinkDecision.objects.filter(query=query, batch_id=batch.batch_id)
    return _chains({query.pk: (query, batch)}, decisions, now_ms)[query.pk]


def chains_of(queries: Iterable[Query], *, now_ms: int | None = None) -> Mapping[int, tuple[ChainLink, ...]]:
    """Return the chain of each query's newest batch, by the query's key, in a few SQL queries."""
    rows = {row.pk: row for row in queries}
    newest = _newest(rows.values())
    decisions = SinkDecision.objects.filter(query__in=list(rows), batch_id=F("query__planned"))
    chains = _chains({pk: (rows[pk], batch) for pk, batch in newest.items()}, decisions, now_ms)
    return {pk: chains.get(pk) or no_chain(row.sink) for pk, row in rows.items()}


def newest_batch(query: Query) -> Batch | None:
    """Return the newest batch of a query: from its offset log, else from its listener."""
    return _newest([query]).get(query.pk)


def safe_to_restart(query: Query, now_ms: int) -> RestartSafety:
    return restart_safety_by_query([query], now_ms)[query.pk]


def restart_safety_by_query(queries: Sequence[Query], now_ms: int) -> Mapping[int, RestartSafety]:
    """Return whether each query is safe to restart now, by the query's key."""
    stems: dict[int, set[str]] = {row.cluster_id: set() for row in queries}
    for row in queries:
        if row.ledger_id:
            stems[row.cluster_id].add(_stem(row))
    unseen = {cluster_id: _unseen_reasons(cluster_id, now_ms) for cluster_id in stems}
    open_ids = {cluster_id: _open_ids(cluster_id, stems[cluster_id]) for cluster_id in stems}
    decided = grouped(
        (decision.query_id, decision)
        for decision in prepared_decisions()
        .filter(query__in=[row.pk for row in queries])
        .order_by("batch_id")
    )
    missing = missing_by_query(queries)
    return {
        row.pk: restart_safety(
            _restart_facts(
                row,
                unseen[row.cluster_id],
                open_ids[row.cluster_id],
                decided[row.pk],
                *missing[row.pk],
                now_ms,
            ),
            now_ms=now_ms,
        )
        for row in queries
    }


def safe_cluster(cluster: Cluster, now_ms: int) -> RestartSafety:
    """Return whether all queries of a cluster are safe to restart, without queries of deleted folders."""
    rows = list(Query.objects.filter(cluster=cluster).exclude(detail__has_key="gone").order_by("pk"))
    verdicts = restart_safety_by_query(rows, now_ms)
    return cluster_restart_safety(cluster.name, [(str(row), verdicts[row.pk]) for row in rows])


def prepared_batches(query: Query, rows: Sequence[SinkDecision], now_ms: int) -> PreparedBatches:
    """Return the prepared batches among a query's open decisions."""
    if not rows:
        return PreparedBatches()
    decided = [decision_of(row) for row in rows]
    written = [sent for decision in decided for sent in decision.transactions]
    known = transaction_outcomes(query.cluster_id, written)
    safe = (TransactionFate.COMMITTED, TransactionFate.COMMITTING)
    return PreparedBatches(
        batches=[decision.batch_id for decision in decided],
        since_ms=min(decision.at_ms for decision in decided),
        # A transaction with a decided commit no longer times out.
        expires_ms=min((sent.expires_ms for sent in written if known[sent].fate not in safe), default=None),
        overdue=any(is_overdue(query, row, now_ms) for row in rows),
    )


def open_for_ms(query: Query, decision: SinkDecision) -> int | None:
    """Return the milliseconds between the first and the last poll with an open decision, None without polls.

    The driver's clock and the time since the last poll do not count, because they prove nothing.
    """
    if query.seen_ms is None or decision.first_seen_ms is None:
        return None
    return query.seen_ms - decision.first_seen_ms


def is_overdue(query: Query, decision: SinkDecision, now_ms: int) -> bool:
    """Whether a decision is open for longer than a commit takes."""
    waited_ms = open_for_ms(query, decision)
    if waited_ms is None:
        waited_ms = now_ms - decision.decided_ms
    return waited_ms > settings.FENCELINE.limits.batch_prepared_s * 1_000


def prepared_decisions() -> QuerySet[SinkDecision]:
    """Return the prepared decisions that are not fully carried out."""
    return SinkDecision.objects.filter(outcome="", decided=Decided.PREPARED.value)


def owner_query(cluster_id: int, transactional_id: str) -> Query | None:
    """Return the query whose sink makes ids like this one, None if unknown.

    The id, as escaped text, begins with the sink's prefix and contains the beginning of its ledger's id.
    """
    ledger = _ledger_in(transactional_id)
    if not ledger:
        return None
    rows = Query.objects.select_related("cluster").filter(cluster_id=cluster_id, ledger_id__startswith=ledger)
    return next((row for row in rows.order_by("pk") if transactional_id.startswith(_stem(row))), None)


def decision_of(row: SinkDecision) -> Decision:
    return record_of(Decision, row, at_ms=row.decided_ms, ledger_id="", query_id="")


def done_of(row: SinkDecision) -> Done | None:
    """Return the end of a decision; None while it is open."""
    if not row.outcome:
        return None
    outcome, lost = DecisionOutcome(row.outcome), tuple(row.lost)
    return Done(row.batch_id, row.round, outcome, row.done_ms or row.decided_ms, row.done_by, lost)


def transaction_outcomes(
    cluster_id: int, written: Collection[SinkTransaction]
) -> Mapping[SinkTransaction, EndedTransaction]:
    keys = {sent: key_of_name(sent.transactional_id) for sent in written}
    now = _coordinated(cluster_id, set(keys.values()))
    outcomes = {sent: outcome_by_coordinator(sent, now.get(key)) for sent, key in keys.items()}
    unknown = {sent: keys[sent] for sent, ended in outcomes.items() if ended.fate is TransactionFate.UNKNOWN}
    rings = recent_rings(cluster_id, set(unknown.values()))
    past = {key: transition_ring.unpack_ring(ring.packed, NOT_FROM_LOG) for key, ring in rings.items()}
    later = {sent: outcome_by_history(sent, past[key]) for sent, key in unknown.items() if key in past}
    return outcomes | {
        sent: ended for sent, ended in later.items() if ended.fate is not TransactionFate.UNKNOWN
    }


def _newest(queries: Iterable[Query]) -> Mapping[int, Batch]:
    rows = list(queries)
    planned = {row.pk: row.planned for row in rows if row.planned is not None}
    return batches_by_number({**newest_batches([row for row in rows if row.planned is None]), **planned})


def _chains(
    batches: Mapping[int, tuple[Query, Batch]], decisions: QuerySet[SinkDecision], now_ms: int | None
) -> Mapping[int, tuple[ChainLink, ...]]:
    at_ms = clock_ms() if now_ms is None else now_ms
    newest = {row.query_id: row for row in decisions.order_by("round")}
    decided = grouped((query.cluster_id, pk) for pk, (query, _) in batches.items() if pk in newest)
    ended: dict[int, tuple[EndedTransaction, ...]] = {}
    for cluster_id, keys in decided.items():
        sent_by_query = {pk: decision_of(newest[pk]).transactions for pk in keys}
        known = transaction_outcomes(cluster_id, {each for sent in sent_by_query.values() for each in sent})
        ended |= {pk: tuple(known[each] for each in sent) for pk, sent in sent_by_query.items()}
    return {
        pk: chain_links(_facts(query, batch, newest.get(pk), ended.get(pk, ()), at_ms))
        for pk, (query, batch) in batches.items()
    }


def _facts(
    query: Query, batch: Batch, row: SinkDecision | None, ended: tuple[EndedTransaction, ...], now_ms: int
) -> BatchFacts:
    ended_ms = None if batch.started_ms is None else batch.started_ms + (batch.duration_ms or 0)
    driver = driver_of(query, now_ms)
    return BatchFacts(
        batch_id=batch.batch_id,
        sink=query.sink,
        planned=batch.planned_ms is not None or bool(batch.offsets),
        planned_ms=batch.planned_ms,
        checkpointed=batch.committed_ms is not None,
        checkpointed_ms=batch.committed_ms,
        progress_ended_ms=ended_ms,
        decision=None if row is None else decision_of(row),
        done=None if row is None else done_of(row),
        ended=ended,
        alive=driver.alive,
        silent_since_ms=driver.silent_since_ms,
        overdue=row is not None and is_overdue(query, row, now_ms),
    )


def _coordinated(cluster_id: int, keys: Collection[bytes]) -> Mapping[bytes, Coordinated]:
    states: dict[bytes, Coordinated] = {}
    for rows in in_portions(Transaction.objects.filter(cluster_id=cluster_id), "key", keys):
        for key, state, producer_id, epoch, updated_ms, started_ms, version in rows.values_list(*_NEWEST):
            known = Coordinated(TransactionState(state), producer_id, epoch, updated_ms, started_ms, version)
            states[bytes(key)] = known
    return states


def _restart_facts(
    query: Query,
    unseen: Mapping[str, str],
    open_ids: Mapping[str, Sequence[str]],
    decisions: Sequence[SinkDecision],
    missing_sources: Sequence[SourcePosition],
    missing_outputs: Sequence[str],
    now_ms: int,
) -> RestartFacts:
    restart = query.detail.get("restart", {})
    severity = restart.get("severity")
    started = query.planned is not None and (query.finished is None or query.finished < query.planned)
    return RestartFacts(
        name=str(query),
        sink=query.sink,
        driver=driver_of(query, now_ms),
        unseen=_unseen(query, unseen, now_ms),
        batch_in_progress=query.planned if started else None,
        prepared=prepared_batches(query, decisions, now_ms),
        open_ids=open_ids.get(_stem(query), ()),
        restart=query.restart_words,
        severity=Severity(severity) if severity else None,
        missing=missing_topics(missing_sources),
        missing_outputs=missing_outputs,
    )


def _unseen(query: Query, reasons: Mapping[str, str], now_ms: int) -> str:
    """Return why the checkpoint of a query cannot be read; "" if the last successful poll is recent enough.

    One failed poll, for example because Spark removes a file meanwhile, does not change the answer.
    """
    if not query.checkpoint:
        return "no configured root holds its checkpoint"
    limit_ms = settings.FENCELINE.limits.poller_behind_s * 1_000
    if query.seen_ms is not None and now_ms - query.seen_ms <= limit_ms:
        return ""
    return reasons[EVERYWHERE] or query.error or reasons.get(f"query:{query.ident}", "")


def _unseen_reasons(cluster_id: int, now_ms: int) -> Mapping[str, str]:
    """Return why checkpoints cannot be read, by scope; for all of them "" if they can."""
    gaps = GapRecord.objects.filter(cluster_id=cluster_id, source=CHECKPOINTS, until_ms=None)
    reasons = dict(gaps.values_list("scope", "reason"))
    return {**reasons, EVERYWHERE: reasons.get(EVERYWHERE) or _behind(cluster_id, now_ms)}


def _behind(cluster_id: int, now_ms: int) -> str:
    row = Collector.objects.filter(cluster_id=cluster_id, name=CHECKPOINTS).first()
    if row is None:
        return "no collector reads checkpoints"
    limit_ms = settings.FENCELINE.limits.poller_behind_s * 1_000
    if row.seen_through_ms is None or now_ms - row.seen_through_ms > limit_ms:
        return row.error or "the collector of checkpoints is behind"
    return ""


def _open_ids(cluster_id: int, stems: Collection[str]) -> Mapping[str, Sequence[str]]:
    """Return the open ids of sinks by their stems; an id has one `-p` after its ledger's id."""
    ids_by_stem: dict[str, list[str]] = defaultdict(list)
    if not stems:
        return ids_by_stem
    rows = Transaction.objects.filter(IS_OPEN, cluster_id=cluster_id).values_list(
        "transactional_id", flat=True
    )
    for name in rows.iterator():
        stem = "".join(name.rpartition("-p")[:2])
        if stem in stems and _ledger_in(name):
            ids_by_stem[stem].append(name)
    return ids_by_stem


def _stem(query: Query) -> str:
    """Return the beginning of the ids of a query's sink."""
    return sink_id_stem(query.prefix, query.ledger_id)


def _ledger_in(transactional_id: str) -> str:
    """Return the beginning of the ledger's id in an id of our sink; "" for other ids."""
    application = application_of(transactional_id)
    return application.member.partition("-")[0] if application.kind is Shape.FENCELINE_SINK else ""
