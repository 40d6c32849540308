"""Every kind of checkpoint that Spark 4.2 can write from Python, each made by a small query of real Spark.

A kind makes a checkpoint in a folder and returns the query's progress events as Spark's own JSON; those of
continuous processing, which has none, are empty but for the query's id.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fenceline.spark.restart_prediction import is_sparse
from tests.brokers import create_topics
from tests.spark.queries import (
    DEADLINE_S,
    PARTITIONS,
    ROCKSDB,
    STATE_FORMAT,
    STATE_STORE,
    counts,
    noop,
    numbers,
    ran_to,
    settings,
)
from tests.waiting import wait_for

Progress = list[Mapping[str, Any]]
OFFSETS_FORMAT = "spark.sql.streaming.offsetLog.formatVersion"
NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
NAMED_SINK = "spark.sql.streaming.queryEvolution.enableSinkEvolution"
REAL_TIME_BATCH = "spark.sql.streaming.realTimeMode.minBatchDuration"
TOPIC_PARTITIONS = 3


class Stage(NamedTuple):
    """Where kinds are played."""

    spark: SparkSession
    #: For the checkpoint, which does not exist yet; what else is needed goes beside it.
    folder: Path
    bootstrap: str


Kind = Callable[[Stage], Progress]


def version_1(stage: Stage) -> Progress:
    return ran_to(noop(numbers(stage.spark), stage.folder).start(), 2)


def version_2(stage: Stage) -> Progress:
    with settings(stage.spark, {OFFSETS_FORMAT: "2"}):
        return ran_to(noop(numbers(stage.spark), stage.folder).start(), 2)


def named_sources(stage: Stage) -> Progress:
    with settings(stage.spark, {OFFSETS_FORMAT: "2", NAMED_SOURCES: "true"}):
        both = numbers(stage.spark, "orders").union(numbers(stage.spark, "a_b", rows=7))
        return ran_to(noop(both, stage.folder).start(), 2)


def named_sink(stage: Stage) -> Progress:
    with settings(stage.spark, {NAMED_SINK: "true"}):
        writer = noop(numbers(stage.spark), stage.folder)
        # PySpark 4.2 has no DataStreamWriter.name yet.
        writer._jwrite = writer._jwrite.name("out")
        return ran_to(writer.start(), 1)


def no_offset_yet(stage: Stage) -> Progress:
    empty = stage.folder.with_name("empty")
    empty.mkdir()
    nothing = stage.spark.readStream.text(str(empty)).select(f.lit(0).cast("long").alias("value"))
    both = nothing.union(numbers(stage.spark).select("value"))
    return ran_to(noop(both, stage.folder).start(), 1)


def files(stage: Stage) -> Progress:
    source = stage.folder.with_name("source")
    source.mkdir()
    (source / "a.txt").write_text("x\ny\n")
    (source / "b.txt").write_text("z\n")
    lines = stage.spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
    return ran_to(noop(lines, stage.folder).start(), 1)


def rate(stage: Stage) -> Progress:
    ticks = stage.spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    return ran_to(noop(ticks, stage.folder).start(), 1)


def kafka(stage: Stage) -> Progress:
    return ran_to(noop(_records(stage), stage.folder).start(), 1)


def kafka_named(stage: Stage) -> Progress:
    with settings(stage.spark, {OFFSETS_FORMAT: "2", NAMED_SOURCES: "true"}):
        return ran_to(noop(_records(stage, "orders"), stage.folder).start(), 1)


def real_time(stage: Stage) -> Progress:
    out = f"real-time-{stage.folder.parent.name}"
    create_topics(stage.bootstrap, out, partitions=1)
    with settings(stage.spark, {REAL_TIME_BATCH: "1000"}):
        writer = (
            _records(stage, partitions=1).select("value").writeStream.format("kafka").outputMode("update")
        )
        writer = writer.option("kafka.bootstrap.servers", stage.bootstrap).option("topic", out)
        writer = writer.option("checkpointLocation", str(stage.folder))
        return ran_to(writer.trigger(realTime="2 seconds").start(), 1)


def watermark(stage: Stage) -> Progress:
    with settings(stage.spark, {PARTITIONS: "1"}):
        windows = _late(stage.spark).groupBy(f.window("timestamp", "10 seconds")).count()
        return ran_to(noop(windows, stage.folder).start(), 2)


def rocksdb(stage: Stage) -> Progress:
    with settings(stage.spark, {STATE_STORE: ROCKSDB, PARTITIONS: "1"}):
        return ran_to(noop(counts(numbers(stage.spark)), stage.folder, "update").start(), 1)


def state_format_2(stage: Stage) -> Progress:
    with settings(stage.spark, {STATE_STORE: ROCKSDB, STATE_FORMAT: "2", PARTITIONS: "2"}):
        return ran_to(noop(counts(numbers(stage.spark)), stage.folder, "update").start(), 1)


def join(stage: Stage) -> Progress:
    with settings(stage.spark, {PARTITIONS: "2"}):
        one, other = _late(stage.spark).alias("a"), _late(stage.spark).alias("b")
        pairs = one.join(other, f.expr("a.value = b.value AND a.timestamp = b.timestamp"))
        return ran_to(noop(pairs, stage.folder).start(), 1)


def deduplicated(stage: Stage) -> Progress:
    with settings(stage.spark, {PARTITIONS: "1"}):
        twice = numbers(stage.spark).dropDuplicates(["value"]).groupBy("value").count()
        return ran_to(noop(twice, stage.folder, "update").start(), 1)


def transform_with_state(stage: Stage) -> Progress:
    from tests.spark.stateful_query import count_by_key

    with settings(stage.spark, {STATE_STORE: ROCKSDB, PARTITIONS: "1"}):
        return ran_to(noop(count_by_key(numbers(stage.spark)), stage.folder, "update").start(), 1)


def async_progress(stage: Stage) -> Progress:
    options = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "400"}
    query = noop(numbers(stage.spark), stage.folder, **options).start()
    wait_for(lambda: is_sparse(_ids(stage.folder, "offsets"), []), "holes in the log", DEADLINE_S)
    return ran_to(query, _ids(stage.folder, "offsets")[-1])


def continuous(stage: Stage) -> Progress:
    ticks = stage.spark.readStream.format("rate").option("rowsPerSecond", 50).option("numPartitions", 1)
    query = noop(ticks.load(), stage.folder).trigger(continuous="200 milliseconds").start()
    wait_for((stage.folder / "commits" / "2").exists, "three epochs", DEADLINE_S)
    query.stop()
    return [{"id": query.id, "batchId": -1, "sources": [], "stateOperators": []}]


KINDS: Mapping[str, Kind] = {
    each.__name__.replace("_", " "): each
    for each in (
        version_1, version_2, named_sources, named_sink, no_offset_yet, files, rate, kafka, kafka_named,
        watermark, rocksdb, state_format_2, join, deduplicated, transform_with_state, async_progress,
        continuous, real_time,
    )
}  # fmt: skip


#: Those that take long and write no file of a kind that no other one writes.
LONG = ("kafka named", "rocksdb", "deduplicated", "real time")


def _late(spark: SparkSession) -> DataFrame:
    return numbers(spark).withWatermark("timestamp", "5 seconds")


def _records(stage: Stage, name: str = "", partitions: int = TOPIC_PARTITIONS) -> DataFrame:
    """Return a topic of 30 records, read 10 at a time."""
    topic = f"checkpoint-{stage.folder.parent.name}-{name}"
    create_topics(stage.bootstrap, topic, partitions=partitions)
    producer = Producer({"bootstrap.servers": stage.bootstrap})
    for number in range(30):
        producer.produce(topic, json.dumps(number), partition=number % partitions)
    producer.flush()
    reader = stage.spark.readStream.format("kafka").option("kafka.bootstrap.servers", stage.bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    # Real-time mode takes no limit, and one partition to a core.
    reader = reader.option("maxOffsetsPerTrigger", 10) if partitions > 1 else reader
    return (reader.name(name) if name else reader).load()


def _ids(folder: Path, log: str) -> list[int]:
    where = folder / log
    names = [file.name for file in where.iterdir()] if where.exists() else []
    return sorted(int(name) for name in names if name.isdigit())
