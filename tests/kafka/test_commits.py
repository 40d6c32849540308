"""Proves the tail of `__consumer_offsets` on real brokers: it keeps the newest committed value per key.

And where other tools' tails never become ready (kminion #107) or report what was never committed (Burrow).
"""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from django.test import override_settings

from collectors.kafka.internal_topics import Tail
from dashboard.models import Collector, CommitRecord, GapRecord, GroupRecord, Position
from dashboard.runtime import collector_store
from dashboard.tasks import tails
from fenceline.decode.consumer_offsets import OffsetCommit, decode_record
from fenceline.decode.tail_batch import TailBatch
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.driven import at_once, read_to_end, take_lease
from tests.kafka.group_commits import (
    administer,
    commit_offsets,
    group_member,
    write_records,
)
from tests.kafka.producers import LibrdkafkaProducer, open_in
from tests.kafka.topic_records import raw_records
from tests.waiting import wait_for
from transaction_admin.api import CONSUMER_OFFSETS

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


Rows = dict[tuple[str, str, int], tuple[int, str, int]]


def newest(bootstrap: str) -> Rows:
    """Offset, metadata and instant of every key, as a plain read of what is committed has them last."""
    found: Rows = {}
    for record in raw_records(bootstrap, CONSUMER_OFFSETS):
        read = decode_record(record.key, record.value)
        if isinstance(read, OffsetCommit):
            found[read[:3]] = read.offset, read.metadata, read.commit_ms
        elif record.value is None:
            found.pop(tuple(read), None)  # type: ignore[call-overload]
    return found


def saved() -> Rows:
    rows = CommitRecord.objects.values_list(
        "group_id", "topic", "partition", "offset", "metadata", "commit_ms"
    )
    return {row[:3]: row[3:] for row in rows}


def test_the_rows_are_the_newest_committed_values(kafka: Broker, collected: CollectedGroups) -> None:
    where = kafka.bootstrap
    create_topics(where, "co-a", "co-b")
    write_records(where, "co-a")
    for number in range(30):
        commit_offsets(where, f"co-{number % 7}", "co-a", metadata=f"at {number}", p0=number, p1=number + 1)
    commit_offsets(where, "co-gone", "co-b", p0=1)
    producer = LibrdkafkaProducer(where, "co-producer")
    producer.init()
    for number, ends in enumerate((producer.commit, producer.abort, producer.commit, producer.abort)):
        producer.begin()
        producer.send_offsets("co-tx", {("co-a", 0): number, ("co-b", 1): number})
        ends()
    collected.read()
    assert saved() == newest(where)
    assert saved()["co-tx", "co-a", 0][0] == 2, "neither the aborted one before nor the one after it"
    administer(where, "delete_consumer_groups", ["co-gone"])
    for number in range(10):
        commit_offsets(where, f"co-{number % 3}", "co-a", p0=100 + number)
    collected.read()
    assert saved() == newest(where)
    assert ("co-gone", "co-b", 0) not in saved()
    assert not GapRecord.objects.filter(scope="compaction").exists(), "markers are no compaction"


def test_members_are_saved_until_they_leave(kafka: Broker, collected: CollectedGroups) -> None:
    create_topics(kafka.bootstrap, "co-members")
    write_records(kafka.bootstrap, "co-members")
    consumer = group_member(kafka.bootstrap, "co-members", "co-members")
    collected.read()
    assert '"it-is-me"' in GroupRecord.objects.get(group_id="co-members").members
    consumer.close()

    def has_left() -> bool:
        collected.read()
        return GroupRecord.objects.get(group_id="co-members").members == "{}"

    wait_for(has_left, "its leave is in the log", 60)


def test_the_tail_resumes_at_the_saved_position(kafka: Broker, collected: CollectedGroups) -> None:
    create_topics(kafka.bootstrap, "co-resume")
    commit_offsets(kafka.bootstrap, "co-resume", "co-resume", p0=1)
    collected.read()
    records = Collector.objects.get(name="consumer_offsets").records
    commit_offsets(kafka.bootstrap, "co-resume", "co-resume", p0=2)
    name, token = collected.cluster.name, collected.tail.token
    collected.tail = take_lease(name, "consumer_offsets", previous=token)
    collected.read()
    assert saved()["co-resume", "co-resume", 0][0] == 2
    assert Collector.objects.get(name="consumer_offsets").records == records + 1


def caught_up(tail: Tail) -> list[TailBatch]:
    """Poll until everything is read; the deadline is the proof that it becomes ready."""
    looks: list[TailBatch] = []

    def is_ready() -> bool:
        looks.append(tail.poll(0.02))
        tail.mark_saved(looks[-1])
        return looks[-1].seen_through_ms is not None

    with at_once():
        wait_for(is_ready, "it is ready", 30)
    return looks


def test_the_tail_becomes_ready_after_a_trailing_marker_with_empty_and_compacted_partitions(
    tmp_path: Path,
) -> None:
    """kminion waits for the last record before the high watermark, which here no consumer ever receives."""
    properties = {
        "offsets.topic.num.partitions": "3",
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.min.compaction.lag.ms": "0",
    }
    with Broker(tmp_path / "kafka", properties=properties) as broker:
        where = broker.bootstrap
        create_topics(where, "t")
        commit_offsets(where, "g", "t", p0=0)
        resource = ConfigResource(
            ConfigResource.Type.TOPIC,
            CONSUMER_OFFSETS,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in (("segment.ms", "50"), ("min.cleanable.dirty.ratio", "0.0"))
            ],
        )
        administer(where, "incremental_alter_configs", [resource])
        consumer = Consumer({"bootstrap.servers": where, "group.id": "g"})
        for number in range(50):
            consumer.commit(offsets=[TopicPartition("t", 0, number)], asynchronous=False)
        consumer.close()
        producer = open_in(where, "tx")
        producer.send_offsets("g", {("t", 1): 7})
        producer.abort()
        collected = CollectedGroups({"bootstrap.servers": where})
        tail = Tail({"bootstrap.servers": where}, topic=CONSUMER_OFFSETS, committed=True)
        tail.seek("", {})
        looks = caught_up(tail)

        def is_unblocked() -> bool:
            """Poll once more: the producer has its answer before the marker is written."""
            looks.extend(caught_up(tail))
            return tail.unstable_offsets() == {}

        wait_for(is_unblocked, "the marker is read")
        moves = {move.partition: move for look in looks for move in look.moves}
        (used,) = [move for move in moves.values() if move.end]
        assert used.next == used.end, "behind the marker"
        assert sorted(moves) == [0, 1, 2]
        collected.read()
        assert saved() == {("g", "t", 0): newest(where)["g", "t", 0]}
        tail.close()
        collected.close()


def test_shards_together_read_every_partition(kafka_42: Broker) -> None:
    where = kafka_42.bootstrap
    create_topics(where, "co-shards")
    for number in range(12):
        commit_offsets(where, f"co-shards-{number}", "co-shards", p0=number)
    collector_store.sync_clusters(["co-shards"])
    with override_settings(SHARDS=2):
        for shard in range(2):
            read_to_end(
                take_lease("co-shards", tails.offsets_name(shard)),
                tails.tailed_offsets,
                {"bootstrap.servers": where},
            )
    assert saved() == newest(where)
    assert {row.name for row in Collector.objects.all()} == {"consumer_offsets-0", "consumer_offsets-1"}
    assert Position.objects.filter(topic=CONSUMER_OFFSETS).count() == 10
