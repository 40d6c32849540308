"""The costs of the listener: its callback, the batches of a query with a listener, and the intake of its
events.

An hour of 10 batches a second of 50 queries goes through the callback while nobody listens, and then from the
spool into Fenceline's own web process on SQLite. As a process, `python -m benchmarks.listener FOLDER`, with
Spark's environment: three sessions of one Spark, without a listener, with an empty one and with ours, run the
same small batches in turns; it prints their durations, and our callback's, as JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from sandbox.options import ROOT
from spark_listener import FencelineListener
from spark_listener.emit import Pace
from tests.db.listener_posts import QUERY
from tests.spark.conftest import environment, settings
from tests.spark.listener.events import TOKEN, finished
from tests.spark.listener.servers import Dashboard
from tests.waiting import wait_for

EVENTS, QUERIES = 36_000, 50
ROUNDS, BATCHES = 6, 60
NOBODY = "http://127.0.0.1:1"


def run() -> dict[str, object]:
    """Measure the callback, the intake, and real batches."""
    with tempfile.TemporaryDirectory() as folder:
        return _spooled(Path(folder)) | _batches(Path(folder))


def _spooled(folder: Path) -> dict[str, object]:
    names = [f"{number:08}{QUERY[8:]}" for number in range(QUERIES)]
    events = [
        finished(number // QUERIES, query=names[number % QUERIES], run=names[number % QUERIES])
        for number in range(EVENTS)
    ]
    with Dashboard(folder) as dashboard:
        listener = FencelineListener(
            dashboard.url, TOKEN, spool=folder / "spool", pace=Pace(longest_pause=1.0)
        )
        figures = _callback(
            [_timed(listener.onQueryProgress, event) for event in events], "recorded, nobody up"
        )
        figures[f"spool of {EVENTS:,} events"] = f"{listener._spool.size / 1e6:.1f} MB"
        dashboard.start()
        begun = time.monotonic()
        listener._emitter.wake()
        wait_for(lambda: not listener._spool.waiting, "everything is taken in", 600)
        seconds = time.monotonic() - begun
        listener.close()
    return figures | {
        f"intake of {EVENTS:,} events, SQLite": f"{seconds:.1f} s, {EVENTS / seconds:,.0f} events/s"
    }


def _timed(call: Any, event: Any) -> float:
    begun = time.perf_counter()
    call(event)
    return time.perf_counter() - begun


def _callback(seconds: list[float], what: str) -> dict[str, object]:
    took = [duration_s * 1e3 for duration_s in (median(seconds), quantiles(seconds, n=100)[98], max(seconds))]
    return {f"callback, {what}": "p50 {:.3f} ms, p99 {:.3f} ms, longest {:.1f} ms".format(*took)}


def _batches(folder: Path) -> dict[str, object]:
    """Run the Spark part in a separate process, without other threads."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.listener", str(folder)],
        cwd=ROOT, env=os.environ | environment(folder), stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    without, empty, ours = (found[name] for name in ("without", "empty", "ours"))
    return {
        **_callback(found["callback"], "real Spark"),
        "batch without a listener": f"{without:.0f} ms",
        "batch with an empty listener": f"{empty:.0f} ms, {empty / without:.2f} ×",
        "batch with ours, nobody up": f"{ours:.0f} ms, {ours / without:.2f} ×",
        "batch with ours against an empty one": f"{ours / empty:.2f} ×",
    }


class _Empty(StreamingQueryListener):
    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


class _Timed(FencelineListener):
    """Our listener; it records the seconds of each callback."""

    seconds: list[float]

    def onQueryProgress(self, event: Any) -> None:
        self.seconds.append(_timed(super().onQueryProgress, event))


def _turn(spark: SparkSession, folder: Path) -> list[int]:
    """Run a query in this session; return the durations of its batches in ms, without the first ones."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    writer = rows.groupBy("value").count().writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(folder)).start()
    try:
        wait_for(lambda: (query.lastProgress or {"batchId": 0})["batchId"] >= BATCHES, "its batches", 600)
        return [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress][10:BATCHES]
    finally:
        query.stop()


def main(folder: Path) -> None:
    """Run the sessions in turns, with another order in each round."""
    builder = SparkSession.builder.appName("listener")
    for key, value in settings(folder).items():
        builder = builder.config(key, value)
    first = builder.getOrCreate()
    sessions = {"without": first, "empty": first.newSession(), "ours": first.newSession()}
    listener = _Timed(NOBODY, TOKEN, spool=folder / "spool")
    listener.seconds = []
    sessions["empty"].streams.addListener(_Empty())
    sessions["ours"].streams.addListener(listener)
    found: dict[str, list[int]] = {name: [] for name in sessions}
    for number in range(ROUNDS):
        names = list(sessions)
        for name in names[number % 3 :] + names[: number % 3]:
            found[name] += _turn(sessions[name], folder / f"{name}-{number}")
    print(
        json.dumps(
            {name: median(durations) for name, durations in found.items()} | {"callback": listener.seconds}
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
