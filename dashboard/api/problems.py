"""Answer every error as an RFC 9457 problem, `application/problem+json`, and describe them in OpenAPI."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Any

from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation

from dashboard.runtime.database_errors import explain_error, log_line
from dashboard.runtime.problems import problem_response

log = logging.getLogger(__name__)

_SIGN_IN = "Sign in, or send 'Authorization: Bearer TOKEN' (manage.py create_token)."
#: Pydantic's name for the type of "", an alternative of several parameters; errors about it do not help.
_NOTHING = "literal['']"
#: Seconds to wait after a temporary error.
RETRY_AFTER_S = 5


class Problem(Schema):
    """An error by RFC 9457. `detail` describes what happened and what to do."""

    type: str
    title: str
    status: int
    detail: str


@csrf_exempt
def unknown_path(request: HttpRequest) -> HttpResponse:
    """Answer 404 for an unknown path, whatever the method."""
    return _not_found(request, "")


class RefusedRequest(HttpError):
    """An error whose problem has further members, such as what to request instead."""

    def __init__(self, status: int, detail: str, **members: Any) -> None:
        super().__init__(status, detail)
        self.members = members


def install_handlers(api: NinjaAPI) -> None:
    """Answer every error of `api` as a problem."""
    api.add_exception_handler(AuthenticationError, _unauthenticated)
    api.add_exception_handler(ValidationError, _invalid)
    api.add_exception_handler(Http404, _not_found)
    api.add_exception_handler(HttpError, _refused)
    api.add_exception_handler(DatabaseError, database_problem)


def _unauthenticated(request: HttpRequest, error: Any) -> HttpResponse:
    why = error.message if error.message != AuthenticationError().message else _SIGN_IN
    response = problem_response(401, why)
    response["WWW-Authenticate"] = "Bearer"
    return response


def _invalid(request: HttpRequest, error: Any) -> HttpResponse:
    errors = [
        {"in": _place(item["loc"]), "message": item["msg"].removeprefix("Value error, ")}
        for item in error.errors
        if item["loc"][-1] != _NOTHING
    ]
    return problem_response(
        422, "; ".join(f"{mistake['in']}: {mistake['message']}" for mistake in errors), errors=errors
    )


def _place(loc: Sequence[str | int]) -> str:
    """Return a location such as `query.severity`, without our argument's name and Pydantic's type names."""
    return ".".join(map(str, ("query", loc[2]) if tuple(loc[:2]) == ("query", "wanted") else loc))


def _not_found(request: HttpRequest, error: Any) -> HttpResponse:
    return problem_response(404, str(error) or f"There is nothing at {request.path}.")


def _refused(request: HttpRequest, error: Any) -> HttpResponse:
    members = getattr(error, "members", {})
    response = problem_response(error.status_code, str(error), **members)
    if wait_s := members.get("retry_after_s"):
        response["Retry-After"] = str(wait_s)
    return response


def database_problem(request: HttpRequest, error: Any) -> HttpResponse:
    """Log a database error, and answer with its explanation."""
    log.error("%s: %s", request.path, log_line(error))
    explanation = explain_error(error)
    response = problem_response(explanation.status, explanation.text)
    if explanation.is_passing:
        response["Retry-After"] = str(RETRY_AFTER_S)
    return response


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
        """Return `dashboard_api_NOUN_FUNCTION`, which generated clients use; a router's tag is its noun."""
        return "_".join(["dashboard_api", *(operation.tags or ()), operation.view_func.__name__])

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
