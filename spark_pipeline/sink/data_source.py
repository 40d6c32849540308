"""The sink as a data source, `.format("kafka_exactly_once")`: PySpark from 4.0 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_pipeline.sink.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Let a session's queries write with `.format("kafka_exactly_once")`.

    Raises `Refused` before PySpark 4.0, which has no data sources in Python.
    """
    if not hasattr(spark, "dataSource"):
        raise Refused(
            "format kafka_exactly_once needs PySpark 4.0 or newer: use foreachBatch(ExactlyOnceKafkaSink(…))"
        )
    from spark_pipeline.sink.stream_writer import ExactlyOnceKafka

    class OfSession(ExactlyOnceKafka):
        default_checkpoint = spark.conf.get("spark.sql.streaming.checkpointLocation", "") or ""

    spark.dataSource.register(OfSession)
