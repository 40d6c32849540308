"""Kombu's transport for Redis, and Celery's requests, without the errors that end a worker: see `install`.

A worker ends at each exception in its loop that is no connection error.
"""

import logging
from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any
from weakref import WeakSet

from celery.worker import state
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


def install() -> None:
    """Make Celery use this transport for every Redis URL, and its thread-safe sets of requests."""
    for requests in state.active_requests, state.reserved_requests:
        # Celery's functions have these objects as default arguments.
        requests.__class__ = SharedRequests
    for scheme in "redis", "rediss":
        transport.TRANSPORT_ALIASES[scheme] = f"{__name__}:RedisTransport"
