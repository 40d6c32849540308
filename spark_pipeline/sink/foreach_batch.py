"""The sink as a function for `foreachBatch`: any PySpark from 3.5 on, in the driver's own Python process."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from fenceline.decode.ledger import transaction_from_json, transaction_to_json
from fenceline.spark.records import SinkTransaction
from spark_pipeline.digests import RunningDigest, with_digests
from spark_pipeline.sink import query_context
from spark_pipeline.sink.columns import refuse_wrong
from spark_pipeline.sink.coordinator import Attempt, SinkCoordinator
from spark_pipeline.sink.factory import chosen_timeout_ms, make_coordinator, make_options, task_plan
from spark_pipeline.sink.hadoop import open_from_spark
from spark_pipeline.sink.ledger import LedgerFolder
from spark_pipeline.sink.steps import Step, load_observer
from spark_pipeline.sink.task.writer import Task, TaskPlan, write_transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

#: One row per task that has written records: its transaction, as JSON.
_MESSAGE = "transaction string"


class ExactlyOnceKafkaSink:
    """Writes each micro-batch to Kafka exactly once, for consumers that read committed records.

        sink = ExactlyOnceKafkaSink(
            options={"kafka.bootstrap.servers": "broker:9092", "topic": "orders_enriched"}
        )
        rows.writeStream.foreachBatch(sink).option("checkpointLocation", "/checkpoints/orders").start()

    Columns: `value` (text or binary), and if there are any `key`, `topic`, `partition`, `headers` and
    `timestamp`.

    `options` are those of Spark's own Kafka sink and this sink's, in Spark's spelling
    (`transactionTimeoutMs`; docs/sink.md has all), and Kafka's producer options with the prefix `kafka.`. The
    sink's own options may be arguments instead, as below. The ledger is in the query's `checkpointLocation`.
    With `checkpoint` the sink reads it before the query starts, and then commits batches that an earlier run
    prepared, instead of in the first batch.

    `SinkError` fails the query; the constructor raises `Refused`.
    """

    def __init__(
        self,
        *,
        options: Mapping[str, Any],
        checkpoint: str | None = None,
        topic: str | None = None,
        prefix: str | None = None,
        transaction_timeout_ms: int | None = None,
        timeout_warning_ratio: float | None = None,
        accept_loss: Collection[int] | None = None,
        adopt: bool | None = None,
        on_step: Callable[[Step, int], None] | None = None,
        include_headers: bool | None = None,
        partition_counts: bool | None = None,
        digests: bool | None = None,
        outage_timeout_ms: int | None = None,
    ) -> None:
        arguments = {
            "checkpoint_location": checkpoint, "topic": topic, "prefix": prefix,
            "transaction_timeout_ms": transaction_timeout_ms, "timeout_warning_ratio": timeout_warning_ratio,
            "accept_loss": accept_loss, "adopt": adopt, "on_step": on_step,
            "include_headers": include_headers, "partition_counts": partition_counts, "digests": digests,
            "outage_timeout_ms": outage_timeout_ms,
        }  # fmt: skip
        given = {name: value for name, value in arguments.items() if value is not None}
        self._options = make_options(options, given)
        self._observer = load_observer(self._options.on_step)
        self._coordinator: SinkCoordinator | None = None
        self._run_id = ""
        self._finish_prepared()

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; Spark calls it on the driver, and repeats it after a failure."""
        if not self._options.include_headers:
            rows = rows.drop("headers")
        refuse_wrong(rows.schema, self._options.topic)
        coordinator = self._opened(rows, batch_id)
        attempt = coordinator.begin(batch_id)
        if attempt is None:
            # It is committed: state stores commit it, and sources count its rows, only if it runs.
            rows.write.format("noop").mode("append").save()
            return
        written: Sequence[SinkTransaction] = ()
        try:
            written = _written(rows, task_plan(self._options, attempt), digests=self._options.digests)
            coordinator.commit(attempt, written)
        except BaseException as error:
            _give_up(coordinator, attempt, written, error)
            if query_context.is_interruption(error):
                raise query_context.Interrupted(batch_id) from None
            coordinator.refuse_taken_over(attempt)
            raise

    def _finish_prepared(self) -> None:
        """Commit batches that an earlier driver prepared before Spark starts: readers wait for them."""
        session, checkpoint = SparkSession.getActiveSession(), self._options.checkpoint
        if checkpoint is None or session is None or not hasattr(session, "_jsparkSession"):
            return
        try:
            files = open_from_spark(session, checkpoint, "")
            if LedgerFolder(files).read_names().open_rounds():
                finisher = make_coordinator(self._options, files, 0, query_name="", observer=self._observer)
                finisher.finish_prepared()
        except Exception as error:
            log.warning("what an earlier run has prepared waits for the first batch: %s", error)

    def _opened(self, rows: DataFrame, batch_id: int) -> SinkCoordinator:
        """Return the coordinator of the calling run; a new run takes over from the earlier one."""
        query = query_context.query_of(rows)
        if self._coordinator is None or query.run_id != self._run_id:
            self._coordinator = None
            query.refuse_async()
            session = rows.sparkSession
            query_context.refuse_bare_executors(session)
            files = open_from_spark(session, self._options.checkpoint, query.checkpoint)
            coordinator = make_coordinator(
                self._options,
                files,
                chosen_timeout_ms(self._options),
                query_name=query.name,
                speculation=query_context.speculation_enabled(session),
                observer=self._observer,
            )
            coordinator.open(query.query_id, query.run_id, batch_id)
            query_context.note_dropped_rows(rows, query.run_id, LedgerFolder(files))
            self._coordinator, self._run_id = coordinator, query.run_id
        return self._coordinator


def _written(rows: DataFrame, plan: TaskPlan, *, digests: bool) -> Sequence[SinkTransaction]:
    rows = with_digests(rows) if digests else rows
    messages = rows.mapInArrow(partial(_write_partition, plan), _MESSAGE).collect()
    return [transaction_from_json(json.loads(row.transaction)) for row in messages]


def _write_partition(plan: TaskPlan, batches: Iterable[Any]) -> Iterator[Any]:
    """Write a task's rows; yield its transaction, if it has one."""
    import pyarrow as pa
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    task = Task(context.partitionId(), context.attemptNumber())
    digest = RunningDigest()
    transaction = write_transaction(plan, task, digest.over(batches))
    if transaction is not None:
        transaction = transaction._replace(digest=digest.as_hex)
        message = json.dumps(transaction_to_json(transaction))
        yield pa.RecordBatch.from_arrays([pa.array([message])], names=["transaction"])


def _give_up(
    coordinator: SinkCoordinator, attempt: Attempt, written: Sequence[SinkTransaction], error: BaseException
) -> None:
    """Roll a batch back, unless it is prepared. Failures here are logged; the first error is raised."""
    try:
        coordinator.abort(attempt, written, f"{type(error).__name__}: {error}"[:1_000])
    except Exception:
        log.exception("batch %d could not be rolled back; the next start does it", attempt.batch_id)
