"""Fenceline under a path of its host, behind a proxy that keeps the path or strips it."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

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
