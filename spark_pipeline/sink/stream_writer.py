"""The data source. Spark makes these objects anew for each batch, in several processes:

- a driver-side Python worker, for each batch: `streamWriter()`, and the writer is pickled for the tasks;
- the tasks: `write_transaction()`;
- another driver-side worker: the data source is unpickled, `streamWriter()` again, `commit()` or `abort()`.

So the first process opens the sink and begins the batch. The writer carries the attempt to the tasks, and
their messages carry it to the last process. Module globals are a cache: driver-side workers are reused, or
may be lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource

from fenceline.spark.records import SinkTransaction
from spark_pipeline.sink.columns import from_rows, refuse_wrong, without_headers
from spark_pipeline.sink.coordinator import Attempt, SinkCoordinator
from spark_pipeline.sink.errors import Refused, SinkError
from spark_pipeline.sink.factory import (
    SinkOptions,
    chosen_timeout_ms,
    make_coordinator,
    make_options,
    task_plan,
)
from spark_pipeline.sink.query_context import BATCH_ID, QUERY_ID, RUN_ID
from spark_pipeline.sink.steps import load_observer
from spark_pipeline.sink.storage import open_storage
from spark_pipeline.sink.task.writer import Task, write_transaction

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CHECKPOINT = "checkpointlocation"
ASYNC = "asyncprogresstrackingenabled"
#: Spark's own options, which it passes to every sink.
QUERY_NAME = "queryname"
_SPARKS = (ASYNC, "asyncprogresstrackingcheckpointintervalms", QUERY_NAME, "path")
#: Options of foreachBatch alone.
_NOT_HERE = ("digests",)
#: Spark gives a writer Arrow batches from 4.1 on, rows before.
_ARROW = hasattr(datasource, "DataSourceStreamArrowWriter")


@dataclass
class CommitMessage(datasource.WriterCommitMessage):
    """A task's report to the driver."""

    attempt: Attempt
    transaction: SinkTransaction | None


class ExactlyOnceKafka(datasource.DataSource):
    """`.format("kafka_exactly_once")`: the options of `ExactlyOnceKafkaSink`, each as text.

    `acceptLoss` is a list with commas, `onStep` names a function as `package.module:function`.
    """

    #: `spark.sql.streaming.checkpointLocation` of the session, as it was when this was registered: Spark
    #: gives data sources the option alone.
    default_checkpoint = ""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = {str(key).lower(): value for key, value in dict(options).items()}
        name = self.options.get(QUERY_NAME)
        if CHECKPOINT not in self.options and self.default_checkpoint and name:
            self.options[CHECKPOINT] = f"{self.default_checkpoint.rstrip('/')}/{name}"
        self._made_here = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Unpickled: this process commits, and another one has opened the sink.
        self.__dict__.update(state, _made_here=False)

    @classmethod
    def name(cls) -> str:
        return "kafka_exactly_once"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer of one batch; begin the batch here, unless this process commits it."""
        side = _DriverSide(self.options)
        refuse_wrong(schema, side.options.topic)
        attempt = side.begin() if self._made_here else None
        kind = _ArrowWriter if _ARROW else _RowWriter
        return kind(self.options, attempt, side.options.include_headers)


class _BatchWriter:
    """The writer of one batch; `attempt` is None for a batch that is committed already."""

    def __init__(self, options: Mapping[str, str], attempt: Attempt | None, include_headers: bool) -> None:
        self._options, self._attempt, self._include_headers = dict(options), attempt, include_headers

    def commit(self, messages: list[Any], batchId: int) -> None:
        _DriverSide(self._options).commit(batchId, messages)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Abort the batch, unless it is prepared."""
        _DriverSide(self._options).abort(batchId, messages)

    def _write(self, batches: Iterable[pa.RecordBatch]) -> CommitMessage | datasource.WriterCommitMessage:
        if self._attempt is None:
            # The batch is committed already. State stores commit it too once its rows are read to the end.
            deque(batches, maxlen=0)
            return datasource.WriterCommitMessage()
        context = TaskContext.get()
        if context is None:
            raise SinkError("a writer was called outside of a task")
        attempt = _checked(self._attempt, context)
        task = Task(context.partitionId(), context.attemptNumber())
        plan = task_plan(make_data_source_options(self._options), attempt)
        written = batches if self._include_headers else without_headers(batches)
        return CommitMessage(attempt, write_transaction(plan, task, written))


