"""The API's description: its operations, and answers compared with it, on which generated clients rely."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpResponse
from django.test import Client
from jsonschema import Draft202012Validator

from dashboard.api import api

PREFIX = "/api/v1/"
#: Parameters of a path that take slashes.
_LONG = ("transactional_id", "group", "query")


@lru_cache
def description() -> Mapping[str, Any]:
    """Return the published description."""
    found: Mapping[str, Any] = json.loads(json.dumps(api.get_openapi_schema()))
    return found


@lru_cache
def _paths() -> list[tuple[re.Pattern[str], str]]:
    """Return the described paths as patterns, those with the most letters of their own first."""

    def pattern(path: str) -> re.Pattern[str]:
        parts = re.split(r"{(\w+)}", path)
        for at in range(1, len(parts), 2):
            parts[at] = "(?s:.+)" if parts[at] in _LONG else "[^/]+"
        return re.compile("".join(each if n % 2 else re.escape(each) for n, each in enumerate(parts)))

    known = sorted(description()["paths"], key=lambda path: -len(re.sub(r"{\w+}", "", path)))
    return [(pattern(path), path) for path in known]


def operation(method: str, path: str) -> Mapping[str, Any] | None:
    """Return what is described of a request by its decoded path; None where nothing is."""
    for pattern, described in _paths():
        if pattern.fullmatch(path):
            found: Mapping[str, Any] | None = description()["paths"][described].get(method.lower())
            return found
    return None


def assert_described(method: str, path: str, response: HttpResponse) -> None:
    """Assert that an answer is one that is described, of a described status and shape."""
    status = response.status_code
    if status >= 400:
        assert response["Content-Type"].startswith("application/problem+json"), (path, response.content)
        _assert_fits({"$ref": "#/components/schemas/Problem"}, response, path)
    found = operation(method, path)
    if found is None:
        assert status in (401, 404, 405), f"{method} {path}: {status} of an operation that is not described"
        return
    described = found["responses"].get(str(status))
    assert described is not None, f"{method} {path}: {status} is not described"
    for content in described.get("content", {}).values():
        _assert_fits(content["schema"], response, path)


def _assert_fits(schema: Mapping[str, Any], response: HttpResponse, path: str) -> None:
    whole = {**schema, "components": description()["components"]}
    errors = list(Draft202012Validator(whole).iter_errors(json.loads(response.content)))
    assert not errors, f"{path}: {errors[0].json_path}: {errors[0].message[:500]}"


#: Values that fit parameters of paths; others are numbers.
_PATHS = {"cluster": "prod", "noun": "transactions", "form": "json"}
#: The status of an answer, and the decoded problem where it is one.
Answer = tuple[int, dict[str, Any]]


class Operation(NamedTuple):
    """One operation of the description."""

    method: str
    path: str
    parameters: list[Mapping[str, Any]]
    body: Mapping[str, Any] | None

    @property
    def query(self) -> list[str]:
        return [each["name"] for each in self.parameters if each["in"] == "query"]

    @property
    def address(self) -> str:
        return re.sub(r"{(\w+)}", lambda name: _PATHS.get(name[1], "1"), self.path)

    def ask(self, client: Client, query: Mapping[str, str], body: object = None) -> Answer:
        """Return the status and the decoded answer."""
        sent = "" if body is None else json.dumps(body)
        answer = client.generic(self.method, f"{self.address}?{urlencode(query)}", sent, "application/json")
        return answer.status_code, json.loads(answer.content or b"{}") if answer.status_code >= 400 else {}


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema, or what it refers to."""
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = description()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def words_of(schema: Mapping[str, Any]) -> set[str]:
    """Return the words that a parameter of a schema takes."""
    options = [resolved(option) for option in schema.get("anyOf", [schema])]
    return {word for option in options for word in option.get("enum", ()) if word}


def operations() -> Iterator[Operation]:
    """Yield each operation of the description."""
    for path, methods in description()["paths"].items():
        for method, of in methods.items():
            content = of.get("requestBody", {}).get("content", {})
            body = resolved(content["application/json"]["schema"]) if content else None
            yield Operation(method.upper(), path, of["parameters"], body)
