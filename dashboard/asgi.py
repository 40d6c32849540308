"""ASGI entry: pages and the API over HTTP, doorbells over a WebSocket."""

from __future__ import annotations

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application
from django.urls import path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
http = get_asgi_application()

# Imported after Django is set up: the consumer reads models.
from dashboard.consumers import LiveConsumer  # noqa: E402

sockets = AllowedHostsOriginValidator(
    AuthMiddlewareStack(URLRouter([path("ws/live", LiveConsumer.as_asgi())]))
)
application = ProtocolTypeRouter({"http": http, "websocket": sockets})
