"""The listener that a Spark driver attaches, in one line:

    spark.streams.addListener(FencelineListener("https://fenceline.example", "env:FENCELINE_TOKEN"))

A callback appends its event to the spool and returns; a separate thread delivers. So a query never waits for
Fenceline, and no event is lost during an outage of Fenceline or a restart of the driver.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_listener.emit import Emitter, Pace
from spark_listener.spool import MOST_BYTES, Spool

VERSION = "1.0.0"
_ADDRESS = "/ingest/v1/progress"
#: Maximum delay of a driver's end.
_LAST_FLUSH_S = 2.0
#: Maximum characters of an exception: its text repeats the stack, and the beginning is enough.
_LONGEST_EXCEPTION = 20_000
#: Maximum queries with run facts, more than any driver runs; further queries are reported by events only.
_MOST_ALIVE = 500

#: A streaming source's class in Spark's plan, and the option of its isolation level with Spark's default.
_SOURCE, _ISOLATION = "StreamingRelationV2", "kafka.isolation.level"
_UNCOMMITTED = "read_uncommitted"

log = logging.getLogger("spark_listener")


class RunFacts(NamedTuple):
    """Facts about a run that neither events nor checkpoint files have; None if unknown."""

    #: Whether the run tracks its progress asynchronously.
    asynchronous: bool | None = None
    #: The weakest `kafka.isolation.level` of its sources.
    isolation: str | None = None


class FencelineListener(StreamingQueryListener):
    """Reports the starts, batches, idle times and ends of all queries of a session to Fenceline.

    `url` is Fenceline's own, by default the environment's FENCELINE_URL. `token` is of the role ingest:
    itself, `env:NAME` or `file:PATH` (read anew for each post), by default FENCELINE_TOKEN's. `cluster` is
    the Kafka cluster's name in Fenceline's configuration; it may stay out where there is only one. `spool`
    is the folder in which events wait, `spool_mb` how much of it this driver may fill, compressed.

    Raises ValueError for a URL or token that cannot be one; its callbacks never raise.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        cluster: str | None = None,
        spool: str | os.PathLike[str] | None = None,
        spool_mb: float = MOST_BYTES / 2**20,
        pace: Pace | None = None,
    ) -> None:
        self._arguments = {
            "url": url, "token": token, "cluster": cluster, "spool": spool, "spool_mb": spool_mb, "pace": pace
        }  # fmt: skip
        address = _address(url or os.environ.get("FENCELINE_URL", ""))
        root = Path(spool) if spool else _default_spool()
        about = {"cluster": cluster, "listener": VERSION, "spark": pyspark.__version__}
        most_bytes = int(spool_mb * 2**20)
        self._alive: dict[str, str] = {}
        #: By run id.
        self._facts: dict[str, RunFacts] = {}
        self._failed = False
        self._pid = os.getpid()
        self._spool = Spool(root, about, most_bytes)
        self._emitter = Emitter(
            address, token or _default_token(), self._spool, root, most_bytes, about, self._running,
            pace or Pace(),
        )  # fmt: skip
        self._emitter.start()
        atexit.register(self.close)

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark Connect 3.5 sends the listener to a worker of the server, which makes it anew.
        return _made, (self._arguments,)

    def onQueryStarted(self, event: Any) -> None:
        self._emit("started", event, {"name": getattr(event, "name", None)}, ends=False)

    def onQueryProgress(self, event: Any) -> None:
        at_ms = time.time_ns() // 1_000_000
        try:
            progress = event.progress
            text = progress.json.replace("\n", " ")
            self._alive[str(progress.runId)] = str(progress.id)
            facts = self._run_facts(str(progress.id), str(progress.runId))
            head = json.dumps({"kind": "progress", **facts._asdict()})[1:-1]
            self._spool.append(f'{head}, "progress":{text}}}'.encode(), at_ms)
        except Exception as error:  # no error of ours may reach Spark's listener bus
            self._warn(error)

    def onQueryIdle(self, event: Any) -> None:
        self._emit("idle", event, {}, ends=False)

    def onQueryTerminated(self, event: Any) -> None:
        """Report the end of a run, and deliver at once: the driver may end too."""
        try:
            exception = event.exception and event.exception[:_LONGEST_EXCEPTION]
            more = {"exception": exception, "errorClass": getattr(event, "errorClassOnException", None)}
        except Exception as error:
            self._warn(error)
            return
        self._emit("terminated", event, more, ends=True)
        self._emitter.wake()

    def close(self) -> None:
        """Deliver events for at most two seconds, and stop; undelivered events stay spooled."""
        if os.getpid() == self._pid:
            atexit.unregister(self.close)
            self._emitter.flush(_LAST_FLUSH_S)

    def _emit(self, kind: str, event: Any, more: dict[str, Any], *, ends: bool) -> None:
        at_ms = time.time_ns() // 1_000_000
        try:
            query, run = str(event.id), str(event.runId)
            document = {
                "kind": kind,
                "id": query,
                "runId": run,
                "timestamp": getattr(event, "timestamp", None),
                **self._run_facts(query, run)._asdict(),
            }
            if ends:
                self._alive.pop(run, None)
                self._facts.pop(run, None)
            else:
                self._alive[run] = query
            self._spool.append(json.dumps({**document, **more})[1:].encode(), at_ms)
        except Exception as error:
            self._warn(error)

    def _run_facts(self, query: str, run: str) -> RunFacts:
        """Return the facts about a run, read once; all are unknown under Spark Connect."""
        if run not in self._facts:
            self._facts[run] = _read_facts(query)
        return self._facts[run]

    def _running(self) -> list[list[str]]:
        """Return query id and run id of the running queries, as far as known."""
        if self._is_over():
            self._alive.clear()
        return [[query, run] for run, query in list(self._alive.items())[:_MOST_ALIVE]]

    def _is_over(self) -> bool:
        """Whether the session has stopped: listeners get no events for runs that end with it."""
        session = getattr(self, "_sparkSession", None)
        if session is not None:
            return bool(getattr(session, "is_stopped", False))
        # Only a session in this process has it, in every version.
        is_classic = hasattr(self, "_jlistenerobj") and hasattr(pyspark, "SparkContext")
        return is_classic and pyspark.SparkContext._active_spark_context is None

    def _warn(self, error: Exception) -> None:
        if not self._failed:
            log.warning("an event could not be reported to Fenceline: %s: %s", type(error).__name__, error)
        self._failed = True


