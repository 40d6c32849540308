"""Proves what a topic that brokers do not have, or do not let us read, proves: nothing."""

import random
from collections.abc import Iterator
from unittest import mock

import pytest

from collectors.kafka.internal_topics import CannotSee, NoSuchTopic, Tail
from fenceline.decode.tail_batch import TailBatch
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.collected_partitions import CollectedPartitions
from tests.kafka.group_commits import commit_offsets
from tests.kafka.producers import open_in
from tests.kafka.proxy.restrictions import (
    CLUSTER_DENIED,
    DESCRIBE_PRODUCERS,
    LIST_TRANSACTIONS,
    TOPIC_DENIED,
    Restrictions,
)
from tests.kafka.proxy.server import KafkaProxy
from tests.waiting import wait_for
from transaction_admin.api import CONSUMER_OFFSETS, TRANSACTION_STATE, Unseen
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

pytestmark = pytest.mark.kafka

WITHOUT_LOG = frozenset({TRANSACTION_STATE})


@pytest.fixture
def proxy(kafka_42: Broker) -> Iterator[KafkaProxy]:
    with KafkaProxy(kafka_42.port) as made:
        yield made


@pytest.fixture
def name(kafka_42: Broker) -> Iterator[str]:
    """An id with an open transaction, and a group that has committed."""
    made = f"missing-{random.getrandbits(40):x}"
    create_topics(kafka_42.bootstrap, made)
    producer = open_in(kafka_42.bootstrap, made, made, 0)
    commit_offsets(kafka_42.bootstrap, made, made, p0=0)
    yield made
    producer.abort()


def test_an_id_is_looked_up_where_lists_have_it_and_unseen_where_they_are_refused(
    proxy: KafkaProxy, name: str
) -> None:
    answers = []
    for refused in {}, {LIST_TRANSACTIONS: CLUSTER_DENIED}:
        proxy.restrict(Restrictions(absent=WITHOUT_LOG, refused=refused))
        admin = TransactionAdmin({"bootstrap.servers": proxy.bootstrap})
        answers.append(admin.describe_transactions([name])[name])
        admin.close()
    seen, unseen = answers
    assert isinstance(seen, Described)
    assert isinstance(unseen, NotDescribed)
    assert unseen.obstacle is Obstacle.UNSEEN


def test_a_group_without_the_topic_of_commits_is_unseen_and_not_without_commits(
    proxy: KafkaProxy, name: str
) -> None:
    proxy.restrict(Restrictions(absent=frozenset({CONSUMER_OFFSETS})))
    reads = ClusterReads({"bootstrap.servers": proxy.bootstrap})
    assert isinstance(reads.committed_offsets([name], require_stable=True)[name], Unseen)
    assert name in reads.list_groups().groups
    assert not isinstance(reads.committed_offsets([name], require_stable=True)[name], Unseen)
    reads.close()


@pytest.mark.django_db
def test_groups_with_pending_commits_are_seen_where_lists_of_ids_are_refused(
    kafka_42: Broker, proxy: KafkaProxy, name: str
) -> None:
    producer = open_in(kafka_42.bootstrap, f"{name}-pending", name, 1)
    producer.send_offsets(name, {(name, 0): 0})
    proxy.restrict(Restrictions(refused={LIST_TRANSACTIONS: CLUSTER_DENIED}))
    collected = CollectedGroups({"bootstrap.servers": proxy.bootstrap}, log=False)
    assert collected.poll(3)[name].unstable == 1
    collected.close()
    producer.abort()


@pytest.mark.django_db
def test_a_stuck_lso_is_seen_where_producers_may_not_be_described(proxy: KafkaProxy, name: str) -> None:
    proxy.restrict(Restrictions(refused={DESCRIBE_PRODUCERS: TOPIC_DENIED}))
    collected = CollectedPartitions(proxy.bootstrap)
    collected.poll_repeatedly(3)
    row = collected.row(name)
    assert (row.lso, row.high_watermark, row.verdict) == (0, 1, PartitionVerdict.UNKNOWN)
    assert row.pinned_ms
    assert "READ" in row.error
    assert f"partition:{name}-0" in collected.gaps()
    collected.close()


@pytest.mark.django_db
def test_a_topic_that_only_a_transaction_names_is_a_gap_where_it_may_not_be_described(
    proxy: KafkaProxy, name: str
) -> None:
    proxy.restrict(Restrictions(undescribed=frozenset({name})))
    collected = CollectedPartitions(proxy.bootstrap)
    with mock.patch.object(collected.ours, "named_partitions", return_value={TopicPartition(name, 0)}):
        collected.poll()
    assert "DESCRIBE" in collected.gaps()[f"topic:{name}"]
    collected.close()


def test_a_log_that_may_be_described_and_not_read_is_never_read_to_its_end(
    proxy: KafkaProxy, name: str
) -> None:
    tail = Tail({"bootstrap.servers": proxy.bootstrap})
    proxy.restrict(Restrictions(unread=WITHOUT_LOG))
    tail.seek("", {})
    batches: list[TailBatch] = []

    def refusal() -> str:
        try:
            batches.append(tail.poll(0.05))
        except CannotSee as blind:
            return str(blind)
        return ""

    assert "no READ" in wait_for(refusal, "the fetch is refused")
    assert all(batch.moves == () and batch.seen_through_ms is None for batch in batches)
    tail.close()


def test_a_log_that_is_gone_is_missing_and_comes_back_as_the_same(proxy: KafkaProxy, name: str) -> None:
    tail = Tail({"bootstrap.servers": proxy.bootstrap})
    tail.seek("", {})
    topic_id = tail.topic_id
    proxy.restrict(Restrictions(absent=WITHOUT_LOG))
    with pytest.raises(NoSuchTopic):
        tail.confirm_partitions(topic_id)
    proxy.restrict(Restrictions())
    tail.confirm_partitions(topic_id)
    assert tail.topic_id == topic_id
    tail.close()
