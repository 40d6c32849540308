"""A checkpoint that is damaged, and what Spark does when it starts on it again."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fenceline.spark.restart_prediction import Restart, predict_restart
from tests.spark.queries import DEADLINE_S, numbers, poll_checkpoint, remove
from tests.waiting import wait_for

ROWS = 5
Damage = Callable[[Path], None]


class Restarted(NamedTuple):
    """What Spark did."""

    #: The batches that it gave to its sink, in order.
    ran: list[int]
    #: The first progress event, where a batch was finished.
    first: dict[str, Any] | None
    #: The text of its failure, "" where it went on.
    failure: str
    query_id: str


def damaged(made: Path, folder: Path, damage: Damage) -> Path:
    """Return a copy of a checkpoint with that damage."""
    shutil.copytree(made, folder)
    damage(folder)
    return folder


def predicted(folder: Path) -> Restart:
    return predict_restart(poll_checkpoint(folder).checkpoint, alive=None)


def restarted(spark: SparkSession, folder: Path) -> Restarted:
    """Start a query on a checkpoint until it has finished a batch or failed."""
    ran: list[int] = []
    writer = numbers(spark, rows=ROWS).writeStream.foreachBatch(lambda rows, batch: ran.append(batch))
    try:
        query = writer.option("checkpointLocation", str(folder)).start()
    except Exception as failed:
        return Restarted(ran, None, str(failed), "")
    return watched(query, ran)


def watched(query: StreamingQuery, ran: list[int]) -> Restarted:
    wait_for(lambda: query.recentProgress or not query.isActive, "a batch or a failure", DEADLINE_S)
    first = next(iter(query.recentProgress), None)
    query.stop()
    failure = query.exception()
    return Restarted(ran, first, str(failure) if failure is not None else "", query.id)


def gone(*paths: str) -> Damage:
    return lambda folder: remove(folder, *paths)
