"""Change notifications: tell open pages that data changed, without its content.

A bell has no content, so it needs no permissions: the browser requests its page again over HTTP, with
sign-in, rendering and escaping. Bells may be lost; pages also poll slowly.
"""

import asyncio
import atexit
import hashlib
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from functools import cache
from typing import Literal, NotRequired, TypedDict

from channels.layers import BaseChannelLayer, get_channel_layer

#: The group of all signed-in pages.
GROUP = "live"
#: Maximum ids in a notification.
MOST_IDS = 50
#: Seconds that Redis may take for a notification.
_ANSWER_S = 1.0

Kind = Literal[
    "transactions", "transitions", "findings", "collectors", "partitions", "groups", "recoveries", "queries",
    "actions", "alerts", "incidents", "flink",
]  # fmt: skip
log = logging.getLogger(__name__)


class Bell(TypedDict):
    """The message on the wire; `type` names the consumer's method."""

    type: Literal["bell"]
    cluster: str
    kind: str
    rev: int
    ids: NotRequired[list[str]]


class SessionCheck(TypedDict):
    """A request to the sockets of a session, of a user, or to all, to check whether they may stay open."""

    type: Literal["session.check"]
    session: str
    user: int | None


class _Outage:
    """Logs the start and the end of an outage of notifications once."""

    def __init__(self) -> None:
        self.lasting = False

    def record_start(self, error: Exception) -> None:
        if not self.lasting:
            log.warning("open pages get no notifications of changes and poll instead: Redis: %s", error)
        self.lasting = True

    def record_end(self) -> None:
        if self.lasting:
            log.warning("Redis answers again: open pages get notifications of changes")
        self.lasting = False


_outage = _Outage()
_unsent: set[Future[None]] = set()


def notify_change(cluster: str, kind: str, rev: int, ids: Sequence[str] = ()) -> None:
    """Tell open pages that rows of `kind` changed in `cluster`, up to `rev`; call it after the commit.

    `ids` are transactional ids as escaped text; more than 50 are not sent. It neither waits nor raises: the
    next save begins at once, and succeeds while Redis is unreachable.
    """
    bell: Bell = {"type": "bell", "cluster": cluster, "kind": kind, "rev": rev}
    if 0 < len(ids) <= MOST_IDS:
        bell["ids"] = list(ids)
    _begin_to_send(bell)


def session_name(key: str) -> str:
    """Return a session's name on the wire, a hash: its key would let a reader sign in."""
    return hashlib.sha256(key.encode()).hexdigest()


def check_sessions(*, session: str = "", user: int | None = None) -> None:
    """Ask the sockets of a session (by its name), of a user, or all, to check whether they may stay open.

    It never raises: while Redis is unreachable every socket checks by itself within a minute.
    """
    _begin_to_send({"type": "session.check", "session": session, "user": user}).result()


@atexit.register
def wait_until_sent() -> None:
    """Wait until the messages of this process are sent, or have failed."""
    wait(set(_unsent), 2 * _ANSWER_S)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return an event loop on its own thread: the channel layer keeps one connection for each loop."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="notifications", daemon=True).start()
    return loop


def _begin_to_send(message: Bell | SessionCheck) -> Future[None]:
    sending = asyncio.run_coroutine_threadsafe(_send(get_channel_layer(), message), _loop())
    _unsent.add(sending)
    sending.add_done_callback(_unsent.discard)
    return sending


async def _send(layer: BaseChannelLayer, message: Bell | SessionCheck) -> None:
    try:
        await asyncio.wait_for(layer.group_send(GROUP, message), _ANSWER_S)
    except Exception as error:  # redis-py, the layer and asyncio raise different types for an outage
        _outage.record_start(error)
    else:
        _outage.record_end()
