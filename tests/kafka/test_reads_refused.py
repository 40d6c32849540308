"""Proves the reads of a cluster where a broker refuses: quotas are waited out, and a missing right is named
with its grant."""

import random
from contextlib import closing

import pytest
from confluent_kafka.admin import (
    AclOperation,
    ResourceType,
)
from py4j.java_gateway import JavaGateway

from fenceline.facts import TopicPartition
from fenceline.kafka.groups import Committed
from fenceline.kafka.partitions import Offsets
from sandbox.kafka import Broker
from tests.acls import set_acl
from tests.brokers import create_topics
from tests.java.tools import KafkaTool
from tests.kafka.doctor_checks import signed_in
from tests.kafka.group_commits import commit_offsets
from tests.kafka.producers import open_in
from tests.kafka.test_reads import CLEANUP, partitions_of
from tests.waiting import wait_for
from transaction_admin.api import Unseen
from transaction_admin.kafka_reads import ClusterReads

pytestmark = pytest.mark.kafka


def test_a_broker_that_throttles_is_waited_for(kafka_42: Broker, java: JavaGateway, topic_42: str) -> None:
    """A quota on the client's share of its threads: the library refuses to send, and the client waits
    instead.
    """
    name = f"slow-{random.getrandbits(40):x}"
    KafkaTool(kafka_42, java).run(
        "kafka.admin.ConfigCommand",
        "--alter",
        "--entity-type",
        "clients",
        "--entity-name",
        name,
        "--add-config",
        "request_percentage=0.01",
    )
    with closing(ClusterReads({"bootstrap.servers": kafka_42.bootstrap, "client.id": name}, 20)) as reads:
        paused = 0
        for _ in range(20):
            (found,) = reads.list_offsets(partitions_of(topic_42, 0)).values()
            assert isinstance(found, Offsets), found
            connections = reads._connection._manager._conns.values()
            paused += any("throttle" in each.paused for each in connections)
            if paused:
                break
        assert paused
        (found,) = reads.list_offsets(partitions_of(topic_42, 0)).values()
        assert isinstance(found, Offsets), found


@pytest.fixture
def topic_42(kafka_42: Broker) -> str:
    name = f"reads-{random.getrandbits(40):x}"
    create_topics(kafka_42.bootstrap, name)
    return name


def test_a_missing_right_is_named_with_its_grant(acl_broker: Broker) -> None:
    topic = f"reads-{random.getrandbits(40):x}"
    create_topics(acl_broker.bootstrap, topic)
    group = f"{topic}-group"
    commit_offsets(acl_broker.bootstrap, group, topic, p0=3)
    open_in(acl_broker.bootstrap, topic, topic, 0)
    where = TopicPartition(topic, 0)
    reads = ClusterReads(signed_in(acl_broker, "refused"), 20)
    prefix = "kafka-acls --add --allow-principal User:refused --operation"
    try:
        assert where not in reads.describe_topology().partitions
        (hidden,) = reads.describe_topology([topic]).unseen
        assert f"{prefix} DESCRIBE --topic {topic}" in hidden.reason
        (unseen,) = reads.list_offsets([where]).values()
        assert isinstance(unseen, Unseen)
        assert f"{prefix} DESCRIBE --topic {topic}" in unseen.reason
        refused = reads.committed_offsets([group], require_stable=True)[group]
        assert isinstance(refused, Unseen)
        assert f"{prefix} DESCRIBE --topic __consumer_offsets" in refused.reason
        assert group not in reads.list_groups().groups
        assert reads.broker_setting(CLEANUP) is None
        set_acl(acl_broker, "refused", ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
        set_acl(acl_broker, "refused", ResourceType.TOPIC, "__consumer_offsets", AclOperation.DESCRIBE)
        wait_for(lambda: where in reads.describe_topology().partitions, "the topic is seen")
        (found,) = reads.list_offsets([where]).values()
        assert found == Offsets(0, 0, 1, 1, 0)
        (unread,) = reads.describe_producers([where]).values()
        assert isinstance(unread, Unseen)
        assert f"{prefix} READ --topic {topic}" in unread.reason
        batches = reads.batch_headers(where, 0, most_bytes=100)
        assert isinstance(batches, Unseen)
        assert f"{prefix} READ --topic {topic}" in batches.reason
        refused = reads.committed_offsets([group], require_stable=True)[group]
        assert isinstance(refused, Unseen)
        assert f"{prefix} DESCRIBE --group '{group}'" in refused.reason
        set_acl(acl_broker, "refused", ResourceType.TOPIC, topic, AclOperation.READ)
        set_acl(acl_broker, "refused", ResourceType.GROUP, group, AclOperation.DESCRIBE)
        wait_for(
            lambda: not isinstance(reads.describe_producers([where])[where], Unseen), "producers are seen"
        )
        assert group in reads.list_groups().groups
        assert reads.committed_offsets([group], require_stable=True) == {group: {where: Committed(3)}}
        # Whose it is stays hidden, without a word: that is why hanging takes more than that.
        producers = reads.describe_producers([where])[where]
        assert not isinstance(producers, Unseen)
        assert reads.transactional_ids([producers[0].producer_id]) == {}
    finally:
        reads.close()
