"""Inspect batches of our sink for a plan: the ledger in the checkpoint, and the batch's transactions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from django.conf import settings

from dashboard.actions import inspect
from dashboard.config import CheckpointRoot
from dashboard.models import Query, SinkDecision, Transaction
from dashboard.streaming import batch_state
from dashboard.streaming import queries as streaming_queries
from dashboard.streaming.registry import is_alive
from dashboard.transactions.queries import partitions_of
from fenceline.decode import text
from fenceline.decode.typed import record_of
from fenceline.facts import TopicPartition, TransactionState, expand_partitions
from fenceline.formatting import error_line, list_names
from fenceline.kafka.applications import sink_id_stem
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from fenceline.plans.batches import SinkBatchFacts
from fenceline.plans.impact import HeldLog
from fenceline.spark.paths import to_url
from fenceline.spark.records import Decided, Decision, Ledger, SinkTransaction
from fenceline.spark.sink_fates import Coordinated, TransactionFate, outcome_by_coordinator
from spark_pipeline.sink.errors import SinkError
from spark_pipeline.sink.ledger import LedgerFolder
from spark_pipeline.sink.storage import Storage, open_storage

#: The newest transaction protocol: its transactions may have ended one epoch later.
_NEWEST_PROTOCOL = 2


class _UnusableLedger(Exception):
    """A ledger that no action can use; the text is the reason and the remedy."""


#: A batch by its ledger, the ledger's identity, and its prepared decisions that are not done.
_Read = tuple[SinkBatchFacts, Ledger, Sequence[Decision]]


def inspect_batch(
    inspector: inspect.ClusterInspector, ident: str, batch_id: int, *, finish: bool
) -> SinkBatchFacts:
    """Return a batch of a query from its ledger and the coordinators' current descriptions.

    With `finish` it has the transactions of its decision, else those without a decision. Raises
    `AdminUnavailable`; the batch's `trouble` says why a ledger cannot be read.
    """
    query = streaming_queries.find_query(inspector.cluster, ident)
    if query is None:
        return SinkBatchFacts(
            ident, ident, batch_id, trouble=f"no query {ident} is known on {inspector.cluster}"
        )
    known = SinkBatchFacts(
        ident, _name(query), batch_id, alive=is_alive(query, inspector.now_ms), heard_ms=query.heard_ms
    )
    try:
        root, url = _where(inspector.cluster, query)
        facts, ledger, prepared = _read(known, root, url)
    except _UnusableLedger as trouble:
        return replace(known, trouble=str(trouble))
    return _with_written(inspector, facts) if finish else _with_undecided(inspector, facts, ledger, prepared)


def batch_of_rows(query: Query, batch_id: int, *, now_ms: int) -> SinkBatchFacts:
    """Return a batch of a query from our rows, without reading its ledger or asking a coordinator."""
    known = SinkBatchFacts(
        query.ident, _name(query), batch_id, alive=is_alive(query, now_ms), heard_ms=query.heard_ms
    )
    try:
        root, url = _where(query.cluster.name, query)
    except _UnusableLedger as trouble:
        return replace(known, trouble=str(trouble))
    rows = SinkDecision.objects.filter(query=query)
    rounds = list(rows.filter(batch_id=batch_id).order_by("round"))
    prepared = rows.filter(decided=Decided.PREPARED.value)
    waiting = list(prepared.filter(outcome="").order_by("batch_id"))
    newest = prepared.order_by("-batch_id").first()
    written = batch_state.decision_of(rounds[-1]).transactions if rounds else ()
    fates = batch_state.transaction_outcomes(query.cluster_id, written)
    return replace(
        known,
        checkpoint=url,
        root=root.root,
        ledger_id=query.ledger_id,
        query_id=query.query_id,
        generation=query.generation or 0,
        rounds=tuple(map(batch_state.decision_of, rounds)),
        done=batch_state.done_of(rounds[-1]) if rounds else None,
        last_prepared=newest.batch_id if newest else None,
        prepared=tuple(decision.batch_id for decision in waiting),
        planned=query.planned,
        written={transaction: fates[transaction].fate for transaction in written},
        undecided=_undecided_rows(query, waiting),
    )


def _undecided_rows(query: Query, waiting: Sequence[SinkDecision]) -> tuple[Described, ...]:
    """Return the open transactions of a query's sink that are in no prepared decision."""
    if not query.ledger_id:
        return ()
    stem = sink_id_stem(query.prefix, query.ledger_id)
    rows = Transaction.objects.filter(
        cluster_id=query.cluster_id, state=TransactionState.ONGOING.value, transactional_id__startswith=stem
    )
    decided = {
        _identity(transaction) for row in waiting for transaction in batch_state.decision_of(row).transactions
    }
    orphans = [record_of(Described, row, partitions=tuple(partitions_of(row))) for row in rows]
    return tuple(orphan for orphan in orphans if _identity(orphan) not in decided)


