"""A request to the API in this process on behalf of a caller: with its token, its Host, its address."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote, urlencode

Scope: TypeAlias = Mapping[str, Any]
App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
#: The caller's headers that a request keeps: no cookie, so that no page can make a browser call.
_KEPT = (b"host", b"authorization", b"x-forwarded-for", b"user-agent")
PREFIX = "/api/v1"


class ApiAnswer(NamedTuple):
    """The API's answer: always JSON."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    content: bytes

    @property
    def body(self) -> Any:
        """Return the decoded content."""
        return json.loads(self.content)


async def request_api(
    app: App,
    caller: Scope,
    method: str,
    path: str,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
) -> ApiAnswer:
    """Return the API's answer to one request; `path` is below `/api/v1`, percent-encoded."""
    content = b"" if body is None else json.dumps(body).encode()
    headers = [pair for pair in caller["headers"] if pair[0] in _KEPT]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    raw = f"{quote(caller.get('root_path', ''))}{PREFIX}{path}"
    scope = {
        **caller,
        "method": method,
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": urlencode(query or {}, doseq=True).encode(),
        "headers": headers,
    }
    sent: list[Any] = []
    unread = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> Any:
        # Then no message follows: Django waits for a leaving client until it has answered.
        return unread.pop() if unread else await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = next(message for message in sent if message["type"] == "http.response.start")
    parts = (message.get("body", b"") for message in sent if message["type"] == "http.response.body")
    return ApiAnswer(start["status"], tuple(map(tuple, start["headers"])), b"".join(parts))
