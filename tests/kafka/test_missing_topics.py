"""Proves what a topic proves that brokers do not have, or do not let us read: nothing; and what is reported
of a deleted topic that a query or a group had not read whole. One that may not be described any more is a gap
instead."""

import random
from collections.abc import Iterator
from contextlib import closing
from unittest import mock

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from collectors.kafka.groups import GroupsCollector
from collectors.kafka.internal_topics import CannotSee, NoSuchTopic, Tail
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.groups import store as group_store
from dashboard.models import Batch, Collector, DeletedPartition, FindingRecord, PartitionRecord, Query
from dashboard.runtime import loop
from dashboard.runtime.collector_names import CHECKPOINTS
from dashboard.streaming.batch_state import safe_to_restart
from fenceline.decode.tail_batch import TailBatch
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from sandbox.kafka import Broker
from tests.acls import set_acl
from tests.brokers import create_topics
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.collected_partitions import CollectedPartitions
from tests.kafka.doctor_checks import signed_in
from tests.kafka.driven import take_lease
from tests.kafka.group_commits import administer, commit_offsets, write_records
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

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]
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


class DeletionStage(CollectedPartitions):
    """Partitions and groups of a cluster, polled by hand and evaluated."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.groups = GroupsCollector(ClusterReads(self.properties, 20))
        names = group_store.NAME, evaluate_rules.NAME, CHECKPOINTS
        self.group_lease, self.judge, _ = (take_lease(self.name, name) for name in names)
        self.reader = SnapshotReader(self.name)

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self.groups.close()

    def tick(self) -> dict[str, FindingRecord]:
        """Poll both, evaluate; return the open findings about queries and groups, by rule."""
        self.poll()
        Collector.objects.filter(name=CHECKPOINTS).update(seen_through_ms=loop.now_ms())
        rows = group_store.GroupRows(self.group_lease, loop.now_ms())
        group_store.save_groups(
            self.group_lease, self.groups.poll(loop.now_ms(), rows, every_s=0), rows, now_ms=loop.now_ms()
        )
        evaluate_rules.evaluate_cluster(self.judge, self.reader, now_ms=loop.now_ms())
        found = FindingRecord.objects.filter(closed_at=None, cluster_id=self.lease.cluster_id)
        return {row.rule: row for row in found if row.subject.startswith(("query:", "group:del-"))}

    def add_query(self, name: str, **positions: int) -> Query:
        """Add a query that has read topics up to some offset of their first partition, a while ago."""
        before_ms = loop.now_ms() - 60_000
        row = Query.objects.create(
            cluster_id=self.lease.cluster_id, ident=name, name=name, query_id=name, checkpoint=f"/{name}",
            state="unheard", planned=1, finished=1, planned_ms=before_ms, seen_ms=loop.now_ms(), rev=1,
        )  # fmt: skip
        offsets = [[str(n), f'{{"{topic}":{{"0":{at}}}}}'] for n, (topic, at) in enumerate(positions.items())]
        Batch.objects.create(query=row, batch_id=1, offsets=offsets, committed_ms=before_ms, rev=1)
        return row


@pytest.fixture
def stage(kafka_42: Broker) -> Iterator[DeletionStage]:
    made = DeletionStage(kafka_42.bootstrap)
    yield made
    made.close()


def test_unread_records_of_a_deleted_topic_are_reported_to_query_and_group(
    kafka_42: Broker, stage: DeletionStage
) -> None:
    where, topic = kafka_42.bootstrap, f"del-{random.getrandbits(40):x}"
    create_topics(where, topic, partitions=1)
    write_records(where, topic, 20, partitions=1)
    commit_offsets(where, f"del-behind-{topic}", topic, p0=4)
    commit_offsets(where, f"del-done-{topic}", topic, p0=20)
    query = stage.add_query("reads-deleted", **{topic: 10})
    assert stage.tick() == {}
    assert safe_to_restart(query, loop.now_ms()).safe is True
    administer(where, "delete_topics", [topic])
    found = wait_for(lambda: len(found := stage.tick()) == 2 and found, "both are reported", 60)
    assert found["topic_deleted"].severity == "critical"
    assert found["topic_deleted"].summary == f"reads-deleted: {topic} was deleted with 10 unread records"
    assert found["unread_deleted"].subject == f"group:del-behind-{topic}"
    assert found["unread_deleted"].evidence == f"{topic}-0 had 16 unread records for this group"
    safe = safe_to_restart(query, loop.now_ms())
    assert safe.safe is False
    assert safe.sentence == f"Do not restart reads-deleted now: {topic} was deleted with 10 unread records."


def test_offsets_that_are_deleted_alone_are_no_loss(kafka_42: Broker, stage: DeletionStage) -> None:
    where, topic = kafka_42.bootstrap, f"del-{random.getrandbits(40):x}"
    create_topics(where, topic, partitions=1)
    write_records(where, topic, 20, partitions=1)
    commit_offsets(where, f"del-gone-{topic}", topic, p0=4)
    stage.tick()
    administer(where, "delete_consumer_groups", [f"del-gone-{topic}"])
    for _ in range(3):
        assert stage.tick() == {}


def test_a_topic_that_may_not_be_described_any_more_is_a_gap_and_not_deleted(acl_broker: Broker) -> None:
    topic = f"del-{random.getrandbits(40):x}"
    create_topics(acl_broker.bootstrap, topic)
    for operation in (AclOperation.DESCRIBE, AclOperation.READ):
        set_acl(acl_broker, "deleter", ResourceType.TOPIC, topic, operation)
    with closing(
        CollectedPartitions("", properties=signed_in(acl_broker, "deleter"), vouched=False)
    ) as collected:
        rows = PartitionRecord.objects.filter(topic=topic, error="")
        wait_for(lambda: collected.poll() and rows.exists(), "the topic is seen")
        mine = AclBindingFilter(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:deleter", None, AclOperation.ANY,
            AclPermissionType.ANY,
        )  # fmt: skip
        administer(acl_broker.bootstrap, "delete_acls", [mine])
        wait_for(lambda: collected.poll() and not rows.exists(), "the topic is hidden")
        collected.poll_repeatedly(3)
        assert PartitionRecord.objects.filter(topic=topic, error__contains="DESCRIBE").count() == 3
        assert not DeletedPartition.objects.filter(topic=topic).exists()
