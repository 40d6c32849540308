"""The pre-flight: settings that threaten exactly-once on each cluster before a failure."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from django.http import HttpRequest

from dashboard.flow.preflight import Preflight, examine_setup
from dashboard.models import Query
from dashboard.runtime import visibility
from dashboard.web import addresses, page_context
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import page_view
from dashboard.web.routes import PageRoute
from fenceline.facts import Severity
from fenceline.formatting import count_noun
from fenceline.preflight.checks import Risk

#: Kinds of subjects that have a page.
_LINKED = ("application", "query", "flink_job", "group")


@page_view("preflight/page", now_ms)
def preflight_page(request: HttpRequest) -> Mapping[str, Any]:
    """Examine the chosen cluster, or every one; it asks their brokers for their settings."""
    clusters = visibility.clusters_named(page_context.chrome_of(request).cluster)
    found = [examine_setup(row, now_ms=now_ms(request)) for row in clusters]
    return {"examined": [_examined(report) for report in found], "headline": _headline(found)}


def _examined(of: Preflight) -> Mapping[str, Any]:
    names = dict(Query.objects.filter(cluster__name=of.cluster).values_list("ident", "name"))
    by_kind = groupby(of.risks, key=lambda risk: (risk.severity, risk.check))
    runs = [list(risks) for _, risks in by_kind]
    groups = [
        {"risk": run[0], "subjects": [_subject(of.cluster, risk, names) for risk in run]} for run in runs
    ]
    return {
        "of": of,
        "groups": groups,
        "examined": [f"{nouns} {number:,}" for nouns, number in of.examined.items()],
    }


def _subject(cluster: str, risk: Risk, names: Mapping[str, str]) -> Mapping[str, Any]:
    kind, _, name = risk.subject.partition(":")
    url = addresses.subject_url(cluster, risk.subject) if kind in _LINKED else ""
    return {"kind": kind.replace("_", " "), "name": names.get(name) or name, "url": url, "fact": risk.fact}


def _headline(found: Sequence[Preflight]) -> str:
    risks = {(report.cluster, risk.severity, risk.check) for report in found for risk in report.risks}
    critical = sum(severity is Severity.CRITICAL for _, severity, _ in risks)
    if critical:
        return f"{count_noun(critical, 'mistake')} can break exactly-once"
    if risks:
        return f"{count_noun(len(risks), 'mistake')} to look at"
    unseen = any(report.unseen for report in found)
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
