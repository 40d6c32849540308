"""The rules: what each means, why it finds something, what to do. Pages of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponsePermanentRedirect

from dashboard.web import action_buttons, addresses, markdown, page_context
from dashboard.web.rendering import render_page, signed_in
from fenceline.rule_names import current_name

#: How many findings a rule's page lists.
_FINDINGS = 20


@signed_in
def rule_list(request: HttpRequest) -> HttpResponse:
    """Show every rule, and how much each finds now."""

    def read() -> Mapping[str, Any]:
        active = Counter(row.rule for row in page_context.chrome_of(request).all_findings)
        return {"rules": [(entry, active[entry.name]) for entry in markdown.rule_index()]}

    return render_page(request, "rules/list", read)


@signed_in
def rule_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show a rule's page with the limits in effect, and what it finds now; a former name leads to it."""
    if current_name(name) != name:
        asked = request.META.get("QUERY_STRING", "")
        return HttpResponsePermanentRedirect(
            f"{addresses.rule_url(current_name(name))}{asked and '?'}{asked}"
        )
    body = markdown.render_rule(name, settings.FENCELINE.limits) if name.islower() else None
    if body is None:
        raise Http404(f"No rule is called “{name}”.")

    def read() -> Mapping[str, Any]:
        found = [row for row in page_context.chrome_of(request).all_findings if row.rule == name]
        cards = action_buttons.finding_cards(request, found[:_FINDINGS], linked=True)
        return {"name": name, "body": body, "found": found, "cards": cards}

    return render_page(request, "rules/detail", read)
