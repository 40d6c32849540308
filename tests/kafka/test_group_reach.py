"""Proves what is told of groups by what they, and we, may read. A group's lag counts only what it can read,
and a topic it has left is not assigned. Share groups are listed with their start offsets, as Kafka's own tool
prints them, and an open transaction blocks the one that reads committed records and not the other.

Groups are read from their coordinators or from the log alone, where ACLs allow no more; a group without
either keeps its rows, with an error and a gap.
"""

from contextlib import ExitStack

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    ResourceType,
)
from py4j.java_gateway import JavaGateway

from dashboard.models import Collector, CommitRecord, GapRecord, Group, GroupOffset
from fenceline.kafka.groups import Waiting
from sandbox.kafka import Broker
from tests.acls import set_acl
from tests.brokers import create_topics
from tests.java.consumers import JavaConsumer
from tests.java.tools import KafkaTool
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.doctor_checks import signed_in
from tests.kafka.group_commits import administer, commit_offsets, write_records
from tests.kafka.producers import LibrdkafkaProducer
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]
HIDDEN, HIDDEN_TOPIC = "hidden", "hidden-topic"
SHARED, COMMITTED, UNCOMMITTED = "sh-in", "sh-committed", "sh-uncommitted"
CONFIG = "kafka.admin.ConfigCommand"
DESCRIBE = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


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


@pytest.fixture(scope="module")
def granted(acl_broker: Broker) -> None:
    """A group on a broker with ACLs, and who may see what of it."""
    create_topics(acl_broker.bootstrap, HIDDEN_TOPIC)
    write_records(acl_broker.bootstrap, HIDDEN_TOPIC)
    commit_offsets(acl_broker.bootstrap, HIDDEN, HIDDEN_TOPIC, p0=3)
    commit_offsets(acl_broker.bootstrap, HIDDEN, HIDDEN_TOPIC, p0=5)
    set_acl(acl_broker, "reader", ResourceType.TOPIC, HIDDEN_TOPIC, AclOperation.DESCRIBE)
    set_acl(acl_broker, "reader", ResourceType.TOPIC, "__consumer_offsets", AclOperation.READ)
    set_acl(acl_broker, "asker", ResourceType.TOPIC, HIDDEN_TOPIC, AclOperation.DESCRIBE)
    set_acl(acl_broker, "asker", ResourceType.TOPIC, "__consumer_offsets", AclOperation.DESCRIBE)
    set_acl(acl_broker, "asker", ResourceType.GROUP, HIDDEN, AclOperation.DESCRIBE)


@pytest.mark.usefixtures("granted")
def test_without_describe_on_groups_the_log_is_enough(acl_broker: Broker) -> None:
    collected = CollectedGroups(signed_in(acl_broker, "reader"))
    collected.poll(2)
    row = collected.offset(HIDDEN, HIDDEN_TOPIC, 0)
    assert (row.offset, row.high_watermark) == (5, 10)
    assert row.commit_ms == CommitRecord.objects.get(group_id=HIDDEN).commit_ms
    group = Group.objects.get(group_id=HIDDEN)
    assert "no DESCRIBE on this group" in group.error
    assert (group.state, group.lag_hw) == ("", 5)
    assert not GapRecord.objects.filter(source="groups", scope=f"group:{HIDDEN}").exists()
    collected.close()


@pytest.mark.usefixtures("granted")
def test_without_read_on_the_topic_the_coordinators_are_enough(acl_broker: Broker) -> None:
    """Commit times are those of the first poll with an offset."""
    collected = CollectedGroups(signed_in(acl_broker, "asker"), log=False)
    collected.poll(2)
    row = collected.offset(HIDDEN, HIDDEN_TOPIC, 0)
    assert (row.offset, row.high_watermark) == (5, 10)
    first_ms = row.commit_ms
    assert first_ms is not None
    collected.poll()
    assert collected.offset(HIDDEN, HIDDEN_TOPIC, 0).commit_ms == first_ms
    group = Group.objects.get(group_id=HIDDEN)
    assert (group.error, group.state) == ("", "Empty")
    collected.close()


