"""Proves on three brokers that a marker planned at one leader is not written at the next, that one which too
few replicas may take is not written at all, and that a fence whose coordinator stops after the first request
is continued at the next one, or reported as it is."""

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from py4j.java_gateway import JavaGateway

from dashboard.models import Action
from fenceline.kafka.coordinator import partition_for
from fenceline.plans.plan import Act
from sandbox.cluster import KafkaCluster
from tests.java.clients import JavaAdmin
from tests.kafka.action_worker import configured_cluster, execute_plan, make_plan, outcomes, result_texts
from tests.kafka.producers import open_in
from tests.kafka.stray_records import identity_of, verification_disabled, write_stray_records
from tests.waiting import wait_for
from transaction_admin.api import TRANSACTION_STATE
from transaction_admin.kafka_reads import ClusterReads

pytestmark = [pytest.mark.kafka, pytest.mark.django_db, pytest.mark.soak]


@pytest.fixture
def topic(kafka_three: KafkaCluster) -> Iterator[str]:
    """A topic of one partition with three replicas, in a cluster that is configured."""
    name = f"three-{uuid.uuid4().hex[:8]}"
    client = AdminClient({"bootstrap.servers": kafka_three.bootstrap})
    client.create_topics([NewTopic(name, 1, 3)])[name].result(60)
    with configured_cluster({"bootstrap.servers": kafka_three.bootstrap}):
        yield name


def leaders(cluster: KafkaCluster, topic: str) -> dict[int, int | None]:
    with closing(ClusterReads({"bootstrap.servers": cluster.bootstrap})) as reads:
        found = reads.describe_topology([topic]).partitions
    return {where.partition: each.leader for where, each in found.items()}


def leader_of(cluster: KafkaCluster, topic: str) -> int | None:
    return leaders(cluster, topic)[0]


def coordinator_of(cluster: KafkaCluster, name: str) -> int:
    found = leaders(cluster, TRANSACTION_STATE)
    coordinator = found[partition_for(name.encode(), len(found))]
    assert coordinator is not None
    return coordinator


def test_a_marker_is_not_written_at_a_new_leader(
    kafka_three: KafkaCluster, topic: str, java: JavaGateway
) -> None:
    leader = wait_for(lambda: leader_of(kafka_three, topic), "it has a leader", 60)
    node = kafka_three.node(leader)
    with verification_disabled(node):
        write_stray_records(node, topic, identity_of(node, topic), (topic, 0))
    plan = make_plan(Act.ABORT_MARKER, f"{topic}-0")
    node.kill()
    try:
        wait_for(lambda: leader_of(kafka_three, topic) not in (None, leader), "another one leads", 120)
        row = execute_plan(plan)
        assert (row.state, outcomes(row)) == (Action.State.STALE, ["stale"]), result_texts(row)
        assert f"its leader has moved: broker {leader} → " in result_texts(row)
        with JavaAdmin(java, kafka_three.bootstrap) as admin:
            said = admin.describe_producers([(topic, 0)])[topic, 0]
        assert [start for _, _, start in said] == [0], "it hangs still"
    finally:
        node.start()
        kafka_three.wait_ready()
    assert outcomes(execute_plan(make_plan(Act.ABORT_MARKER, f"{topic}-0"))) == ["done"]


def test_a_marker_with_too_few_replicas_is_refused_with_the_leader_s_error(
    kafka_three: KafkaCluster, java: JavaGateway
) -> None:
    topic = f"three-{uuid.uuid4().hex[:8]}"
    leader, follower = kafka_three.node(1), kafka_three.node(3)
    created = NewTopic(topic, 1, replica_assignment=[[1, 3]], config={"min.insync.replicas": "2"})
    client = AdminClient({"bootstrap.servers": kafka_three.bootstrap})
    client.create_topics([created])[topic].result(60)
    with configured_cluster({"bootstrap.servers": kafka_three.bootstrap}):
        wait_for(lambda: leader_of(kafka_three, topic) == 1, "it has its leader", 60)
        with verification_disabled(leader):
            write_stray_records(leader, topic, identity_of(leader, topic), (topic, 0))
        follower.kill()
        try:
            wait_for(lambda: in_sync(client, topic) == [1], "one replica is in sync", 120)
            row = execute_plan(make_plan(Act.ABORT_MARKER, f"{topic}-0"))
            assert (row.state, outcomes(row)) == (Action.State.FAILED, ["failed"]), result_texts(row)
            assert "its leader still answers NOT_ENOUGH_REPLICAS" in result_texts(row)
            with JavaAdmin(java, kafka_three.bootstrap) as admin:
                said = admin.describe_producers([(topic, 0)])[topic, 0]
            assert [start for _, _, start in said] == [0], "it hangs still"
        finally:
            follower.start()
            kafka_three.wait_ready()
        wait_for(lambda: in_sync(client, topic) == [1, 3], "both replicas are in sync", 120)
        assert outcomes(execute_plan(make_plan(Act.ABORT_MARKER, f"{topic}-0"))) == ["done"]


def in_sync(client: AdminClient, topic: str) -> list[int]:
    return sorted(client.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs)


def test_a_fence_continues_at_the_next_coordinator(
    kafka_three: KafkaCluster, topic: str, java: JavaGateway
) -> None:
    open_in(kafka_three.bootstrap, topic, topic, 0).abandon()
    plan = make_plan(Act.FENCE, topic)
    coordinator = coordinator_of(kafka_three, topic)
    asked: list[str] = []

    def kill(step: str, subject: str) -> None:
        asked.append(step)
        if asked.count("InitProducerId") == 2:
            kafka_three.node(coordinator).kill()

    try:
        row = execute_plan(plan, kill)
    finally:
        kafka_three.node(coordinator).start()
        kafka_three.wait_ready()
    with JavaAdmin(java, kafka_three.bootstrap) as admin:
        said = wait_for(lambda: settled(admin, topic), "its end is settled", 120)
    assert said[1] in (1, 2)
    if row.state == Action.State.DONE:
        assert said == ("Empty", 2)
    else:
        assert (row.state, outcomes(row)) == (Action.State.UNKNOWN, ["unknown"]), result_texts(row)


def settled(admin: JavaAdmin, name: str) -> tuple[str, int] | None:
    said = admin.describe_transactions([name])[name]
    return None if said.state.startswith("Prepare") else (said.state, said.producer_epoch)
