"""Proves on a real broker what is reported of a deleted topic that a query or a group had not read whole.

A topic that may not be described any more is a gap instead.
"""

import random
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from collectors.kafka.groups import GroupsCollector
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.groups import store as group_store
from dashboard.models import Batch, Collector, DeletedPartition, FindingRecord, PartitionRecord, Query
from dashboard.runtime import loop
from dashboard.runtime.collector_names import CHECKPOINTS
from dashboard.streaming.batch_state import safe_to_restart
from sandbox.kafka import Broker
from tests.acls import set_acl
from tests.brokers import create_topics
from tests.kafka.collected_partitions import CollectedPartitions
from tests.kafka.doctor_checks import signed_in
from tests.kafka.driven import take_lease
from tests.kafka.group_commits import administer, commit_offsets, write_records
from tests.waiting import wait_for
from transaction_admin.kafka_reads import ClusterReads

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


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
