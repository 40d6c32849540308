"""Let queries of several kinds run on a real Spark and a real broker, and keep what their listener is told.

    python -m tests.data.capture_progress

Writes `progress/spark-VERSION.jsonl`: one object per line, {"query": a word for its kind, "progress": Spark's
own JSON}, two batches with data of each.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import DataStreamWriter

from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.group_commits import write_records
from tests.spark.conftest import environment, settings
from tests.waiting import wait_for

FOLDER = Path(__file__).with_name("progress")
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def queries(spark: SparkSession, bootstrap: str) -> Iterator[tuple[str, DataStreamWriter]]:
    """Yield a word for each kind of query, and what starts it."""
    orders = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 6)
        .load()
    )
    kafka = orders.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    yield "kafka", kafka.option("topic", "copied")
    counts = (
        orders.withWatermark("timestamp", "10 seconds").groupBy(f.window("timestamp", "1 second")).count()
    )
    yield "stateful", counts.writeStream.outputMode("update").format("noop")
    # What nobody reads is not counted either.
    yield "each", _rate(spark).writeStream.foreachBatch(lambda rows, batch_id: rows.count())
    yield "rocksdb", _rate(spark).groupBy("value").count().writeStream.outputMode("update").format("noop")
    joined = _rate(spark).withColumnRenamed("timestamp", "at").join(_rate(spark), "value")
    yield "join", joined.writeStream.format("noop")


def _rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()


def told(writer: DataStreamWriter, folder: Path) -> Iterator[Any]:
    """Run a query for two batches with data; yield their progress."""
    query = writer.option("checkpointLocation", str(folder)).start()
    try:
        wait_for(lambda: _with_data(query.recentProgress)[1:], "two batches", 120)
        yield from _with_data(query.recentProgress)[:2]
    finally:
        query.stop()


def _with_data(progress: list[Any]) -> list[Any]:
    return [each for each in progress if each.numInputRows]


def main(folder: Path) -> None:
    """Capture everything into the file of this version of Spark."""
    os.environ.update(environment(folder))
    builder = SparkSession.builder.appName("capture")
    for key, value in settings(folder).items():
        builder = builder.config(key, value)
    with Broker(folder / "kafka") as broker:
        create_topics(broker.bootstrap, "orders", "copied")
        for _ in range(4):
            write_records(broker.bootstrap, "orders")
        spark = builder.getOrCreate()
        FOLDER.mkdir(exist_ok=True)
        with (FOLDER / f"spark-{pyspark.__version__}.jsonl").open("w") as file:
            for number, (kind, writer) in enumerate(queries(spark, broker.bootstrap)):
                if kind == "rocksdb":
                    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
                for each in told(writer.queryName(f"capture_{kind}"), folder / str(number)):
                    file.write(json.dumps({"query": kind, "progress": json.loads(each.json)}) + "\n")
        spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
