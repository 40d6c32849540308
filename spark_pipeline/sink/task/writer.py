"""The sink's task: write all rows of a partition in one transaction, flush it, and leave it open.

A task without rows opens no transaction. A failing task aborts its own. Dropping the producer ends no
transaction: the driver is about to commit the open one.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError

from fenceline.authentication.mechanisms import CannotAuthenticate, explain_refusal
from fenceline.facts import PREPARED_STATES, TransactionState, expand_partitions
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from fenceline.spark.records import SinkTransaction
from spark_pipeline.sink import names
from spark_pipeline.sink.errors import Refused, SinkError
from spark_pipeline.sink.options import PREFIX, Properties
from spark_pipeline.sink.patience import PATIENCE_S, Outage, ask_patiently
from spark_pipeline.sink.task.messages import RowRefused, find_unusable, lay_out, split_by_topic
from spark_pipeline.sink.task.producer import ProducerError, TransactionalProducer
from spark_pipeline.sink.transactions import DriverLease, describe_ids
from transaction_admin.api import grant_command
from transaction_admin.authentication.librdkafka import librdkafka_settings
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.properties import CannotTranslate

log = logging.getLogger(__name__)

#: Seconds that the admin side waits for an answer, and that a failing task waits for its abort.
_ANSWER_S, _ABORT_S = 30.0, 15.0
#: How long after its check an id may be initialised; after that, it is checked again. A late initialisation
#: could abort a transaction that another attempt has begun with the id.
_INITIALISED_WITHIN_S = 3.0
#: Seconds until a full queue is tried again: librdkafka has sent some records by then.
_POLL_S = 0.005
#: Seconds that a task of a rolled-back batch waits for Spark to kill it, and for the lease's description.
_STOPPED_S, _LEASE_S = 5.0, 2.0
#: Errors of a producer that cannot continue, for its records and for a new producer.
_DEAD = (KafkaError._FATAL, KafkaError._FENCED, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class TaskPlan(NamedTuple):
    """The driver's settings for every task of a batch."""

    properties: Properties
    #: The prefix of its transactional ids.
    stem: str
    generation: int
    #: The lease's producer id and epoch: the coordinator reports these until another driver takes over.
    lease: DriverLease | None
    timeout_ms: int
    #: The topic of rows without one.
    topic: str | None
    #: Seconds that brokers may be unreachable.
    patience_s: float = PATIENCE_S


class Task(NamedTuple):
    """A Spark task: its partition and attempt."""

    partition: int
    #: 0 for the first attempt of its stage.
    attempt: int


def write_transaction(
    plan: TaskPlan, task: Task, batches: Iterable[pa.RecordBatch]
) -> SinkTransaction | None:
    """Write all rows in one transaction and leave it open; None without any. Raises `SinkError`.

    It writes the columns of `spark_pipeline.sink.columns` and ignores others.
    """
    open_transaction: _Open | None = None
    try:
        for batch in batches:
            if batch.num_rows and open_transaction is None:
                open_transaction = _Open(plan, task)
            if open_transaction is not None:
                open_transaction.send_all(batch)
        return None if open_transaction is None else open_transaction.finish()
    except BaseException:
        if open_transaction is not None:
            open_transaction.abort()
        raise
    finally:
        if open_transaction is not None:
            open_transaction.drop()


