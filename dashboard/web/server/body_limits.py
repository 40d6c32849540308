"""Limits of size and time for the body of a request, before Django sees the request.

Django reads the whole body of any sender before a view runs. Limits depend on the path: posts of listeners
may be large, with a token that may post; all other bodies are small. Refusals are problems (RFC 9457).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias

from dashboard.runtime.problems import PROBLEM_TYPE, problem_body

#: Maximum time until a body is complete. Listeners give up after 10 s.
BODY_S = 30.0
#: The seconds for which the rest of a refused body is read and dropped, so that its sender gets the answer.
LINGER_S = 2.0
#: Bodies up to this size are always accepted, so that users can sign in while the lanes are full.
SMALL_BYTES = 64 * 2**10
RETRY_AFTER_S = 5

Message: TypeAlias = Mapping[str, Any]
Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class _RefusedBody(Exception):
    """A body was refused, with the status and the reason for its sender."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Gone(Exception):
    """The client went away."""


@dataclass(slots=True)
class Lane:
    """Limits in bytes of one body, and of all bodies in memory together."""

    most_bytes: int
    most_held: int
    held: int = 0


@dataclass(slots=True)
class _Body:
    """The received bytes of one body, and the bytes that count in its lane."""

    lane: Lane
    size: int = 0
    counted: int = 0

    def grow(self, more: int) -> None:
        """Count received bytes; raises `_RefusedBody` when the body or its lane exceeds its limit."""
        self.size += more
        _fit(self.size, self.lane)
        if self.size > SMALL_BYTES:
            self.lane.held += self.size - self.counted
            self.counted = self.size
            if self.lane.held > self.lane.most_held:
                why = f"The server is busy with other large requests: try again in {RETRY_AFTER_S} s."
                raise _RefusedBody(HTTPStatus.SERVICE_UNAVAILABLE, why)

    def release(self) -> None:
        self.lane.held -= self.counted
        self.counted = 0


class BodyLimits:
    """ASGI middleware that reads the bodies of HTTP requests within limits.

    `may_post` decides by the Authorization header whether to read a body of the ingest lane. Without
    permission the application answers as for an empty body.
    """

    def __init__(
        self, app: App, small: Lane, ingest: Lane, may_post: Callable[[str], Awaitable[bool]]
    ) -> None:
        self._app, self._small, self._ingest, self._may_post = app, small, ingest, may_post

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        posts = scope["path"].removeprefix(scope.get("root_path", "")).startswith("/ingest/")
        body = _Body(self._ingest if posts else self._small)
        try:
            _fit(_declared(scope), body.lane)
            if posts and not await self._may_post(_header(scope, b"authorization")):
                chunks = deque([b""])
            else:
                chunks = await _read(body, receive)
            await self._app(scope, _replay(chunks, receive), send)
        except _RefusedBody as refused:
            await _refuse(refused, receive, send)
        except _Gone:
            pass
        finally:
            body.release()


async def _read(body: _Body, receive: Receive) -> deque[bytes]:
    """Return the chunks of a body; raises `_RefusedBody` for a large or slow one, `_Gone`."""
    chunks: deque[bytes] = deque()
    try:
        async with asyncio.timeout(BODY_S):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Gone
                chunks.append(message.get("body", b""))
                body.grow(len(chunks[-1]))
                more = message.get("more_body", False)
    except TimeoutError:
        why = f"The body of this request was not there after {BODY_S:g} s: send it faster, or in parts."
        raise _RefusedBody(HTTPStatus.REQUEST_TIMEOUT, why) from None
    return chunks


def _replay(chunks: deque[bytes], receive: Receive) -> Receive:
    """Return the `receive` of an application: first the chunks, then later messages."""

    async def replayed() -> Message:
        if not chunks:
            return await _disconnect(receive)
        body = chunks.popleft()
        return {"type": "http.request", "body": body, "more_body": bool(chunks)}

    return replayed


async def _disconnect(receive: Receive) -> Message:
    """Wait until the client disconnects; drop the rest of an unread body."""
    message = await receive()
    while message["type"] == "http.request":
        message = await receive()
    return message


async def _refuse(refused: _RefusedBody, receive: Receive, send: Send) -> None:
    """Send a problem, and close the connection after the client had time to read it."""
    status, body = refused.status, problem_body(refused.status, str(refused))
    headers = [
        (b"content-type", PROBLEM_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", str(RETRY_AFTER_S).encode()))
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    try:
        async with asyncio.timeout(LINGER_S):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b""})


def _fit(size: int, lane: Lane) -> None:
    if size > lane.most_bytes:
        why = f"The body of a request to this address has at most {lane.most_bytes:,} bytes."
        raise _RefusedBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)


def _declared(scope: Scope) -> int:
    """Return the length that a request declares, 0 without one."""
    value = _header(scope, b"content-length")
    return int(value) if value.isdigit() else 0


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin1") for key, value in scope["headers"] if key == name), "")