class _RowWriter(_BatchWriter, datasource.DataSourceStreamWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        return self._write(from_rows(iterator))


if _ARROW:

    class _ArrowWriter(_BatchWriter, datasource.DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            return self._write(iterator)


class _Opened:
    """A sink that this process has opened, and the last batch that it began."""

    def __init__(self, coordinator: SinkCoordinator, batch_id: int) -> None:
        self.coordinator, self.batch_id = coordinator, batch_id


_opened: dict[tuple[tuple[str, str], ...], _Opened] = {}
_committing: dict[tuple[tuple[str, str], ...], SinkCoordinator] = {}


class _DriverSide:
    """The sink on the driver, in each of its processes."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.options = make_data_source_options(given)
        self._given = given
        self._key = tuple(sorted(given.items()))

    def begin(self) -> Attempt | None:
        """Begin the newest planned batch; first open the sink if this run has not."""
        opened = _opened.pop(self._key, None)
        coordinator = opened.coordinator if opened else self._coordinator(chosen_timeout_ms(self.options))
        query_id, batch_id = coordinator.planned_batch()
        # There is no run id here. The batch after the last one belongs to the same run; any other begins a
        # new run.
        if opened is None or batch_id != opened.batch_id + 1:
            coordinator.open(query_id, "", batch_id)
        attempt = coordinator.begin(batch_id)
        _opened[self._key] = _Opened(coordinator, batch_id)
        return attempt

    def commit(self, batch_id: int, messages: Sequence[Any]) -> None:
        """Commit a batch from its tasks' reports."""
        if messages and not any(isinstance(message, CommitMessage) for message in messages):
            return  # The batch was committed already when it was planned.
        attempt = self._attempt(batch_id, messages)
        if attempt is not None:
            self._committer(attempt).commit(attempt, _transactions(messages))

    def abort(self, batch_id: int, messages: Sequence[Any]) -> None:
        """Roll a batch back; without any message, the newest generation's attempt."""
        attempt = self._attempt(batch_id, messages)
        if attempt is not None:
            reason = "Spark gave the batch up: a task failed, or the query was stopped"
            self._committer(attempt).abort(attempt, _transactions(messages), reason)

    def _attempt(self, batch_id: int, messages: Sequence[Any]) -> Attempt | None:
        attempts = (message.attempt for message in messages if isinstance(message, CommitMessage))
        return next(attempts, None) or self._coordinator(0).unknown_attempt(batch_id)

    def _committer(self, attempt: Attempt) -> SinkCoordinator:
        if self._key not in _committing:
            _committing[self._key] = self._coordinator(attempt.timeout_ms)
        return _committing[self._key]

    def _coordinator(self, timeout_ms: int) -> SinkCoordinator:
        return make_coordinator(
            self.options,
            open_storage(self._given[CHECKPOINT]),
            timeout_ms,
            query_name=self._given.get(QUERY_NAME, ""),
            observer=load_observer(self.options.on_step),
        )


def make_data_source_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the sink's options from a data source's, whose names are in lower case."""
    if CHECKPOINT not in given:
        raise Refused(
            "the option checkpointLocation is missing: the sink's ledger is in it. Data sources do not get "
            "spark.sql.streaming.checkpointLocation: it is used where it is set before "
            "spark_pipeline.sink.register(spark), and the query has a queryName"
        )
    if given.get(ASYNC, "false").lower() == "true":
        raise Refused(
            "asyncProgressTrackingEnabled is on: a batch may then read another range when it is run again. "
            "Exactly-once needs it off"
        )
    return make_options({key: value for key, value in given.items() if key not in _SPARKS}, without=_NOT_HERE)


def _transactions(messages: Sequence[Any]) -> list[SinkTransaction]:
    transactions = (message.transaction for message in messages if isinstance(message, CommitMessage))
    return [transaction for transaction in transactions if transaction is not None]


def _checked(attempt: Attempt, context: Any) -> Attempt:
    """Return an attempt with its run's id; raise if the task runs another batch than the begun one."""
    batch_id, query_id = context.getLocalProperty(BATCH_ID), context.getLocalProperty(QUERY_ID)
    if (batch_id, query_id) != (str(attempt.batch_id), attempt.query_id):
        raise SinkError(
            f"a task writes batch {batch_id} of query {query_id}, and batch {attempt.batch_id} of "
            f"{attempt.query_id} was begun: checkpointLocation is not the query's own, or it runs with "
            "asyncProgressTrackingEnabled or in real-time mode"
        )
    return attempt._replace(run_id=context.getLocalProperty(RUN_ID) or "")
