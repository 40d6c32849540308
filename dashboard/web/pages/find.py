"""Find anything: only the results for the palette of Ctrl K, a separate page without JavaScript."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from dashboard.web import finder, page_context
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.routes import PageRoute


@signed_in
def find_page(request: HttpRequest) -> HttpResponse:
    """Show the hits for `q`, by kind."""
    if request.headers.get("HX-Target") == "find-results":
        return render(request, "find/_results.html", _found(request))
    return render_page(request, "find/page", lambda: _found(request))


def _found(request: HttpRequest) -> Mapping[str, Any]:
    frame, text = page_context.chrome_of(request), finder.usable_text(request.GET.get("q", ""))
    kept = {"cluster": frame.cluster} if frame.cluster else {}
    return {
        "groups": finder.find_anything(frame, text, now_ms=now_ms(request)),
        "text": text,
        "search_url": f"{reverse('transactions')}?{urlencode({**kept, 'q': text})}",
    }


ROUTES = (PageRoute("find", "find", find_page),)
