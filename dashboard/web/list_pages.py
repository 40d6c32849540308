"""The common parts of lists: read the query string, answer a refetch, name the columns."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, TypeVar

from django.http import Http404, HttpRequest, HttpResponse

from dashboard.runtime.criteria import Ranged
from dashboard.web import page_context
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.forms.chips import Filters
from dashboard.web.forms.lists import Heading, table_columns
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import P, View, render_page, signed_in
from fenceline.decode import text

CLUSTER, OWNER = "Cluster", "Owner"
_LONGEST_ASKED = 200

Form = TypeVar("Form", bound=list_forms.ListQuery)
R = TypeVar("R")
#: Reads a page of a list: its `page` or its `rows`, and the rest of its template's context.
Read = Callable[[HttpRequest, Form], Mapping[str, Any]]


def read_query(request: HttpRequest, form: type[Form]) -> Form:
    """Return the parsed query string of a page, with the page's time range."""
    frame = page_context.chrome_of(request)
    asked = request.GET.dict()
    if issubclass(form, Ranged):
        asked = time_ranges.list_parameters(asked, frame.time_range)
    wanted = list_forms.parse_query(asked, form, frame.cluster, [row.name for row in frame.clusters])
    frame.asked = wanted.given
    return wanted


def list_view(
    template: str,
    form: type[Form],
    headings: Sequence[Heading] = (),
    depends_on: Callable[[HttpRequest, Form], object] = lambda *_: (),
    *,
    collected: bool = True,
) -> Callable[[Read[Form]], View[[]]]:
    """Return a decorator that makes a list's view from the function that reads one page of it.

    `template` extends `components/list.html`. `headings` are the columns, except those that a page is read
    `without`: clusters have a column if there are several, owners if there are any. `filters` makes the rows
    of chips from the result. `depends_on` is what changes the page without a new revision (`render_page`).
    `collected`: its rows come from collectors, so they may be missing because of a failed read.
    """

    noun = template.partition("/")[0]

    def decorate(read: Read[Form]) -> View[[]]:
        @wraps(read)
        def view(request: HttpRequest) -> HttpResponse:
            wanted = read_query(request, form)
            return render_page(
                request,
                template,
                lambda: {
                    "noun": noun,
                    **_list_context(request, wanted, headings, read(request, wanted), collected=collected),
                },
                depends_on=depends_on(request, wanted),
            )

        return signed_in(view)

    return decorate


def _list_context(
    request: HttpRequest,
    wanted: list_forms.ListQuery,
    headings: Sequence[Heading],
    context: Mapping[str, Any],
    *,
    collected: bool,
) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    several = len(frame.clusters) > 1 and not frame.cluster
    shown = {CLUSTER: several, OWNER: frame.has_owners, **dict.fromkeys(context.get("without", ()), False)}
    headings = [heading for heading in headings if shown.get(heading[0], True)]
    sort, descending = getattr(wanted, "sort", ""), getattr(wanted, "descending", False)
    rows = context["page"].items if "page" in context else context["rows"]
    narrowed = context.get("narrowed", wanted.narrowed)
    empty = why_empty(frame, narrowed=narrowed) if collected else "unmatched" if narrowed else "none"
    return {
        "what": frame.plural,
        "wanted": wanted,
        "clears": Filters(request.GET, wanted).clears(),
        "narrowed": narrowed,
        "several": several,
        "sizes": list_forms.SIZES,
        "columns": table_columns(headings, sort, descending=descending),
        "empty": "" if rows else "past" if getattr(wanted, "before", None) else empty,
        **context,
    }


def clock_steps(step_ms: int) -> Callable[..., int]:
    """Return a `depends_on` for content that changes with the clock: the page is made anew once per step."""
    return lambda request, *_: now_ms(request) // step_ms


def why_empty(frame: page_context.Chrome, *, narrowed: bool) -> str:
    """Return why a list is empty: "unreachable", "unseen", "unmatched" or "none"."""
    if frame.freshness.blind and frame.freshness.unseen:
        return "unreachable"
    if frame.freshness.unseen or not frame.clusters:
        return "unseen"
    return "unmatched" if narrowed else "none"


def of_known_cluster(
    view: Callable[Concatenate[HttpRequest, P], R],
) -> Callable[Concatenate[HttpRequest, P], R]:
    """Answer 404 if the address names an unconfigured cluster."""

    @wraps(view)
    def checked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> R:
        cluster = kwargs["cluster"]
        if not any(row.name == cluster for row in page_context.chrome_of(request).clusters):
            raise Http404(f"No cluster “{cluster}” is configured.")
        return view(request, *args, **kwargs)

    return checked


def unknown_row(cluster: str, asked: str) -> Mapping[str, Any]:
    """Return the context of a page whose row is unknown: the requested name, and status 404."""
    shown = asked if len(asked) <= _LONGEST_ASKED else f"{asked[:_LONGEST_ASKED]}…"
    return {"row": None, "cluster": cluster, "asked": text.escape_bytes(shown.encode()), "status": 404}
