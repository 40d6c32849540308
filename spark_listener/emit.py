"""Deliver spooled events: a daemon thread posts batches of events to Fenceline and backs off.

Events stay spooled until Fenceline confirms them, also while it is unreachable, is overloaded or refuses our
token. An event that is too large for a post, or is refused alone, is dropped and counted.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import random
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

from spark_listener.spool import Spool, SpooledEvent, adopt_leftovers

#: The version of the posted document.
WIRE_VERSION = 1
_MOST_EVENTS = 500
_MOST_BYTES = 4 * 1024 * 1024
_MOST_ANSWER = 1024 * 1024
_LONGEST_WAIT_S = 300.0
_HINTS = {
    401: "Fenceline does not know the token: make one with `manage.py create_token NAME --role ingest`",
    403: "the token may not ingest: make one with `manage.py create_token NAME --role ingest`",
    404: "there is no Fenceline at this URL: give its own, as it stands in the browser, without a page",
    422: "the Kafka cluster of the queries is ambiguous: give cluster=",
}

log = logging.getLogger("spark_listener")


@dataclass(frozen=True)
class Pace:
    """The intervals between posts, in seconds."""

    every: float = 1.0
    #: The first and the longest pause while Fenceline is unreachable; while it refuses us, always the
    #: longest.
    first_pause: float = 1.0
    longest_pause: float = 15.0
    #: The pause while it refuses us for a reason that a person must repair.
    refused_pause: float = 30.0
    #: The limit for an answer.
    timeout: float = 10.0
    #: How often it searches for leftover spools of other drivers, and reports that its queries still run.
    adopt_every: float = 30.0
    alive_every: float = 5.0


class Answer(NamedTuple):
    status: int
    retry_after: str
    body: bytes


class Trouble(Exception):
    """A failed post: the reason, and how long to wait (None: the usual back-off).

    `refused`: a person must repair the cause. `too_large`: these events are the cause.
    """

    def __init__(
        self, why: str, pause: float | None = None, *, refused: bool = False, too_large: bool = False
    ) -> None:
        super().__init__(why)
        self.pause = pause
        self.refused = refused
        self.too_large = too_large


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is only for the configured server."""

    def redirect_request(self, *_: Any) -> None:
        return None


#: Honours the environment's proxies, as users expect of Python programs.
_opener = urllib.request.build_opener(_NoRedirect)


def read_secret(spec: str) -> str:
    """Return a secret from its text, from `env:NAME` or from `file:PATH`; raises `Trouble`."""
    kind, _, where = spec.partition(":")
    if kind == "env":
        value = os.environ.get(where, "")
    elif kind == "file":
        try:
            value = Path(where).read_text().strip()
        except (OSError, ValueError) as error:
            raise Trouble(f"the token cannot be read: {error}") from None
    else:
        value = spec
    if not value or not value.isascii() or not value.isprintable():
        raise Trouble(f"there is no token in {spec if kind in ('env', 'file') else 'what was given'}")
    return value


def post_document(url: str, token: str, body: bytes, timeout: float) -> Answer:
    """Post a compressed document; raises OSError, HTTPException or ValueError without an answer."""
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Content-Encoding": "gzip",
        "User-Agent": "fenceline-spark-listener",
    }
    data = gzip.compress(body, 5, mtime=0)
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - the listener takes http(s) alone
    try:
        with _opener.open(request, timeout=timeout) as answer:
            return Answer(answer.status, "", answer.read(_MOST_ANSWER))
    except HTTPError as error:
        with error:
            return Answer(error.code, error.headers.get("Retry-After", ""), error.read(_MOST_ANSWER))


@dataclass
class _SpoolReader:
    """Undelivered events read from a spool, and the size of one post."""

    spool: Spool
    events: list[SpooledEvent] = field(default_factory=list)
    most: int = _MOST_EVENTS
    given_up: int = 0
    #: The instant of the next attempt.
    rest_until: float = 0.0


