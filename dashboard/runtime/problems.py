"""Answer errors as RFC 9457 problems, `application/problem+json`."""

import json
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse

PROBLEM_TYPE = "application/problem+json; charset=utf-8"


def problem_response(status: int, detail: str, **members: Any) -> HttpResponse:
    return HttpResponse(problem_body(status, detail, **members), status=status, content_type=PROBLEM_TYPE)


def problem_body(status: int, detail: str, **members: Any) -> bytes:
    """Return a problem as JSON: `status` with its phrase, and `detail` for the caller."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return json.dumps(body | members).encode()


def as_problem(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Return Django's own error response as a problem, with its headers."""
    words = {
        405: f"{request.method} is not possible here: use {response.get('Allow', 'another method')}.",
        413: "The request is too large.",
        404: f"There is nothing at {request.path}.",
    }
    status = response.status_code
    problem = problem_response(
        status, words.get(status, f"The request cannot be answered: {HTTPStatus(status).phrase}.")
    )
    for name in "Allow", "Retry-After", "WWW-Authenticate":
        if name in response:
            problem[name] = response[name]
    return problem