def _read_facts(query: str) -> RunFacts:
    """Read the facts from the query's execution and its plan."""
    try:
        session: Any = SparkSession._instantiatedSession
        queries = session._jsparkSession.sharedState().activeStreamingQueries()
        execution = queries.get(session._jvm.java.util.UUID.fromString(query))
        if execution is None:
            return RunFacts()
        asynchronous = "Async" in str(execution.getClass().getSimpleName())
        return RunFacts(asynchronous, _isolation(execution.analyzedPlan().collectLeaves()))
    except Exception as error:  # internals of other Spark versions may differ: the facts are then unknown
        log.debug("what runs query %s is not known: %s", query, error)
        return RunFacts()


def _isolation(leaves: Any) -> str | None:
    """Return the weakest isolation level of a plan's Kafka sources, None without any."""
    plans = [leaves.apply(number) for number in range(leaves.size())]
    sources = [plan for plan in plans if plan.nodeName() == _SOURCE and plan.sourceName() == "kafka"]
    levels = {str(source.extraOptions().get(_ISOLATION) or _UNCOMMITTED) for source in sources}
    return max(levels, key=_UNCOMMITTED.__eq__, default=None)


def _made(arguments: dict[str, Any]) -> FencelineListener:
    return FencelineListener(**arguments)


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"{url!r} is no URL of a Fenceline: give one as https://fenceline.example, or set FENCELINE_URL"
        )
    if parts.username or parts.query or parts.fragment:
        raise ValueError("the URL of Fenceline has no user, query or fragment; the token is its own argument")
    return url.rstrip("/").removesuffix(_ADDRESS) + _ADDRESS


def _default_token() -> str:
    if not os.environ.get("FENCELINE_TOKEN"):
        raise ValueError("give a token (manage.py create_token NAME --role ingest), or set FENCELINE_TOKEN")
    return "env:FENCELINE_TOKEN"


def _default_spool() -> Path:
    base = "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()  # noqa: S108
    folder = Path(base) / f"fenceline-spool-{os.getuid()}"
    with suppress(OSError):
        folder.mkdir(0o700, exist_ok=True)
        # Every user may make a folder there: events in another user's folder are not ours to deliver.
        if folder.stat().st_uid == os.getuid():
            return folder
    return Path(tempfile.mkdtemp(prefix="fenceline-spool-"))