def _name(query: Query) -> str:
    """Return a query's name in printable form, which users can type."""
    return text.escape_bytes(str(query).encode(errors="replace"))


def _with_written(inspector: inspect.ClusterInspector, facts: SinkBatchFacts) -> SinkBatchFacts:
    decision = facts.decision
    if decision is None or decision.decided is not Decided.PREPARED or facts.done is not None:
        return facts
    wanted = decision.transactions
    answers = _describe(inspector, [transaction.transactional_id for transaction in wanted])
    if unseen := _unseen(answers):
        return replace(facts, unseen=unseen)
    fates = {transaction: _fate(transaction, answers[transaction.transactional_id]) for transaction in wanted}
    unknown = [transaction for transaction, fate in fates.items() if fate is TransactionFate.UNKNOWN]
    past = batch_state.transaction_outcomes(inspector.cluster_id, unknown)
    # Other fates in our rows may have changed since.
    ends = (TransactionFate.COMMITTED, TransactionFate.ABORTED)
    fates |= {transaction: ended.fate for transaction, ended in past.items() if ended.fate in ends}
    held = {
        where
        for transaction in wanted
        if fates[transaction] is TransactionFate.OPEN
        for where in transaction.partitions
    }
    return replace(facts, written=fates, logs=_held_logs(inspector, held))


def _describe(
    inspector: inspect.ClusterInspector, names: Sequence[str]
) -> Mapping[str, Described | NotDescribed]:
    return inspect.describe_ids(inspector, names) if names else {}


def _unseen(answers: Mapping[str, Described | NotDescribed]) -> str:
    """Return why an id's coordinator did not answer, "" if all did."""
    undescribed = [answer for answer in answers.values() if isinstance(answer, NotDescribed)]
    return next((answer.text for answer in undescribed if answer.obstacle is not Obstacle.UNKNOWN), "")


def _held_logs(inspector: inspect.ClusterInspector, held: Iterable[TopicPartition]) -> tuple[HeldLog, ...]:
    return tuple(inspect.partition_logs(inspector, sorted(held)).values())


def _fate(written: SinkTransaction, answer: Described | NotDescribed) -> TransactionFate:
    """Return the outcome of a transaction from its coordinator's current description."""
    if not isinstance(answer, Described):
        return TransactionFate.UNKNOWN
    if answer.state is TransactionState.ONGOING:
        current = answer.producer_id, answer.producer_epoch, answer.started_ms
        recorded = written.producer_id, written.producer_epoch, written.started_ms
        return TransactionFate.OPEN if current == recorded else TransactionFate.UNKNOWN
    now = Coordinated(
        answer.state,
        answer.producer_id,
        answer.producer_epoch,
        0,
        answer.started_ms,
        _NEWEST_PROTOCOL,
    )
    return outcome_by_coordinator(written, now).fate


