"""`__transaction_state`, or another topic, as a plain consumer reads it."""

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from fenceline.decode.transaction_state import decode_record
from fenceline.facts import TransactionRecord
from sandbox.kafka import Broker
from tests.brokers import topic_ends
from tests.transaction_state_records import encode_key

TOPIC = "__transaction_state"


class RawRecord(NamedTuple):
    """One record as it lies in the topic."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def raw_records(bootstrap: str, topic: str = TOPIC, *, committed: bool = True) -> Iterator[RawRecord]:
    """Yield every record up to the end that each partition has now, each partition in its order.

    Or until librdkafka announces it: after the last record there may be markers, which no consumer receives.
    """
    isolation = "read_committed" if committed else "read_uncommitted"
    settings = {
        "bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0,
        "isolation.level": isolation, "enable.partition.eof": True, "auto.offset.reset": "earliest",
    }  # fmt: skip
    with closing(Consumer(settings)) as consumer:
        ends = _ends(consumer, topic)
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        left = set(ends)
        while left:
            for message in consumer.consume(10_000, 0.1):
                number, error = message.partition(), message.error()
                assert number is not None
                assert error is None or error.code() == KafkaError._PARTITION_EOF, error
                if error is None:
                    yield (record := _raw(message))
                if error is not None or record.offset + 1 >= ends[number]:
                    left.discard(number)


def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ranges = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=30) for n in partitions}
    return {number: high for number, (low, high) in ranges.items() if high > low}


def _raw(message: Message) -> RawRecord:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return RawRecord(partition, offset, message.timestamp()[1], message.key(), message.value())


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """Return the values that a read_committed consumer gets of a topic, up to its last stable offset."""
    return [record.value or b"" for record in raw_records(bootstrap, topic)]


def record_offsets(
    broker: Broker, topic: str, value: str, *, committed: bool, partition: int = 0
) -> list[int]:
    """Return where a consumer finds records of this value."""
    records = raw_records(broker.bootstrap, topic, committed=committed)
    return [record.offset for record in records if record[0] == partition and record.value == value.encode()]


def records_of(bootstrap: str, transactional_id: str) -> list[TransactionRecord]:
    """Return what the coordinator wrote of an id."""
    key = encode_key(transactional_id)
    found = (decode_record(key, record.value) for record in raw_records(bootstrap) if record.key == key)
    return [record for record in found if isinstance(record, TransactionRecord)]


def last_record(bootstrap: str, transactional_id: str) -> TransactionRecord:
    """Return what the coordinator wrote last of an id."""
    return records_of(bootstrap, transactional_id)[-1]


def end_offset(bootstrap: str, topic: str, partition: int = 0, *, committed: bool) -> int:
    """Return a partition's LSO if `committed`, else its high watermark."""
    lso, high_watermark = topic_ends(bootstrap, topic)[partition]
    return lso if committed else high_watermark
