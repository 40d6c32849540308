"""The pre-flight: what threatens exactly-once on each cluster before anything has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse

from dashboard.flow.preflight import Preflight, examine_setup
from dashboard.models import Query
from dashboard.runtime import visibility
from dashboard.web import addresses, page_context
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.routes import PageRoute
from fenceline.facts import Severity
from fenceline.formatting import count_noun
from fenceline.preflight.checks import Risk

#: Kinds of subjects that have a page.
_LINKED = ("application", "query", "flink_job", "group")


class RiskLine(NamedTuple):
    """One mistake, with the words and the page of its subject; "" where it has no page."""

    of: Risk
    kind: str
    name: str
    url: str


class Examined(NamedTuple):
    """One cluster's pre-flight, as a page shows it."""

    of: Preflight
    lines: Sequence[RiskLine]


@signed_in
def preflight_page(request: HttpRequest) -> HttpResponse:
    """Examine the chosen cluster, or every one; their brokers are asked for their settings."""
    return render_page(request, "preflight/page", lambda: _read(request), depends_on=now_ms(request))


def _read(request: HttpRequest) -> Mapping[str, Any]:
    clusters = visibility.clusters_named(page_context.chrome_of(request).cluster)
    found = [examine_setup(row, now_ms=now_ms(request)) for row in clusters]
    return {"examined": [Examined(each, _lines(each)) for each in found], "headline": _headline(found)}


def _lines(of: Preflight) -> Sequence[RiskLine]:
    names = dict(Query.objects.filter(cluster__name=of.cluster).values_list("ident", "name"))
    return [_line(of.cluster, risk, names) for risk in of.risks]


def _line(cluster: str, risk: Risk, names: Mapping[str, str]) -> RiskLine:
    kind, _, name = risk.subject.partition(":")
    url = addresses.subject_url(cluster, risk.subject) if kind in _LINKED else ""
    return RiskLine(risk, kind.replace("_", " "), names.get(name) or name, url)


def _headline(found: Sequence[Preflight]) -> str:
    risks = [risk for each in found for risk in each.risks]
    critical = sum(risk.severity is Severity.CRITICAL for risk in risks)
    if critical:
        return f"{count_noun(critical, 'setting')} can break exactly-once"
    if risks:
        return f"{count_noun(len(risks), 'setting')} to look at"
    unseen = any(each.unseen for each in found)
    return "No mistake is found in what can be seen" if unseen else "No mistake is found"


ROUTES = (
    PageRoute(
        "preflight",
        "preflight",
        preflight_page,
        plural="pre-flight",
        key="k",
        heading="Admin",
        as_of_now="Settings are read now.",
    ),
)
