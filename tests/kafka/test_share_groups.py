"""Proves on a real broker that share groups are listed with their start offsets, as Kafka's own tool prints
them, and that an open transaction blocks the one that reads committed records and not the other."""

from contextlib import ExitStack

import pytest
from py4j.java_gateway import JavaGateway

from dashboard.models import GapRecord, GroupOffset
from fenceline.kafka.groups import Waiting
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.consumers import JavaConsumer
from tests.java.tools import KafkaTool
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.producers import LibrdkafkaProducer
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

TOPIC, COMMITTED, UNCOMMITTED = "sh-in", "sh-committed", "sh-uncommitted"
CONFIG = "kafka.admin.ConfigCommand"
DESCRIBE = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


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
        if words[:3] == [group, TOPIC, "0"]:
            return words[3], words[4]
    return "", ""


def test_an_open_transaction_blocks_the_group_that_reads_committed_records(
    kafka_42: Broker, java: JavaGateway, kafka_tool: KafkaTool, collected_42: CollectedGroups
) -> None:
    create_topics(kafka_42.bootstrap, TOPIC, partitions=1)
    producer = LibrdkafkaProducer(kafka_42.bootstrap, "sh-tx")
    producer.init()
    producer.begin()
    producer.send(TOPIC, 0)
    producer.commit()
    producer.begin()
    producer.send(TOPIC, 0)
    producer.flush()
    with ExitStack() as stack:
        consumers = []
        for group, isolation in ((COMMITTED, "read_committed"), (UNCOMMITTED, "read_uncommitted")):
            configure(kafka_tool, group, isolation)
            consumer = JavaConsumer(java, kafka_42.bootstrap, group, TOPIC, share=True)
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
        row.group.group_id: row for row in GroupOffset.objects.filter(topic=TOPIC).select_related("group")
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
