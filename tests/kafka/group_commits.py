"""Groups that commit: clients without membership, members, and what they leave in `__consumer_offsets`."""

from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kafka.topic_records import RawRecord
from tests.waiting import wait_for


def write_records(bootstrap: str, topic: str, records: int = 30, partitions: int = 3) -> None:
    """Write so many records, the same number into each of the first partitions."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(records):
        producer.produce(topic, b"x", partition=number % partitions)
    assert producer.flush(30) == 0


def commit_offsets(bootstrap: str, group: str, topic: str, metadata: str = "", **offsets: int) -> None:
    """Commit for partitions p0, p1, … of a topic, as a client without membership does."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    positions = [
        TopicPartition(topic, int(partition[1:]), offset, metadata=metadata)
        for partition, offset in offsets.items()
    ]

    def is_done() -> bool:
        # A coordinator that has just been made says for a while that it is none.
        with suppress(KafkaException):
            consumer.commit(offsets=positions, asynchronous=False)
            return True
        return False

    wait_for(is_done, f"{group} commits", 60)
    consumer.close()


def administer(bootstrap: str, what: str, *arguments: object) -> None:
    """Call a method of the admin client and wait until it is done."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    for done in getattr(client, what)(*arguments).values():
        done.result(30)


def group_member(bootstrap: str, group: str, topic: str) -> Consumer:
    """A running member of a classic group that has read something and committed it."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False, "log_level": 0, "client.id": "it-is-me"})
    consumer.subscribe([topic])
    message = wait_for(lambda: consumer.poll(0.2), "the first record", 60)
    assert message.error() is None
    consumer.commit(message=message, asynchronous=False)
    return consumer


def committed_records(bootstrap: str, topic: str) -> list[RawRecord]:
    """Return every committed record of a topic, partition by partition.

    Until librdkafka announces an end: after the last record there may be markers, which no consumer receives.
    """
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True}
    consumer = Consumer(settings | {"enable.auto.commit": False, "log_level": 0})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found, left = [], set(partitions)
    while left:
        for message in consumer.consume(1_000, 1):
            number, offset = message.partition(), message.offset()
            assert number is not None
            assert offset is not None
            if message.error() is not None:
                left.discard(number)
            else:
                found.append(
                    RawRecord(number, offset, message.timestamp()[1], message.key(), message.value())
                )
    consumer.close()
    return sorted(found, key=lambda each: each[:2])
