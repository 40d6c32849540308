"""What a rule means, why it finds something, what to do: its page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse

from dashboard import markdown
from dashboard.views import context
from dashboard.views.page import answer, signed_in


@signed_in
def rule(request: HttpRequest, name: str) -> HttpResponse:
    """Show a rule's page, and what it finds now."""
    body = markdown.rule(name)
    if body is None:
        raise Http404(f"No rule is called “{name}”.")

    def read() -> Mapping[str, Any]:
        found = [row for row in context.of(request).all_findings if row.rule == name]
        return {"name": name, "body": body, "found": found}

    return answer(request, "rule", read)
