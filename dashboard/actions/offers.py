"""Offers: actions that may be planned, for cards, pages, the admin and the API.

The planners of `fenceline.plans` decide from our rows, by their refusals, without asking the cluster.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from django.conf import settings

from dashboard.actions import sink_batches
from dashboard.actions.producers import producers_of_rows
from dashboard.models import FindingRecord, PinRecord, Query, Transaction
from dashboard.partitions import queries as partition_queries
from dashboard.partitions.queries import pin_of
from dashboard.streaming import batches as streaming_batches
from dashboard.streaming import queries as streaming_queries
from dashboard.transactions import queries as transaction_queries
from fenceline.decode.typed import record_of
from fenceline.facts import TopicPartition, TransactionState
from fenceline.formatting import count_noun
from fenceline.grouping import grouped
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.kafka.reconcile import Described
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.plans.impact import HeldLog
from fenceline.plans.markers import Marked
from fenceline.plans.offers import (
    Appraisal,
    appraise_fence,
    appraise_finish,
    appraise_flink_commit,
    appraise_markers,
    appraise_roll_back,
)
from fenceline.plans.plan import MOST_SUBJECTS, Act, Refusal
from fenceline.plans.plan import RefusalReason as Why
from fenceline.plans.producers import Producer

#: Maximum offers for an id that hangs in many partitions; its findings name the other partitions.
_MOST_MARKERS = 3
#: Rules with subjects that an action may end.
ENDABLE = frozenset(
    {"hanging", "open_too_long", "coordinator_overdue", "batch_prepared", "flink_commit_pending"}
)


@dataclass(frozen=True, slots=True)
class Offer:
    """An action on one subject, which may be planned or is refused by the planner."""

    act: Act
    cluster: str
    #: In the form for `dashboard.actions.planning.make_plan`.
    subject: str
    #: The text of its button.
    words: str
    refusals: tuple[Refusal, ...] = ()
    #: Further subjects of the same plan.
    others: tuple[str, ...] = ()
    #: As in `Appraisal`.
    may_lose: bool = False

    @property
    def subjects(self) -> Sequence[str]:
        return self.subject, *self.others

    @property
    def forceable(self) -> bool:
        """Whether the offer is refused, and an admin may force it."""
        return bool(self.refusals) and all(refusal.forceable for refusal in self.refusals)


def available_offers(offers: Iterable[Offer]) -> Sequence[Offer]:
    """Return the offers without a refusal."""
    return [offer for offer in offers if not offer.refusals]


def of_transactions(
    rows: Sequence[Transaction], pins: Mapping[int, Sequence[PinRecord]] | None = None, *, now_ms: int
) -> Mapping[int, Sequence[Offer]]:
    """Return the planners' offers to end the open transactions of ids, by the key of the row.

    `pins` are the open transactions of these ids in partitions, by the same keys.
    """
    pins_by_row = partition_queries.pins_of(rows) if pins is None else pins
    by_cluster = grouped((row.cluster_id, row) for row in rows if row.state == TransactionState.ONGOING)
    producers: dict[int, Producer] = {}
    for cluster_rows in by_cluster.values():
        described = producers_of_rows(cluster_rows, now_ms=now_ms)
        producers |= {row.pk: producer for row, producer in zip(cluster_rows, described, strict=True)}
    return {
        row.pk: [*_hanging(row, pins_by_row.get(row.pk, ())), *_ended(row, producers.get(row.pk), now_ms)]
        for row in rows
    }


def of_pins(cluster: str, pins: Sequence[PinRecord], *, now_ms: int) -> Sequence[Offer]:
    """Return the planners' offers to end open transactions in partitions: one or two for each."""
    offered: list[Offer] = []
    for pin in pins:
        marker = _offer(cluster, _appraised(pin), _MARKER)
        owner = None if pin.verdict == PartitionVerdict.HANGING else _owner(pin)
        if owner is None or owner.state != TransactionState.ONGOING:
            offered.append(marker)
        else:
            offered += _ended(owner, producers_of_rows([owner], now_ms=now_ms)[0], now_ms)
    return offered


