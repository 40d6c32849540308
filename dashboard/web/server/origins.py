"""The origins that may open a socket, by Django's rule for forms."""

from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.utils.http import is_same_domain

Scope: TypeAlias = dict[str, Any]
Application: TypeAlias = Callable[[Scope, Any, Any], Awaitable[None]]


def same_origin_only(application: Application) -> Application:
    """Reject a socket whose Origin is neither this server with its port nor in CSRF_TRUSTED_ORIGINS."""

    async def validated(scope: Scope, receive: Any, send: Any) -> None:
        answer = application if _is_allowed(scope) else WebsocketDenier()
        await answer(scope, receive, send)

    return validated


def _is_allowed(scope: Scope) -> bool:
    scheme = "https" if scope.get("scheme") == "wss" else "http"
    request = ASGIRequest(scope | {"method": "GET", "scheme": scheme}, BytesIO())
    origin = request.headers.get("Origin", "")
    try:
        own = f"{scheme}://{request.get_host()}"
    except DisallowedHost:
        return False
    return origin == own or any(_matches(origin, trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS)


def _matches(origin: str, trusted: str) -> bool:
    """Return whether an origin is trusted; `https://*.example` names all subdomains."""
    try:
        parts, pattern = urlsplit(origin), urlsplit(trusted)
    except ValueError:
        return False
    return parts.scheme == pattern.scheme and is_same_domain(parts.netloc, pattern.netloc.lstrip("*"))
