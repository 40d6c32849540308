"""Spark's jobs on local[2]: the exactly-once sink beside Spark's own, and the audit beside a plain read.

The sink writes a million rows of 100 bytes a batch. Figures are medians of `addBatch`, which includes the
tasks and the commit: Spark's own sink (at least once) with its defaults and with our settings (linger 20 ms,
batches of 1 MB, all acknowledgements, no compression), our sink with the same settings, without partition
counts and with digests, and a noop sink. The sinks take turns, so that variations of the machine affect all
of them. The commit phase is the time between the last task's message and the ledger's done file.

The audit by counts and by keys is beside a plain Spark read of the same two topics. A query with the
exactly-once sink copies records of 100 bytes from one topic to another in ten batches. Both audits begin
anew in each turn; the plain read takes each record of both topics and drops it. Turns alternate.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sandbox.kafka import Broker
from spark_pipeline import audit
from spark_pipeline.sink import ExactlyOnceKafkaSink, Step
from tests.brokers import create_topics
from tests.spark.conftest import environment, settings
from tests.waiting import wait_for

ROWS, PARTITIONS, TASKS = 1_000_000, 4, 2
WARM_UP, MEASURED, SINK_TURNS = 1, 3, 2
SMALL_BATCHES, TRANSACTIONS = 200, 8
DEADLINE_S = 900.0
SAME = {
    "kafka.linger.ms": "20",
    "kafka.batch.size": "1000000",
    "kafka.acks": "all",
    "kafka.compression.type": "none",
}
RECORDS, BATCHES, AUDIT_TURNS = 2_000_000, 10, 3
SOURCE, TARGET = "bench-in", "bench-out"


@contextmanager
def _parts() -> Iterator[tuple[SparkSession, Broker, Path]]:
    """Run a session and a separate broker on a folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Broker(folder / "kafka") as broker, _small_session(folder) as spark:
            yield spark, broker, folder


@contextmanager
def _small_session(folder: Path) -> Iterator[SparkSession]:
    """Run a quiet session with its files in a folder, and the memory that a batch of a million rows needs."""
    os.environ.update(environment(folder))
    builder = SparkSession.builder.appName("bench")
    for key, value in (settings(folder) | {"spark.driver.memory": "2g"}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def run_sink() -> dict[str, object]:
    """Measure on a separate broker and session."""
    with _parts() as (spark, broker, folder):
        return _throughput(spark, broker, folder) | _commit_phase(spark, broker, folder)


def _throughput(spark: SparkSession, broker: Broker, folder: Path) -> dict[str, object]:
    sinks: dict[str, Callable[[DataStreamWriter, str, str], StreamingQuery]] = {
        "noop": lambda writer, topic, checkpoint: writer.format("noop").start(),
        "Spark's own, its defaults": lambda *of: _own(broker, {}, *of),
        "Spark's own, our settings": lambda *of: _own(broker, SAME, *of),
        "ours": lambda *of: _ours(broker, *of),
        "ours, no partition counts": lambda *of: _ours(broker, *of, partition_counts=False),
        "ours, digests": lambda *of: _ours(broker, *of, digests=True),
    }
    took: dict[str, list[float]] = {name: [] for name in sinks}
    for turn in range(SINK_TURNS):
        for number, (name, start) in enumerate(sinks.items()):
            topic = f"bench-{turn}-{number}"
            create_topics(broker.bootstrap, topic, partitions=PARTITIONS)
            writer = _rows(spark, ROWS, TASKS).writeStream.queryName(topic)
            checkpoint = str(folder / topic)
            query = start(writer.option("checkpointLocation", checkpoint), topic, checkpoint)
            took[name] += _batches(query, WARM_UP + MEASURED)[WARM_UP:]
    medians = {name: median(durations) for name, durations in took.items()}
    ours = medians["ours"]
    return {
        **{f"{name}, rows/s": round(ROWS / duration * 1000) for name, duration in medians.items()},
        "ours / its defaults (>= 1.5)": round(medians["Spark's own, its defaults"] / ours, 2),
        "ours / same settings (>= 0.9)": round(medians["Spark's own, our settings"] / ours, 2),
        "ours / no partition counts (>= 0.97)": round(medians["ours, no partition counts"] / ours, 3),
        "digests / ours (>= 0.97)": round(ours / medians["ours, digests"], 3),
    }


def _commit_phase(spark: SparkSession, broker: Broker, folder: Path) -> dict[str, object]:
    began: dict[int, float] = {}
    took: list[float] = []

    def note(step: Step, batch_id: int) -> None:
        if step is Step.WRITTEN:
            began[batch_id] = time.monotonic()
        elif step is Step.DONE:
            took.append((time.monotonic() - began[batch_id]) * 1000)

    create_topics(broker.bootstrap, topic := "bench-commit", partitions=TRANSACTIONS)
    checkpoint = str(folder / topic)
    sink = _sink(broker, topic, checkpoint, note)
    writer = _rows(spark, 8_000, TRANSACTIONS).writeStream.queryName(topic)
    _batches(writer.foreachBatch(sink).option("checkpointLocation", checkpoint).start(), SMALL_BATCHES)
    return {
        f"commit phase of {TRANSACTIONS} transactions, p50 ms": round(median(took[5:]), 1),
        f"commit phase of {TRANSACTIONS} transactions, p99 ms (<= 150)": round(
            quantiles(took[5:], n=100)[98], 1
        ),
        "cores": os.cpu_count(),
    }


def _rows(spark: SparkSession, rows: int, tasks: int) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    text = source.option("numPartitions", tasks).load()
    return text.selectExpr("rpad(cast(value AS STRING), 100, 'x') AS value")


def _own(
    broker: Broker, settings: dict[str, str], writer: DataStreamWriter, topic: str, checkpoint: str
) -> StreamingQuery:
    named = writer.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic)
    return named.options(**settings).start()


