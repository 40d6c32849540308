"""What a task of the sink does: all rows of its partition in one transaction, flushed and left open.

A task without rows opens no transaction: there would be nothing to end. One that fails aborts its own. The
producer is dropped and never closed: `close()` would abort what the driver is about to commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice, repeat
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from fenceline.authentication.mechanisms import CannotAuthenticate, explain_refusal
from fenceline.facts import TopicPartition, TransactionState
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from fenceline.spark.records import SinkTransaction
from spark_pipeline.sink import names
from spark_pipeline.sink.errors import Refused, SinkError
from spark_pipeline.sink.options import PREFIX, Properties
from spark_pipeline.sink.transactions import describe_ids
from transaction_admin.api import AdminUnavailable, TransactionAdmin, grant_command
from transaction_admin.authentication.librdkafka import librdkafka_settings
from transaction_admin.kafka_python import KafkaPythonAdmin
from transaction_admin.properties import CannotTranslate

log = logging.getLogger(__name__)

#: How long a coordinator may take to give an id to a producer, or to end its transaction.
_PATIENCE_S = 60.0
#: How long until a full queue is tried again, in seconds: librdkafka has sent some of it by then.
_POLL_S = 0.05
#: The errors of a producer that cannot go on, for its records and for a new one.
_DEAD = (KafkaError._FATAL, KafkaError._FENCED, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
#: (topic, value, key, partition, timestamp in ms, headers) as `Producer.produce` takes them.
Record = tuple[
    str | None, bytes | None, bytes | None, int, int, "list[tuple[str, str | bytes | None]] | None"
]
#: Kafka picks the partition; the producer picks the timestamp.
ANY_PARTITION, NOW = -1, 0


class TaskPlan(NamedTuple):
    """What every task of a batch is given."""

    properties: Properties
    #: How its transactional ids begin.
    stem: str
    generation: int
    batch_id: int
    timeout_ms: int
    #: Where rows go that name no topic.
    topic: str | None


class Task(NamedTuple):
    """Which task this is, in Spark's words."""

    partition: int
    #: 0 for the first attempt of its stage.
    attempt: int
    #: Unique in its application.
    attempt_id: int


def write_transaction(
    plan: TaskPlan, task: Task, chunks: Iterable[Iterable[Record]]
) -> SinkTransaction | None:
    """Write all records in one transaction and leave it open; None without any. Raises `SinkError`."""
    open_transaction: _Open | None = None
    try:
        for chunk in chunks:
            for first in chunk:
                if open_transaction is None:
                    open_transaction = _Open(plan, task)
                    open_transaction.begin()
                open_transaction.send_all(_with(first, chunk))
        return None if open_transaction is None else open_transaction.finish()
    except BaseException:
        if open_transaction is not None:
            open_transaction.abort()
        raise
    finally:
        if open_transaction is not None:
            open_transaction.drop()


def _with(first: Record, rest: Iterable[Record]) -> Iterator[Record]:
    yield first
    yield from rest