def _with_undecided(
    inspector: inspect.ClusterInspector, facts: SinkBatchFacts, ledger: Ledger, prepared: Sequence[Decision]
) -> SinkBatchFacts:
    listing = inspector.admin.list_transactions([TransactionState.ONGOING])
    if listing.unseen:
        return replace(facts, unseen=list_names([str(broker) for broker in listing.unseen]))
    stem = sink_id_stem(ledger.prefix, ledger.ledger_id)
    answers = _describe(inspector, [name for name in listing.entries if name.startswith(stem)])
    if unseen := _unseen(answers):
        return replace(facts, unseen=unseen)
    decided = {_identity(transaction) for decision in prepared for transaction in decision.transactions}
    described = [answer for answer in answers.values() if isinstance(answer, Described)]
    undecided = tuple(
        transaction
        for transaction in described
        if transaction.state is TransactionState.ONGOING and _identity(transaction) not in decided
    )
    held = {where for transaction in undecided for where in expand_partitions(transaction.partitions)}
    return replace(facts, undecided=undecided, logs=_held_logs(inspector, held))


def _identity(transaction: Described | SinkTransaction) -> tuple[str, int, int]:
    return transaction.transactional_id, transaction.producer_id, transaction.producer_epoch


def _where(cluster: str, query: Query) -> tuple[CheckpointRoot, str]:
    if not query.checkpoint or query.detail.get("gone"):
        raise _UnusableLedger(
            query.error or "no root in [[checkpoints]] holds its checkpoint: name the folder that does"
        )
    for root in settings.FENCELINE.checkpoints:
        if root.cluster == cluster and f"{query.checkpoint}/".startswith(f"{root.root.rstrip('/')}/"):
            url = to_url(query.checkpoint, mapped=root.map)
            # Local paths are stored as Hadoop writes them, where "%" is not an escape.
            return root, url.replace("%", "%25") if url.startswith("file:") else url
    raise _UnusableLedger(
        f"no root in [[checkpoints]] holds {query.checkpoint} any more: name the folder that does"
    )


def _read(known: SinkBatchFacts, root: CheckpointRoot, url: str) -> _Read:
    """Read the ledger's files about a batch; raises `_UnusableLedger`."""
    try:
        facts, ledger, prepared = _read_folder(known, open_storage(url, root.options))
        return replace(facts, checkpoint=url, root=root.root), ledger, prepared
    except _UnusableLedger:
        raise
    except SinkError as error:
        raise _UnusableLedger(str(error)) from error
    except Exception as error:  # A store's client may raise any exception.
        raise _UnusableLedger(
            f"{url} does not open ({type(error).__name__}: {error_line(error)}): check the store"
        ) from error


def _read_folder(known: SinkBatchFacts, checkpoint: Storage) -> _Read:
    folder = LedgerFolder(checkpoint)
    ledger = folder.read_identity()
    if ledger is None:
        raise _UnusableLedger(
            f"{checkpoint.path} holds none: no exactly-once sink has written with this checkpoint"
        )
    names = folder.read_names()
    rounds = names.rounds_of(known.batch_id)
    last = folder.last_prepared(names)
    still_open = [folder.read_decision(which) for which in names.open_rounds()]
    prepared = [decision for decision in still_open if decision.decided is Decided.PREPARED]
    planned = [int(name) for name in checkpoint.subfolder("offsets").file_names() if name.isdecimal()]
    facts = replace(
        known,
        ledger_id=ledger.ledger_id,
        query_id=ledger.query_id,
        generation=names.generation,
        first_batch=ledger.first_batch,
        rounds=tuple(folder.read_decision(which) for which in rounds),
        done=folder.read_outcome(rounds[-1]) if rounds else None,
        last_prepared=last.batch_id if last else None,
        prepared=tuple(decision.batch_id for decision in prepared),
        planned=max(planned, default=None),
    )
    return facts, ledger, prepared
