"""Groups that commit: clients without membership, members, and what they leave in `__consumer_offsets`."""

from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

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
    # confluent-kafka sends the NUL behind a text along with it, also of an empty one.
    given = {"metadata": metadata} if metadata else {}
    positions = [TopicPartition(topic, int(name[1:]), offset, **given) for name, offset in offsets.items()]

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


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in client.list_topics(timeout=10).topics, f"{topic} is gone")


def group_member(bootstrap: str, group: str, topic: str) -> Consumer:
    """A running member of a classic group that has read something and committed it."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False, "log_level": 0, "client.id": "it-is-me"})
    consumer.subscribe([topic])
    message = wait_for(lambda: consumer.poll(0.2), "the first record", 60)
    assert message.error() is None
    consumer.commit(message=message, asynchronous=False)
    return consumer
