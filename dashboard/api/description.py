"""The API's description: what django-ninja derives from the code, and the errors of each operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation

from dashboard.api.problems import Problem

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
#: Beyond those that follow from an operation's parts, by operation id.
_MORE: Mapping[str, tuple[int, ...]] = {
    "dashboard_api_actions_make_plan": (404, 409, 503),
    "dashboard_api_actions_execute_plan": (409, 410),
    "dashboard_api_channels_rotate_secret": (409,),
    "dashboard_api_channels_send_test": (409,),
    "dashboard_api_deliveries_send_again": (409,),
    "dashboard_api_incidents_acknowledge_incident": (409,),
}


class DescribedAPI(NinjaAPI):
    """An API whose description names the errors as well."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Return `dashboard_api_NOUN_FUNCTION`: clients are generated from it, wherever the module lies."""
        noun = operation.view_func.__module__.rpartition(".")[2]
        return f"dashboard_api_{noun}_{operation.view_func.__name__}"

    def get_openapi_schema(self, **_: Any) -> OpenAPISchema:
        """Return the description; the address of the API has no parameters that it could depend on."""
        return self._schema

    @cached_property
    def _schema(self) -> OpenAPISchema:
        """Derived once in a process: that takes half a second, and nothing changes it."""
        schema = super().get_openapi_schema()
        known = schema["components"]["schemas"]
        # Models of query strings: each of their fields is a parameter, and their names mean nothing.
        for name in [name for name in known if name.endswith("Filters")]:
            del known[name]
        schema["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        for operations in schema["paths"].values():
            for operation in operations.values():
                for status in sorted(set(_statuses(operation))):
                    words = {"description": HTTPStatus(status).phrase, "content": _PROBLEM}
                    operation["responses"].setdefault(status, words)
        return schema


def _statuses(operation: Mapping[str, Any]) -> Iterator[int]:
    """Yield the statuses of the errors that an operation may answer."""
    yield from (400, 401, 403, 422, 429, 500, 503)
    yield from _MORE.get(operation["operationId"], ())
    asked = operation["parameters"]
    if any(parameter["in"] == "path" or parameter["name"] == "cluster" for parameter in asked):
        yield 404
    if "requestBody" in operation:
        yield 413
