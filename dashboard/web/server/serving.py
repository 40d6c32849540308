"""Django's requests on threads that stay, so that their database connections stay open too; below a path of
the host; and the work of a server before its first request.
"""

import gc
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.loader import get_template
from django.urls import get_resolver

from dashboard.web.server import bundles

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


def warm_up() -> None:
    """Import all views, compile all templates, make all bundles, and exclude them from garbage collection.

    A full collection of all imported objects would delay a request by 0.15 s.
    """
    _ = get_resolver().url_patterns
    for name in bundles.BUNDLES:
        bundles.bundle_url(name)
    folder = settings.ROOT / "templates"
    for path in folder.rglob("*.html"):
        get_template(str(path.relative_to(folder)))
    gc.collect()
    gc.freeze()


Scope: TypeAlias = dict[str, Any]
App: TypeAlias = Callable[[Scope, Any, Any], Awaitable[None]]


def under_base_path(app: App, base: str) -> App:
    """Return an application whose requests all have the base path, as `root_path` and in `path` (ASGI).

    A request without the base path comes from a proxy that strips it, or from a probe.
    """
    if not base:
        return app

    async def based(scope: Scope, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if path != base and not path.startswith(f"{base}/"):
            path = f"{base}{path}"
        await app(scope | {"root_path": base, "path": path}, receive, send)

    return based
