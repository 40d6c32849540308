"""The endpoint for listeners: `POST /ingest/v1/progress`, with a token of the role ingest.

A rejected post is answered with a problem that names the remedy: the listener prints it, keeps all events and
retries. Events that were saved before are recognised.
"""

import json
import logging
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from dashboard.api.problems import database_problem
from dashboard.models import Token
from dashboard.runtime import loop
from dashboard.runtime.problems import problem_response
from dashboard.streaming import progress_store
from dashboard.streaming.progress_store import UnassignedPost
from dashboard.system.tokens import TokenRefused, bearer_token, usable_token
from fenceline.decode import ingest_payload
from fenceline.decode.progress import UnusableEvent

#: Limits of a body: bytes as sent, bytes unpacked, and events. Listeners send much less.
MOST_BYTES, MOST_INFLATED, MOST_EVENTS = settings.FILE_UPLOAD_MAX_MEMORY_SIZE, 12 * 2**20, 5_000
#: Limit of the values in a document, up to 150 bytes each as Python objects. A listener's 4 MiB have fewer.
MOST_VALUES = 500_000
#: Every value but the outermost follows one of these bytes; bytes inside strings are counted too.
_BEFORE_VALUES = (b",", b"[", b"{")
_STEP = 64 * 2**10
_GZIP = 16 + zlib.MAX_WBITS
#: Posts are unpacked one at a time, to need the memory of one.
_UNPACKING = threading.Lock()
#: Seconds before a too large post is rejected: unpacking it used a core, and its sender would retry at once.
REFUSED_REST_S = 1.0

log = logging.getLogger(__name__)


class _RefusedPost(Exception):
    """The request is rejected: the status, and a reason for the operator of the listener."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


@csrf_exempt
def ingest_progress(request: HttpRequest) -> HttpResponse:
    """Save a listener's events; answer the numbers of new and known ones, and each rejected one's reason."""
    now_ms = loop.now_ms()
    try:
        _admit(request)
        with _UNPACKING:
            post = ingest_payload.decode_post(_document(request))
        accepted, duplicates = progress_store.save_progress(post, now_ms=now_ms)
    except _RefusedPost as refused:
        if refused.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            time.sleep(REFUSED_REST_S)
        return _problem(refused.status, str(refused))
    except UnusableEvent as error:
        return problem_response(HTTPStatus.BAD_REQUEST, f"This is nothing that a listener posts: {error}.")
    except UnassignedPost as error:
        return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    except DatabaseError as error:
        return database_problem(request, error)
    if post.strange:
        log.warning("a listener's post has fields that cannot be read: %s", dict(post.strange))
    refusals = [{"seq": seq, "reason": reason} for seq, reason in post.refused]
    return JsonResponse(
        {"accepted": accepted, "duplicates": duplicates, "refused": refusals, "unread": dict(post.strange)}
    )


def may_post(authorization: str) -> bool:
    """Return whether the body is worth reading: `_admit` rejects the same requests, with a reason."""
    scheme, _, token = authorization.partition(" ")
    try:
        return scheme.lower() == "bearer" and usable_token(token.strip()).role == Token.Role.INGEST
    except (TokenRefused, DatabaseError):
        return False


def _admit(request: HttpRequest) -> None:
    """Raise `_RefusedPost` unless the request is a POST with a token of the role ingest."""
    if request.method != "POST":
        raise _RefusedPost(HTTPStatus.METHOD_NOT_ALLOWED, "Listeners POST to this address.")
    remedy = "make one with `manage.py create_token NAME --role ingest`"
    try:
        known = bearer_token(request)
    except TokenRefused as refused:
        raise _RefusedPost(HTTPStatus.UNAUTHORIZED, f"{refused} Listeners need a token: {remedy}.") from None
    if known.role != Token.Role.INGEST:
        raise _RefusedPost(
            HTTPStatus.FORBIDDEN, f"A token of the role {known.role} may not ingest: {remedy}."
        )


def _document(request: HttpRequest) -> Any:
    """Return the body's JSON document; its size is checked while unpacking, before JSON is parsed."""
    if request.headers.get("Content-Length", "").isdigit():
        _fit(int(request.headers["Content-Length"]), MOST_BYTES, "bytes")
    try:
        document = json.loads(_text(request), parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise UnusableEvent(f"it is no JSON ({error})") from None
    events = document.get("events") if isinstance(document, dict) else None
    _fit(len(events) if isinstance(events, list) else 0, MOST_EVENTS, "events")
    return document


def _text(request: HttpRequest) -> str:
    """Return the unpacked body; raises `_RefusedPost` at the first piece beyond a limit."""
    pieces: Iterable[bytes] = iter(partial(request.read, _STEP), b"")
    if request.headers.get("Content-Encoding", "").lower() == "gzip":
        pieces = _inflated(pieces)
    text, values = bytearray(), 0
    for piece in pieces:
        text += piece
        _fit(len(text), MOST_INFLATED, "bytes when it is unpacked")
        values += sum(map(piece.count, _BEFORE_VALUES))
        _fit(values, MOST_VALUES, "values")
    return text.decode("utf-8", "surrogatepass")


def _inflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    stream = zlib.decompressobj(_GZIP)
    for piece in pieces:
        packed = piece
        while packed and not stream.eof:
            try:
                yield stream.decompress(packed, _STEP)
            except zlib.error as error:
                raise UnusableEvent(f"it is no gzip ({error})") from None
            packed = stream.unconsumed_tail
    if not stream.eof:
        raise UnusableEvent("its gzip ends too early")


def _integer(digits: str) -> int | None:
    """Return None for integers too large to store, so that the rest of the event is kept."""
    return int(digits) if len(digits) <= 20 else None


def _fit(size: int, most: int, what: str) -> None:
    if size > most:
        raise _RefusedPost(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A post has at most {most:,} {what}.")


def _problem(status: HTTPStatus, why: str) -> HttpResponse:
    response = problem_response(status, why)
    if status == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        response["Allow"] = "POST"
    return response
