"""The demo's Spark query: `python -m sandbox.demo_query BOOTSTRAP FOLDER JARS`.

orders_enrich reads committed orders, parses them, adds what a shop would want to know and writes
`orders_enriched` exactly once, through the sink of spark_pipeline. It reports every batch to Fenceline.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from sandbox import topics
from sandbox.scenes import driver_crash
from spark_listener import FencelineListener
from spark_pipeline.sink import ExactlyOnceKafkaSink, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "orders_enrich"
ORDER = "order STRING, item STRING, quantity INT, price LONG, country STRING"
#: Often enough to look alive, seldom enough to leave a small machine its cores.
TRIGGER = "3 seconds"
#: How long a batch may take to finish once the query is to stop.
LAST_BATCH_S = 5.0
LOGGING = Path(__file__).with_name("log4j2.properties")
#: So that a start after a long pause does not read an hour's orders in one batch.
MOST_OFFSETS = 5000


def make_session(folder: Path, jars: str) -> SparkSession:
    """Return a small local session that listens on the loopback only and keeps its files in `folder`."""
    settings = {
        "spark.jars": jars,
        # Its own ports ask for a secret, which Spark makes up: any user of the machine can reach them.
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


def read_orders(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Return the committed orders as they come."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.client.id", "demo-orders-enrich")
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", MOST_OFFSETS)
        # The sandbox keeps an hour: a start on the next day finds its old offsets gone.
        .option("failOnDataLoss", "false")
        .load()
    )


def enrich_orders(rows: DataFrame) -> DataFrame:
    """Return key and value for the sink: the order with its total, its size and where it came from."""
    order = rows.select(
        f.from_json(f.col("value").cast("string"), ORDER).alias("o"), "partition", "offset", "timestamp"
    ).where("o.order IS NOT NULL")
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


def start_query(rows: DataFrame, bootstrap: str, folder: Path) -> StreamingQuery:
    """Start the query; its checkpoint is in `folder/checkpoints`."""
    checkpoint = str(folder / "checkpoints" / NAME)

    def watch(step: Step, batch: int) -> None:
        if step is Step.PREPARED:
            driver_crash.die_if_wished(folder, batch)

    sink = ExactlyOnceKafkaSink(
        checkpoint=checkpoint,
        options={"kafka.bootstrap.servers": bootstrap, "kafka.client.id": "demo-orders-enrich"},
        topic="orders_enriched",
        prefix="demo-orders-enrich",
        on_step=watch,
    )
    return (
        rows.writeStream.queryName(NAME)
        .foreachBatch(sink)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=TRIGGER)
        .start()
    )


def await_end(spark: SparkSession, query: StreamingQuery, stop: threading.Event) -> None:
    """Wait until `stop` is set. Raises StreamingQueryException when the query fails."""
    reported = False
    while not stop.is_set() and not query.awaitTermination(1):
        if not reported and query.lastProgress:
            print(f"demo: {NAME} finished its first batch", flush=True)
            reported = True
    # Stopping amid a batch would fail it, with pages of stack traces that mean nothing.
    until = time.monotonic() + LAST_BATCH_S
    while query.status["isTriggerActive"] and time.monotonic() < until:
        time.sleep(0.02)
    spark.sparkContext.setLogLevel("OFF")
    query.stop()


def main(bootstrap: str, folder: Path, jars: str) -> int:
    """Run the query until SIGTERM or SIGINT; return the exit status."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=stop.set).start()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    if stop.wait(driver_crash.away_s(folder)):
        return 0
    driver_crash.come_back(folder)
    topics.ensure_topics(bootstrap)
    spark = make_session(folder, jars)
    spark.streams.addListener(FencelineListener(spool=str(folder / "spool")))
    try:
        await_end(spark, start_query(enrich_orders(read_orders(spark, bootstrap)), bootstrap, folder), stop)
    except PySparkException as error:
        print(f"demo: {NAME} failed: {str(error).splitlines()[0]}", flush=True)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
