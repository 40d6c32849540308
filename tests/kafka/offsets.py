"""Partitions by number, and offsets that a group commits."""

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Position

from fenceline.facts import TopicPartition
from tests.waiting import wait_for

CLEANUP = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


def partitions_of(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def commit_as_group(bootstrap: str, group: str, offsets: list[Position]) -> None:
    """Commit as a group without members; its coordinator may need a moment to be one."""

    def committed() -> bool:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return False
        finally:
            consumer.close()
        return True

    wait_for(committed, f"{group} commits")