def of_batch(query: Query, batch_id: int, *, now_ms: int) -> Sequence[Offer]:
    """Return the planners' offers to finish and to roll back one batch."""
    batch = sink_batches.batch_of_rows(query, batch_id, now_ms=now_ms)
    appraisals = appraise_finish(batch), appraise_roll_back(batch, now_ms=now_ms)
    words = {Act.FINISH_BATCH: "Finish", Act.ROLL_BACK_BATCH: "Roll back"}
    return [
        _offer(query.cluster.name, appraisal, f"{words[appraisal.act]} batch {batch_id:,}…")
        for appraisal in appraisals
    ]


def of_sink(cluster_id: int, transactional_id: str, *, now_ms: int) -> Sequence[Offer]:
    """Return the offers to end a transaction of our sink, by its prepared batch or the one in progress.

    The result is empty for an id without a known query.
    """
    written = streaming_batches.written_for(cluster_id, transactional_id)
    if written is None:
        return []
    waiting = [decision.batch_id for decision in streaming_batches.open_decisions([written.query])]
    batch_id = written.batch_id if written.batch_id in waiting else written.query.planned
    return [] if batch_id is None else of_batch(written.query, batch_id, now_ms=now_ms)


def of_findings(rows: Sequence[FindingRecord], *, now_ms: int) -> Mapping[int, Sequence[Offer]]:
    """Return the available offers for findings, by the finding's key."""
    open_rows = [row for row in rows if row.closed_at is None and row.rule in ENDABLE]
    of_ids = _of_named_transactions(open_rows, now_ms)
    by_kind = {"transaction": of_ids, "partition": _of_named_partitions(open_rows)}
    offered: dict[int, Sequence[Offer]] = {row.pk: () for row in rows}
    for row in open_rows:
        kind, _, name = row.subject.partition(":")
        if kind in by_kind:
            offered[row.pk] = available_offers(by_kind[kind].get((row.cluster_id, name), ()))
        elif kind == "query":
            offered[row.pk] = available_offers(_of_query(row.cluster.name, name, now_ms))
        elif kind == "flink_job":
            offered[row.pk] = list(_of_flink_job(row.cluster_id, row.affected, of_ids))
    return offered


def _of_named_transactions(
    rows: Sequence[FindingRecord], now_ms: int
) -> Mapping[tuple[int, str], Sequence[Offer]]:
    things = {row.subject for row in rows}
    things |= {subject for row in rows if row.subject.startswith("flink_job:") for subject in row.affected}
    keys = {
        key_of_name(subject.removeprefix("transaction:"))
        for subject in things
        if subject.startswith("transaction:")
    }
    clusters = {row.cluster_id for row in rows}
    if not keys:
        return {}
    wanted = Transaction.objects.filter(cluster__in=clusters, key__in=list(keys)).select_related("cluster")
    transactions = list(wanted)
    offered = of_transactions(transactions, now_ms=now_ms)
    return {(row.cluster_id, row.transactional_id): offered[row.pk] for row in transactions}


def _of_named_partitions(rows: Sequence[FindingRecord]) -> Mapping[tuple[int, str], Sequence[Offer]]:
    """Return offers of abort markers for hanging transactions in the findings' partitions."""
    names: dict[tuple[int, str, int], FindingRecord] = {}
    for row in rows:
        topic, _, number = row.subject.removeprefix("partition:").rpartition("-")
        if row.subject.startswith("partition:") and number.isdecimal():
            names[row.cluster_id, topic, int(number)] = row
    offered: dict[tuple[int, str], Sequence[Offer]] = {}
    for place, pins in partition_queries.partition_pins(names).items():
        cluster_id, topic, partition = place
        hanging = [pin for pin in pins if pin.verdict == PartitionVerdict.HANGING]
        marker = appraise_markers(marked_partition(topic, partition, hanging))
        offered[cluster_id, f"{topic}-{partition}"] = [_offer(names[place].cluster.name, marker, _MARKER)]
    return offered


