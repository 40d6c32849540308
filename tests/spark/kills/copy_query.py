"""Spark's own Kafka sink as a driver to kill: `copy_query.py BOOTSTRAP SOURCE TARGET CHECKPOINT`."""

import sys

from pyspark.sql import SparkSession


def main(bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    """Copy records at least once until the process ends."""
    spark = SparkSession.builder.getOrCreate()
    kafka = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.readStream.format("kafka").options(**kafka, subscribe=source, startingOffsets="earliest")
    rows = rows.option("maxOffsetsPerTrigger", 200)
    writer = rows.load().select("key", "value").writeStream.format("kafka").options(**kafka, topic=target)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:5])
