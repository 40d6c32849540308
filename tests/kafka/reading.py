"""What tests of our reads need: partitions by number, open transactions, committed offsets, grants."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from fenceline.facts import TopicPartition
from sandbox.kafka import Broker
from tests.kafka.producers import LibrdkafkaProducer
from tests.waiting import wait_for

LONG = {"transaction.timeout.ms": "900000", "linger.ms": "0"}
CLEANUP = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


def of(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def open_in(bootstrap: str, name: str, topic: str, *partitions: int) -> LibrdkafkaProducer:
    producer = LibrdkafkaProducer(bootstrap, name, LONG)
    producer.init()
    producer.begin()
    for number in partitions:
        producer.send(topic, number)
    producer.flush()
    return producer


def commit(bootstrap: str, group: str, offsets: list[Position]) -> None:
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


def grant(broker: Broker, user: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
    binding = AclBinding(
        kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW
    )
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_acls([binding])[binding].result(30)
