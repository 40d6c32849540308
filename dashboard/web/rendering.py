"""One view for two clients, the whole page for a browser and its live part for a refetch; the common parts of
lists; and error pages: forbidden requests have their own page, invalid ones are explained on the requesting
page.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_POST, require_safe

from dashboard.runtime import visibility
from dashboard.runtime.criteria import Ranged
from dashboard.system import access
from dashboard.web import page_context
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.forms.lists import Filters, Heading, table_columns
from dashboard.web.per_request import now_ms
from fenceline.decode import text

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]
#: Reads the context of a page's template.
Read = Callable[Concatenate[HttpRequest, P], Mapping[str, Any]]


def signed_in(view: View[P]) -> View[P]:
    """Accept only GET and HEAD of users with a role; another user's refetch reloads its page."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        refused = refusal_of(request, request.get_full_path())
        if refused is None:
            return view(request, *args, **kwargs)
        if request.headers.get("HX-Request"):
            # The client would follow a redirect and insert the sign-in page into the open page.
            return HttpResponse(status=401, headers={"HX-Refresh": "true"})
        return refused

    return require_safe(guarded)


def action_view(view: View[P]) -> View[P]:
    """Accept only POST of users with a role; Django has checked their CSRF token before."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        # The sign-in leads back to the page, because the address of the action accepts only POST.
        refused = refusal_of(request, request.path.rsplit("/", 1)[0])
        return view(request, *args, **kwargs) if refused is None else refused

    return require_POST(guarded)


def page_view(
    template: str, depends_on: Callable[[HttpRequest], object] = lambda _: ()
) -> Callable[[Read[P]], View[P]]:
    """Return a decorator that makes a page's view from the function that reads its template's context."""

    def decorate(read: Read[P]) -> View[P]:
        @wraps(read)
        def view(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            return render_page(
                request, template, lambda: read(request, *args, **kwargs), depends_on=depends_on(request)
            )

        return signed_in(view)

    return decorate


def refusal_of(request: HttpRequest, back: str) -> HttpResponse | None:
    """Return the answer for users without access: the sign-in, which leads `back`, or 403 without a role."""
    if not request.user.is_authenticated:
        return redirect_to_login(back)
    if not access.may_view(request.user):
        return render(request, "sign_in/no_role.html", status=403)
    return None


def render_page(
    request: HttpRequest,
    name: str,
    read: Callable[[], Mapping[str, Any]],
    *,
    depends_on: object = (),
) -> HttpResponse:
    """Answer with the template `NAME.html` and the context that `read` returns.

    The template extends `layout`: `base.html`, or `refetch.html` with only the live part for a refetch.

    `read` is not called if the page in the browser is still the newest. A page changes with its clusters'
    revision, their freshness, its time range, and further values that it `depends_on`. A "status" in `read`'s
    result is the answer's.
    """
    tag = _tag(request, depends_on)
    if _is_refetch(request) and request.headers.get("If-None-Match") == tag:
        return _dressed(HttpResponseNotModified(), request, tag)
    layout = "refetch.html" if _is_refetch(request) else "base.html"
    shown = {"layout": layout, **read()}
    return _dressed(render(request, f"{name}.html", shown, status=shown.get("status", 200)), request, tag)


def _is_refetch(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


def _tag(request: HttpRequest, depends_on: object) -> str:
    """Return the page's weak ETag: the revision, and the freshness, which changes without a revision."""
    frame = page_context.chrome_of(request)
    blind = [(r.cluster, r.what, r.since_ms, r.reason) for r in frame.freshness.blind]
    moved = (frame.time_range.moved, frame.time_range.is_past)
    known = (
        visibility.current_revision(frame.cluster),
        blind,
        list(frame.freshness.unseen),
        moved,
        depends_on,
    )
    return f'W/"{hashlib.sha256(repr(known).encode()).hexdigest()[:20]}"'


def _dressed(response: HttpResponse, request: HttpRequest, tag: str) -> HttpResponse:
    """Add the headers for `live.js`: the ETag, the server's clock, and the data's instant."""
    as_of_ms = page_context.chrome_of(request).freshness.as_of_ms
    response.headers["Cache-Control"] = "no-store"
    response.headers["Fenceline-Now"] = str(now_ms(request))
    response.headers["Fenceline-As-Of"] = "" if as_of_ms is None else str(as_of_ms)
    response.headers["ETag"] = tag
    patch_vary_headers(response, ["HX-Request"])
    return response


Row = TypeVar("Row")
_KEY = "refused"
#: How long a note stays, so that a refetch does not remove it at once.
_SHOWN_MS = 30_000


def forbidden_page(request: HttpRequest, reason: str) -> HttpResponse:
    return render(request, "403.html", {"reason": reason}, status=403)


def or_404(row: Row | None, words: str) -> Row:
    """Return a row; raises Http404 with these words for None."""
    if row is None:
        raise Http404(words)
    return row


def flash_refusal(request: HttpRequest, path: str, words: str) -> None:
    """Show on the page at `path`, for a while, why a request was refused."""
    request.session[_KEY] = [path, words, now_ms(request) + _SHOWN_MS]


def error_note(request: HttpRequest) -> str:
    """Return the note of this page, or ""."""
    path, words, until_ms = request.session.get(_KEY) or ("", "", 0)
    return words if path == request.path and now_ms(request) < until_ms else ""


CLUSTER, OWNER = "Cluster", "Owner"
_LONGEST_ASKED = 200

Form = TypeVar("Form", bound=list_forms.ListQuery)
R = TypeVar("R")
#: Reads a page of a list: its `page` or its `rows`, and the rest of its template's context.
ReadList = Callable[[HttpRequest, Form], Mapping[str, Any]]


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
) -> Callable[[ReadList[Form]], View[[]]]:
    """Return a decorator that makes a list's view from the function that reads one page of it.

    `template` extends `components/list.html`. `headings` are the columns, except those that a page is read
    `without`: clusters have a column if there are several, owners if there are any. `filters` makes the rows
    of chips from the result. `depends_on` is what changes the page without a new revision (`render_page`).
    `collected`: its rows come from collectors, so they may be missing because of a failed read.
    """

    noun = template.partition("/")[0]

    def decorate(read: ReadList[Form]) -> View[[]]:
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
