"""`__transaction_state`, or another topic, as a plain consumer reads it."""

from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

from fenceline.decode.transaction_state import decode_record
from fenceline.facts import TransactionRecord
from tests.transaction_state_records import encode_key

TOPIC = "__transaction_state"


class RawRecord(NamedTuple):
    """One record as it lies in the topic."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def raw_records(bootstrap: str, topic: str = TOPIC) -> Iterator[RawRecord]:
    """Yield every record up to the end that each partition has now, each partition in its order."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        yield from _read(consumer, topic, _ends(consumer, topic))
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ranges = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=30) for n in partitions}
    return {number: high for number, (low, high) in ranges.items() if high > low}


def _read(consumer: Consumer, topic: str, ends: dict[int, int]) -> Iterator[RawRecord]:
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    left = set(ends)
    while left:
        messages = consumer.consume(10_000, 1)
        yield from (_raw(message) for message in messages)
        for where in consumer.position([TopicPartition(topic, number) for number in left]):
            if where.offset >= ends[where.partition]:
                left.discard(where.partition)


def _raw(message: Message) -> RawRecord:
    partition, offset = message.partition(), message.offset()
    assert message.error() is None, message.error()
    assert partition is not None
    assert offset is not None
    _, timestamp_ms = message.timestamp()
    return RawRecord(partition, offset, timestamp_ms, message.key(), message.value())


def committed_values(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes]:
    """Return the values that a read_committed consumer gets of a topic, up to its last stable offset."""
    settings = {
        "bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True,
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values, ended = [], 0
    try:
        while ended < partitions:
            record = consumer.poll(10)
            assert record is not None, "nothing within 10 s"
            if record.error() is None:
                values.append(record.value() or b"")
            ended += record.error() is not None
    finally:
        consumer.close()
    return values


def last_record(bootstrap: str, transactional_id: str) -> TransactionRecord:
    """Return what the coordinator wrote last of an id."""
    key = encode_key(transactional_id)
    values = [record.value for record in raw_records(bootstrap) if record.key == key]
    found = decode_record(key, values[-1])
    assert isinstance(found, TransactionRecord)
    return found