def _ours(
    broker: Broker, writer: DataStreamWriter, topic: str, checkpoint: str, **settings: bool
) -> StreamingQuery:
    return writer.foreachBatch(_sink(broker, topic, checkpoint, **settings)).start()


def _sink(
    broker: Broker,
    topic: str,
    checkpoint: str,
    on_step: Callable[[Step, int], None] | None = None,
    **settings: bool,
) -> ExactlyOnceKafkaSink:
    options = {"kafka.bootstrap.servers": broker.bootstrap, **SAME}
    return ExactlyOnceKafkaSink(
        checkpoint=checkpoint, options=options, topic=topic, on_step=on_step, **settings
    )


def _batches(query: StreamingQuery, number: int) -> list[float]:
    """Return the milliseconds of `addBatch` of the first batches of a query, and stop it."""
    took: dict[int, float] = {}

    def enough() -> bool:
        if (failed := query.exception()) is not None:
            raise failed
        took.update(
            (progress["batchId"], progress["durationMs"]["addBatch"]) for progress in query.recentProgress
        )
        return len(took) >= number

    try:
        wait_for(enough, f"{number} batches of {query.name}", DEADLINE_S)
    finally:
        query.stop()
    return [took[batch_id] for batch_id in sorted(took)][:number]


def run_audit() -> dict[str, object]:
    """Measure on a separate broker and session."""
    with _parts() as (spark, broker, folder):
        create_topics(broker.bootstrap, SOURCE, TARGET, partitions=PARTITIONS)
        _produce(broker.bootstrap)
        _copy(spark, broker.bootstrap, folder)
        return _audits(spark, broker.bootstrap, folder)


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


def _audits(spark: SparkSession, bootstrap: str, folder: Path) -> dict[str, object]:
    ways: dict[str, Callable[[int], None]] = {
        "plain read": lambda turn: _read(spark, bootstrap),
        "counts": lambda turn: _audit(spark, bootstrap, folder, f"counts-{turn}", "--one-to-one"),
        "keys": lambda turn: _audit(spark, bootstrap, folder, f"keys-{turn}", "--mode", "keys"),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(AUDIT_TURNS):
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
