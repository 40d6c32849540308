"""A driver of its own with a listener: `python -m tests.spark.listener_driver HOW URL TOKEN FOLDER SETTINGS`.

HOW is `classic` or `connect`, as its session is; SETTINGS are the session's, as JSON. It runs a query that
finishes batches and then has nothing to do, stops it, runs one that tracks its progress asynchronously and
one that fails, and ends like any program does, without saying goodbye to the listener. It needs nothing but
pyspark: it runs in every version of it.
"""

import json
import sys
import warnings
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_listener import FencelineListener
from tests.waiting import wait_for

DEADLINE_S = 120


def session(how: str, settings: dict[str, str]) -> SparkSession:
    """Return a session of that kind."""
    builder = SparkSession.builder.remote("local[2]") if how == "connect" else SparkSession.builder
    for key, value in settings.items():
        if how != "connect" or key != "spark.master":
            builder = builder.config(key, value)
    return builder.config("spark.sql.streaming.noDataProgressEventInterval", "200").getOrCreate()


def numbers(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a stream of the numbers in the files of a folder."""
    return spark.readStream.schema("n LONG").option("maxFilesPerTrigger", 1).json(str(folder))


def main(how: str, url: str, token: str, folder: Path, settings: dict[str, str]) -> None:
    """Run both queries and end."""
    # Connect starts its server with all settings, and then says of most that a session cannot change them.
    warnings.simplefilter("ignore", UserWarning)
    spark = session(how, settings)
    spark.streams.addListener(FencelineListener(url, token, cluster="prod", spool=folder / "spool"))
    files = folder / "files"
    files.mkdir()
    for number in range(3):
        (files / f"{number}.json").write_text(f'{{"n": {number}}}\n')
    good = numbers(spark, files).writeStream.queryName(f"good_{how}").format("noop")
    query = good.option("checkpointLocation", str(folder / "good")).start()
    wait_for(lambda: query.lastProgress and query.lastProgress["batchId"] >= 2, "three batches", DEADLINE_S)
    print("idle", flush=True)
    sys.stdin.readline()
    query.stop()
    tracked = numbers(spark, files).writeStream.queryName(f"tracked_{how}").format("noop")
    tracked = tracked.option("asyncProgressTrackingEnabled", "true")
    tracking = tracked.option("checkpointLocation", str(folder / "tracked")).start()
    wait_for(lambda: tracking.lastProgress, "a batch", DEADLINE_S)
    tracking.stop()
    broken = numbers(spark, files).select(f.raise_error(f.lit("it broke on purpose")))
    bad = broken.writeStream.queryName(f"bad_{how}").format("noop")
    failing = bad.option("checkpointLocation", str(folder / "bad")).start()
    wait_for(lambda: not failing.isActive, "it fails", DEADLINE_S)
    print("failed", flush=True)
    sys.stdin.readline()
    if how == "connect":
        # Its thread for listeners, whosever they are, keeps a program alive until its session is stopped.
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]), json.loads(sys.argv[5]))
