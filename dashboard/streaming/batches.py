"""Queries for the micro-batches of streaming queries, and for the transactions that wrote them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, F, Max, QuerySet
from django.db.models.functions import Coalesce

from dashboard.models import Batch, Query, SinkDecision, Transaction
from dashboard.runtime.criteria import Number, Page, Ranged, page_of
from dashboard.streaming.batch_state import decision_of, done_of, owner_query, prepared_decisions
from fenceline.decode.ledger import transaction_from_json
from fenceline.grouping import grouped
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.spark.records import SinkTransaction
from fenceline.spark.sink_fates import rows_written

MOST_TRANSACTIONS = 500
#: Maximum batches that are searched for the slowest, along an index; more would take too long.
MOST_RANKED = 200_000
#: Maximum decisions that are searched for an id, because batches use ids in turn.
_MOST_DECISIONS = 20
#: The statuses of a decision, worst first.
_STANDINGS = ("lost", "prepared", "committed", "aborted")


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """A batch and its sink's decisions, the last round last."""

    batch: Batch
    decisions: Sequence[SinkDecision] = ()

    @property
    def decision(self) -> SinkDecision | None:
        """Return the decision in force: the last round's."""
        return self.decisions[-1] if self.decisions else None

    @property
    def decision_state(self) -> str:
        """Return the status of its decision: an `Outcome`, "prepared", "aborted", or "" without one."""
        decision = self.decision
        return "" if decision is None else decision.outcome or decision.decided

    @property
    def output_rows(self) -> int | None:
        """Return the rows written: Spark's count, else the ledger's; None while neither is known.

        Spark does not count for foreachBatch; the ledger of the exactly-once sink counts committed rows.
        """
        if self.batch.output_rows is not None or self.decision is None:
            return self.batch.output_rows
        return rows_written(decision_of(self.decision), done_of(self.decision))


@dataclass(frozen=True, slots=True)
class BatchOfQuery:
    """A batch of a query that wrote or read something; `batch_id` is None if none is known."""

    query: Query
    batch_id: int | None


#: When a batch began, by its earliest record.
_BEGAN = Coalesce("planned_ms", "started_ms", "committed_ms")


@dataclass(frozen=True, slots=True)
class SlowestBatches:
    """Batches of a range, oldest first, and their number; the batches are not read beyond `MOST_RANKED`."""

    batches: Sequence[Batch]
    number: int

    @property
    def is_whole(self) -> bool:
        """Whether these are all batches of the range."""
        return len(self.batches) == self.number


def batch_page(query: Query, wanted: Ranged, *, page: Number, size: int) -> Page[BatchEntry]:
    """Return one page of a query's batches that began in a range, newest first."""
    batches = page_of(_begun_within(query, wanted).order_by("-batch_id"), page, size)
    return batches.with_items(batch_entries(query, batches.items))


def batches_before(query: Query, place: int | None, wanted: Ranged, *, limit: int) -> Sequence[BatchEntry]:
    """Return the batches of a range before the batch `place`, newest first; without it, the newest ones."""
    rows = _begun_within(query, wanted)
    rows = rows if place is None else rows.filter(batch_id__lt=place)
    return batch_entries(query, rows.order_by("-batch_id")[:limit])


def _begun_within(query: Query, wanted: Ranged) -> QuerySet[Batch]:
    rows = Batch.objects.filter(query=query)
    if wanted.from_ms is not None:
        rows = rows.filter(batch_id__gte=_first_since(query, wanted.from_ms))
    if wanted.to_ms is not None:
        rows = rows.filter(batch_id__lt=_first_since(query, wanted.to_ms))
    return rows


def _first_since(query: Query, at_ms: int) -> int:
    """Return the number of the first batch that began at an instant or later.

    Numbers rise with time and have an index, so a binary search needs 30 SQL queries for 10^9 batches.
    """
    rows = (
        Batch.objects.filter(query=query)
        .annotate(began_ms=_BEGAN)
        .exclude(began_ms=None)
        .order_by("batch_id")
    )
    low, high = 0, (rows.values_list("batch_id", flat=True).last() or 0) + 1
    while low < high:
        middle = (low + high) // 2
        batch = rows.filter(batch_id__gte=middle).first()
        if batch is None or batch.began_ms >= at_ms:
            high = middle
        else:
            low = batch.batch_id + 1
    return low


def find_entry(query: Query, batch_id: int) -> BatchEntry | None:
    return next(iter(batch_entries(query, Batch.objects.filter(query=query, batch_id=batch_id))), None)


