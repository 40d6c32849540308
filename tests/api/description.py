"""Compares answers of the API with its description: generated clients rely on it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django.http import HttpResponse
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
