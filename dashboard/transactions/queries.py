"""Lists of transactional ids: the index, if any, for each filter and each order.

A list must be fast for a hundred ids as for millions. Sorted by id it is read along an index. Orders without
an index scan the whole table, which is fast up to MOST_SCANNED ids; beyond that such an order is refused.
Indexes on columns that change with every record would slow the intake down, so only open and idle ids have
one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from typing import Literal

from django.db.models import Count, F, Func, QuerySet, Sum
from django.db.models.expressions import Combinable, OrderBy
from pydantic import Field

from dashboard.models import (
    IDLE,
    IS_IDLE,
    IS_OPEN,
    NAME,
    Beginning,
    StateCount,
    Transaction,
)
from dashboard.runtime import visibility
from dashboard.runtime.criteria import Criteria, Name, Page, Search, Sorted
from dashboard.transactions.sql import unpacked_partitions
from fenceline.facts import OPEN_STATES, TopicPartitions, TransactionState
from fenceline.kafka.transactional_ids import key_of_name, keys_named

OPEN = [state.value for state in OPEN_STATES]
#: The columns by which a list of transactions can be sorted, by the value of `sort`.
SORTS = {
    "id": "transactional_id",
    "state": "state",
    "producer": "producer_id",
    "epoch": "producer_epoch",
    "timeout": "timeout_ms",
    "partitions": "partition_count",
    "started": "started_ms",
    "updated": "updated_ms",
}
#: Lists count and page up to this number; beyond it users have to filter.
MOST_COUNTED = 10_000
#: The most ids for which a whole table is scanned.
MOST_SCANNED = 200_000
#: A state with at least one in this many ids is frequent enough to walk along the ids.
DENSE = 100


class Unindexed(Func):
    """An expression that keeps the database from using an index for an order or a condition."""

    template = "%(expressions)s || ''"


class TransactionCriteria(Criteria):
    """The filters of a list of transactions."""

    cluster: Name = ""
    #: "open" stands for the three states that hold an LSO.
    state: Literal[
        "", "open", "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"
    ] = ""
    #: A part of the first 200 characters of an id.
    q: Search = ""
    application: Name = ""
    min_age_s: float | None = Field(default=None, ge=0, le=1e9, allow_inf_nan=False)

    @property
    def only_open(self) -> bool:
        """Whether only open transactions can match."""
        return self.state in ("open", *OPEN) or self.min_age_s is not None

    @property
    def only_state(self) -> bool:
        """Whether the stored numbers of ids by state give the number of matches."""
        return not (self.q or self.application or self.min_age_s is not None)


class SortedTransactions(Sorted, TransactionCriteria):
    """Sorted transactions: open ones by age; else those that need attention first.

    "attention" sorts by id after the rows that a page puts first, because ids are stable while states change.
    """

    sort: Literal[
        "attention", "id", "state", "producer", "epoch", "timeout", "partitions", "started", "updated"
    ] = Field(default_factory=lambda data: "started" if data["state"] == "open" else "attention")


@dataclass(frozen=True, slots=True)
class TransactionPage(Page[Transaction]):
    """One page of ids; counting stops at MOST_COUNTED."""

    #: False if too many ids match for the requested order; then they are sorted by id.
    sorted: bool = True

    @property
    def ends_early(self) -> bool:
        """Whether further ids follow the last counted page."""
        return self.number == self.pages and self.last < self.total


def transaction_page(
    wanted: SortedTransactions,
    *,
    now_ms: int,
    page: int = 1,
    size: int = 50,
    first: Sequence[tuple[int, str]] = (),
) -> TransactionPage:
    """Return one page of the matching transactions, and the number of all.

    `first` are the ids that need attention, worst first, with their cluster's key.
    """
    states = state_counts(wanted.cluster)
    if wanted.sort == "id":
        return _by_name(wanted, states, now_ms, page, size)
    if wanted.sort == "attention":
        return _by_name(wanted, states, now_ms, page, size, _matching_keys(wanted, first, now_ms))
    if not wanted.only_open and sum(states.values()) > MOST_SCANNED:
        return replace(_by_name(wanted, states, now_ms, page, size), sorted=False)
    rows = matching_rows(candidate_rows(wanted), wanted, now_ms)
    total, whole = _known(wanted, states), True
    if not wanted.only_state:
        total, whole = _capped(rows[: MOST_COUNTED + 1].count())
    number = _within_pages(page, total, size)
    keys = rows.order_by(_by(wanted), "id").values_list("id", flat=True)[_slice(number, size)]
    return TransactionPage(rows_of_keys(list(keys)), total, number, size, _pages(total, size), whole)


def application_sizes(
    cluster: str, applications: Sequence[str]
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return the number of ids by application, and the number of open ones.

    All ids are counted in the applications' index, and open ids along their own short index: with the
    applications' index the state of each id would have to be looked up, 40 s for 2,000,000.
    """
    rows = Transaction.objects.filter(cluster__in=visibility.cluster_keys(cluster)).order_by()
    opened = rows.filter(IS_OPEN).annotate(of=Unindexed("application")).filter(of__in=applications)
    every = rows.filter(application__in=applications).annotate(of=F("application"))
    known, held = (
        dict(rows_of_kind.values_list("of").annotate(n=Count("id"))) for rows_of_kind in (every, opened)
    )
    return known, held


