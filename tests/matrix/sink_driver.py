"""A driver for any Spark: `python -m tests.matrix.sink_driver BOOTSTRAP TOPIC CHECKPOINT ADAPTER SETTINGS`.

Runs a query twice, each time until two more batches are there. Needs PySpark and the sink, no more.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_pipeline.sink import ExactlyOnceKafkaSink, register
from tests.waiting import wait_for

ROWS = 300
HEADERS = "array(struct('n' AS key, cast('x' AS BINARY) AS value))"


def rows(spark: SparkSession) -> DataFrame:
    """Return numbers as key and value, with a header for each second one and a timestamp."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    return (
        source.option("numPartitions", 2)
        .load()
        .selectExpr(
            "cast(value as string) AS key",
            "cast(value as string) AS value",
            f"CASE WHEN value % 2 = 0 THEN {HEADERS} END AS headers",
            # Of now: the topic's retention deletes records that are much older.
            "current_timestamp() AS timestamp",
        )
    )


def start(spark: SparkSession, bootstrap: str, topic: str, checkpoint: str, adapter: str) -> StreamingQuery:
    """Start the query through one of the adapters."""
    writer = rows(spark).writeStream.queryName(topic).option("checkpointLocation", checkpoint)
    options = {"kafka.bootstrap.servers": bootstrap}
    if adapter == "foreach_batch":
        return writer.foreachBatch(
            ExactlyOnceKafkaSink(checkpoint=checkpoint, topic=topic, options=options)
        ).start()
    register(spark)
    return writer.format("kafka_exactly_once").option("topic", topic).options(**options).start()


def main(bootstrap: str, topic: str, checkpoint: str, adapter: str, settings: str) -> None:
    """Run it twice; a run that fails raises."""
    spark = SparkSession.builder.appName(topic).config(map=json.loads(settings)).getOrCreate()
    for last in (1, 3):
        query = start(spark, bootstrap, topic, checkpoint, adapter)
        run_until(query, Path(checkpoint) / "commits" / str(last))
    spark.stop()


def run_until(query: StreamingQuery, commit: Path) -> None:
    """Let a query run until a batch is committed, and stop it; raise what it fails with."""
    wait_for(lambda: commit.exists() or query.exception(), f"{commit} is there", 300)
    if (failed := query.exception()) is not None:
        raise failed
    query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
