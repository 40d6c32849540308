"""The coordinators: the broker for each part of the ids, each broker's load, and recent moves."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpRequest

from dashboard.runtime import visibility
from dashboard.runtime.collector_names import COORDINATORS
from dashboard.transactions.coordinators import Coordinators, read_coordinators
from dashboard.web import page_context
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import page_view
from dashboard.web.routes import PageRoute
from fenceline.formatting import count_noun


@page_view("coordinators/page")
def coordinators_page(request: HttpRequest) -> Mapping[str, Any]:
    clusters = visibility.clusters_named(page_context.chrome_of(request).cluster)
    shown = [read_coordinators(row, now_ms=now_ms(request)) for row in clusters]
    return {"clusters": shown, "headline": _headline(shown)}


def _headline(shown: Sequence[Coordinators]) -> str:
    loading = [move for view in shown for move in view.loading]
    if loading:
        ids = count_noun(sum(move.ids for move in loading), "id")
        return f"{ids} wait for a coordinator that loads"
    without = sum(part.led.leader is None for view in shown for part in view.partitions)
    if without:
        return f"{count_noun(without, 'partition')} of __transaction_state have no coordinator"
    brokers = sum(len(view.failovers) for view in shown)
    if not brokers:
        return "No coordinator is known yet"
    if any(view.unplaced for view in shown):
        return f"{count_noun(brokers, 'broker')} coordinate ids, of which not all are placed"
    verb = "coordinates" if brokers == 1 else "coordinate"
    return f"{count_noun(brokers, 'broker')} {verb} {count_noun(sum(view.ids for view in shown), 'id')}"


ROUTES = (
    PageRoute(
        "coordinators",
        "coordinators",
        coordinators_page,
        key="o",
        heading="Admin",
        shows=COORDINATORS,
        as_of_now="Coordinators are shown as they are now.",
    ),
)
