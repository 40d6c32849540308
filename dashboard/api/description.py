"""The OpenAPI description: django-ninja's schema with the errors of each operation."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation

from dashboard.api.problems import Problem

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
#: Further error statuses by operation id; `_statuses` derives the other ones.
_MORE: Mapping[str, tuple[int, ...]] = {
    "dashboard_api_actions_make_plan": (404, 409, 503),
    "dashboard_api_actions_execute_plan": (409, 410),
    "dashboard_api_channels_rotate_secret": (409,),
    "dashboard_api_channels_send_test": (409,),
    "dashboard_api_deliveries_send_again": (409,),
    "dashboard_api_incidents_acknowledge_incident": (409,),
}


class DescribedAPI(NinjaAPI):
    """An API whose OpenAPI description includes the errors."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Return `dashboard_api_NOUN_FUNCTION`: generated clients use it, so it omits the module's folder."""
        noun = operation.view_func.__module__.rpartition(".")[2]
        return f"dashboard_api_{noun}_{operation.view_func.__name__}"

    def get_openapi_schema(self, **_: Any) -> OpenAPISchema:
        """Return the description; the API's path has no parameters, so it never varies."""
        return self._schema

    @cached_property
    def _schema(self) -> OpenAPISchema:
        """The description, derived once per process because that takes half a second."""
        schema = super().get_openapi_schema()
        known = schema["components"]["schemas"]
        # Models of query strings: OpenAPI lists their fields as parameters and never refers to the models.
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
    """Yield the error statuses of an operation."""
    yield from (400, 401, 403, 422, 429, 500, 503)
    yield from _MORE.get(operation["operationId"], ())
    asked = operation["parameters"]
    if any(parameter["in"] == "path" or parameter["name"] == "cluster" for parameter in asked):
        yield 404
    if "requestBody" in operation:
        yield 413
