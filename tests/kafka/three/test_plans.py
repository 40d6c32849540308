"""Proves on three brokers that a transaction whose end is decided is offered neither fence nor marker, while
its marker may not be written; and that a partition without its leader is refused as unavailable."""

import random
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from fenceline.facts import TopicPartition
from fenceline.plans.plan import Act, RefusalReason
from sandbox.cluster import KafkaCluster
from sandbox.errors import SandboxError
from sandbox.scenes.wire import Identity
from tests.kafka.planning_cluster import PlanningCluster, refusal_reasons, refusal_texts
from tests.kafka.producers import open_in
from tests.kafka.random_transactions import LONG_MS
from tests.kafka.raw_producers import RawProducer
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db, pytest.mark.soak]


@pytest.fixture
def planner(kafka_three: KafkaCluster) -> Iterator[PlanningCluster]:
    made = PlanningCluster(kafka_three.node(1))
    yield made
    made.close()


def in_sync(planner: PlanningCluster, topic: str) -> int:
    found = planner.collected.watcher._reads.describe_topology([topic]).partitions.get(
        TopicPartition(topic, 0)
    )
    return len(found.in_sync) if found else 0


def test_a_prepared_transaction_gets_neither_fence_nor_marker(
    kafka_three: KafkaCluster, planner: PlanningCluster
) -> None:
    """Two brokers have the topic and both must take the marker, so killing the one that does not lead is
    enough."""
    topic = f"plans-{random.getrandbits(40):x}-x"
    created = NewTopic(topic, 1, replica_assignment=[[1, 3]], config={"min.insync.replicas": "2"})
    client = AdminClient({"bootstrap.servers": kafka_three.bootstrap})
    client.create_topics([created])[topic].result(60)
    wait_for(lambda: in_sync(planner, topic) == 2, f"{topic} is in sync", 60)
    open_in(kafka_three.node(1).bootstrap, topic, topic, 0)
    seen = planner.plan(Act.FENCE, topic, later_ms=90_000).subjects[0].seen
    given = Identity(seen["producer_id"], seen["producer_epoch"])
    kafka_three.node(3).kill()
    try:
        wait_for(lambda: in_sync(planner, topic) == 1, "its follower is missed", 90)

        def decided() -> bool:
            # The coordinator may have been on the broker that is gone.
            try:
                RawProducer(kafka_three.node(1).bootstrap, topic, LONG_MS, given).commit()
            except SandboxError:
                return False
            return True

        wait_for(decided, "the commit is decided", 60)
        for act, subject in (Act.FENCE, topic), (Act.ABORT_MARKER, f"{topic}-0"):
            found = planner.forced_plan(act, subject)
            assert refusal_reasons(found) == [[RefusalReason.PREPARE]], refusal_texts(found)
            assert "has decided to commit it" in refusal_texts(found)
            assert f"the leader of {topic}-0" in refusal_texts(found)
        kafka_three.node(1).kill()
        planner.collected.properties = {"bootstrap.servers": kafka_three.node(2).bootstrap}
        found = planner.forced_plan(Act.ABORT_MARKER, f"{topic}-0")
        assert refusal_reasons(found) == [[RefusalReason.NOT_SEEN]], refusal_texts(found)
    finally:
        kafka_three.start()
        kafka_three.wait_ready()
