"""ASGI entry: pages and the API over HTTP, doorbells over a WebSocket."""

import os

import django
from channels.auth import AuthMiddlewareStack
from channels.db import database_sync_to_async
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.urls import path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
django.setup(set_prefix=False)

# Imported after Django's setup, because they read models.
from dashboard.api.ingest import may_post  # noqa: E402
from dashboard.mcp.server import with_mcp  # noqa: E402
from dashboard.web.server.body_limits import BodyLimits, Lane  # noqa: E402
from dashboard.web.server.live_socket import LiveConsumer, same_origin_only  # noqa: E402
from dashboard.web.server.serving import RequestThreads, under_base_path, warm_up  # noqa: E402

http = BodyLimits(
    with_mcp(RequestThreads()),
    small=Lane(settings.DATA_UPLOAD_MAX_MEMORY_SIZE, most_held=8 * 2**20),
    ingest=Lane(settings.FILE_UPLOAD_MAX_MEMORY_SIZE, most_held=24 * 2**20),
    may_post=database_sync_to_async(may_post),
)

sockets = same_origin_only(AuthMiddlewareStack(URLRouter([path("ws/live", LiveConsumer.as_asgi())])))
application = under_base_path(ProtocolTypeRouter({"http": http, "websocket": sockets}), settings.BASE_PATH)
warm_up()