@pytest.mark.usefixtures("granted")
def test_a_group_that_becomes_unavailable_keeps_its_rows_with_an_error_and_a_gap(acl_broker: Broker) -> None:
    allowed = CollectedGroups(signed_in(acl_broker, "reader"))
    allowed.poll(2)
    Collector.objects.filter(name="consumer_offsets").update(seen_through_ms=1)
    allowed._log = False
    allowed.poll()
    group = Group.objects.get(group_id=HIDDEN)
    assert "no DESCRIBE on this group" in group.error
    assert allowed.offset(HIDDEN, HIDDEN_TOPIC, 0).offset == 5
    gaps = GapRecord.objects.filter(source="groups", scope=f"group:{HIDDEN}")
    assert [gap.until_ms for gap in gaps] == [None]
    allowed._log = True
    allowed.poll()
    assert gaps.get().until_ms is not None
    allowed.close()


@pytest.fixture
def kafka_tool(kafka_42: Broker, java: JavaGateway) -> KafkaTool:
    return KafkaTool(kafka_42, java)


def configure(tool: KafkaTool, group: str, isolation: str) -> None:
    settings = f"share.auto.offset.reset=earliest,share.isolation.level={isolation}"
    tool.run(CONFIG, "--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", settings)


def start_and_lag(tool: KafkaTool, group: str) -> tuple[str, str]:
    """Return what Kafka's own tool prints for the group's only partition; nothing before it has one."""
    for line in tool.run(DESCRIBE, "--describe", "--group", group, "--offsets").splitlines():
        words = line.split()
        if words[:3] == [group, SHARED, "0"]:
            return words[3], words[4]
    return "", ""


def test_an_open_transaction_blocks_the_group_that_reads_committed_records(
    kafka_42: Broker, java: JavaGateway, kafka_tool: KafkaTool, collected_42: CollectedGroups
) -> None:
    create_topics(kafka_42.bootstrap, SHARED, partitions=1)
    producer = LibrdkafkaProducer(kafka_42.bootstrap, "sh-tx")
    producer.init()
    producer.begin()
    producer.send(SHARED, 0)
    producer.commit()
    producer.begin()
    producer.send(SHARED, 0)
    producer.flush()
    with ExitStack() as stack:
        consumers = []
        for group, isolation in ((COMMITTED, "read_committed"), (UNCOMMITTED, "read_uncommitted")):
            configure(kafka_tool, group, isolation)
            consumer = JavaConsumer(java, kafka_42.bootstrap, group, SHARED, share=True)
            consumers.append(stack.enter_context(consumer))
        got = [0, 0]

        def have_read() -> bool:
            for number, each in enumerate(consumers):
                if count := each.poll(100):
                    got[number] += count
                    each.commit()
            return got[0] >= 1 and got[1] >= 2

        def lags() -> list[str]:
            return [start_and_lag(kafka_tool, group)[1] for group in (COMMITTED, UNCOMMITTED)]

        wait_for(have_read, "each has read what it may", 120)
        wait_for(lags, "Kafka's tool tells of that", until=lambda found: found == ["1", "0"])
        found = collected_42.poll(2)
    assert {(found[name].kind, found[name].members) for name in (COMMITTED, UNCOMMITTED)} == {("Share", 1)}
    left = wait_for(
        lambda: (row := collected_42.poll()[COMMITTED]).members == 0 and row, "its member has left", 60
    )
    assert left.kind == "Share"
    rows = {
        row.group.group_id: row for row in GroupOffset.objects.filter(topic=SHARED).select_related("group")
    }
    assert {name: row.offset for name, row in rows.items()} == {COMMITTED: 2, UNCOMMITTED: 3}
    assert rows[COMMITTED].waiting == Waiting.PROBABLY
    assert rows[UNCOMMITTED].waiting == ""
    assert not GapRecord.objects.filter(source="groups").exists()
    producer.abort()


def test_a_share_group_that_has_read_nothing_is_listed(
    kafka_42: Broker, java: JavaGateway, collected_42: CollectedGroups
) -> None:
    create_topics(kafka_42.bootstrap, "sh-new")
    with JavaConsumer(java, kafka_42.bootstrap, "sh-new", "sh-new", share=True) as consumer:

        def is_listed() -> bool:
            consumer.poll(100)
            return "sh-new" in collected_42.poll()

        wait_for(is_listed, "it is listed", 60)
    row = collected_42.poll()["sh-new"]
    assert (row.kind, row.error) == ("Share", "")
