"""Find the query that calls a foreachBatch function, and the rows it drops, in the driver's JVM."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQueryManager

from fenceline.decode.progress import decode_progress
from spark_pipeline.sink.errors import Refused, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from spark_pipeline.sink.ledger import LedgerFolder

log = logging.getLogger(__name__)

#: Local properties of the thread that runs the query (Spark's StreamExecution and MicroBatchExecution).
QUERY_ID, RUN_ID, BATCH_ID = "sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"


#: Python's message for a module that an executor lacks, in the error of a task.
_LACKING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
#: Executors checked at once.
_MOST_TASKS = 32


def refuse_bare_executors(session: SparkSession) -> None:
    """Raise `Refused` if executors cannot import the sink; runs before the driver takes the query over."""
    number = min(session.sparkContext.defaultParallelism, _MOST_TASKS)
    try:
        session.range(0, number, 1, number).mapInArrow(_import_sink, "id long").collect()
    except Exception as error:
        if match := _LACKING.search(str(error)):
            module = match[1].partition(".")[0]
            raise Refused(
                f"executors have no Python module {module}: install fenceline[spark] for the Python that "
                "runs there (spark.pyspark.python), or pack it with the job (docs/platforms)"
            ) from None
        raise


def _import_sink(batches: Iterable[Any]) -> Iterator[Any]:
    """Import the sink in a task; fails if the module is missing."""
    import spark_pipeline.sink.task.writer  # noqa: F401

    return iter(())


class Interrupted(SinkError):
    """A batch was interrupted because its query was stopped.

    Spark treats a Python error with this text as a stop and not as a failure. Its pattern overflows the stack
    on long texts, such as py4j's own error with its Java trace.
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
    query_id: str
    run_id: str
    #: "" for a query without a name.
    name: str
    #: Spark's class that executes the query.
    kind: str
    #: Its checkpoint's folder in Hadoop's spelling; "" where this Spark does not tell it.
    checkpoint: str = ""

    def refuse_async(self) -> None:
        """Raise `Refused` if the query tracks its progress asynchronously."""
        if "Async" in self.kind:
            raise Refused(
                "the query runs with asyncProgressTrackingEnabled: a batch may then read another range when "
                "it is run again. Exactly-once needs it off"
            )


class DroppedRowsListener(StreamingQueryListener):
    """Records the rows that one run of a query drops in the ledger, batch by batch, until the run ends.

    A batch has no record if its driver dies between commit and progress event: an audit cannot prove it.
    """

    def __init__(self, queries: StreamingQueryManager, run_id: str, ledger: LedgerFolder) -> None:
        self._queries, self._run_id, self._ledger = queries, run_id, ledger

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the run has dropped no row yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Record the rows that a batch dropped, if its progress counts them."""
        if str(event.progress.runId) != self._run_id:
            return
        progress = decode_progress(json.loads(event.progress.json), received_ms=0).progress
        # Spark also reports progress while a query waits for data: then no batch was added.
        has_run = progress is not None and "addBatch" in progress.durations
        if progress is not None and has_run and progress.dropped_rows is not None:
            self._ledger.note_dropped(progress.batch_id, progress.dropped_rows)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the run has read no row."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Remove this listener: the next run has its own."""
        if str(event.runId) == self._run_id:
            self._queries.removeListener(self)


def note_dropped_rows(rows: DataFrame, run_id: str, ledger: LedgerFolder) -> None:
    """Record the rows that this run drops in the ledger; does nothing if this Spark hides its queries."""
    session = rows.sparkSession
    try:
        execution = _execution(session, _context(session).getLocalProperty(QUERY_ID))
        # Events go to listeners of the session that started the query; `rows` belong to a clone of that
        # session.
        queries = StreamingQueryManager(execution.sparkSession().streams())
        queries.addListener(DroppedRowsListener(queries, run_id, ledger))
    except (AttributeError, TypeError, Py4JError) as error:
        log.info("rows that the query drops are not noted: %s", error)


def query_of(rows: DataFrame) -> RunningQuery:
    """Return the query of this batch; raises `Refused` outside of a query and under Spark Connect."""
    session = rows.sparkSession
    context = _context(session)
    query_id, run_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(RUN_ID)
    if not query_id or not run_id:
        raise Refused("the sink was called outside of a streaming query: give it to foreachBatch")
    return RunningQuery(query_id, run_id, *_described_by_jvm(session, query_id))


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


def _execution(session: SparkSession, query_id: str) -> Any:
    gateway: Any = session.sparkContext._gateway
    queries = session._jsparkSession.sharedState().activeStreamingQueries()
    return queries.get(gateway.jvm.java.util.UUID.fromString(query_id))


def _described_by_jvm(session: SparkSession, query_id: str) -> tuple[str, str, str]:
    """Return a query's name, class and checkpoint, each "" if this Spark hides it."""
    try:
        execution = _execution(session, query_id)
        kind = str(execution.getClass().getSimpleName())
        return execution.name() or "", kind, str(execution.resolvedCheckpointRoot())
    except (AttributeError, TypeError, Py4JError) as error:
        # Internals of other Spark versions may differ; the checks of files do not need them.
        log.info("the running query cannot be inspected: %s", error)
        return "", "", ""