class _Open:
    """A transaction that is being written."""

    def __init__(self, plan: TaskPlan, task: Task) -> None:
        self._plan, self._task = plan, task
        self._records = 0
        self._failed: KafkaError | None = None
        self._failed_where = ""
        self._admin = admin_for(plan.properties.connection)
        self._id = _free_id(plan, task, self._admin)
        self._producer = _make_producer(plan, self._id, self._told)

    def begin(self) -> None:
        """Take the id, and begin."""
        try:
            self._producer.init_transactions(_PATIENCE_S)
            self._producer.begin_transaction()
        except KafkaException as error:
            raise SinkError(f"{self._id}: {_explained(error, self._id)}") from error

    def send_all(self, records: Iterable[Record]) -> None:
        """Hand records to the producer, as fast as it takes them."""
        produce, default = self._producer.produce, self._plan.topic
        sent = self._records
        for topic, value, key, partition, timestamp, headers in records:
            where = topic or default
            if where is None:
                raise SinkError(
                    f"partition {self._task.partition}: row {sent + 1} has a null topic, and the sink no "
                    "default one: set the option topic, or fill the column topic"
                )
            try:
                produce(where, value, key, partition, None, None, timestamp, headers)
            except BufferError:
                self._send_when_there_is_room(where, value, key, partition, timestamp, headers)
            except KafkaException as error:
                raise self._refused(where, partition, error.args[0]) from error
            sent += 1
        self._records = sent
        self._check()

    def _send_when_there_is_room(self, *record: Any) -> None:
        where, value, key, partition, timestamp, headers = record
        until = time.monotonic() + self._plan.timeout_ms / 1000
        while True:
            self._served(self._producer.poll, _POLL_S)
            self._check()
            try:
                self._producer.produce(where, value, key, partition, None, None, timestamp, headers)
            except BufferError:
                if time.monotonic() > until:
                    raise SinkError(
                        f"partition {self._task.partition}: no record left the queue for "
                        f"{self._plan.timeout_ms} ms, the transaction's timeout: brokers do not take them"
                    ) from None
            except KafkaException as error:
                raise self._refused(where, partition, error.args[0]) from error
            else:
                return

    def finish(self) -> SinkTransaction:
        """Wait until every record is at its broker; return the transaction, which stays open."""
        left = self._served(self._producer.flush, self._plan.timeout_ms / 1000)
        self._check()
        if left:
            raise SinkError(
                f"partition {self._task.partition}: {left} records were not taken by their brokers within "
                f"{self._plan.timeout_ms} ms, the transaction's timeout"
            )
        described = describe_ids(self._admin, [self._id])[self._id]
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
            tuple(
                TopicPartition(topic, number) for topic, numbers in described.partitions for number in numbers
            ),
            self._records,
            described.started_ms,
            described.timeout_ms,
        )

    def _served(self, call: Callable[[float], int], seconds: float) -> int:
        """Let the producer report what it has to report; a fatal error of it is a `SinkError`."""
        try:
            return call(seconds)
        except (KeyboardInterrupt, SystemExit):
            raise
        except:  # noqa: E722, S110 - confluent-kafka raises its KafkaError itself, which is no exception class
            pass
        raise self._dead()

    def _dead(self) -> SinkError:
        return SinkError(
            f"partition {self._task.partition}: the producer of {self._id} can go on no more: "
            f"{self._fatal()}. Its transaction ended before its records were there: by its timeout of "
            f"{self._plan.timeout_ms} ms, or by whoever took its id over. The batch runs again; if batches "
            "take that long, raise transaction_timeout_ms"
        )

    def _fatal(self) -> str:
        """Return what the producer died of: it refuses with that, at once, to end what it can end no more."""
        try:
            self._producer.abort_transaction(_PATIENCE_S / 4)
        except KafkaException as error:
            return str(error.args[0])
        return "it gives no reason"

    def abort(self) -> None:
        """End it: the task has failed. What cannot be ended now is swept later, or ends by its timeout."""
        with suppress(KafkaException):
            self._producer.abort_transaction(_PATIENCE_S / 4)

    def drop(self) -> None:
        """Let the producer go, with its threads and connections; its transaction stays as it is."""
        # It holds this object by its callback: without this they would wait for a garbage collection.
        del self._producer

    def _told(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self._failed is None:
            self._failed, self._failed_where = error, f"{message.topic()}-{message.partition()}"

    def _check(self) -> None:
        if self._failed is None:
            return
        if self._failed.code() in _DEAD:
            raise self._dead()
        raise SinkError(
            f"partition {self._task.partition}: a record for {self._failed_where} was not taken: "
            f"{self._failed.str()}"
        )

    def _refused(self, topic: str, partition: int, error: KafkaError) -> SinkError:
        if error.code() in _DEAD:
            return self._dead()
        where = topic if partition < 0 else f"{topic}-{partition}"
        return SinkError(f"partition {self._task.partition}: a record for {where} was refused: {error.str()}")


_admins: dict[tuple[tuple[str, str], ...], TransactionAdmin] = {}


def admin_for(connection: Mapping[str, str]) -> TransactionAdmin:
    """Return this process's connection to a cluster's admin side; a Python worker serves many tasks."""
    key = tuple(sorted(connection.items()))
    if key not in _admins:
        try:
            _admins[key] = KafkaPythonAdmin(connection, _PATIENCE_S / 2)
        except CannotTranslate as error:
            raise Refused(f'option "{PREFIX}{error.key}" {error.reason}') from error
        except AdminUnavailable as error:
            raise SinkError(str(error)) from error
    return _admins[key]


def _make_producer(plan: TaskPlan, transactional_id: str, told: Callable[..., None]) -> Producer:
    try:
        return Producer(_settings(plan, transactional_id), on_delivery=told)
    except (CannotAuthenticate, KafkaException) as error:
        reason = explain_refusal(error.args[0].str()) if isinstance(error, KafkaException) else error
        raise SinkError(f"{transactional_id}: the options are refused here: {reason}") from error


def _settings(plan: TaskPlan, transactional_id: str) -> dict[str, Any]:
    return {
        **librdkafka_settings(plan.properties.producer_properties),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": plan.timeout_ms,
        # librdkafka finds the coordinator by a connection that it has: without one it waits for half a second
        # every second time (docs/design/spark.md §0).
        "enable.sparse.connections": "false",
        "delivery.report.only.error": True,
        "log_level": plan.properties.sending.get("log_level", "3"),
    }


def _free_id(plan: TaskPlan, task: Task, admin: TransactionAdmin) -> str:
    """Return an id that no other attempt has open: initialising it would abort that one's transaction."""
    for number in range(names.SLOTS):
        slot = (task.attempt_id + number) % names.SLOTS
        parts = names.Parts(plan.stem, task.partition, plan.generation, plan.batch_id % 2, slot)
        described = describe_ids(admin, [str(parts)])[str(parts)]
        if isinstance(described, NotDescribed):
            if described.obstacle is Obstacle.UNKNOWN:
                return str(parts)
            raise SinkError(f"{parts}: cannot be looked up: {described.text}")
        if described.state in (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        ):
            return str(parts)
    raise SinkError(
        f"partition {task.partition}: all {names.SLOTS} transactional ids of this batch are open, by "
        f"attempts that have failed: see why; the last is {parts}. The next start of the query aborts them"
    )


def _explained(error: KafkaException, transactional_id: str) -> str:
    problem: KafkaError = error.args[0]
    text = str(problem.str())
    if problem.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        remedy = grant_command("User:…", "WRITE", f"--transactional-id '{transactional_id}'")
        return f"{text}: {remedy} (for its prefix: --resource-pattern-type prefixed)"
    if problem.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return f"{text}: lower transaction_timeout_ms, or raise the broker's transaction.max.timeout.ms"
    return text


def from_arrow(batches: Iterable[Any]) -> Iterator[Iterator[Record]]:
    """Yield the records of Arrow batches whose columns are those of the sink."""
    for batch in batches:
        columns = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
        yield zip(*(read(columns.get(name)) for name, read in _ARROW.items()), strict=False)


#: How many rows are handed over at once where they come one by one.
_CHUNK = 10_000


def from_rows(rows: Iterator[Any]) -> Iterator[Iterable[Record]]:
    """Yield the records of Spark's rows whose columns are those of the sink."""
    while chunk := list(islice(rows, _CHUNK)):
        yield map(_from_row, chunk)


def _from_row(row: Any) -> Record:
    fields = row.asDict()
    partition, stamp, headers = fields.get("partition"), fields.get("timestamp"), fields.get("headers")
    return (
        fields.get("topic"),
        _as_bytes(fields.get("value")),
        _as_bytes(fields.get("key")),
        ANY_PARTITION if partition is None else partition,
        NOW if stamp is None else int(stamp.timestamp() * 1000),
        None if headers is None else [(each["key"], _as_bytes(each["value"])) for each in headers],
    )


def _as_bytes(value: str | bytes | bytearray | None) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)


def _bytes(column: Any) -> Iterable[bytes | None]:
    import pyarrow as pa

    if column is None:
        return repeat(None)
    # Text is UTF-8 in Arrow as in Kafka: it is not decoded on its way.
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    values: list[bytes | None] = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
    return values


def _plain(default: Any) -> Callable[[Any], Iterable[Any]]:
    def read(column: Any) -> Iterable[Any]:
        if column is None:
            return repeat(default)
        return [default if each is None else each for each in column.to_pylist()]

    return read


def _milliseconds(column: Any) -> Iterable[int]:
    import pyarrow as pa

    if column is None:
        return repeat(NOW)
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_pylist()
    return [NOW if each is None else each // 1000 for each in micros]


def _headers(column: Any) -> Iterable[list[tuple[str, str | bytes | None]] | None]:
    if column is None:
        return repeat(None)
    return [
        None if each is None else [(pair["key"], pair["value"]) for pair in each]
        for each in column.to_pylist()
    ]


#: In the order of a `Record`.
_ARROW: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "topic": _plain(None),
    "value": _bytes,
    "key": _bytes,
    "partition": _plain(ANY_PARTITION),
    "timestamp": _milliseconds,
    "headers": _headers,
}
