"""The demo's Spark: `python -m sandbox.demo_query BOOTSTRAP FOLDER JARS [OUTPUTS]`.

orders_enrich       reads committed orders, parses and enriches them, and writes `orders_enriched` exactly
                    once through the sink of spark_pipeline
orders_per_minute   with OUTPUTS: counts orders by country and minute, each order once, into its own topic

Both report every batch to Fenceline. With OUTPUTS the jobs of `audit.py` and `history.py` of `spark_pipeline`
run here as well, one after the other: `[audit]` and `[history]` of fenceline.toml name their output folder.
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from sandbox import clients
from sandbox.scenes import driver_crash
from spark_listener import FencelineListener
from spark_pipeline import audit, history
from spark_pipeline.sink import ExactlyOnceKafkaSink, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


NAME, COUNTS = "orders_enrich", "orders_per_minute"
ORDER = "order STRING, item STRING, quantity INT, price LONG, country STRING"
#: Frequent enough for a live page, rare enough for a small machine.
TRIGGER, COUNTS_TRIGGER = "3 seconds", "10 seconds"
#: The watermark's delay: how late an order may come and still count.
LATEST = "10 seconds"
#: How long a running batch may take to finish when the query stops.
LAST_BATCH_S = 5.0
LOGGING = Path(__file__).with_name("log4j2.properties")
#: Maximum orders per batch: a start after a long pause must not read an hour's orders at once.
MOST_OFFSETS = 5000
CLUSTER = "sandbox"
#: Seconds between two audits. The history runs with the first audit and then with every sixth.
AUDIT_EVERY_S = 20.0
HISTORY_ONE_IN = 6


def make_session(folder: Path, jars: str) -> SparkSession:
    """Return a small local session that listens only on the loopback and keeps its files in `folder`."""
    settings = {
        "spark.jars": jars,
        # Its ports require a secret that Spark generates: every user of the machine can reach them.
        "spark.authenticate": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "tmp"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    builder = SparkSession.builder.master("local[1]").appName("demo")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def read_orders(spark: SparkSession, bootstrap: str, query: str) -> DataFrame:
    """Return the committed orders as a stream."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.client.id", f"demo-{query.replace('_', '-')}")
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", MOST_OFFSETS)
        # The sandbox retains an hour: at a start on the next day the old offsets are deleted.
        .option("failOnDataLoss", "false")
        .load()
    )


def enrich_orders(rows: DataFrame) -> DataFrame:
    """Return key and value for the sink: the order with its total, its size and its origin.

    It drops no record, not even those of scenes, so that the audit can prove it by counts.
    """
    parsed = f.from_json(f.col("value").cast("string"), ORDER).alias("o")
    order = rows.select(parsed, "partition", "offset", "timestamp")
    total = f.col("o.quantity") * f.col("o.price")
    enriched = f.struct(
        f.lit(True).alias("demo"),
        "o.*",
        total.alias("total"),
        f.when(total >= 20_000, "large").otherwise("small").alias("size"),
        f.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("ordered_at"),
        f.concat_ws("-", f.lit("orders"), "partition", "offset").alias("source"),
    )
    return order.select(f.col("o.order").alias("key"), f.to_json(enriched).alias("value"))


def count_orders(rows: DataFrame) -> DataFrame:
    """Return key and value for the sink: number and total of the orders by country and minute."""
    order = rows.select(f.from_json(f.col("value").cast("string"), ORDER).alias("o"), "timestamp")
    once = order.where("o.order IS NOT NULL").select("o.*", "timestamp").withWatermark("timestamp", LATEST)
    counted = (
        once.dropDuplicatesWithinWatermark(["order"])
        .groupBy(f.window("timestamp", "1 minute"), "country")
        .agg(f.count("*").alias("orders"), f.sum(f.col("quantity") * f.col("price")).alias("total"))
    )
    value = f.struct(
        f.lit(True).alias("demo"), f.col("window.start").alias("minute"), "country", "orders", "total"
    )
    return counted.select(f.col("country").alias("key"), f.to_json(value).alias("value"))


def start_enriching(rows: DataFrame, bootstrap: str, folder: Path) -> StreamingQuery:
    """Start orders_enrich; its checkpoint is in `folder/checkpoints`."""

    def watch(step: Step, batch: int) -> None:
        if step is Step.PREPARED:
            driver_crash.die_if_wished(folder, batch)

    return _start(
        NAME, enrich_orders(rows), bootstrap, folder, TRIGGER, topic="orders_enriched", on_step=watch
    )


