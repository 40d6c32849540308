"""One shape for every error: RFC 9457 `application/problem+json`."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError


def problem(status: int, detail: str, **members: Any) -> HttpResponse:
    """Return a problem: `status` and its phrase, and what happened in words for the caller."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return HttpResponse(
        json.dumps(body | members), status=status, content_type="application/problem+json; charset=utf-8"
    )


def nowhere(request: HttpRequest) -> HttpResponse:
    """Answer an address that the API does not have."""
    return _not_found(request, "")


class Refused(HttpError):
    """A refusal with members beyond the usual ones, which tell a caller what to ask instead."""

    def __init__(self, status: int, detail: str, **members: Any) -> None:
        super().__init__(status, detail)
        self.members = members


def install(api: NinjaAPI) -> None:
    """Answer every error of `api` as a problem."""
    api.add_exception_handler(AuthenticationError, _unauthenticated)
    api.add_exception_handler(ValidationError, _invalid)
    api.add_exception_handler(Http404, _not_found)
    api.add_exception_handler(HttpError, _refused)
    api.add_exception_handler(DatabaseError, _no_database)


def _unauthenticated(request: HttpRequest, error: Any) -> HttpResponse:
    response = problem(401, "Sign in, or send 'Authorization: Bearer TOKEN' (manage.py create_token).")
    response["WWW-Authenticate"] = "Bearer"
    return response


def _invalid(request: HttpRequest, error: Any) -> HttpResponse:
    errors = [{"in": ".".join(map(str, each["loc"])), "message": each["msg"]} for each in error.errors]
    return problem(422, "; ".join(f"{each['in']}: {each['message']}" for each in errors), errors=errors)


def _not_found(request: HttpRequest, error: Any) -> HttpResponse:
    return problem(404, str(error) or f"There is nothing at {request.path}.")


def _refused(request: HttpRequest, error: Any) -> HttpResponse:
    return problem(error.status_code, str(error), **getattr(error, "members", {}))


def _no_database(request: HttpRequest, error: Any) -> HttpResponse:
    return problem(503, "The database cannot be reached; nothing is lost, try again.")
