"""The documentation's pages of rules: the meaning of each rule, its causes, and what to do."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponsePermanentRedirect

from dashboard.labels.alert import rule_label
from dashboard.web import action_buttons, addresses, markdown, page_context
from dashboard.web.rendering import page_view, render_page, signed_in
from dashboard.web.routes import Hit, PageRoute
from fenceline.findings.rule_names import current_name, removed_rule
from fenceline.rules import RULES

#: Maximum findings on a rule's page.
_FINDINGS = 20


@page_view("rules/list")
def rule_list(request: HttpRequest) -> Mapping[str, Any]:
    """Show every rule with the number of its findings."""
    active = Counter(row.rule for row in page_context.chrome_of(request).all_findings)
    return {"rules": [(entry, active[entry.name]) for entry in markdown.rule_index()]}


@signed_in
def rule_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show a rule's page with the limits in effect and its findings; a former name redirects."""
    if current_name(name) != name:
        asked = request.META.get("QUERY_STRING", "")
        return HttpResponsePermanentRedirect(
            f"{addresses.rule_url(current_name(name))}{asked and '?'}{asked}"
        )
    body = markdown.render_rule(name, settings.FENCELINE.limits) if name.islower() else None
    if body is None:
        raise Http404(removed_rule(name) or f"No rule is called “{name}”.")

    def read() -> Mapping[str, Any]:
        findings = [row for row in page_context.chrome_of(request).all_findings if row.rule == name]
        cards = action_buttons.finding_cards(request, findings[:_FINDINGS])
        return {"name": name, "body": body, "found": findings, "cards": cards}

    return render_page(request, "rules/detail", read)


def _search(_: str, asked: str) -> Iterable[Hit]:
    small = asked.casefold()
    names = [name for name in RULES if small in name or small in rule_label(name).casefold()]
    return [Hit(rule_label(name), addresses.rule_url(name)) for name in names]


ROUTES = (
    PageRoute(
        "rules",
        "rules",
        rule_list,
        search=_search,
        parent="alerts",
        plural="rules",
        as_of_now="Findings of the range that you chose are among the events.",
    ),
    PageRoute(
        "rule",
        "rules/<slug:name>",
        rule_page,
        parent="rules",
        as_of_now="Findings of the range that you chose are among the events.",
    ),
)
