"""Celery: one queue per tail shard, one for waiting tasks, and a beat that restarts stopped collectors.

Messages are acknowledged early. With `acks_late`, a restart of Redis during a slice would end the worker, and
a message might run several times at once. The lease row recovers lost messages. A worker ends at each
exception in its loop that is no connection error, so kombu's transport for Redis and Celery's requests are
replaced (`install_transport`).
"""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any
from weakref import WeakSet

from celery import Celery
from celery.exceptions import CPendingDeprecationWarning
from celery.signals import worker_ready
from celery.worker import state
from django.conf import settings
from kombu import transport
from kombu.transport import redis
from redis.exceptions import ConnectionError

log = logging.getLogger(__name__)


class RedisChannel(redis.Channel):
    """Drops an unreadable message, with a line in the log: beat sends lost work again."""

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str | None, **options: Any
    ) -> Any:
        """Consume from a queue; a message that the callback refuses is acknowledged, and holds no slot."""

        def take(message: Any) -> Any:
            try:
                return callback(message)
            except Exception:
                if not message.acknowledged:
                    message.ack_log_error(log, self.connection.connection_errors)
                raise

        return super().basic_consume(queue, no_ack, take, consumer_tag, **options)

    def _connparams(self, asynchronous: bool = False) -> Any:
        """Return the connection's parameters; for a closed connection kombu fails with an AttributeError."""
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("the connection to Redis was lost, and closed")
        return super()._connparams(asynchronous)  # type: ignore[misc]

    def _brpop_read(self, **options: Any) -> Any:
        return self._guarded(lambda: super(RedisChannel, self)._brpop_read(**options))  # type: ignore[misc]

    def _receive_one(self, client: Any) -> Any:
        return self._guarded(lambda: super(RedisChannel, self)._receive_one(client))  # type: ignore[misc]

    def _guarded(self, read: Callable[[], Any]) -> Any:
        transport: Any = self.connection
        try:
            return read()
        except (Empty, *transport.connection_errors, *transport.channel_errors):
            raise
        except Exception as error:
            log.error("a message from Redis cannot be read, and is dropped: %r", error)
            raise Empty from None


class RedisTransport(redis.Transport):
    """Polls only for the newest connection.

    Kombu adds a callback to the event loop for each connection and removes none: a lost connection's callback
    polls channels that were not closed completely, and takes messages from the next connection.
    """

    Channel = RedisChannel

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Make the loop poll for this connection, in place of the previous one."""
        loop.on_tick -= getattr(loop, "redis_polls", set())
        others = set(loop.on_tick)
        super().register_with_event_loop(connection, loop)
        loop.redis_polls = loop.on_tick - others


class SharedRequests(WeakSet[Any]):
    """A worker's requests, which it iterates at each lost connection while threads add and discard some."""

    def __iter__(self) -> Iterator[Any]:
        references = self.data.copy()  # type: ignore[attr-defined]  # in one step, unlike to iterate it
        return iter([request for of in references if (request := of()) is not None])


def install_transport() -> None:
    """Make Celery use this transport for every Redis URL, and its thread-safe sets of requests."""
    for requests in state.active_requests, state.reserved_requests:
        # Celery's functions have these objects as default arguments.
        requests.__class__ = SharedRequests
    for scheme in "redis", "rediss":
        transport.TRANSPORT_ALIASES[scheme] = f"{__name__}:RedisTransport"


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
# `prepare` runs Django's checks: here they would import every page into each worker, a third of its start.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

#: Seconds between two checks for collectors without a worker.
RESTART_EVERY_S = 2.0
_EXPORT_EVERY_S = 30.0
_EXPORT = {
    "export-metrics": {
        "task": "dashboard.export_metrics",
        "schedule": _EXPORT_EVERY_S,
        "options": {"expires": _EXPORT_EVERY_S},
    }
}


def broker_url(redis_url: str) -> str:
    """Return REDIS_URL in kombu's spelling: redis-py's unix:// is redis+socket:// there."""
    if not redis_url.startswith("unix://"):
        return redis_url
    path, _, database = redis_url.removeprefix("unix://").partition("?db=")
    return f"redis+socket://{path}?virtual_host={database or 0}"


install_transport()
app = Celery("fenceline")
app.conf.update(
    broker_url=broker_url(settings.REDIS_URL),
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"visibility_timeout": 3600, "socket_keepalive": True},
    task_acks_late=False,
    task_reject_on_worker_lost=False,
    task_ignore_result=True,
    task_default_queue="default",
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_proc_alive_timeout=30,
    imports=("dashboard.tasks.schedule",),
    timezone="UTC",
    beat_schedule={
        "start-missing": {
            "task": "collectors.start_missing",
            "schedule": RESTART_EVERY_S,
            "options": {"expires": RESTART_EVERY_S},
        },
    }
    | (_EXPORT if settings.OTLP_ENDPOINT else {}),
)


@worker_ready.connect
def _quiet(**_: object) -> None:
    # At every loss of a connection it announces a new default of a setting that is set above. Filter it once
    # the worker is ready, since its own start turns these warnings on.
    warnings.simplefilter("ignore", CPendingDeprecationWarning)
