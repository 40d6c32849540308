"""The live socket: forwards notifications of changes to signed-in pages, of origins by Django's rule for
forms.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from io import BytesIO
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError
from django.utils.http import is_same_domain

from dashboard.runtime.database_errors import log_line
from dashboard.runtime.notify import GROUP, Bell, SessionCheck, session_name
from dashboard.system import access, cluster_limits, live_sessions

log = logging.getLogger(__name__)

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


#: Seconds between two checks of the session; ends of sessions are also reported immediately.
RECHECK_S = 60.0
#: Our close code, after which the page opens the sign-in.
SIGNED_OUT = 4401


class LiveConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]
    """One open page. Messages of the client are ignored."""

    groups: list[str] = []
    _checks: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Accept a user with a role; reject all others before the socket opens."""
        user = self.scope["user"]
        if not await database_sync_to_async(access.may_view)(user):
            await self.close()
            return
        self.user_id, self.session_key = user.pk, self.scope["session"].session_key
        self.session = session_name(self.session_key)
        self.clusters = await database_sync_to_async(cluster_limits.clusters_now)(self.user_id)
        await self.channel_layer.group_add(GROUP, self.channel_name)
        await self.accept()
        self._checks = asyncio.create_task(self._check_regularly())

    async def disconnect(self, code: int) -> None:
        if self._checks is not None:
            self._checks.cancel()
        await self.channel_layer.group_discard(GROUP, self.channel_name)

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any
    ) -> None:
        """Ignore messages of clients, because their requests use HTTP."""

    async def bell(self, bell: Bell) -> None:
        if self.clusters is None or bell["cluster"] in self.clusters:
            await self.send_json({key: value for key, value in bell.items() if key != "type"})

    async def session_check(self, check: SessionCheck) -> None:
        is_mine = check["user"] in (None, self.user_id)
        if check["session"] == self.session or (not check["session"] and is_mine):
            await self._close_if_ended()

    async def _check_regularly(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            await self._close_if_ended()

    async def _close_if_ended(self) -> None:
        try:
            may_stay = await database_sync_to_async(live_sessions.may_stay)(self.session_key)
            self.clusters = await database_sync_to_async(cluster_limits.clusters_now)(self.user_id)
        except DatabaseError as error:
            log.warning("a live socket stays open, its session cannot be checked: %s", log_line(error))
            return
        if not may_stay:
            # Two concurrent checks may both find the end of the session.
            with suppress(RuntimeError):
                await self.close(code=SIGNED_OUT)
