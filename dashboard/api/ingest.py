"""Where listeners post to: `POST /ingest/v1/progress`, with a token of the role ingest.

A post that is not taken whole is answered with a problem that names the remedy: the listener prints it, keeps
everything and comes again. What it brings again is recognised.
"""

from __future__ import annotations

import json
import logging
import zlib
from http import HTTPStatus
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from dashboard import save_progress, slices
from dashboard.api.auth import TokenRefused, bearer_token
from dashboard.api.problems import database_problem, problem
from dashboard.models import Token
from dashboard.save_progress import UnknownCluster
from fenceline.decode import told
from fenceline.decode.progress import Unusable

#: Of a body as it is sent, and unpacked; and of the events in it. Listeners send much less.
MOST_BYTES, MOST_INFLATED, MOST_EVENTS = 8 * 2**20, 64 * 2**20, 5_000
_GZIP = 16 + zlib.MAX_WBITS

log = logging.getLogger(__name__)


class _Refused(Exception):
    """A request is not taken: the status, and why in words for whoever runs the listener."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


@csrf_exempt
def progress(request: HttpRequest) -> HttpResponse:
    """Save a listener's events; answer how many were news, known, and refused with the reason of each."""
    now_ms = slices.now_ms()
    try:
        _admit(request)
        post = told.read(_document(request))
        _limit(len(post.events) + len(post.refused))
        saved = save_progress.save(post, now_ms=now_ms)
    except _Refused as refused:
        return _problem(refused.status, str(refused))
    except Unusable as error:
        return problem(HTTPStatus.BAD_REQUEST, f"This is nothing that a listener posts: {error}.")
    except UnknownCluster as error:
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    except DatabaseError as error:
        return database_problem(request, error)
    if post.strange:
        log.warning("a listener told what cannot be read: %s", dict(post.strange))
    refusals = [{"seq": seq, "reason": reason} for seq, reason in post.refused]
    return JsonResponse(
        {**saved._asdict(), "refused": refusals, "unread": dict(post.strange)}, status=HTTPStatus.OK
    )


def _admit(request: HttpRequest) -> None:
    """Let tokens that may ingest post, and nobody else."""
    if request.method != "POST":
        raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "Listeners POST to this address.")
    remedy = "make one with `manage.py create_token NAME --role ingest`"
    try:
        known = bearer_token(request)
    except TokenRefused as refused:
        raise _Refused(HTTPStatus.UNAUTHORIZED, f"{refused} Listeners need a token: {remedy}.") from None
    if known.role != Token.Role.INGEST:
        raise _Refused(HTTPStatus.FORBIDDEN, f"A token of the role {known.role} may not ingest: {remedy}.")


def _document(request: HttpRequest) -> Any:
    """Return the body as JSON means it; what is unpacked is bounded, whatever it pretends to be."""
    if request.headers.get("Content-Length", "").isdigit():
        _fit(int(request.headers["Content-Length"]), MOST_BYTES)
    body = request.read(MOST_BYTES + 1)
    _fit(len(body), MOST_BYTES)
    if request.headers.get("Content-Encoding", "").lower() == "gzip":
        body = _inflated(body)
    try:
        return json.loads(body, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"it is no JSON ({error})") from None


def _inflated(body: bytes) -> bytes:
    stream = zlib.decompressobj(_GZIP)
    try:
        text = stream.decompress(body, MOST_INFLATED + 1)
    except zlib.error as error:
        raise Unusable(f"it is no gzip ({error})") from None
    _fit(len(text), MOST_INFLATED)
    if not stream.eof:
        raise Unusable("its gzip ends too early")
    return text


def _integer(digits: str) -> int | None:
    """Return a number; one that no database holds is none, and does not spoil what stands beside it."""
    return int(digits) if len(digits) <= 20 else None


def _fit(size: int, most: int) -> None:
    if size > most:
        why = f"A post has at most {MOST_BYTES:,} bytes, and {MOST_INFLATED:,} when it is unpacked."
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)


def _limit(events: int) -> None:
    if events > MOST_EVENTS:
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A post has at most {MOST_EVENTS:,} events.")


def _problem(status: HTTPStatus, why: str) -> HttpResponse:
    response = problem(status, why)
    if status == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        response["Allow"] = "POST"
    return response
