"""The tools: one per API operation for agents, with the API's own description.

No tool executes a plan. Answers are bounded JSON in ASCII: names from a cluster are data, whatever they
contain.
"""

import asyncio
import json
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote, urlencode

from mcp.types import Tool, ToolAnnotations

from dashboard.api import api

#: Maximum characters of an answer.
LONGEST_ANSWER = 40_000
_LONGEST_ERROR = 2_000
_USUAL_LIMIT = 20
#: Fields that confirm a plan: only for the person on its page.
_CONFIRMS = ("digest", "confirm")


class Operation(NamedTuple):
    """A tool, and the API operation that it requests."""

    name: str
    path: str
    method: str = "get"


OPERATIONS = (
    Operation("list_clusters", "/clusters"),
    Operation("list_incidents", "/incidents"),
    Operation("explain_incident", "/incidents/{number}"),
    Operation("list_findings", "/findings"),
    Operation("list_events", "/events"),
    Operation("list_transactions", "/transactions"),
    Operation("get_transaction", "/transactions/{cluster}/{transactional_id}"),
    Operation("list_partitions", "/partitions"),
    Operation("get_partition", "/partitions/{cluster}/{topic}/{partition}"),
    Operation("get_record", "/partitions/{cluster}/{topic}/{partition}/records/{offset}"),
    Operation("list_groups", "/groups"),
    Operation("get_group", "/groups/{cluster}/{group}"),
    Operation("list_queries", "/queries"),
    Operation("get_query", "/queries/{query}"),
    Operation("query_safe_to_stop", "/queries/{query}/safe_to_stop"),
    Operation("cluster_safe_to_stop", "/clusters/{cluster}/safe_to_stop"),
    Operation("list_flink_jobs", "/flink-jobs"),
    Operation("list_recoveries", "/recoveries"),
    Operation("get_coordinators", "/clusters/{cluster}/coordinators"),
    Operation("check_exactly_once", "/clusters/{cluster}/preflight"),
    Operation("list_actions", "/actions"),
    Operation("get_action", "/actions/{number}"),
    Operation("make_plan", "/actions/plan", "post"),
)
BY_NAME: Mapping[str, Operation] = {operation.name: operation for operation in OPERATIONS}


@cache
def described_tools() -> list[Tool]:
    """Return the tools, with the API's description of their operations."""
    return [_described(operation) for operation in OPERATIONS]


def _described(operation: Operation) -> Tool:
    known = _operation(operation)
    text = f"{known['summary']}. {known.get('description', '')}".strip()
    if operation.method == "post":
        text += " A person confirms the plan on its page, at `confirm_at`; no tool does."
    hints = ToolAnnotations(read_only_hint=operation.method == "get", destructive_hint=False)
    return Tool(name=operation.name, description=text, input_schema=_arguments(known), annotations=hints)


def _operation(operation: Operation) -> Mapping[str, Any]:
    methods = api.get_openapi_schema()["paths"][f"{PREFIX}{operation.path}"]
    return dict(methods[operation.method])


def _arguments(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments: the operation's parameters, or the fields of its body."""
    if "requestBody" in known:
        return dict(_inlined(known["requestBody"]["content"]["application/json"]["schema"]))
    return {
        "type": "object",
        "properties": {parameter["name"]: _inlined(parameter["schema"]) for parameter in known["parameters"]},
        "required": [parameter["name"] for parameter in known["parameters"] if parameter.get("required")],
        "additionalProperties": False,
    }


def _inlined(schema: Any) -> Any:
    """Return a schema with its references replaced: a tool's schema stands alone."""
    if isinstance(schema, list):
        return list(map(_inlined, schema))
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _inlined(api.get_openapi_schema()["components"]["schemas"][name])
    return {key: _inlined(value) for key, value in schema.items()}


def request_of(operation: Operation, arguments: Mapping[str, Any]) -> tuple[str, str, Mapping[str, Any], Any]:
    """Return the request for the arguments of a tool; raises ValueError for a missing argument.

    Method, path (percent-encoded), query and body.
    """
    if operation.method == "post":
        return "POST", operation.path, {}, dict(arguments)
    known = _operation(operation)["parameters"]
    in_path = [parameter["name"] for parameter in known if parameter["in"] == "path"]
    # Agents write null for arguments that they do not use.
    arguments = {name: value for name, value in arguments.items() if value is not None}
    if missing := [name for name in in_path if name not in arguments]:
        raise ValueError(f"{operation.name} needs {', '.join(missing)}.")
    path = operation.path.format(**{name: quote(str(arguments[name]), safe="") for name in in_path})
    query = {name: _as_text(value) for name, value in arguments.items() if name not in in_path}
    if any(parameter["name"] == "limit" for parameter in known):
        query.setdefault("limit", _USUAL_LIMIT)
    return "GET", path, query, None


def _as_text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def answer_text(body: Any) -> str:
    """Return an answer for a tool: without fields that confirm a plan, and shortened to fit."""
    answer = _without_confirmation(body)
    text = json.dumps(answer)
    if len(text) <= LONGEST_ANSWER:
        return text
    is_list = isinstance(answer, dict) and isinstance(answer.get("items"), list)
    if is_list and (short := _shorter_list(answer)):
        return short
    return json.dumps({"too_long": len(text), "instead": "open the page", "begins": text[:2_000]})


def _shorter_list(answer: Mapping[str, Any]) -> str:
    """Return the longest list that fits, with the number of omitted items, which no cursor covers.

    "" if not even an empty one fits. It searches by halves: meanwhile the server answers no other request.
    """
    items = answer["items"]

    def cut(number: int) -> str:
        left_off = {"left_off": len(items) - number, "instead": "ask again with a smaller limit"}
        return json.dumps({**answer, "items": items[:number], "next": None, **left_off})

    fitting = bisect_right(range(len(items)), LONGEST_ANSWER, key=lambda number: len(cut(number)))
    return cut(fitting - 1) if fitting else ""


def error_text(text: str) -> str:
    """Return why a tool did nothing, in ASCII and bounded like answers: it repeats the request."""
    plain = text.replace("“", '"').replace("”", '"').encode("ascii", "backslashreplace").decode()
    return plain if len(plain) <= _LONGEST_ERROR else f"{plain[:_LONGEST_ERROR]}..."


def _without_confirmation(body: Any) -> Any:
    if isinstance(body, list):
        return list(map(_without_confirmation, body))
    if isinstance(body, dict):
        return {key: _without_confirmation(value) for key, value in body.items() if key not in _CONFIRMS}
    return body


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
