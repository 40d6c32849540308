"""Change notifications: tell open pages that data changed, without its content.

A bell has no content, so it needs no permissions: the browser requests its page again over HTTP, with
sign-in, rendering and escaping. Bells may be lost; pages also poll slowly.
"""

import asyncio
import atexit
import hashlib
import logging
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cache
from typing import Literal, NotRequired, TypedDict

from channels.layers import get_channel_layer

#: The group of all signed-in pages.
GROUP = "live"
#: Maximum ids in a notification.
MOST_IDS = 50
#: Seconds that Redis may take for a notification.
_ANSWER_S = 1.0
#: Seconds after a notification in which later ones of its cluster and kind are merged into one. Pages ask for
#: news no more often, and for that of collectors once a second.
_REST_S, _COLLECTORS_REST_S = 0.07, 1.0

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


@dataclass(slots=True)
class _Rest:
    """The rest after a notification: the timer of its end, and the merged later notifications."""

    timer: asyncio.TimerHandle
    later: Bell | None = None


#: By cluster and kind; changed only in the thread of `_loop`.
_rests: dict[tuple[str, str], _Rest] = {}


def notify_change(cluster: str, kind: str, rev: int, ids: Sequence[str] = ()) -> None:
    """Tell open pages that rows of `kind` changed in `cluster`, up to `rev`; call it after the commit.

    `ids` are transactional ids as escaped text; more than 50 are not sent. It neither waits nor raises: the
    next save begins at once, and succeeds while Redis is unreachable. Changes of the next 70 ms are reported
    together.
    """
    bell: Bell = {"type": "bell", "cluster": cluster, "kind": kind, "rev": rev}
    if 0 < len(ids) <= MOST_IDS:
        bell["ids"] = list(ids)
    _begin(_ring(bell))


def session_name(key: str) -> str:
    """Return a session's name on the wire, a hash: its key would let a reader sign in."""
    return hashlib.sha256(key.encode()).hexdigest()


def check_sessions(*, session: str = "", user: int | None = None) -> None:
    """Ask the sockets of a session (by its name), of a user, or all, to check whether they may stay open.

    It never raises: while Redis is unreachable every socket checks by itself within a minute.
    """
    _begin(_send({"type": "session.check", "session": session, "user": user})).result()


@atexit.register
def wait_until_sent() -> None:
    """Wait until the messages of this process are sent, or have failed."""
    if _unsent or _rests:
        wait([_begin(_end_rests())], _ANSWER_S)
    wait(set(_unsent), 2 * _ANSWER_S)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return an event loop on its own thread: the channel layer keeps one connection for each loop."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="notifications", daemon=True).start()
    return loop


def _begin(sending: Coroutine[None, None, None]) -> Future[None]:
    future = asyncio.run_coroutine_threadsafe(sending, _loop())
    _unsent.add(future)
    future.add_done_callback(_unsent.discard)
    return future


async def _ring(bell: Bell) -> None:
    subject = bell["cluster"], bell["kind"]
    if rest := _rests.get(subject):
        rest.later = _merged(rest.later, bell)
        return
    rest_s = _COLLECTORS_REST_S if bell["kind"] == "collectors" else _REST_S
    _rests[subject] = _Rest(asyncio.get_running_loop().call_later(rest_s, _end_rest, subject))
    await _send(bell)


def _end_rest(subject: tuple[str, str]) -> None:
    rest = _rests.pop(subject)
    rest.timer.cancel()
    if rest.later is not None:
        _begin(_ring(rest.later))


async def _end_rests() -> None:
    for subject in [*_rests]:
        _end_rest(subject)


def _merged(before: Bell | None, bell: Bell) -> Bell:
    """Return one notification for two; without ids if one of them has none, or both together too many."""
    if before is None:
        return bell
    ids = {*before.get("ids", ()), *bell.get("ids", ())}
    merged: Bell = {**bell, "rev": max(before["rev"], bell["rev"])}
    if "ids" in before and "ids" in bell and len(ids) <= MOST_IDS:
        merged["ids"] = sorted(ids)
    else:
        merged.pop("ids", None)
    return merged


async def _send(message: Bell | SessionCheck) -> None:
    try:
        await asyncio.wait_for(get_channel_layer().group_send(GROUP, message), _ANSWER_S)
    except Exception as error:  # redis-py, the layer and asyncio raise different types for an outage
        _outage.record_start(error)
    else:
        _outage.record_end()