def candidate_rows(wanted: TransactionCriteria) -> QuerySet[Transaction]:
    """Return the ids to read: open ones along their index, else the table in its own order.

    An index on the cluster would need a random access per row: 100 ms for 100,000 rows instead of 15 ms.
    """
    clusters = visibility.cluster_keys(wanted.cluster)
    if wanted.only_open:
        return Transaction.objects.filter(cluster__in=clusters)
    return Transaction.objects.alias(of=F("cluster_id") + 0).filter(of__in=clusters, pk__gt=0)


def matching_rows(
    rows: QuerySet[Transaction], wanted: TransactionCriteria, now_ms: int
) -> QuerySet[Transaction]:
    rows = _stated(rows, wanted, now_ms)
    if wanted.application:
        rows = rows.filter(application=wanted.application)
    if not wanted.q:
        return rows
    return rows.alias(name=Beginning("transactional_id")).filter(name__icontains=wanted.q)


def _stated(rows: QuerySet[Transaction], wanted: TransactionCriteria, now_ms: int) -> QuerySet[Transaction]:
    """Return the rows in the requested state and of the requested age."""
    if wanted.only_open:
        rows = rows.filter(IS_OPEN)
    if wanted.state and wanted.state != "open":
        rows = rows.filter(state=wanted.state)
    if wanted.min_age_s is not None:
        rows = rows.filter(started_ms__lte=now_ms - int(wanted.min_age_s * 1000))
    return rows


def _matching_keys(
    wanted: SortedTransactions, names: Sequence[tuple[int, str]], now_ms: int
) -> Sequence[int]:
    """Return the keys of the matching rows among the given ids, in the order of the ids."""
    keys = [(cluster_id, key_of_name(name)) for cluster_id, name in names]
    clusters = visibility.cluster_keys(wanted.cluster)
    rows = Transaction.objects.filter(cluster__in=clusters, key__in=[key for _, key in keys])
    matching = matching_rows(rows, wanted, now_ms).values_list("cluster_id", "key", "pk") if keys else ()
    by_key = {(cluster_id, bytes(key)): pk for cluster_id, key, pk in matching}
    return [by_key[key] for key in dict.fromkeys(keys) if key in by_key]


def _by_name(
    wanted: SortedTransactions,
    states: dict[str, int],
    now_ms: int,
    page: int,
    size: int,
    first: Sequence[int] = (),
) -> TransactionPage:
    """Return a page of the list by id, after the rows `first`.

    The keys are read first, from an index only, then the rows of the page.
    """
    clusters = visibility.cluster_keys(wanted.cluster)
    candidates: Sequence[Iterable[tuple[str, int]]]
    if wanted.only_state:
        total, whole = _known(wanted, states), True
        number = _within_pages(page, total, size)
        candidates = [_of_state(wanted, of, states, now_ms)[: number * size] for of in clusters]
    else:
        searched = [_searched(wanted, of, now_ms) for of in clusters]
        candidates = searched
        total, whole = _capped(sum(map(len, searched)))
        number = _within_pages(page, total, size)
    leading = set(first)
    keys = [*first, *(pk for _, pk in merge(*candidates, reverse=wanted.descending) if pk not in leading)]
    items = rows_of_keys(keys[_slice(number, size)])
    return TransactionPage(items, total, number, size, _pages(total, size), whole)


def _of_state(
    wanted: SortedTransactions, cluster_id: int, states: dict[str, int], now_ms: int
) -> QuerySet[Transaction, tuple[str, int]]:
    """Return name and key of the ids in the requested state, or in any state, by name.

    A frequent state is read along the names' index; a rare state is read from its own index and sorted.
    """
    rows = Transaction.objects.filter(cluster=cluster_id)
    if _known(wanted, states) * DENSE >= sum(states.values()):
        return _ordered(_stated(rows, wanted, now_ms), NAME, wanted)
    if wanted.state in IDLE:
        rows = rows.filter(IS_IDLE)
    elif not wanted.only_open:
        rows = candidate_rows(wanted).filter(cluster=cluster_id)
    return _ordered(_stated(rows, wanted, now_ms), Unindexed(NAME), wanted)


