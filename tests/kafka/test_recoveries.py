"""Proves on a real broker that a recovery's instants are those of its records, and what a deleted topic does.

The tail, the partitions' collector and the one of recoveries run by hand; the oracle is a plain consumer of
`__transaction_state`.
"""

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from dashboard.models import PinRecord, Recovery
from dashboard.tasks import recoveries as task
from fenceline.facts import TopicPartition, TransactionState
from fenceline.losses.recoveries import DELETED, RECREATED, LostRecords
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.cluster_inspector import DEADLINE_S, ClusterInspector
from tests.kafka.collected_partitions import CollectedPartitions
from tests.kafka.driven import only_cluster
from tests.kafka.group_commits import delete_topic
from tests.kafka.producers import LONG, LibrdkafkaProducer, open_in
from tests.kafka.topic_records import records_of
from tests.waiting import wait_for
from transaction_admin.api import Batches
from transaction_admin.kafka_reads import ClusterReads

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


@pytest.fixture
def collectors(kafka_42: Broker) -> Iterator[ClusterInspector]:
    collected = CollectedPartitions(kafka_42.bootstrap)
    with only_cluster(collected.name, collected.properties):
        yield ClusterInspector(collected)
        task._reads.discard(collected.name)
    collected.close()


@pytest.fixture
def topic(kafka_42: Broker) -> str:
    name = f"recovery-{uuid.uuid4().hex[:8]}"
    create_topics(kafka_42.bootstrap, name, f"{name}-other", partitions=1)
    return name


def opened(kafka: Broker, collectors: ClusterInspector, name: str, *topics: str) -> LibrdkafkaProducer:
    """Write three records of an id to each topic, and poll until they block readers."""
    producer = LibrdkafkaProducer(kafka.bootstrap, name, LONG)
    # On a new broker the first id makes the log that the poll reads.
    producer.init()
    collectors.poll()
    producer.begin()
    for topic in topics:
        for _ in range(3):
            producer.send(topic, 0, "lost")
    producer.flush()

    def is_blocked() -> bool:
        collectors.poll()
        return set(topics) <= set(PinRecord.objects.values_list("topic", flat=True))

    wait_for(is_blocked, "it is seen to block readers", DEADLINE_S)
    return producer


def marker_ms(kafka: Broker, topic: str) -> int:
    """The timestamp of the abort marker in a topic, as the log has it."""
    with closing(ClusterReads({"bootstrap.servers": kafka.bootstrap}, 20.0)) as reads:
        found = reads.batch_headers(TopicPartition(topic, 0), 0, most_bytes=1_000_000)
    assert isinstance(found, Batches)
    (marker,) = (each.max_timestamp_ms for each in found.batches if each.marker == "abort")
    return marker


def test_the_instants_of_a_recovery_are_those_of_its_records(
    kafka_42: Broker, collectors: ClusterInspector, topic: str
) -> None:
    opened(kafka_42, collectors, topic, topic)
    again = open_in(kafka_42.bootstrap, topic)
    again.send(topic, 0, "kept")
    again.commit()
    row = collectors.wait_for_recovery(topic, "resumed")
    told = [(each.state, each.updated_ms) for each in records_of(kafka_42.bootstrap, topic)]
    at = dict(told)
    (lost,) = (LostRecords(*each) for each in row.lost)
    assert (lost.first, lost.last, lost.records, lost.sure) == (0, 2, 3, True)
    assert (row.clock_ms, row.release_noticed) == (0, False)
    expected = (at[TransactionState.PREPARE_ABORT], at[TransactionState.COMPLETE_ABORT])
    assert (row.opened_ms, row.completed_ms) == expected
    expected = (marker_ms(kafka_42, topic), at[TransactionState.PREPARE_COMMIT])
    assert (row.released_ms, row.resumed_ms) == expected
    assert row.opened_ms <= row.completed_ms <= row.released_ms <= row.resumed_ms <= row.closed_ms


def test_another_transaction_blocks_the_same_records_for_longer(
    kafka_42: Broker, collectors: ClusterInspector, topic: str
) -> None:
    other = open_in(kafka_42.bootstrap, f"{topic}-first")
    other.send(topic, 0, "other")
    other.flush()
    opened(kafka_42, collectors, topic, topic)
    LibrdkafkaProducer(kafka_42.bootstrap, topic, LONG).init()
    collectors.poll()
    assert Recovery.objects.get(transactional_id=topic).released_ms is None
    other.commit()

    def is_unblocked() -> Recovery | None:
        collectors.poll()
        return Recovery.objects.exclude(released_ms=None).filter(transactional_id=topic).first()

    row = wait_for(is_unblocked, "consumers are unblocked", DEADLINE_S)
    ended = {each.state: each.updated_ms for each in records_of(kafka_42.bootstrap, f"{topic}-first")}
    assert row is not None
    assert row.released_ms is not None
    assert row.release_noticed
    assert row.released_ms >= ended[TransactionState.PREPARE_COMMIT]


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_a_deleted_topic_ends_the_recovery_without_certain_counts(
    kafka_42: Broker, collectors: ClusterInspector, topic: str, again: bool
) -> None:
    opened(kafka_42, collectors, topic, topic)
    delete_topic(kafka_42.bootstrap, topic)
    if again:
        create_topics(kafka_42.bootstrap, topic, partitions=1)
    LibrdkafkaProducer(kafka_42.bootstrap, topic, LONG).init()
    row = collectors.wait_for_recovery(topic, "topic_deleted")
    (lost,) = (LostRecords(*each) for each in row.lost)
    assert (lost.sure, lost.records, lost.first, lost.deleted) == (False, None, 0, True)
    assert lost.note == (RECREATED if again else DELETED)
    assert row.released_ms is None
    assert row.closed_ms is not None


def test_of_two_topics_the_remaining_one_is_counted_and_waited_for(
    kafka_42: Broker, collectors: ClusterInspector, topic: str
) -> None:
    opened(kafka_42, collectors, topic, topic, f"{topic}-other")
    delete_topic(kafka_42.bootstrap, topic)
    again = open_in(kafka_42.bootstrap, topic)
    again.send(f"{topic}-other", 0, "kept")
    again.commit()
    row = collectors.wait_for_recovery(topic, "resumed")
    found = {each.topic: each for each in (LostRecords(*values) for values in row.lost)}
    assert (found[topic].deleted, found[topic].note) == (True, DELETED)
    assert (found[f"{topic}-other"].records, found[f"{topic}-other"].sure) == (3, True)
