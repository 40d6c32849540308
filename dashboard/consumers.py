"""The live socket: forwards doorbells to signed-in pages, and does nothing else."""

from __future__ import annotations

import time
from typing import Any

from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.contrib.auth import get_user_model

from dashboard.live import GROUP, Bell

#: Seconds for which a check that the user may still sign in holds.
RECHECK_S = 60.0
#: Our close code: the page answers it by going to the sign-in.
SIGNED_OUT = 4401


class LiveConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]
    """One open page. What a client sends is ignored."""

    groups: list[str] = []

    async def connect(self) -> None:
        """Accept a signed-in user; turn anyone else away before the socket opens."""
        self.user = self.scope["user"]
        if not self.user.is_authenticated:
            await self.close()
            return
        self.checked = time.monotonic()
        await self.channel_layer.group_add(GROUP, self.channel_name)
        await self.accept()

    async def disconnect(self, code: int) -> None:
        """Leave the group."""
        await self.channel_layer.group_discard(GROUP, self.channel_name)

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any
    ) -> None:
        """Ignore what a client says: everything it may ask for, it asks over HTTP."""

    async def bell(self, bell: Bell) -> None:
        """Forward a bell, while the user may still see pages."""
        if await self._may_listen():
            await self.send_json({key: value for key, value in bell.items() if key != "type"})
        else:
            await self.close(code=SIGNED_OUT)

    async def _may_listen(self) -> bool:
        if time.monotonic() - self.checked < RECHECK_S:
            return True
        self.checked = time.monotonic()
        return await get_user_model().objects.filter(pk=self.user.pk, is_active=True).aexists()
