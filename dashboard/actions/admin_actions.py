"""Django admin's actions on selected rows: one plan, of at most 50 subjects of one cluster."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from dashboard.actions import offers
from dashboard.actions import service as action_service
from dashboard.models import PartitionRecord, PinRecord, Transaction
from dashboard.partitions import queries as partition_queries
from dashboard.runtime import loop
from dashboard.system import access
from fenceline.formatting import list_names
from fenceline.plans.plan import MOST_SUBJECTS, Act

Row = TypeVar("Row", Transaction, PinRecord, PartitionRecord)
#: Acts that end a transaction from a list; a batch of our sink is ended from its query's page.
_ENDS = (Act.FENCE, Act.ABORT_MARKER)
_NOTHING = "Nothing that is selected is open and can be ended from here."
#: Maximum reasons in a message.
_MOST_REASONS = 3


class _Chosen(NamedTuple):
    """One subject: its cluster, its act, and its name as planning takes it."""

    cluster: str
    act: Act
    name: str


class _Unfit(Exception):
    """No plan can be made of the selection; the text is the reason and the remedy."""


@admin.action(description="Fence producers…")
def fence_producers(of: object, request: HttpRequest, rows: QuerySet[Transaction]) -> HttpResponse | None:
    """Plan to fence the producers of the selected ids."""
    return _plan(
        request,
        rows,
        lambda ids: [_Chosen(row.cluster.name, Act.FENCE, row.transactional_id) for row in ids],
    )


@admin.action(description="Abort stuck transactions…")
def abort_of_ids(of: object, request: HttpRequest, rows: QuerySet[Transaction]) -> HttpResponse | None:
    """Plan to end the open transactions of the selected ids: a fence if owned, an abort marker if hanging."""
    return _plan(request, rows, _of_ids)


@admin.action(description="Abort stuck transactions…")
def abort_of_pins(of: object, request: HttpRequest, rows: QuerySet[PinRecord]) -> HttpResponse | None:
    """Plan to end the selected open transactions."""
    return _plan(request, rows, _of_pins)


@admin.action(description="Abort stuck transactions…")
def abort_in(of: object, request: HttpRequest, rows: QuerySet[PartitionRecord]) -> HttpResponse | None:
    """Plan to end the open transactions in the selected partitions."""
    return _plan(request, rows, _of_partitions)


def _plan(
    request: HttpRequest, rows: QuerySet[Row], choose: Callable[[Sequence[Row]], Sequence[_Chosen]]
) -> HttpResponse | None:
    """Make the plan and redirect to its page; if no plan can be made, stay and show the reason."""
    try:
        chosen = choose(_selected(rows))
        _check(chosen)
        row = action_service.plan_for(
            access.actor_of(request, "admin"),
            chosen[0].cluster,
            chosen[0].act,
            [subject.name for subject in chosen],
            force=False,
            now_ms=loop.now_ms(),
        )
    except (action_service.NotPlanned, _Unfit) as error:
        messages.error(request, f"{error} Nothing was planned.")
        return None
    return HttpResponseRedirect(reverse("action", args=[row.pk]), status=303)


def _selected(rows: QuerySet[Row]) -> Sequence[Row]:
    """Return the selected rows; raises `_Unfit` if they exceed the subjects of one plan."""
    selected = list(rows.select_related("cluster")[: MOST_SUBJECTS + 1])
    if len(selected) > MOST_SUBJECTS:
        raise _Unfit(f"One plan has at most {MOST_SUBJECTS} subjects: select fewer rows.")
    return selected


def _check(chosen: Sequence[_Chosen]) -> None:
    """Raise `_Unfit` for a selection that is not one plan: nothing, several clusters, several acts."""
    if not chosen:
        raise _Unfit(_NOTHING)
    clusters = sorted({subject.cluster for subject in chosen})
    if len(clusters) > 1:
        raise _Unfit(
            f"One plan is for one cluster, and these are of {list_names(clusters)}: filter by cluster."
        )
    hanging = sum(subject.act is Act.ABORT_MARKER for subject in chosen)
    if 0 < hanging < len(chosen):
        raise _Unfit(
            f"One plan is one act: {hanging} of these hang and need an abort marker, "
            f"{len(chosen) - hanging} are owned by a coordinator and need a fence. Select one kind."
        )


def _of_ids(transactions: Sequence[Transaction]) -> Sequence[_Chosen]:
    offered = offers.of_transactions(transactions, now_ms=loop.now_ms())
    return _offered([offer for row in transactions for offer in offered[row.pk]])


def _of_partitions(partitions: Sequence[PartitionRecord]) -> Sequence[_Chosen]:
    names = [(row.cluster_id, row.topic, row.partition) for row in partitions]
    return _of_pins([pin for pins in partition_queries.partition_pins(names).values() for pin in pins])


def _of_pins(pins: Sequence[PinRecord]) -> Sequence[_Chosen]:
    now_ms = loop.now_ms()
    return _offered(
        [offer for pin in pins for offer in offers.of_pins(pin.cluster.name, [pin], now_ms=now_ms)]
    )


def _offered(offered: Sequence[offers.Offer]) -> Sequence[_Chosen]:
    """Return the planners' offers; raises `_Unfit` with their reasons if there are none.

    Without other offers, those that an admin may force are planned: the plan's page explains them.
    """
    ends = [offer for offer in offered if offer.act in _ENDS]
    wanted = offers.available_offers(ends) or [offer for offer in ends if offer.forceable]
    if not wanted and offered:
        reasons = dict.fromkeys(offer.refusals[0].words for offer in offered if offer.refusals)
        raise _Unfit(f"{_NOTHING} {' '.join(list(reasons)[:_MOST_REASONS])}")
    return list(dict.fromkeys(_Chosen(offer.cluster, offer.act, offer.subject) for offer in wanted))