def _searched(wanted: SortedTransactions, cluster_id: int, now_ms: int) -> Sequence[tuple[str, int]]:
    """Return name and key of the matching ids, by name, up to the counted maximum.

    An index finds names and applications, then the states of the matches are looked up. If there are more
    matches than MOST_COUNTED, names are compared along the states' index instead.
    """
    rows = Transaction.objects.filter(cluster=cluster_id)
    if wanted.q or wanted.application:
        of_any_state = wanted.model_copy(update={"state": "", "min_age_s": None})
        named = _ordered(matching_rows(rows, of_any_state, now_ms), NAME, wanted)
        names = list(named[: MOST_COUNTED + 1])
        if not wanted.state and wanted.min_age_s is None:
            return names
        if len(names) <= MOST_COUNTED:
            fitting = _stated(Transaction.objects.filter(pk__in=[pk for _, pk in names]), wanted, now_ms)
            kept = set(fitting.values_list("id", flat=True))
            return [(name, pk) for name, pk in names if pk in kept]
    by: Combinable = NAME
    if wanted.only_open or wanted.state in IDLE:
        rows, by = (rows if wanted.only_open else rows.filter(IS_IDLE)), Unindexed(NAME)
    return list(_ordered(matching_rows(rows, wanted, now_ms), by, wanted)[: MOST_COUNTED + 1])


def _by(wanted: SortedTransactions) -> OrderBy:
    """Return the requested order; NULL sorts lowest in every database."""
    column = F(SORTS[wanted.sort])
    return column.desc(nulls_last=True) if wanted.descending else column.asc(nulls_first=True)


def _ordered(
    rows: QuerySet[Transaction], by: Combinable, wanted: SortedTransactions
) -> QuerySet[Transaction, tuple[str, int]]:
    order = ("-by", "-id") if wanted.descending else ("by", "id")
    return rows.annotate(by=by).order_by(*order).values_list("by", "id")


def rows_of_keys(keys: Sequence[int]) -> Sequence[Transaction]:
    """Return the rows of the keys, in their order, without rows deleted since."""
    by_key = {row.pk: row for row in Transaction.objects.select_related("cluster").filter(pk__in=keys)}
    return [by_key[key] for key in keys if key in by_key]


def _known(wanted: TransactionCriteria, states: dict[str, int]) -> int:
    if wanted.state == "open":
        return sum(states[state] for state in OPEN)
    return states[wanted.state] if wanted.state else sum(states.values())


def _capped(number: int) -> tuple[int, bool]:
    return min(number, MOST_COUNTED), number <= MOST_COUNTED


def _pages(total: int, size: int) -> int:
    return max(1, -(-min(total, MOST_COUNTED) // size))


def _within_pages(page: int, total: int, size: int) -> int:
    return min(max(1, page), _pages(total, size))


def _slice(number: int, size: int) -> slice:
    return slice((number - 1) * size, number * size)


def open_transactions(cluster: str) -> QuerySet[Transaction]:
    """Return the transactions of a cluster that hold a last stable offset, along their index."""
    rows = Transaction.objects.filter(IS_OPEN, cluster__in=visibility.cluster_keys(cluster))
    return rows.select_related("cluster")


def state_counts(cluster: str = "") -> dict[str, int]:
    """Return the number of transactional ids by state, for all of Kafka's states."""
    rows = visibility.rows_in(StateCount, cluster)
    counted = dict(rows.values_list("state").annotate(n=Sum("n")))
    return {state.value: max(0, counted.get(state.value, 0)) for state in TransactionState}


def states_by_cluster() -> Mapping[str, Mapping[str, int]]:
    """Return the number of transactional ids by cluster and state, without unused states."""
    rows = visibility.rows_in(StateCount).values_list("cluster__name", "state").annotate(number=Sum("n"))
    counts: dict[str, dict[str, int]] = {}
    for cluster, state, number in rows:
        counts.setdefault(cluster, {})[state] = max(0, number)
    return counts


def find_transaction(cluster: str, name: str) -> Transaction | None:
    """Return the row of an id of a configured cluster by its text, or by its key as `~` and 64 hex digits."""
    for key in keys_named(name):
        rows = Transaction.objects.filter(cluster__name=cluster, cluster__configured=True, key=key)
        if row := rows.select_related("cluster").first():
            return row
    return None


def application_names(cluster: str, *, after: str, limit: int) -> Sequence[str]:
    """Return the names of the next applications of a cluster's ids, in order.

    Every name needs one index lookup: reading all ids for their few names would take seconds.
    """
    rows = Transaction.objects.filter(cluster__name=cluster, cluster__configured=True)
    names: list[str] = []
    while len(names) < limit:
        following = rows.filter(application__gt=after).order_by("application")
        name = following.values_list("application", flat=True).first()
        if name is None:
            break
        names.append(name)
        after = name
    return names


def partitions_of(row: Transaction) -> tuple[TopicPartitions, ...]:
    """Return the partitions in a transaction's newest record."""
    return unpacked_partitions(row.partitions or "[]")
