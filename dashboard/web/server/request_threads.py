"""Django's requests on threads that stay, so that their database connections stay open too."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase

#: Threads that wait for a request; more are started while more requests run at once.
_KEPT = 4


class RequestThreads(ASGIHandler):
    """Django's handler, with one thread for all the synchronous code of a request.

    Django starts a thread for each request, whose connection ends with it, and passes between this thread and
    the event loop for each middleware and view that is synchronous. All of ours are.
    """

    def __init__(self) -> None:
        super().__init__()
        self._idle: list[ThreadPoolExecutor] = []

    def load_middleware(self, is_async: bool = False) -> None:
        """Load the middleware for synchronous requests."""
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """Answer a request in its thread."""
        return await sync_to_async(self.get_response)(request)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request in a thread that waits for one, else in a new one."""
        thread = self._idle.pop() if self._idle else ThreadPoolExecutor(1, "request")
        try:
            async with ThreadSensitiveContext(executor=thread):
                await self.handle(scope, receive, send)
        finally:
            # Idle even if the client left: Django closes each request in its thread, after its view.
            if len(self._idle) < _KEPT:
                self._idle.append(thread)
            else:
                thread.shutdown(wait=False)
