"""Coordinators that move are followed on three real brokers: from whom to whom, whose ids, and how long."""

import time
from collections.abc import Collection, Iterator, Mapping

import pytest

from collectors.kafka.coordinators import CoordinatorCollector
from fenceline.kafka.coordinator import EXPIRATION, CoordinatorMove, SampleId, partition_for
from sandbox.clients import ensure_topics
from sandbox.cluster import KafkaCluster
from sandbox.scenes import brokers
from sandbox.scenes.scene_context import Stage
from tests.waiting import wait_for
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

pytestmark = pytest.mark.kafka
#: `transaction.state.log.num.partitions` of these brokers.
PARTITIONS = 10


class Rows:
    """The ids of the scene, as tails have read them."""

    def last_leaders(self) -> Mapping[int, tuple[int, int]]:
        return {}

    def unanswered(self) -> Collection[CoordinatorMove]:
        return ()

    def samples(self, partitions: Collection[int]) -> Mapping[int, SampleId]:
        by_number: dict[int, list[str]] = {}
        for name in brokers.MOVED_IDS:
            by_number.setdefault(partition_for(name.encode(), PARTITIONS), []).append(name)
        return {
            number: SampleId(len(names), names[0])
            for number, names in by_number.items()
            if number in partitions
        }


@pytest.fixture
def collector(kafka_three: KafkaCluster) -> Iterator[CoordinatorCollector]:
    ensure_topics(kafka_three.bootstrap)
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