def recent_batches(of: Query, most: int) -> Sequence[Batch]:
    """Return the last batches that a listener reported, oldest first."""
    rows = Batch.objects.filter(query=of, duration_ms__isnull=False).order_by("-batch_id")[:most]
    return list(reversed(rows))


def slowest_batches(queries: Iterable[Query], from_ms: int, to_ms: int, *, most: int) -> SlowestBatches:
    """Return the batches that listeners reported in a range: all, or the slowest one of each step."""
    rows = Batch.objects.filter(
        query__in=[row.pk for row in queries],
        started_ms__gte=from_ms,
        started_ms__lt=to_ms,
        duration_ms__isnull=False,
    )
    number = rows[: MOST_RANKED + 1].count()
    if number > MOST_RANKED:
        return SlowestBatches((), number)
    if number > most:
        rows = Batch.objects.filter(pk__in=_slowest_keys(rows, max(1, -(-(to_ms - from_ms) // most))))
    return SlowestBatches(list(rows.select_related("query__cluster").order_by("started_ms", "pk")), number)


def _slowest_keys(rows: QuerySet[Batch], step_ms: int) -> Sequence[int]:
    stepped = rows.order_by().annotate(step=F("started_ms") / step_ms)
    slowest = dict(stepped.values_list("step").annotate(Max("duration_ms")))
    candidates = stepped.filter(duration_ms__in=set(slowest.values()))
    keys = {
        step: pk
        for pk, step, duration_ms in candidates.values_list("pk", "step", "duration_ms")
        if slowest[step] == duration_ms
    }
    return list(keys.values())


def batch_entries(query: Query, batches: Iterable[Batch]) -> Sequence[BatchEntry]:
    """Return the batches, in their order, with the sink's decisions about each batch."""
    rows = list(batches)
    numbers = [batch.batch_id for batch in rows]
    decisions = SinkDecision.objects.filter(query=query, batch_id__in=numbers).order_by("round")
    by_batch = grouped((decision.batch_id, decision) for decision in decisions)
    return [BatchEntry(batch, by_batch.get(batch.batch_id, ())) for batch in rows]


#: A transaction of a decision, the id's row (None unless it still has this transaction), and whether the id
#: is known and has another transaction by now.
SentTransaction = tuple[SinkTransaction, Transaction | None, bool]


def sent_transactions(of: Query, decision: SinkDecision | None) -> Sequence[SentTransaction]:
    """Return the transactions of a decision, in one SQL query."""
    packed = decision.transactions[:MOST_TRANSACTIONS] if decision else ()
    written = list(map(transaction_from_json, packed))
    keys = [key_of_name(transaction.transactional_id) for transaction in written]
    rows = Transaction.objects.select_related("cluster").filter(cluster=of.cluster_id, key__in=keys)
    known = {row.transactional_id: row for row in rows} if written else {}
    sent: list[SentTransaction] = []
    for transaction in written:
        row = known.get(transaction.transactional_id)
        is_same = row is not None and (row.producer_id, row.started_ms) == (
            transaction.producer_id,
            transaction.started_ms,
        )
        sent.append((transaction, row if is_same else None, row is not None and not is_same))
    return sent


def written_for(cluster_id: int, transactional_id: str) -> BatchOfQuery | None:
    """Return the query whose sink owns an id, and the id's newest decided batch; None for other ids."""
    query = owner_query(cluster_id, transactional_id)
    if query is None:
        return None
    lately = SinkDecision.objects.filter(query=query).order_by("-batch_id", "-round")[:_MOST_DECISIONS]
    names = ((row, {written["transactional_id"] for written in row.transactions}) for row in lately)
    return BatchOfQuery(
        query, next((row.batch_id for row, names_in_row in names if transactional_id in names_in_row), None)
    )


def decision_counts(of: Query) -> Mapping[str, int]:
    """Return the number of a query's decisions by status: the outcome, else "prepared" or "aborted"."""
    rows = SinkDecision.objects.filter(query=of).values_list("outcome", "decided").annotate(n=Count("id"))
    counts: dict[str, int] = defaultdict(int)
    for outcome, how, number in rows:
        counts[outcome or how] += number
    return {how: counts[how] for how in _STANDINGS if how in counts}


def newest_decision(of: Query) -> SinkDecision | None:
    return SinkDecision.objects.filter(query=of).order_by("-batch_id", "-round").first()


def open_decisions(of: Iterable[Query]) -> Sequence[SinkDecision]:
    """Return the queries' prepared decisions that are not fully carried out, oldest first."""
    rows = prepared_decisions().filter(query__in=[row.pk for row in of])
    return list(rows.select_related("query__cluster").order_by("decided_ms", "pk"))
