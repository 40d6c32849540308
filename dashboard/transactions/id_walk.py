"""Walk through all transactional ids for programs, in steps that omit no id."""

from collections.abc import Sequence

from django.db.models import Q, QuerySet
from django.db.models.expressions import Combinable

from dashboard.models import IDLE, IS_IDLE, NAME, Transaction
from dashboard.runtime import visibility
from dashboard.transactions.queries import (
    DENSE,
    MOST_SCANNED,
    TransactionCriteria,
    Unindexed,
    candidate_rows,
    matching_rows,
    rows_of_keys,
    state_counts,
)

#: The place after which a walk continues: cluster and name (both "" unless an application is given), and row.
Place = tuple[str, str, int]
START: Place = ("", "", 0)


def transactions_after(
    wanted: TransactionCriteria, *, place: Place, limit: int, now_ms: int
) -> tuple[Sequence[Transaction], Place | None]:
    """Return the next matching ids, and the place to continue after; None at the end.

    They are in the order first seen, an application's by cluster and id.

    A step counts nothing and reads every row at most once in a walk, because programs read all ids.
    """
    if wanted.application:
        places = _in_application(wanted, place, limit + 1, now_ms)
    else:
        rows = matching_rows(_densest(wanted), wanted, now_ms).filter(pk__gt=place[2]).order_by("pk")
        places = [("", "", pk) for pk in rows.values_list("pk", flat=True)[: limit + 1]]
    step_rows = rows_of_keys([pk for _, _, pk in places[:limit]])
    return step_rows, places[limit - 1] if len(places) > limit else None


def _in_application(wanted: TransactionCriteria, place: Place, most: int, now_ms: int) -> Sequence[Place]:
    """Return the places of the next ids of an application, cluster by cluster along the index of names."""
    places: list[Place] = []
    at, name, pk = place
    for cluster in sorted(visibility.configured_clusters(), key=lambda row: row.name):
        if cluster.name < at or wanted.cluster not in ("", cluster.name):
            continue
        matching, by = _named(wanted, cluster.pk, now_ms)
        rows = matching.annotate(by=by)
        if cluster.name == at:
            rows = rows.filter(Q(by__gt=name) | Q(pk__gt=pk), by__gte=name)
        keys = rows.order_by("by", "pk").values_list("by", "pk")[: most - len(places)]
        places += [(cluster.name, *key) for key in keys]
    return places


def _named(
    wanted: TransactionCriteria, cluster_id: int, now_ms: int
) -> tuple[QuerySet[Transaction], Combinable]:
    """Return an application's ids and their sort name.

    Ids of a rare state are read from the state's index and sorted: a walk along the application's index might
    look up millions of rows without a match.
    """
    rows = Transaction.objects.filter(cluster=cluster_id)
    idle = wanted.state in IDLE and state_counts(wanted.cluster)[wanted.state] <= MOST_SCANNED
    if not (idle or wanted.only_open):
        return matching_rows(rows, wanted, now_ms), NAME
    of_any_application = wanted.model_copy(update={"application": ""})
    rows = matching_rows(rows.filter(IS_IDLE) if idle else rows, of_any_application, now_ms)
    return rows.alias(of=Unindexed("application")).filter(of=wanted.application), Unindexed(NAME)


def _densest(wanted: TransactionCriteria) -> QuerySet[Transaction]:
    """Return the candidate ids; those of a rare state are read from the state's index."""
    states = state_counts(wanted.cluster)
    if wanted.state in IDLE and states[wanted.state] * DENSE < sum(states.values()):
        return Transaction.objects.filter(IS_IDLE, cluster__in=visibility.cluster_keys(wanted.cluster))
    return candidate_rows(wanted)