class _Open:
    """An open transaction."""

    def __init__(self, plan: TaskPlan, task: Task) -> None:
        self._plan, self._task = plan, task
        self._records = 0
        self._begun_s = time.monotonic()
        self._admin = admin_for(plan.properties.connection, plan.patience_s)
        self._id, self._producer = self._begun()

    def _begun(self) -> tuple[str, TransactionalProducer]:
        """Take an id and begin; while its coordinator is unreachable, check the id and try again."""
        outage = Outage(self._plan.patience_s)
        while True:
            name = _free_id(self._plan, self._task, self._admin)
            producer = _make_producer(self._plan, name)
            try:
                producer.init_transactions(_INITIALISED_WITHIN_S)
                producer.begin_transaction()
                return name, producer
            except ProducerError as error:
                producer.destroy()
                text = f"{name}: {_explained(error, name)}"
                if not error.is_retriable:
                    raise SinkError(text) from error
                if outage.is_over:
                    raise outage.explain(text) from error
            outage.wait(text)

    def send_all(self, batch: pa.RecordBatch) -> None:
        """Pass rows to the producer as fast as it takes them."""
        if unusable := find_unusable(batch, self._plan.topic):
            row, why = unusable
            raise SinkError(f"partition {self._task.partition}: row {self._records + row + 1} {why}")
        for topic, rows in split_by_topic(batch, self._plan.topic):
            try:
                self._send(topic, rows)
            except RowRefused as refused:
                raise self._refused(topic, refused) from refused
            except ProducerError as error:
                raise self._dead_or(f"the topic {topic!r} was refused: {error}", error.code) from error
        self._records += batch.num_rows
        self._check()

    def _send(self, topic: str, batch: pa.RecordBatch) -> None:
        handle, rows, sent = self._producer.topic(topic), lay_out(batch), 0
        moved_at = time.monotonic()
        while (sent := sent + (taken := rows.produce(self._producer, handle, sent))) < batch.num_rows:
            moved_at = time.monotonic() if taken else moved_at
            self._producer.poll(_POLL_S)
            self._check()
            if time.monotonic() - moved_at > self._plan.timeout_ms / 1000:
                raise SinkError(
                    f"partition {self._task.partition}: no record left the queue for "
                    f"{self._plan.timeout_ms} ms, the transaction's timeout: brokers do not take them"
                )

    def finish(self) -> SinkTransaction:
        """Wait until brokers have every record; return the transaction, which stays open."""
        left = self._producer.flush(self._plan.timeout_ms / 1000)
        self._check()
        if left:
            raise SinkError(
                f"partition {self._task.partition}: {left} records were not taken by their brokers within "
                f"{self._plan.timeout_ms} ms, the transaction's timeout"
            )
        described = describe_ids(self._admin, [self._id], self._plan.patience_s)[self._id]
        if (
            not isinstance(described, Described)
            or described.state is not TransactionState.ONGOING
            or described.started_ms is None
        ):
            what = described.text if isinstance(described, NotDescribed) else f"it is {described.state.value}"
            raise SinkError(f"{self._id}: its transaction is not open when its records are there: {what}")
        return SinkTransaction(
            self._task.partition,
            self._task.attempt,
            self._id,
            described.producer_id,
            described.producer_epoch,
            tuple(expand_partitions(described.partitions)),
            self._records,
            described.started_ms,
            described.timeout_ms,
        )

    def abort(self) -> None:
        """Abort it because the task failed. If that fails, a later sweep or its timeout ends it."""
        with suppress(ProducerError):
            self._producer.abort_transaction(_ABORT_S)

    def drop(self) -> None:
        """Free the producer's threads and connections; its transaction stays open.

        It prints the log lines of a fatal error, unless its own driver caused the error.
        """
        self._producer.destroy()
        if self._producer.last_lines and not self._was_rolled_back():
            sys.stderr.write("\n".join([*self._producer.last_lines, ""]))

    def _check(self) -> None:
        """Raise if the producer cannot continue, or a record was refused."""
        fatal, undelivered = self._producer.fatal_error(), self._producer.undelivered
        if fatal:
            raise self._dead(fatal)
        if undelivered:
            code, reason, topic, partition = undelivered[0]
            raise self._dead_or(f"a record for {topic}-{partition} was not taken: {reason}", code)

    def _refused(self, topic: str, refused: RowRefused) -> SinkError:
        # An undelivered record is the reason for a producer's refusal.
        self._producer.poll(0)
        self._check()
        where = topic if refused.partition < 0 else f"{topic}-{refused.partition}"
        return self._dead_or(f"a record for {where} was refused: {refused.error}", refused.error.code)

    def _dead_or(self, text: str, code: int) -> SinkError:
        if code in _DEAD:
            return self._dead(self._producer.fatal_error() or text)
        return SinkError(f"partition {self._task.partition}: {text}")

    def _dead(self, reason: str) -> SinkError:
        where = f"partition {self._task.partition}: the producer of {self._id} can go on no more: {reason}. "
        if self._was_rolled_back():
            # Spark kills the tasks of a stopped query: an error of the task would hide that.
            time.sleep(_STOPPED_S)
            return SinkError(
                f"{where}Its own driver has rolled the batch back, as the query was stopped or another task "
                "had failed, or somebody has fenced the id. The batch runs again"
            )
        return SinkError(
            f"{where}Its transaction ended before its records were there: by its timeout of "
            f"{self._plan.timeout_ms} ms, or by whoever took its id over. The batch runs again; if batches "
            "take that long, raise transaction_timeout_ms"
        )

    def _was_rolled_back(self) -> bool:
        """Whether the transaction ended before its timeout while its driver still has the lease."""
        if self._plan.lease is None or (time.monotonic() - self._begun_s) * 1_000 >= self._plan.timeout_ms:
            return False
        lease = names.lease_id(self._plan.stem)
        try:
            described = describe_ids(self._admin, [lease], _LEASE_S)[lease]
        except SinkError:
            return False
        return (
            isinstance(described, Described)
            and (described.producer_id, described.producer_epoch) == self._plan.lease
        )


