"""One way to drive a transactional producer, whichever library it is: Java's (tests/java) or librdkafka."""

from collections.abc import Mapping
from contextlib import closing
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.java.clients import JavaError
from tests.waiting import wait_for

#: Longer than any wait for a coordinator here; a call that takes so long has failed.
DEADLINE_S = 30.0
#: Settings of a producer whose transactions outlast a test.
LONG = {"transaction.timeout.ms": "900000", "linger.ms": "0"}


class TransactionalProducer(Protocol):
    """What tests do with a producer. Each call blocks; what the broker refuses raises the library's error."""

    def init(self) -> None:
        """Take the id over, and end what it has open."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, partition: int, value: str = "x") -> None:
        """Send a record without waiting."""

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Add a group's offsets to the transaction."""

    def flush(self) -> None:
        """Wait until everything sent is at the brokers."""

    def commit(self) -> None:
        """Commit."""

    def abort(self) -> None:
        """Abort."""

    def abandon(self) -> None:
        """End as a crash would: what is open stays open."""


class LibrdkafkaProducer:
    """confluent-kafka's producer in those terms."""

    def __init__(
        self, bootstrap: str, transactional_id: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._bootstrap = bootstrap
        # Being fenced and finding brokers gone is what happens to it here: librdkafka would print each time.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "log_level": 0,
                "error_cb": lambda error: None,
                **(settings or {}),
            }
        )

    def init(self) -> None:
        """`init_transactions`."""
        self._producer.init_transactions(DEADLINE_S)

    def begin(self) -> None:
        """`begin_transaction`."""
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str = "x") -> None:
        """`produce`."""
        self._producer.produce(topic, value.encode(), partition=partition)

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """`send_offsets_to_transaction` for a group without members."""
        positions = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        with closing(
            Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 0})
        ) as consumer:
            metadata = consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(positions, metadata, DEADLINE_S)

    def send_positions(self, consumer: Consumer) -> None:
        """`send_offsets_to_transaction` for a member: all that it has read."""
        positions = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
        self._producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), DEADLINE_S)

    def flush(self) -> None:
        """`flush`."""
        assert self._producer.flush(DEADLINE_S) == 0

    def commit(self) -> None:
        """`commit_transaction`."""
        self._producer.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        """`abort_transaction`."""
        self._producer.abort_transaction(DEADLINE_S)

    def abandon(self) -> None:
        """Drop it: librdkafka sends nothing to the coordinator."""
        del self._producer


def open_in(
    bootstrap: str, name: str, topic: str = "", *partitions: int, records: int = 1
) -> LibrdkafkaProducer:
    """Open a transaction of an id in some partitions, records in each, for longer than any test lasts."""
    producer = LibrdkafkaProducer(bootstrap, name, LONG)
    producer.init()
    producer.begin()
    for number in partitions:
        for _ in range(records):
            producer.send(topic, number)
    producer.flush()
    return producer


def wait_until_refused(producer: TransactionalProducer, topic: str) -> None:
    """Wait until a producer refuses to send: Java fails its transaction only after `flush` returns."""

    def refuses() -> bool:
        try:
            producer.send(topic, 0)
            producer.flush()
        except (JavaError, KafkaException):
            return True
        return False

    wait_for(refuses, "the producer refuses to go on")
