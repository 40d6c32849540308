"""Error pages: forbidden requests have their own page, invalid ones are explained on the requesting page."""

from typing import TypeVar

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from dashboard.web.per_request import now_ms

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
