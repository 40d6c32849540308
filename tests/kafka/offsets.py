"""Partitions by number, and a setting of brokers."""

from fenceline.facts import TopicPartition

CLEANUP = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


def partitions_of(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]
