"""The current HTTP request or command of manage.py, as the origin of a change.

They are context variables, which asgiref copies into the threads of views.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.http import HttpRequest, HttpResponse

#: The request itself: its user and its token are known only after the middleware.
current_request: ContextVar[HttpRequest | None] = ContextVar("current_request", default=None)
#: The name of the running command of manage.py, or "".
current_command: ContextVar[str] = ContextVar("current_command", default="")


def note_request(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Set every request as the current one while it is answered."""

    def handle(request: HttpRequest) -> HttpResponse:
        token = current_request.set(request)
        try:
            return get_response(request)
        finally:
            current_request.reset(token)

    return handle


@contextmanager
def command_origin(name: str) -> Iterator[None]:
    """Set a command's name as the current one inside the block."""
    token = current_command.set(name)
    try:
        yield
    finally:
        current_command.reset(token)
