"""Find anything by a part of a name, or by a number: the palette of Ctrl K, and `/find` without JavaScript.

A bounded query reads each kind: ids by their beginning from an index, other kinds, with thousands of rows per
cluster at most, by any part.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from dashboard.models import Tally
from dashboard.runtime import visibility
from dashboard.web import addresses, page_context, routes
from dashboard.web.page_context import Chrome
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.routes import MOST_HITS, Hit, PageRoute

_HOUR_S, _DAY_MS = 3_600, 86_400_000


def find_anything(frame: Chrome, asked: str, *, now_ms: int) -> Sequence[tuple[str, Sequence[Hit]]]:
    """Return each kind with hits of a usable text, the best first. "#117" and "117" are numbers too."""
    if not asked:
        return []
    pages = [Hit(link.words, link.url) for link in frame.nav if asked.casefold() in link.words.casefold()]
    groups: Sequence[tuple[str, Iterable[Hit]]] = [
        *((page.title, page.search(frame.cluster, asked)) for page in routes.ROUTES.values() if page.search),
        ("Applications", _applications(frame.cluster, asked, now_ms)),
        ("Pages", pages),
    ]
    # Whole names come before beginnings, and beginnings before other parts.
    found = [(kind, sorted(hits, key=lambda hit: _rank(hit, asked))[:MOST_HITS]) for kind, hits in groups]
    # A closed incident names many things: names that begin with the text are more likely meant.
    return sorted((group for group in found if group[1]), key=lambda group: _rank(group[1][0], asked))


def _rank(hit: Hit, asked: str) -> tuple[bool, bool]:
    name, small = hit.name.casefold().removeprefix("#"), asked.casefold().removeprefix("#")
    return name != small, not name.startswith(small)


def _applications(cluster: str, asked: str, now_ms: int) -> Iterable[Hit]:
    rows = visibility.rows_in(Tally, cluster).filter(
        span_s=_HOUR_S, start_ms__gte=now_ms - _DAY_MS, application__icontains=asked
    )
    names = rows.values_list("application", "cluster__name").distinct()
    for name, of in names.order_by("application", "cluster__name")[:MOST_HITS]:
        yield Hit(name, addresses.subject_url(of, f"application:{name}"), of)


@signed_in
def find_page(request: HttpRequest) -> HttpResponse:
    if request.headers.get("HX-Target") == "find-results":
        return render(request, "find/_results.html", _found(request))
    return render_page(request, "find/page", lambda: _found(request))


def _found(request: HttpRequest) -> Mapping[str, Any]:
    frame, text = page_context.chrome_of(request), request.GET.get("q", "").replace("\0", "").strip()
    kept = {"cluster": frame.cluster} if frame.cluster else {}
    return {
        "groups": find_anything(frame, text, now_ms=now_ms(request)),
        "text": text,
        "search_url": reverse("transactions", query={**kept, "q": text}),
    }


ROUTES = (PageRoute("find", "find", find_page),)
