"""Where a consumer finds records, by their value."""

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned

from sandbox.kafka import Broker


def record_offsets(
    broker: Broker, topic: str, value: str, *, committed: bool, partition: int = 0
) -> list[int]:
    """Return where a consumer finds records of this value."""
    isolation = "read_committed" if committed else "read_uncommitted"
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": isolation, "enable.partition.eof": True})
    found: list[int] = []
    try:
        consumer.assign([Assigned(topic, partition, 0)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            if message.value() == value.encode():
                found.append(message.offset() or 0)
    finally:
        consumer.close()
    return found
