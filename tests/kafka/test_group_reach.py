"""Proves that a group's lag counts only what it can read, and that a topic it has left is not assigned."""

import pytest
from confluent_kafka import TopicPartition
from py4j.java_gateway import JavaGateway

from dashboard.models import Group
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.consumers import JavaConsumer
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.group_commits import administer, commit_offsets, write_records
from tests.kafka.producers import LibrdkafkaProducer
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


def test_lag_to_the_lso_counts_neither_deleted_nor_aborted_records(
    kafka_42: Broker, collected_42: CollectedGroups
) -> None:
    """Of a group, and of its partition: Kafka's tools count both to the high watermark."""
    where, names = kafka_42.bootstrap, ("gr-trimmed", "gr-aborted", "gr-both")
    create_topics(where, *names, partitions=1)
    aborter = LibrdkafkaProducer(where, "gr-aborter")
    aborter.init()
    write_records(where, "gr-trimmed", 100, 1)
    write_records(where, "gr-both", 100, 1)
    for topic in ("gr-aborted", "gr-both"):
        for _ in range(3):
            aborter.begin()
            for _ in range(10):
                aborter.send(topic, 0)
            aborter.flush()
            aborter.abort()
    for name, offset in zip(names, (10, 0, 40), strict=True):
        commit_offsets(where, name, name, p0=offset)
    for topic in ("gr-trimmed", "gr-both"):
        administer(where, "delete_records", [TopicPartition(topic, 0, 100)])

    groups = collected_42.poll(3)
    for name, behind in zip(names, (90, 33, 93), strict=True):
        row = collected_42.offset(name, name, 0)
        assert (groups[name].lag_lso, row.lag_lso) == (0, 0), name
        assert (groups[name].lag_hw, row.lag_hw) == (behind, behind), name
        assert (row.status, row.lag_ms) == ("OK", 0), name


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_that_a_group_has_left_is_not_assigned(
    kafka_42: Broker, collected_42: CollectedGroups, java: JavaGateway, protocol: str
) -> None:
    where, group = kafka_42.bootstrap, f"gr-left-{protocol}"
    before, after = f"{group}-before", f"{group}-after"
    create_topics(where, before, after, partitions=1)
    write_records(where, before, 20, 1)
    commit_offsets(where, group, before, p0=5)
    commit_offsets(where, group, after, p0=0)
    assert collected_42.poll()[group].members in (None, 0)
    assert collected_42.offset(group, before, 0).status != "LEFT"
    with JavaConsumer(java, where, group, after, {"group.protocol": protocol}) as consumer:

        def is_left() -> bool:
            consumer.poll(100)
            return (
                collected_42.poll()[group].members == 1
                and collected_42.offset(group, before, 0).status == "LEFT"
            )

        wait_for(is_left, "nobody subscribes to it any more", 60)
        row = Group.objects.get(group_id=group, cluster__name=collected_42.cluster.name)
        assert row.status in ("OK", "UNKNOWN")
        assert (row.lag_lso, row.lag_hw) == (0, 0)
        assert collected_42.offset(group, after, 0).status != "LEFT"
