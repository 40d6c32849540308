"""The scene of a late marker delays a decided commit on three brokers, which are whole again afterwards."""

from collections.abc import Iterator

import pytest

from fenceline.facts import TransactionRecord, TransactionState
from sandbox.cluster import KafkaCluster
from sandbox.scenes import brokers
from sandbox.scenes.scene_context import Stage
from tests.kafka.topic_records import last_record
from tests.waiting import process_state

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]


@pytest.fixture
def three(kafka_three: KafkaCluster) -> Iterator[Stage]:
    """Return a cluster of three brokers, which is whole again afterwards."""
    pids = {broker.node_id: broker.process.pid for broker in kafka_three.brokers if broker.process}
    yield Stage(kafka_three.bootstrap, pids)
    kafka_three.wait_ready()


def away(stage: Stage) -> list[int]:
    """Return the nodes that stand still."""
    return [node for node, pid in stage.pids.items() if process_state(pid) == "T"]


def test_late_marker_delays_a_decided_commit(three: Stage, kafka_three: KafkaCluster) -> None:
    while_away: list[TransactionRecord] = []

    def listen(line: str) -> None:
        if line.startswith("4."):
            (victim,) = away(three)
            alive = next(node for node in three.pids if node != victim)
            while_away.append(last_record(kafka_three.node(alive).bootstrap, brokers.LATE_ID))

    brokers.late_marker(three, listen, away_s=3)
    assert [record.state for record in while_away] == [TransactionState.PREPARE_COMMIT]
    assert {(topic, len(numbers)) for topic, numbers in while_away[0].partitions} == {(brokers.LATE_TOPIC, 3)}
    last = last_record(three.bootstrap, brokers.LATE_ID)
    assert (last.state, last.producer_id) == (TransactionState.COMPLETE_COMMIT, while_away[0].producer_id)
    assert away(three) == []


def test_late_marker_resumes_the_broker_when_it_is_stopped(three: Stage) -> None:
    def listen(line: str) -> None:
        if line.startswith("3."):
            assert len(away(three)) == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        brokers.late_marker(three, listen)
    assert away(three) == []
