"""An exactly-once Kafka sink for Structured Streaming: a transaction per task, a ledger, recovery.

    from spark_pipeline.sink import ExactlyOnceKafkaSink

These names are imported on first use: the dashboard reads the ledger without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_pipeline.sink.data_source import register
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
    "register": "data_source",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
