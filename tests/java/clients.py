"""Java's transactional producer and Admin, as thin Python classes over a py4j gateway."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

STRINGS = "org.apache.kafka.common.serialization.StringSerializer"


class JavaError(Exception):
    """What a Java client threw: the simple name of the class at the root of it, and its message."""

    def __init__(self, thrown: Py4JJavaError) -> None:
        cause = thrown.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        self.kind: str = cause.getClass().getSimpleName()
        super().__init__(f"{self.kind}: {cause.getMessage()}")


class _Translating:
    """Turns what Java throws inside `with` into JavaError.

    A PySpark in this process looks each Java error up in its own JVM, by the number that it has in ours. It
    may fail at that, or find another object of that number and raise that: then what Java threw is the
    context of what is raised.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thrown = error
        while thrown is not None and not isinstance(thrown, Py4JJavaError):
            thrown = thrown.__context__
        if thrown is not None:
            raise JavaError(thrown) from None


translating = _Translating()


def elements(collection: Any) -> list[Any]:
    """Return the elements of a Java collection.

    A Java iterator ends with an error in py4j, which a PySpark may turn into another (see _Translating).
    """
    return list(collection.toArray())


class Closing(ABC):
    """What is closed as a context manager."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class JavaProducer(Closing):
    """A transactional `KafkaProducer` of strings. Calls block as in Java and raise JavaError.

    Leaving it as a context manager closes it, which aborts what is open; `abandon()` leaves it open.
    """

    def __init__(
        self,
        gateway: JavaGateway,
        bootstrap: str,
        transactional_id: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._jvm = gateway.jvm
        config = self._jvm.java.util.HashMap()
        wanted = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "key.serializer": STRINGS,
            "value.serializer": STRINGS,
            "buffer.memory": "1048576",
            **(settings or {}),
        }
        for name, value in wanted.items():
            config.put(name, value)
        with translating:
            self._producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(config)

    def init(self) -> None:
        """`initTransactions`: take the id over and end what it has open."""
        with translating:
            self._producer.initTransactions()

    def begin(self) -> None:
        """`beginTransaction`."""
        with translating:
            self._producer.beginTransaction()

    def send(self, topic: str, partition: int, value: str = "x") -> None:
        """`send`, without waiting: `flush` or the end of the transaction waits."""
        with translating:
            record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, partition, None, value)
            self._producer.send(record)

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """`sendOffsetsToTransaction` for a group without members."""
        positions = self._jvm.java.util.HashMap()
        for (topic, partition), offset in offsets.items():
            where = self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
            positions.put(where, self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(offset))
        metadata = self._jvm.org.apache.kafka.clients.consumer.ConsumerGroupMetadata(group)
        with translating:
            self._producer.sendOffsetsToTransaction(positions, metadata)

    def flush(self) -> None:
        """`flush`: everything sent is at the brokers, or failed."""
        with translating:
            self._producer.flush()

    def commit(self) -> None:
        """`commitTransaction`."""
        with translating:
            self._producer.commitTransaction()

    def abort(self) -> None:
        """`abortTransaction`."""
        with translating:
            self._producer.abortTransaction()

    def close(self) -> None:
        """`close`: aborts what is open."""
        with translating:
            self._producer.close(self._jvm.java.time.Duration.ofSeconds(10))

    def abandon(self) -> None:
        """End it as a crash would: what is open stays open."""
        with translating:
            self._producer.close(self._jvm.java.time.Duration.ZERO)


@dataclass(frozen=True, slots=True)
class Listing:
    """One row of `listTransactions`."""

    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Description:
    """What `describeTransactions` says of one id; None for the start of what has not started."""

    state: str
    timeout_ms: int
    started_ms: int | None
    producer_id: int
    producer_epoch: int
    partitions: frozenset[tuple[str, int]]


class JavaAdmin(Closing):
    """Java's Admin client, as far as it speaks of transactions. Raises JavaError."""

    def __init__(self, gateway: JavaGateway, bootstrap: str) -> None:
        self._jvm = gateway.jvm
        config = self._jvm.java.util.HashMap()
        config.put("bootstrap.servers", bootstrap)
        self._admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(config)

    def list_transactions(self) -> dict[str, Listing]:
        """Return every transactional id that the coordinators know."""
        with translating:
            listings = self._admin.listTransactions().all().get()
        return {
            listing.transactionalId(): Listing(listing.producerId(), listing.state().toString())
            for listing in elements(listings)
        }

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, Description]:
        """Return what their coordinators say of these ids, which must exist."""
        with translating:
            found = self._admin.describeTransactions(list(transactional_ids)).all().get()
        return {entry.getKey(): _described(entry.getValue()) for entry in elements(found.entrySet())}

    def describe_producers(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], set[tuple[int, int, int | None]]]:
        """Return producer id, epoch and start of the open transaction of who writes, by partition."""
        wanted = [self._jvm.org.apache.kafka.common.TopicPartition(*each) for each in partitions]
        with translating:
            found = self._admin.describeProducers(wanted).all().get()
        return {
            (entry.getKey().topic(), entry.getKey().partition()): {
                _producer(state) for state in elements(entry.getValue().activeProducers())
            }
            for entry in elements(found.entrySet())
        }

    def fence_producers(self, transactional_ids: Iterable[str], timeout_ms: int | None = None) -> None:
        """Fence them as `kafka-transactions.sh forceTerminateTransaction` does, or with another timeout."""
        options = self._jvm.org.apache.kafka.clients.admin.FenceProducersOptions()
        if timeout_ms is not None:
            options.timeoutMs(timeout_ms)
        with translating:
            self._admin.fenceProducers(list(transactional_ids), options).all().get()

    def abort_transaction(self, topic: str, partition: int, producer_id: int) -> None:
        """Write an abort marker for what a producer has open, as `kafka-transactions.sh abort` does.

        Where it has nothing open, the marker is written nevertheless.
        """
        where = self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        with translating:
            states = self._admin.describeProducers([where]).all().get().get(where).activeProducers()
            (state,) = (each for each in elements(states) if each.producerId() == producer_id)
            epoch, coordinator_epoch = state.producerEpoch(), state.coordinatorEpoch().orElse(0)
            spec = self._jvm.org.apache.kafka.clients.admin.AbortTransactionSpec(
                where, producer_id, epoch, coordinator_epoch
            )
            self._admin.abortTransaction(spec).all().get()

    def lead_by(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Make the first of a partition's replicas its leader, as a reassignment and an election do."""
        where = self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        admin = self._jvm.org.apache.kafka.clients.admin
        wanted = self._jvm.java.util.Optional.of(admin.NewPartitionReassignment(list(replicas)))
        preferred = self._jvm.org.apache.kafka.common.ElectionType.PREFERRED
        with translating:
            self._admin.alterPartitionReassignments({where: wanted}).all().get()
            self._admin.electLeaders(preferred, {where}).all().get()

    def close(self) -> None:
        """Close it."""
        self._admin.close()


def _producer(state: Any) -> tuple[int, int, int | None]:
    start = state.currentTransactionStartOffset()
    return state.producerId(), state.producerEpoch(), start.getAsLong() if start.isPresent() else None


def _described(found: Any) -> Description:
    start = found.transactionStartTimeMs()
    return Description(
        found.state().toString(),
        found.transactionTimeoutMs(),
        start.getAsLong() if start.isPresent() else None,
        found.producerId(),
        found.producerEpoch(),
        frozenset((where.topic(), where.partition()) for where in elements(found.topicPartitions())),
    )
