"""One view for two clients, the whole page for a browser and its live part for a refetch; and error pages:
forbidden requests have their own page, invalid ones are explained on the requesting page.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_POST, require_safe

from dashboard.runtime import visibility
from dashboard.system import access
from dashboard.web import page_context
from dashboard.web.per_request import now_ms

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
    """Answer with the reason why a user may not make a request."""
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
