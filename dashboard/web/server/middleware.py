"""Middleware of every answer: known hosts, limits, headers, problems of the API, database outages."""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError
from django.http import FileResponse, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.log import log_response

from dashboard.runtime.criteria import LONGEST_SEARCH
from dashboard.runtime.database_errors import explain_error, log_line
from dashboard.runtime.problems import as_problem, problem_response
from dashboard.system import cluster_limits
from dashboard.system.origin import client_address
from dashboard.web.pages.access.sign_in import sign_in_by_proxy
from dashboard.web.rendering import forbidden_page

log = logging.getLogger(__name__)

Handler = Callable[[HttpRequest], HttpResponse]


def browser_policies(get_response: Handler) -> Handler:
    """Add the browser policies of `settings` to every response, also to errors and static files.

    Django 6.0 has a middleware for SECURE_CSP, which will replace that part.
    """
    policy = "; ".join(f"{name} {' '.join(sources)}" for name, sources in settings.SECURE_CSP.items())

    def handle(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers["Content-Security-Policy"] = policy
        response.headers["Permissions-Policy"] = settings.PERMISSIONS_POLICY
        return response

    return handle


def no_store(get_response: Handler) -> Handler:
    """Forbid caching of every response without a cache time of its own, which static files have."""

    def handle(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return handle


def known_hosts(get_response: Handler) -> Handler:
    """Answer 400 to a host outside ALLOWED_HOSTS, with one log line a minute for all such hosts."""

    def handle(request: HttpRequest) -> HttpResponse:
        try:
            request.get_host()
        except DisallowedHost:
            return _unknown_host(request)
        return get_response(request)

    return handle


def _unknown_host(request: HttpRequest) -> HttpResponse:
    host, address = request.META.get("HTTP_HOST", "")[:255], client_address(request)
    log.warning(
        "refused a request from %s for the host %r: ALLOWED_HOSTS does not name it",
        address or "an unknown address",
        host,
        extra={"failure": "unknown host"},
    )
    response = HttpResponse(render_to_string("400.html"), status=400)
    if _is_of_api(request):
        response = as_problem(request, response)
    # Otherwise Django logs a line for each response with an error.
    log_response("", response=response, request=request, level="debug")
    return response


#: Maximum characters of a page's parameter; parameters of the API have their own limits.
_LONGEST = 1_000
#: Parameters with other limits; matchers are free text, `next` is an address.
_BOUNDS = {"q": LONGEST_SEARCH, "matchers": 50_000, "next": 50_000}


def short_parameters(get_response: Handler) -> Handler:
    """Answer 422 to a parameter of a page that is too long, without repeating its value."""

    def handle(request: HttpRequest) -> HttpResponse:
        if not _is_of_api(request):
            for name, value in request.GET.items():
                if len(value) > (most := _BOUNDS.get(name, _LONGEST)):
                    return _overlong(name[:40], len(value), most)
        return get_response(request)

    return handle


def _overlong(name: str, length: int, most: int) -> HttpResponse:
    page = render_to_string("422.html", {"name": name, "length": length, "most": most})
    return HttpResponse(page, status=422)


def api_problems(get_response: Handler) -> Handler:
    """Answer all errors of the API as problems, also errors that Django answers outside of the API."""

    def handle(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        is_problem = response.get("Content-Type", "").startswith("application/problem+json")
        if response.status_code < 400 or is_problem or not _is_of_api(request):
            return response
        return as_problem(request, response)

    return handle


def _is_of_api(request: HttpRequest) -> bool:
    return request.path_info.startswith(("/api/", "/ingest/"))


def streamed_files(get_response: Handler) -> Handler:
    """Send static files in chunks, because Django under ASGI reads each whole file for each client."""

    def handle(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if isinstance(response, FileResponse) and isinstance(request, ASGIRequest):
            response.streaming_content = _pieces(response.streaming_content)
        return response

    return handle


async def _pieces(content: Iterable[bytes]) -> AsyncIterator[bytes]:
    # Local files: reading a chunk does not block for long.
    for piece in content:
        yield piece


class DatabaseGone:
    """Answer 503 with a text and log one line while the database is unavailable."""

    def __init__(self, get_response: Handler) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Handle temporary database errors; Django handles the others."""
        return _database_gone(request, exception)


def _database_gone(request: HttpRequest, exception: Exception) -> HttpResponse | None:
    if not isinstance(exception, DatabaseError):
        return None
    explanation = explain_error(exception)
    if not explanation.is_passing:
        return None
    log.error("%s: %s", request.path, log_line(exception))
    page = render_to_string("503.html", {"explanation": explanation.text})
    return HttpResponse(page, status=503, headers={"Retry-After": "5"})


class Callers:
    """Signs in the user whom a proxy names, and limits the visible clusters; follows the authentication."""

    def __init__(self, get_response: Handler) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            if (answer := sign_in_by_proxy(request)) is not None:
                return answer
            refused = cluster_limits.limit_user(request)
        except DatabaseError as error:
            if gone := _database_gone(request, error):
                return gone
            raise
        if refused and _is_of_api(request):
            return problem_response(403, refused)
        return forbidden_page(request, refused) if refused else self._get_response(request)

    def process_view(self, _: HttpRequest, __: object, ___: object, named: Mapping[str, object]) -> None:
        """Raise Http404 if an address names a cluster that the caller may not see."""
        cluster_limits.refuse_hidden(named.get("cluster"))
