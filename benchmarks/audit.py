"""The audit by counts and by keys beside a plain Spark read of the same two topics, on local[2].

A query with the exactly-once sink copies records of 100 bytes from one topic to another in ten batches. Both
audits begin anew in each turn; the plain read takes each record of both topics and drops it. Turns alternate.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks.session import small_session
from sandbox.kafka import Broker
from spark_pipeline import audit
from spark_pipeline.sink import ExactlyOnceKafkaSink
from tests.brokers import create_topics

RECORDS, BATCHES, PARTITIONS, TURNS = 2_000_000, 10, 4, 3
SOURCE, TARGET = "bench-in", "bench-out"


def run() -> dict[str, object]:
    """Measure on a separate broker and session."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Broker(folder / "kafka") as broker, small_session(folder) as spark:
            create_topics(broker.bootstrap, SOURCE, TARGET, partitions=PARTITIONS)
            _produce(broker.bootstrap)
            _copy(spark, broker.bootstrap, folder)
            return _measure(spark, broker.bootstrap, folder)


def _produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1_000_000})
    for number in range(RECORDS):
        producer.produce(SOURCE, f"{number:x<92}", str(number), number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def _copy(spark: SparkSession, bootstrap: str, folder: Path) -> None:
    kafka = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.readStream.format("kafka").options(**kafka, subscribe=SOURCE, startingOffsets="earliest")
    rows = rows.option("maxOffsetsPerTrigger", RECORDS // BATCHES)
    sink = ExactlyOnceKafkaSink(checkpoint=str(folder / "checkpoint"), topic=TARGET, options=kafka)
    writer = rows.load().select("key", "value").writeStream.queryName("copy").foreachBatch(sink)
    checkpointed = writer.option("checkpointLocation", str(folder / "checkpoint"))
    checkpointed.trigger(availableNow=True).start().awaitTermination()


def _measure(spark: SparkSession, bootstrap: str, folder: Path) -> dict[str, object]:
    ways: dict[str, Callable[[int], None]] = {
        "plain read": lambda turn: _read(spark, bootstrap),
        "counts": lambda turn: _audit(spark, bootstrap, folder, f"counts-{turn}", "--one-to-one"),
        "keys": lambda turn: _audit(spark, bootstrap, folder, f"keys-{turn}", "--mode", "keys"),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS):
        for name, way in ways.items():
            began = time.monotonic()
            way(turn)
            took[name].append(time.monotonic() - began)
    medians = {name: median(durations) for name, durations in took.items()}
    return {
        **{f"{name}, records/s": round(2 * RECORDS / duration) for name, duration in medians.items()},
        "counts / plain read (>= 0.8)": round(medians["plain read"] / medians["counts"], 2),
        "keys / plain read": round(medians["plain read"] / medians["keys"], 2),
    }


def _read(spark: SparkSession, bootstrap: str) -> None:
    rows = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    rows.option("subscribe", f"{SOURCE},{TARGET}").load().write.format("noop").mode("append").save()


def _audit(spark: SparkSession, bootstrap: str, folder: Path, pipeline: str, *more: str) -> None:
    arguments = [
        "--bootstrap-servers", bootstrap, "--cluster", "bench", "--pipeline", pipeline,
        "--output", str(folder / "audits"), "--checkpoint", str(folder / "checkpoint"), *more,
    ]  # fmt: skip
    found = audit.run_audit(spark, audit.argument_parser().parse_args(arguments))
    assert "0 missing, 0 duplicated" in found, found