def _of_query(cluster: str, ident: str, now_ms: int) -> Sequence[Offer]:
    query = streaming_queries.find_query(cluster, ident)
    waiting = [] if query is None else streaming_batches.open_decisions([query])
    return [
        offer
        for decision in waiting[:1]
        for offer in of_batch(decision.query, decision.batch_id, now_ms=now_ms)
    ]


def _of_flink_job(
    cluster_id: int, affected: Sequence[str], of_ids: Mapping[tuple[int, str], Sequence[Offer]]
) -> Iterator[Offer]:
    """Yield one offer to commit all transactions of a finding that the planner accepts."""
    names = [subject.removeprefix("transaction:") for subject in affected]
    commits = [
        offer
        for name in names
        for offer in available_offers(of_ids.get((cluster_id, name), ()))
        if offer.act is Act.COMMIT_FLINK
    ][:MOST_SUBJECTS]
    if commits:
        first, *others = commits
        words = f"Commit {count_noun(len(commits), 'pending transaction')}…"
        yield replace(first, words=words, others=tuple(offer.subject for offer in others))


_MARKER = "Abort hanging transaction…"


def _hanging(row: Transaction, pins: Sequence[PinRecord]) -> Iterator[Offer]:
    """Yield offers of abort markers for hanging transactions of an id's earlier producers."""
    hanging = [pin for pin in pins if pin.verdict == PartitionVerdict.HANGING]
    for pin in hanging[:_MOST_MARKERS]:
        words = f"Abort hanging transaction in {pin.topic}-{pin.partition}…"
        yield _offer(row.cluster.name, _appraised(pin), words)


def _ended(row: Transaction, producer: Producer | None, now_ms: int) -> Iterator[Offer]:
    """Yield the offers to end an id's open transaction: a fence, or the action required by its ledger."""
    if producer is None:
        return
    fence = appraise_fence(producer, now_ms=now_ms, limits=settings.FENCELINE.limits)
    if any(refusal.ground is Why.CHECKPOINTED for refusal in fence.refusals):
        yield _offer(row.cluster.name, appraise_flink_commit(producer), "Commit what the checkpoint decided…")
    is_of_sink = any(refusal.ground is Why.OWN_SINK for refusal in fence.refusals)
    instead = of_sink(row.cluster_id, row.transactional_id, now_ms=now_ms) if is_of_sink else ()
    yield from instead or [_offer(row.cluster.name, fence, "Fence producer…")]


def _owner(pin: PinRecord) -> Transaction | None:
    """Return the row of the id that owns a transaction in a partition, None if its producer has changed."""
    if not pin.transactional_id:
        return None
    row = transaction_queries.find_transaction(pin.cluster.name, pin.transactional_id)
    return row if row is not None and row.producer_id == pin.producer_id else None


def _appraised(pin: PinRecord) -> Appraisal:
    return appraise_markers(marked_partition(pin.topic, pin.partition, [pin]), pin.start_offset)


def marked_partition(topic: str, number: int, pins: Sequence[PinRecord]) -> Marked:
    """Return the planners' facts about open transactions in a partition, from our rows."""
    owners = [
        owner
        for pin in pins
        if pin.verdict != PartitionVerdict.HANGING and (owner := _owner(pin)) is not None
    ]
    descriptions = {row.transactional_id: record_of(Described, row, partitions=()) for row in owners}
    return Marked(
        HeldLog(TopicPartition(topic, number)), pins=tuple(map(pin_of, pins)), descriptions=descriptions
    )


def _offer(cluster: str, appraisal: Appraisal, words: str) -> Offer:
    return Offer(
        appraisal.act, cluster, appraisal.subject, words, appraisal.refusals, may_lose=appraisal.may_lose
    )