_admins: dict[tuple[tuple[str, str], ...], TransactionAdmin] = {}


def admin_for(connection: Mapping[str, str], patience_s: float = PATIENCE_S) -> TransactionAdmin:
    """Return this process's admin connection to a cluster; a Python worker runs many tasks.

    Raises `SinkError` if no broker can be reached within `patience_s`.
    """
    key = tuple(sorted(connection.items()))
    if key not in _admins:
        try:
            _admins[key] = ask_patiently(lambda: TransactionAdmin(connection, _ANSWER_S), patience_s)
        except CannotTranslate as error:
            raise Refused(f'option "{PREFIX}{error.key}" {error.reason}') from error
    return _admins[key]


def _make_producer(plan: TaskPlan, transactional_id: str) -> TransactionalProducer:
    try:
        return TransactionalProducer(_settings(plan, transactional_id))
    except (CannotAuthenticate, ProducerError) as error:
        raise SinkError(
            f"{transactional_id}: the options are refused here: {explain_refusal(str(error))}"
        ) from error


def _settings(plan: TaskPlan, transactional_id: str) -> dict[str, Any]:
    return {
        **librdkafka_settings(plan.properties.producer_properties),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": plan.timeout_ms,
        # librdkafka finds the coordinator by an existing connection: without one it waits half a second every
        # second time (docs/design/spark.md §0).
        "enable.sparse.connections": "false",
        "log_level": plan.properties.sending.get("log_level", "3"),
    }


#: States without an open transaction.
_CLOSED = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def _free_id(plan: TaskPlan, task: Task, admin: TransactionAdmin) -> str:
    """Return an id without an open transaction: initialising an id aborts its transaction."""
    ids = names.task_ids(plan.stem, task.partition, plan.generation, task.attempt)
    for name in ids:
        described = _ended(admin, plan, name)
        if isinstance(described, NotDescribed):
            if described.obstacle is Obstacle.UNKNOWN:
                return name
            raise SinkError(f"{name}: cannot be looked up: {described.text}")
        if described.state in _CLOSED:
            return name
    raise SinkError(
        f"partition {task.partition}: all {len(ids)} transactional ids of attempt {task.attempt} are open, "
        f"by tasks that were given up: see why; the last is {ids[-1]}. The query's next start aborts them"
    )


def _ended(admin: TransactionAdmin, plan: TaskPlan, name: str) -> Described | NotDescribed:
    """Return the coordinator's description of an id once its transaction is not about to end.

    Raises `SinkError` if another driver has taken over.
    """
    lease = names.lease_id(plan.stem)
    outage = Outage(plan.patience_s)
    while True:
        answers = describe_ids(admin, [lease, name], plan.patience_s)
        _refuse_taken_over(plan, answers[lease])
        described = answers[name]
        if not isinstance(described, Described) or described.state not in PREPARED_STATES:
            return described
        if outage.is_over:
            raise outage.explain(f"{name}: its last transaction is {described.state.value} still")
        outage.wait(f"{name} is {described.state.value}")


def _refuse_taken_over(plan: TaskPlan, lease: Described | NotDescribed) -> None:
    """Raise if the lease is not our driver's. An expired lease means no takeover."""
    if plan.lease is None or not isinstance(lease, Described):
        return
    if (lease.producer_id, lease.producer_epoch) != plan.lease:
        raise SinkError(
            f"another driver took over from generation {plan.generation}: its task finds the lease "
            f"{lease.transactional_id} with producer {lease.producer_id} and epoch {lease.producer_epoch}, "
            f"not {plan.lease.producer_id} and {plan.lease.producer_epoch}. It has written nothing"
        )


def _explained(error: ProducerError, transactional_id: str) -> str:
    text = str(error)
    if error.code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        remedy = grant_command("User:…", "WRITE", f"--transactional-id '{transactional_id}'")
        return f"{text}: {remedy} (for its prefix: --resource-pattern-type prefixed)"
    if error.code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return f"{text}: lower transaction_timeout_ms, or raise the broker's transaction.max.timeout.ms"
    return text