def start_counting(rows: DataFrame, bootstrap: str, folder: Path) -> StreamingQuery:
    """Start orders_per_minute; its checkpoint is in `folder/checkpoints`."""
    return _start(COUNTS, count_orders(rows), bootstrap, folder, COUNTS_TRIGGER, topic=COUNTS)


def _start(
    name: str, rows: DataFrame, bootstrap: str, folder: Path, trigger: str, **sink_options: Any
) -> StreamingQuery:
    checkpoint, client = str(folder / "checkpoints" / name), f"demo-{name.replace('_', '-')}"
    sink = ExactlyOnceKafkaSink(
        checkpoint=checkpoint,
        options={"kafka.bootstrap.servers": bootstrap, "kafka.client.id": client},
        prefix=client,
        **sink_options,
    )
    writer = rows.writeStream.queryName(name).foreachBatch(sink).option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime=trigger).start()


def await_end(spark: SparkSession, queries: Sequence[StreamingQuery], stop: threading.Event) -> None:
    """Wait until `stop` is set. Raises StreamingQueryException when a query fails."""
    reported = False
    while not stop.wait(1):
        for query in queries:
            if not query.isActive:
                query.awaitTermination()
                return
        if not reported and queries[0].lastProgress:
            print(f"demo: {NAME} finished its first batch", flush=True)
            reported = True
    # A stop during a batch would fail it, with pages of meaningless stack traces.
    until = time.monotonic() + LAST_BATCH_S
    while any(query.status["isTriggerActive"] for query in queries) and time.monotonic() < until:
        time.sleep(0.02)
    spark.sparkContext.setLogLevel("OFF")
    for query in queries:
        query.stop()


def start_all(
    spark: SparkSession, bootstrap: str, folder: Path, outputs: Path | None, stop: threading.Event
) -> Sequence[StreamingQuery]:
    queries = [start_enriching(read_orders(spark, bootstrap, NAME), bootstrap, folder)]
    if outputs is not None:
        queries.append(start_counting(read_orders(spark, bootstrap, COUNTS), bootstrap, folder))
        checkpoints = folder / "checkpoints"
        DemoJobs(spark, bootstrap, checkpoints / NAME, outputs, stop).start()
    return queries


class DemoJobs:
    """Runs the jobs in a thread until `stop` is set: `checkpoint` is audited."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        checkpoint: Path,
        outputs: Path,
        stop: threading.Event,
    ) -> None:
        # A separate session: the history job changes settings that the demo's queries must not have.
        self._spark, self._stop = spark.newSession(), stop
        self._bootstrap, self._outputs = bootstrap, outputs
        self._checkpoint = checkpoint

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name="jobs", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.wait(AUDIT_EVERY_S):
                return
            self._try("audit", self._audit)
            if number % HISTORY_ONE_IN == 0:
                self._try("history", self._history)

    def _try(self, name: str, job: Callable[[], str]) -> None:
        try:
            print(f"demo: {name}: {job()}", flush=True)
        except Exception as error:
            # The job runs again: its unpublished output does not count.
            if not self._stop.is_set():
                print(f"demo: {name} failed: {str(error).splitlines()[0]}", flush=True)

    def _audit(self) -> str:
        arguments = [
            *self._common(),
            "--pipeline",
            self._checkpoint.name,
            "--checkpoint",
            str(self._checkpoint),
        ]
        return audit.run_audit(self._spark, audit.argument_parser().parse_args(arguments))

    def _history(self) -> str:
        arguments = [*self._common(), "--checkpoint", str(self._outputs / "history-checkpoint")]
        return history.run_history(self._spark, history.argument_parser().parse_args(arguments))

    def _common(self) -> list[str]:
        return [
            "--bootstrap-servers", self._bootstrap, "--cluster", CLUSTER,
            "--kafka", "client.id=demo-jobs", "--output", str(self._outputs),
        ]  # fmt: skip


def main(bootstrap: str, folder: Path, jars: str, outputs: Path | None = None) -> int:
    """Run the queries until SIGTERM or SIGINT; return the exit status."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=stop.set).start()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    if stop.wait(driver_crash.away_s(folder)):
        return 0
    driver_crash.come_back(folder)
    clients.ensure_topics(bootstrap)
    spark = make_session(folder, jars)
    spark.streams.addListener(FencelineListener(spool=str(folder / "spool")))
    try:
        await_end(spark, start_all(spark, bootstrap, folder, outputs, stop), stop)
    except PySparkException as error:
        print(f"demo: a query failed: {str(error).splitlines()[0]}", flush=True)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], *map(Path, sys.argv[4:])))
