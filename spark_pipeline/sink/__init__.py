"""An exactly-once Kafka sink for Structured Streaming: a transaction per task, a ledger, recovery.

    from spark_pipeline.sink import ExactlyOnceKafkaSink

These names are imported on first use: the dashboard reads the ledger without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_pipeline.sink.errors import LostTransactions, Refused, SinkError
    from spark_pipeline.sink.foreach_batch import ExactlyOnceKafkaSink
    from spark_pipeline.sink.steps import Step

__all__ = ["ExactlyOnceKafkaSink", "LostTransactions", "Refused", "SinkError", "Step", "register"]

_WHERE = {
    "ExactlyOnceKafkaSink": "foreach_batch",
    "LostTransactions": "errors",
    "Refused": "errors",
    "SinkError": "errors",
    "Step": "steps",
}


def register(spark: SparkSession) -> None:
    """Let a session's queries write with the data source `.format("kafka_exactly_once")`.

    Raises `Refused` before PySpark 4.0, which has no data sources in Python.
    """
    if not hasattr(spark, "dataSource"):
        from spark_pipeline.sink.errors import Refused

        raise Refused(
            "format kafka_exactly_once needs PySpark 4.0 or newer: use foreachBatch(ExactlyOnceKafkaSink(…))"
        )
    from spark_pipeline.sink.stream_writer import ExactlyOnceKafka

    class OfSession(ExactlyOnceKafka):
        default_checkpoint = spark.conf.get("spark.sql.streaming.checkpointLocation", "") or ""

    spark.dataSource.register(OfSession)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
