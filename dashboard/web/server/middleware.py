"""What every answer passes: known hosts, headers for browsers, problems of the API, database outages."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError
from django.http import FileResponse, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.log import log_response

from dashboard.runtime.database_errors import explain_error, log_line
from dashboard.runtime.problems import as_problem
from dashboard.system.client_address import client_address

log = logging.getLogger(__name__)

Handler = Callable[[HttpRequest], HttpResponse]


def content_security_policy(get_response: Handler) -> Handler:
    """Put `settings.SECURE_CSP` on every response, errors and static files included.

    Django 6.0 brings its own middleware for this setting; delete ours then.
    """
    policy = "; ".join(f"{name} {' '.join(sources)}" for name, sources in settings.SECURE_CSP.items())

    def handle(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers["Content-Security-Policy"] = policy
        return response

    return handle


def no_store(get_response: Handler) -> Handler:
    """Let no browser and no proxy keep a response, but for those that name their own time: static files."""

    def handle(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return handle


def known_hosts(get_response: Handler) -> Handler:
    """Answer 400 to a host that ALLOWED_HOSTS does not name, with one log line a minute for all of them."""

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
    # Django writes a line for each response with an error that has none yet.
    log_response("", response=response, request=request, level="debug")
    return response


def api_problems(get_response: Handler) -> Handler:
    """Answer every error of the API as a problem, also those that Django answers before or after it."""

    def handle(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        is_problem = response.get("Content-Type", "").startswith("application/problem+json")
        if response.status_code < 400 or is_problem or not _is_of_api(request):
            return response
        return as_problem(request, response)

    return handle


def _is_of_api(request: HttpRequest) -> bool:
    return request.path.startswith(("/api/", "/ingest/"))


def streamed_files(get_response: Handler) -> Handler:
    """Send static files piece by piece: under ASGI Django else reads each whole for each client."""

    def handle(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if isinstance(response, FileResponse) and isinstance(request, ASGIRequest):
            response.streaming_content = _pieces(response.streaming_content)
        return response

    return handle


async def _pieces(content: Iterable[bytes]) -> AsyncIterator[bytes]:
    # Files of this machine: a piece of them is read at once.
    for piece in content:
        yield piece


class DatabaseGone:
    """Answer 503 in plain words, and log one line, when a page cannot use its database for now."""

    def __init__(self, get_response: Handler) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass everything on."""
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Take database errors that pass, leave the others to Django."""
        if not isinstance(exception, DatabaseError):
            return None
        explanation = explain_error(exception)
        if not explanation.is_passing:
            return None
        log.error("%s: %s", request.path, log_line(exception))
        page = render_to_string("503.html", {"explanation": explanation.text})
        return HttpResponse(page, status=503, headers={"Retry-After": "5"})
