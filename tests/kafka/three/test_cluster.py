"""Three brokers are one cluster: topics have a replica on each, and any of them answers; coordinators that
move are followed, from whom to whom, whose ids, and how long; and the doctor asks each of them, and names the
one that is configured otherwise."""

import time
from collections.abc import Collection, Iterator, Mapping

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    PartitionMetadata,
)

from collectors.doctor.examination import CheckStatus
from collectors.kafka.coordinators import CoordinatorCollector
from fenceline.kafka.coordinator import EXPIRATION, CoordinatorMove, partition_for
from sandbox import clients
from sandbox.cluster import SIZE, KafkaCluster
from sandbox.scenes import brokers
from sandbox.scenes.scene_context import Stage
from tests.kafka.doctor_checks import run_doctor
from tests.waiting import wait_for
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

pytestmark = pytest.mark.kafka
#: `transaction.state.log.num.partitions` of these brokers.
PARTITIONS = 10


def partitions_of(bootstrap: str, topic: str) -> dict[int, PartitionMetadata]:
    """Return the partitions of a topic once the broker that answers has it and their leaders."""

    def known_partitions() -> dict[int, PartitionMetadata]:
        found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(topic, timeout=30)
        partitions = found.topics[topic].partitions
        return partitions if all(each.leader > 0 for each in partitions.values()) else {}

    return wait_for(known_partitions, f"{bootstrap} knows the topic")


@pytest.mark.matrix
def test_topics_have_three_replicas_and_any_node_answers(kafka_three: KafkaCluster) -> None:
    clients.ensure_topics(kafka_three.bootstrap)
    for broker in kafka_three.brokers:
        partitions = partitions_of(broker.bootstrap, "orders").values()
        assert {len(partition.replicas) for partition in partitions} == {SIZE}
        found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30)
        assert {broker.node_id for broker in kafka_three.brokers} == set(found.brokers)


class Rows:
    """The ids of the scene, as tails have read them."""

    def last_leaders(self) -> Mapping[int, tuple[int, int]]:
        return {}

    def unanswered(self) -> Collection[CoordinatorMove]:
        return ()

    def samples(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        by_number: dict[int, list[str]] = {}
        for name in brokers.MOVED_IDS:
            by_number.setdefault(partition_for(name.encode(), PARTITIONS), []).append(name)
        return {number: (len(names), names[0]) for number, names in by_number.items() if number in partitions}


@pytest.fixture
def collector(kafka_three: KafkaCluster) -> Iterator[CoordinatorCollector]:
    clients.ensure_topics(kafka_three.bootstrap)
    properties = {"bootstrap.servers": kafka_three.bootstrap}
    made = CoordinatorCollector(ClusterReads(properties), TransactionAdmin(properties), Rows())
    yield made
    made.close()


def poll_now(collector: CoordinatorCollector) -> list[CoordinatorMove]:
    return list(collector.poll(time.time_ns() // 1_000_000).moves)


def test_a_handed_over_coordinator_is_one_move_that_is_timed(
    kafka_three: KafkaCluster, collector: CoordinatorCollector
) -> None:
    pids = {broker.node_id: broker.process.pid for broker in kafka_three.brokers if broker.process}
    moves: list[CoordinatorMove] = []

    def listen(line: str) -> None:
        if line.startswith("1."):
            first = collector.poll(time.time_ns() // 1_000_000)
            assert len(first.leaders) == PARTITIONS
            assert first.sizes
            assert first.settings
            assert first.settings[EXPIRATION] == 604_800_000

    brokers.coordinator_moves(Stage(kafka_three.bootstrap, pids), listen)
    wait_for(
        lambda: moves.extend(poll_now(collector)) or any(move.answered_ms for move in moves),
        "the new coordinator answers",
        30,
    )
    keys = {move[:4] for move in moves}
    ((before_ms, seen_ms, old, new),) = keys
    (ended,) = (move for move in moves if move.answered_ms)
    assert old != new
    assert before_ms < seen_ms <= (ended.answered_ms or 0)
    assert ended.ids == sum(
        partition_for(name.encode(), PARTITIONS) in ended.partitions for name in brokers.MOVED_IDS
    )
    assert ended.ids >= 1
    assert poll_now(collector) == []


@pytest.mark.matrix
def test_every_broker_is_reached_and_one_that_differs_is_named(kafka_three: KafkaCluster) -> None:
    name = "transaction.partition.verification.enable"
    admin = AdminClient({"bootstrap.servers": kafka_three.bootstrap})

    def set_at_two(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, "false", incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    def warned() -> list[str]:
        checks = run_doctor({"bootstrap.servers": kafka_three.bootstrap})
        reached = [
            each for each in checks if each.what.startswith("broker ") and each.status is CheckStatus.OK
        ]
        assert [each.what.split()[1] for each in reached] == ["1", "2", "3"]
        return [each.detail for each in checks if each.status is CheckStatus.WARN]

    assert warned() == []
    set_at_two(AlterConfigOpType.SET)
    try:
        (detail,) = wait_for(warned, "broker 2 has taken it up")
        assert f"{name} is off at broker 2," in detail
    finally:
        set_at_two(AlterConfigOpType.DELETE)
