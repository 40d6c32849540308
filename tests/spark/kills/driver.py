"""A driver that is to be killed: `python -m tests.spark.kills.driver FOLDER`.

It starts its session at once and waits for the path of its run on stdin, so that one may be ready while
another one is killed. Everything that happens goes to the run's events.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener

from spark_pipeline.sink import ExactlyOnceKafkaSink, register
from tests.spark.conftest import LOGGING, settings
from tests.spark.kills.driver_run import DriverRun, Point, passing

#: The smallest collector of garbage: it starts quickest.
JVM = f"-XX:+UseSerialGC -Dlog4j2.configurationFile={LOGGING.as_uri()}"
#: How many keys the running count knows.
GROUPS = 20


def start_session(folder: Path, more: dict[str, str]) -> SparkSession:
    """Return a small session; a task may fail three times."""
    builder = SparkSession.builder.appName("kills")
    own = {
        "spark.master": "local[2,4]",
        "spark.driver.extraJavaOptions": JVM,
        "spark.driver.memory": "512m",
        # Small Arrow batches: a task passes rows on before it has all of them.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    return builder.config(map={**settings(folder), **own, **more}).getOrCreate()


class Started(StreamingQueryListener):
    """Records when the query's started event came."""

    def __init__(self, run: DriverRun) -> None:
        self.run = run

    def onQueryStarted(self, event: Any) -> None:
        self.run.add_event("started")

    def onQueryProgress(self, event: Any) -> None:
        self.run.add_event("progress", batch=event.progress.batchId, rows=event.progress.numInputRows)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


def read(spark: SparkSession, run: DriverRun) -> DataFrame:
    """Return the input as it comes: its keys are numbers, each once."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", run.bootstrap)
        .option("subscribe", run.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", run.limit)
        .load()
        .select(f.col("key").cast("string").cast("long").alias("number"))
    )


def count(key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Count a group's rows: each update has a version, what it added and the sum, so that a hole shows.

    In append mode: Spark's data sources in Python take no other.
    """
    import pandas

    version, total = state.get if state.exists else (0, 0)
    added = sum(len(frame) for frame in frames)
    state.update((version + 1, total + added))
    value = f"{version + 1} {added} {total + added}"
    yield pandas.DataFrame({"key": [str(key[0])], "value": [value]})


def transformed(rows: DataFrame, run: DriverRun) -> DataFrame:
    """Return key and value for the sink: a figure per number, or a running count per group."""
    if run.stateful:
        rows = (
            rows.withColumn("group", f.col("number") % GROUPS)
            .groupBy("group")
            .applyInPandasWithState(
                count, "key string, value string", "version long, total long", "append", "NoTimeout"
            )
        )
    else:
        rows = rows.selectExpr("string(number) AS key", "string(number * 7919 + 13) AS value")
    if run.point == Point.WRITING or run.fault:
        rows = rows.mapInArrow(passing(run), "key string, value string")
    return rows


def write(spark: SparkSession, rows: DataFrame, run: DriverRun) -> StreamingQuery:
    """Start the query through one of the sink's adapters."""
    writer = rows.writeStream.option("checkpointLocation", run.checkpoint).queryName("kills")
    if run.adapter == "foreach_batch":
        sink = ExactlyOnceKafkaSink(
            checkpoint=run.checkpoint,
            options={"kafka.bootstrap.servers": run.bootstrap},
            topic=run.target,
            prefix=run.prefix,
            transaction_timeout_ms=run.transaction_timeout_ms,
            on_step=run.on_step,
        )

        def called(rows: DataFrame, batch: int) -> None:
            run.add_event("called", batch=batch)
            sink(rows, batch)

        return writer.foreachBatch(called).start()
    register(spark)
    options = {
        "kafka.bootstrap.servers": run.bootstrap,
        "topic": run.target,
        "prefix": run.prefix,
        # It commits in a process of its own, which finds the run by its environment.
        "on_step": "tests.spark.kills.driver_run:on_step",
    }
    if run.transaction_timeout_ms:
        options["transaction_timeout_ms"] = str(run.transaction_timeout_ms)
    return writer.format("kafka_exactly_once").options(**options).start()


def run_query(spark: SparkSession, run: DriverRun) -> None:
    """Run the query until it dies, or until nothing is left to read where it is not to die."""
    spark.streams.addListener(Started(run))
    query = write(spark, transformed(read(spark, run), run), run)
    if run.point:
        query.awaitTermination()
    query.processAllAvailable()
    query.stop()
    run.add_event("finished")


def main(folder: Path, more: dict[str, str]) -> int:
    """Do the run whose file is named on stdin; return 1 when the query fails."""
    spark = start_session(folder, more)
    path = sys.stdin.readline().strip()
    if not path:
        return 0
    run = DriverRun.load(path)
    run.add_event("ready")
    try:
        run_query(spark, run)
    except Exception as error:
        run.add_event("failed", error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}))
