"""Starts queries with the sink and stops each while its tasks write, as a process of its own:

    python -m tests.spark.sink.stopped_queries BOOTSTRAP FOLDER TOPIC…

A line `stopping TOPIC` on stderr comes before each stop.
"""

import sys
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql import SparkSession

from spark_pipeline.sink import ExactlyOnceKafkaSink
from tests.spark.conftest import settings
from tests.waiting import wait_for


def stop_while_it_writes(spark: SparkSession, bootstrap: str, folder: str, topic: str) -> None:
    """Stop a query once a task has written many records of its batch."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "2000000")
    values = rows.option("numPartitions", 2).load().selectExpr("repeat(string(value), 30) AS value")
    checkpoint = f"{folder}/{topic}"
    options = {"kafka.bootstrap.servers": bootstrap}
    sink = ExactlyOnceKafkaSink(checkpoint=checkpoint, options=options, topic=topic)
    query = values.writeStream.option("checkpointLocation", checkpoint).foreachBatch(sink).start()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0})

    def end() -> int:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)[1])
        except KafkaException:
            return 0

    wait_for(lambda: end() > 20_000, f"tasks write to {topic}", 120)
    sys.stderr.write(f"stopping {topic}\n")
    query.stop()
    assert query.exception() is None


def main(bootstrap: str, folder: str, *topics: str) -> None:
    """Stop a query for each topic."""
    spark = SparkSession.builder.appName("stopped").config(map=settings(Path(folder))).getOrCreate()
    for topic in topics:
        stop_while_it_writes(spark, bootstrap, folder, topic)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