class Emitter(threading.Thread):
    """Posts the events of `spool`, and of ended drivers' spools beside it."""

    def __init__(
        self, url: str, token: str, spool: Spool, root: Path, most_bytes: int, about: Mapping[str, Any],
        alive: Callable[[], list[list[str]]], pace: Pace,
    ) -> None:  # fmt: skip
        super().__init__(name="fenceline-listener", daemon=True)
        self._url, self._token = url, token
        self._root, self._most_bytes = root, most_bytes
        self._about, self._alive, self._pace = about, alive, pace
        self._own = _SpoolReader(spool)
        self._left: list[_SpoolReader] = []
        self._wake = threading.Event()
        self._stop_at: float | None = None
        self._pause = 0.0
        self._adopt_at = self._beat_at = 0.0
        self._trouble = ""

    def wake(self) -> None:
        """Post now, without waiting for the pause."""
        self._wake.set()

    def flush(self, seconds: float) -> None:
        """Try to deliver everything within a time, then stop."""
        self._stop_at = time.monotonic() + seconds
        self._wake.set()
        self.join(seconds)

    def run(self) -> None:
        """Post until it is stopped and no event is left, or the time is over."""
        while True:
            self._wake.wait(self._rest())
            self._wake.clear()
            stopping = self._stop_at is not None
            try:
                self._round()
            except Exception as error:  # any error: the driver's other work continues, and so must we
                self._failed(Trouble(f"{type(error).__name__}: {error}"))
            if stopping and (not self._pause or not self._rest()):
                break
        for reader in (self._own, *self._left):
            reader.spool.close()

    def _rest(self) -> float:
        """Return the seconds until the next round."""
        if self._stop_at is None:
            return self._pause or self._pace.every
        return max(0.0, min(self._pause, self._stop_at - time.monotonic()))

    def _round(self) -> None:
        """Deliver all events, the oldest first."""
        now = time.monotonic()
        if now >= self._adopt_at:
            self._left += [_SpoolReader(spool) for spool in adopt_leftovers(self._root)]
            self._adopt_at = now + self._pace.adopt_every
        self._make_room()
        try:
            for reader in [left for left in self._left if left.rest_until <= now]:
                self._deliver_left(reader)
            while self._deliver(self._own):
                pass
            self._beat()
        except Trouble as trouble:
            self._failed(trouble)
        else:
            self._recovered()

    def _beat(self) -> None:
        """Report that our queries run, unless a recent post has done so."""
        if time.monotonic() - self._beat_at >= self._pace.alive_every and self._alive():
            self._post(self._own, [])

    def _deliver_left(self, reader: _SpoolReader) -> None:
        """Deliver the leftover spool of an ended driver; a refusal of it does not concern our own events."""
        try:
            while self._deliver(reader):
                # Another driver's hour of events must not delay the report that our own queries run.
                self._beat()
        except Trouble as trouble:
            if not trouble.refused:
                raise
            reader.rest_until = time.monotonic() + self._pace.refused_pause
            return
        # An unreadable end is no reason to keep the spool.
        reader.spool.trim(0)
        reader.spool.close()
        self._left.remove(reader)

    def _make_room(self) -> None:
        """Limit leftovers to the space that our own events leave."""
        room = self._most_bytes - self._own.spool.size
        for reader in reversed(self._left):
            reader.spool.trim(max(0, room))
            room -= reader.spool.size

    def _deliver(self, reader: _SpoolReader) -> bool:
        """Post the next events of a spool; return whether it had any. Raises `Trouble`."""
        if not reader.events:
            reader.events = reader.spool.read(_MOST_EVENTS, _MOST_BYTES)
        part = reader.events[: reader.most]
        if not part:
            return False
        try:
            self._post(reader, part)
        except Trouble as trouble:
            if not trouble.too_large:
                raise
            if len(part) > 1:
                reader.most = len(part) // 2
                return True
            reader.given_up += 1
            log.warning("Fenceline does not take an event of %d bytes: %s", len(part[0].text), trouble)
        reader.spool.ack(part[-1])
        del reader.events[: len(part)]
        reader.most = min(_MOST_EVENTS, reader.most * 2)
        return True

    def _post(self, reader: _SpoolReader, events: list[SpooledEvent]) -> None:
        if self._stop_at is not None and time.monotonic() >= self._stop_at:
            raise Trouble("there is no more time", 0.001)
        body = self._document(reader, events)
        try:
            answer = post_document(self._url, read_secret(self._token), body, self._timeout())
        except (OSError, HTTPException, ValueError) as error:
            raise Trouble(f"Fenceline at {self._url} cannot be reached: {error}") from None
        self._check(answer)
        if reader is self._own:
            self._beat_at = time.monotonic()

    def _timeout(self) -> float:
        left = self._pace.timeout if self._stop_at is None else self._stop_at - time.monotonic()
        return max(0.05, min(self._pace.timeout, left))

    def _document(self, reader: _SpoolReader, events: list[SpooledEvent]) -> bytes:
        """Return the document to post. Events are embedded as they were written."""
        sent_ms = time.time_ns() // 1_000_000
        spool, own = reader.spool, reader is self._own
        report = {
            "dropped": spool.dropped + reader.given_up,
            "spooled": spool.waiting,
            "oldest_age_ms": max(0, sent_ms - events[0].at_ms) if events else None,
            "bytes": spool.size,
            "listener": self._about["listener"],
            "spark": spool.about.get("spark", ""),
            "alive": self._alive() if own else [],
            "heartbeat_every_ms": round(self._pace.alive_every * 1_000),
        }
        cluster = spool.about.get("cluster") or self._about["cluster"]
        head = {"v": WIRE_VERSION, "cluster": cluster, "sent_ms": sent_ms, "report": report}
        start = json.dumps(head).encode()[:-1]
        return b"".join((start, b', "events":[', b",".join(event.text for event in events), b"]}"))

    def _check(self, answer: Answer) -> None:
        """Raise `Trouble` unless Fenceline has confirmed the events."""
        if answer.status == 200 and (taken := _taken(answer.body)) is not None:
            for refusal in taken[:3]:
                log.warning("Fenceline cannot use an event: %s", refusal)
            return
        detail = _detail(answer.body)
        why = f"Fenceline at {self._url} answers {answer.status}{detail}"
        if answer.status == 413 or (answer.status == 400 and detail):
            raise Trouble(why, too_large=True)
        if answer.status == 429 or answer.status >= 500:
            raise Trouble(why, _seconds(answer.retry_after))
        hint = _HINTS.get(answer.status, "check the URL, and what stands between it and this driver")
        raise Trouble(f"{why}. {hint}", self._pace.refused_pause, refused=True)

    def _failed(self, trouble: Trouble) -> None:
        if trouble.pause is None:
            doubled = max(self._pace.first_pause, min(self._pause * 2, self._pace.longest_pause))
            # Jitter: many drivers must not retry at once.
            self._pause = doubled * random.uniform(0.75, 1.0)  # noqa: S311
        else:
            self._pause = trouble.pause
        # Each problem is logged once, not at each attempt.
        if not self._trouble and self._stop_at is None:
            log.warning("%s. Events are kept until it takes them (%s).", trouble, self._own.spool.place)
        self._trouble = str(trouble)

    def _recovered(self) -> None:
        if self._trouble:
            log.warning("Fenceline takes events again")
        self._trouble, self._pause = "", 0.0


def _taken(body: bytes) -> list[Any] | None:
    """Return the events that Fenceline refused; None if the answer is not Fenceline's."""
    try:
        answer = json.loads(body)
        return list(answer["refused"]) if isinstance(answer["accepted"], int) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _detail(body: bytes) -> str:
    """Return the detail of a problem (RFC 9457), "" for another answer."""
    try:
        return f": {str(json.loads(body)['detail'])[:500]}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""


def _seconds(retry_after: str) -> float | None:
    """Return the seconds in a Retry-After header, which has seconds or a date."""
    if not retry_after:
        return None
    try:
        wait = float(retry_after)
    except ValueError:
        try:
            wait = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except ValueError:
            return None
    return min(max(wait, 0.1), _LONGEST_WAIT_S)
