"""Proves on real queries of Spark that purge all the time: no poll reports a damaged checkpoint, none flaps.

A run of `make soak` polls 60,000 times for each number of batches kept and each store; FENCELINE_POLLS
changes that.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.queries import DEADLINE_S, noop, numbers, settings
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.soak]

POLLS = int(os.environ.get("FENCELINE_POLLS", "60000"))
RETAIN = "spark.sql.streaming.minBatchesToRetain"
#: Seconds that a store takes for each file, and how many collectors poll it at once.
STORES = {"local": (0.0, 1), "1 ms per stat": (0.001, 24)}


@pytest.mark.parametrize("retained", [2, 20, 100])
def test_no_poll_reports_a_purge_as_damage(spark: SparkSession, tmp_path: Path, retained: int) -> None:
    folder = tmp_path / "orders"
    with settings(spark, {RETAIN: str(retained)}):
        query = noop(numbers(spark, rows=1), folder).start()
    try:
        wait_for(lambda: purged(folder, retained), "the first batch is purged", DEADLINE_S)
        running = {name: poller(folder, *how) for name, how in STORES.items()}
        counts = {name: json.loads(process.communicate()[0]) for name, process in running.items()}
        assert query.exception() is None
    finally:
        query.stop()
    print(f"\n{retained} batches kept, {query.lastProgress['batchId']} run:", json.dumps(counts))
    for count in counts.values():
        assert (count.get("wrong", 0), count.get("flaps", 0), count.get("gone", 0)) == (0, 0, 0)
        # The polls met a query that went on.
        assert count["moved"] >= 3


def purged(folder: Path, retained: int) -> bool:
    """Whether the query has come so far that it purges with each batch."""
    logs = folder / "offsets"
    return logs.exists() and not (logs / "0").exists() and (folder / "commits" / str(retained)).exists()


def poller(folder: Path, stat_s: float, threads: int) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tests.spark.checkpoint_polls",
        str(folder),
        str(POLLS),
        str(stat_s),
        str(threads),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
