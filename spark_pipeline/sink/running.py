"""Which query calls a foreachBatch function, from its driver's JVM."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError

from spark_pipeline.sink.errors import Refused, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

#: Local properties of the thread that runs the query (Spark's StreamExecution and MicroBatchExecution).
QUERY_ID, RUN_ID, BATCH_ID = "sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"


class Interrupted(SinkError):
    """A batch that was interrupted because its query was stopped.

    Spark takes a Python error that reads like this for a stop and not for a failure. It uses a
    pattern that overflows its stack on long texts, such as py4j's own with its Java trace.
    """

    def __init__(self, batch_id: int) -> None:
        super().__init__(
            f"batch {batch_id} was interrupted: py4j.protocol.Py4JJavaError: An error occurred while calling "
            "collect: java.lang.InterruptedException"
        )


def is_interruption(error: BaseException) -> bool:
    """Whether a call into the JVM was interrupted, as `query.stop()` does."""
    java = getattr(error, "java_exception", None)
    return java is not None and str(java.getClass().getName()) == "java.lang.InterruptedException"


class RunningQuery(NamedTuple):
    """One run of a query."""

    query_id: str
    run_id: str
    #: "" where it has none.
    name: str
    #: Spark's class that executes it.
    kind: str
    #: Its checkpoint's folder as Hadoop spells it; "" where this Spark does not have it.
    checkpoint: str = ""

    def refuse_async(self) -> None:
        """Raise `Refused` when the query tracks its progress asynchronously."""
        if "Async" in self.kind:
            raise Refused(
                "the query runs with asyncProgressTrackingEnabled: a batch may then read another range when "
                "it is run again. Exactly-once needs it off"
            )


def query_of(rows: DataFrame) -> RunningQuery:
    """Return the query whose batch this is; raises `Refused` outside of a query and under Spark Connect."""
    session = rows.sparkSession
    context = _context(session)
    query_id, run_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(RUN_ID)
    if not query_id or not run_id:
        raise Refused("the sink was called outside of a streaming query: give it to foreachBatch")
    return RunningQuery(query_id, run_id, *_told_by_jvm(session, query_id))


def speculation_enabled(session: SparkSession) -> bool:
    """Whether Spark may run several attempts of a task at once."""
    return str(_context(session).getConf().get("spark.speculation", "false")).lower() == "true"


def _context(session: SparkSession) -> Any:
    if not hasattr(session, "_jsparkSession"):
        raise Refused(
            "Spark Connect runs foreachBatch functions where the query cannot be seen: use "
            '.format("kafka_exactly_once") there'
        )
    return session.sparkContext


def _told_by_jvm(session: SparkSession, query_id: str) -> tuple[str, str, str]:
    """Return name, kind and checkpoint of a query, each "" where this Spark does not show it."""
    try:
        gateway: Any = session.sparkContext._gateway
        queries = session._jsparkSession.sharedState().activeStreamingQueries()
        execution = queries.get(gateway.jvm.java.util.UUID.fromString(query_id))
        kind = str(execution.getClass().getSimpleName())
        return execution.name() or "", kind, str(execution.resolvedCheckpointRoot())
    except (AttributeError, TypeError, Py4JError) as error:
        # Another Spark's inner parts may differ: the checks of files do without it.
        log.info("the running query cannot be inspected: %s", error)
        return "", "", ""
