"""Answer every error as an RFC 9457 problem, `application/problem+json`."""

import logging
from collections.abc import Sequence
from typing import Any

from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, HttpError, ValidationError

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
