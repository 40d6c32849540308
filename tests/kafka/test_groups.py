"""Proves groups and lags on real brokers: they equal those of Kafka's own ConsumerGroupCommand.

And what that does not show: the transaction of a pending commit, blockers, and that there is nothing left to
read. Each test has an empty database and groups of its own; groups of other tests on the broker are compared
as well.
"""

import threading
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from py4j.java_gateway import JavaGateway

from dashboard.models import Collector, CommitRecord, GapRecord, Group, GroupOffset, PinRecord, Transaction
from dashboard.runtime import loop
from dashboard.tasks import tails
from fenceline.decode.text import escape_bytes
from fenceline.kafka.groups import BLOCKED_AFTER_MS, Waiting
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaProducer
from tests.java.consumers import JavaConsumer
from tests.java.tools import KafkaTool
from tests.kafka.collected_groups import CollectedGroups, groups_by_kafka_tool
from tests.kafka.driven import only_cluster
from tests.kafka.group_commits import administer, commit_offsets, delete_topic, group_member, write_records
from tests.kafka.producers import LibrdkafkaProducer, TransactionalProducer, open_in
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

STRANGE = ("back\\slash", "ünï ✓ 𝄞", "bell\x07 and tab\t!", "..", "a/b?c#d", "g" * 400)


@pytest.fixture(params=["librdkafka", pytest.param("java", marks=pytest.mark.matrix)])
def transactional(request: pytest.FixtureRequest, kafka: Broker) -> tuple[str, TransactionalProducer]:
    """A transactional producer of either library, and its id; Java starts only where it is asked for."""
    name = f"gr-tx-{request.param}"
    if request.param == "librdkafka":
        return name, LibrdkafkaProducer(kafka.bootstrap, name)
    gateway: JavaGateway = request.getfixturevalue("java")
    return name, JavaProducer(gateway, kafka.bootstrap, name)


def test_groups_and_lags_equal_those_of_kafka_s_own_tool(
    kafka: Broker, tool: KafkaTool, java: JavaGateway, collected: CollectedGroups
) -> None:
    where = kafka.bootstrap
    create_topics(where, "gr-a", "gr-b", "gr-cut")
    for topic in ("gr-a", "gr-b", "gr-cut"):
        write_records(where, topic)
    commit_offsets(where, "gr-empty", "gr-a", p0=3, p2=10)
    commit_offsets(where, "gr-deleted", "gr-a", p0=3)
    commit_offsets(where, "gr-beyond", "gr-a", p0=99)
    commit_offsets(where, "gr-cut", "gr-cut", p0=2)
    commit_offsets(where, "gr-long-words", "gr-b", metadata="m" * 4000, p1=4)
    for name in STRANGE:
        commit_offsets(where, name, "gr-b", p0=1)
    administer(where, "delete_records", [TopicPartition("gr-cut", 0, 7)])
    live = group_member(where, "gr-live", "gr-a")
    settings = {"max.poll.records": "4"}
    if kafka.version != "3.9.1":
        settings["group.protocol"] = "consumer"
    with JavaConsumer(java, where, "gr-java", "gr-b", settings) as consumer:
        wait_for(lambda: consumer.poll(), "Java's first records", 60)
        consumer.commit()
        administer(where, "delete_consumer_groups", ["gr-deleted"])
        groups = collected.poll(2)
        ours, theirs = collected.lines(), groups_by_kafka_tool(tool)
        assert {key: line for key, line in ours.items() if key[0] not in map(escape_, STRANGE)} == {
            (escape_(group), *rest): line
            for (group, *rest), line in theirs.items()
            if group not in STRANGE and "\x07" not in group
        }
        for name in STRANGE:
            assert ours[escape_(name), "gr-b", 0][:2] == (1, 10)
        assert groups["gr-live"].state == groups["gr-java"].state == "Stable"
        assert groups["gr-empty"].state == "Empty"
        assert groups["gr-java"].kind == ("Classic" if kafka.version == "3.9.1" else "Consumer")
        assert groups["gr-live"].members == groups["gr-java"].members == 1
        assert "gr-deleted" not in groups
        assert "gr-deleted" not in CommitRecord.objects.values_list("group_id", flat=True)
        expected = (sum(line.lag or 0 for (group, *_), line in theirs.items() if group == "gr-live"), 1)
        assert (groups["gr-live"].lag_hw, groups["gr-live"].partitions) == expected
    live.close()
    long_words = collected.offset("gr-long-words", "gr-b", 1)
    # confluent-kafka sends the NUL behind a text along with it.
    assert long_words.metadata.removesuffix("\\x00") == "m" * 4000
    cut_off = collected.offset("gr-cut", "gr-cut", 0)
    assert (cut_off.offset, cut_off.log_start, cut_off.high_watermark) == (2, 7, 10)
    beyond = collected.offset("gr-beyond", "gr-a", 0)
    assert (beyond.offset, beyond.status, beyond.lag_ms) == (99, "UNKNOWN", None)
    assert Group.objects.filter(error="").count() == len(groups)
    assert not GapRecord.objects.filter(source="groups").exists()


def escape_(name: str) -> str:
    return escape_bytes(name.encode())


def test_the_instant_and_history_of_a_commit_come_from_the_log(
    kafka: Broker, collected: CollectedGroups
) -> None:
    create_topics(kafka.bootstrap, "gr-times")
    write_records(kafka.bootstrap, "gr-times")
    for offset in range(1, 4):
        commit_offsets(kafka.bootstrap, "gr-times", "gr-times", p0=offset)
    collected.poll(2)
    record = CommitRecord.objects.get(group_id="gr-times")
    assert collected.offset("gr-times", "gr-times", 0).commit_ms == record.commit_ms
    assert record.offset == 3
    assert record.commits


def test_transactional_commits_count_when_they_are_committed_and_are_named_while_pending(
    kafka: Broker,
    tool: KafkaTool,
    collected: CollectedGroups,
    transactional: tuple[str, TransactionalProducer],
) -> None:
    where = kafka.bootstrap
    name, producer = transactional
    topic = group = name
    create_topics(where, topic)
    write_records(where, topic)
    commit_offsets(where, group, topic, p0=1, p1=1)
    producer.init()
    producer.begin()
    producer.send_offsets(group, {(topic, 0): 5})
    commit_offsets(where, f"{group}-neighbour", topic, p0=2)
    collected.poll(3)
    row, still = collected.offset(group, topic, 0), collected.offset(group, topic, 1)
    assert (row.offset, row.unstable, still.unstable) == (1, True, False)
    (blocker,) = row.blockers
    expected = {"transactional_id": name, "pending": True, "certain": True, "offset": 5}
    assert {key: blocker[key] for key in ("transactional_id", "pending", "certain", "offset")} == expected
    assert row.waiting_ms is not None
    assert Group.objects.get(group_id=group).unstable == 1
    assert collected.lines()[group, topic, 0] == groups_by_kafka_tool(tool)[group, topic, 0]
    wait_for(
        lambda: collected.poll() and GapRecord.objects.filter(until_ms=None).exists(), "a gap is told", 60
    )
    gap = GapRecord.objects.get(until_ms=None)
    partition = Group.objects.get(group_id=group).log_partition
    assert (gap.source, gap.scope) == ("consumer_offsets", f"__consumer_offsets-{partition}")
    producer.commit()
    wait_for(lambda: collected.poll() and not collected.offset(group, topic, 0).unstable, "it is decided", 60)
    row = collected.offset(group, topic, 0)
    assert (row.offset, row.blockers, row.waiting_ms) == (5, [], None)
    collected.read()
    assert CommitRecord.objects.get(group_id=group, partition=0).offset == 5
    wait_for(
        lambda: collected.poll() and not GapRecord.objects.filter(until_ms=None).exists(), "sight again", 60
    )
    producer.begin()
    producer.send_offsets(group, {(topic, 0): 9})
    producer.abort()
    wait_for(lambda: collected.poll() and not collected.offset(group, topic, 0).unstable, "it is aborted", 60)
    assert collected.offset(group, topic, 0).offset == 5
    assert CommitRecord.objects.get(group_id=group, partition=0).offset == 5
    assert collected.lines()[group, topic, 0] == groups_by_kafka_tool(tool)[group, topic, 0]


def test_a_group_with_only_a_pending_commit_is_listed_and_two_pending_transactions_are_distinguished(
    kafka_42: Broker,
    collected_42: CollectedGroups,
) -> None:
    where = kafka_42.bootstrap
    create_topics(where, "gr-first")
    one, other = (LibrdkafkaProducer(where, f"gr-first-{n}") for n in (1, 2))
    for producer, partition in ((one, 0), (other, 1)):
        producer.init()
        producer.begin()
        producer.send_offsets("gr-first", {("gr-first", partition): 10 + partition})
    collected_42.poll(3)
    for partition in (0, 1):
        row = collected_42.offset("gr-first", "gr-first", partition)
        assert (row.offset, row.unstable) == (None, True)
        assert [each["transactional_id"] for each in row.blockers] == [f"gr-first-{partition + 1}"]
        assert row.blockers[0]["offset"] == 10 + partition
    assert Group.objects.get(group_id="gr-first").lag_lso is None
    one.commit()
    other.abort()
    wait_for(lambda: collected_42.poll()["gr-first"].unstable == 0, "both are decided", 60)
    assert collected_42.offset("gr-first", "gr-first", 0).offset == 10
    assert not GroupOffset.objects.filter(topic="gr-first", partition=1).exists()


def test_groups_at_a_stuck_lso_are_blocked_reading_past_it_or_still_behind_it(
    kafka: Broker, collected: CollectedGroups
) -> None:
    where = kafka.bootstrap
    create_topics(where, "gr-pin", partitions=1)
    write_records(where, "gr-pin", 10, 1)
    holder = open_in(where, "gr-pin-holder", "gr-pin", 0)
    write_records(where, "gr-pin", 5, 1)
    commit_offsets(where, "gr-pin-waits", "gr-pin", p0=10)
    commit_offsets(where, "gr-pin-past", "gr-pin", p0=12)
    commit_offsets(where, "gr-pin-coming", "gr-pin", p0=4)
    collected.poll(2)
    rows = {name: collected.offset(f"gr-pin-{name}", "gr-pin", 0) for name in ("waits", "past", "coming")}
    expected = {"waits": Waiting.PROBABLY, "past": Waiting.READS_PAST, "coming": Waiting.NOT_YET}
    assert {name: row.waiting for name, row in rows.items()} == expected
    assert (rows["waits"].lso, rows["waits"].high_watermark) == (10, 16)
    # Its producer sends no more and ends nothing: the group that has read all before it is blocked, no other.
    collected.ahead_ms = BLOCKED_AFTER_MS
    assert collected.poll()["gr-pin-waits"].status == "BLOCKED"
    assert Group.objects.get(group_id="gr-pin-waits").blocked == 1
    others = Group.objects.filter(group_id__in=["gr-pin-past", "gr-pin-coming"])
    assert "BLOCKED" not in {row.status for row in others}
    assert (rows["waits"].blockers, rows["past"].blockers) == ([], []), "nobody has looked at the partition"
    cluster_id = collected.lease.cluster_id
    PinRecord.objects.create(
        cluster_id=cluster_id, topic="gr-pin", partition=0, producer_id=7, producer_epoch=1, start_offset=10,
        last_sequence=0, last_timestamp_ms=0, first_seen_ms=0, seen_ms=0, transactional_id="gr-pin-holder",
        verdict="open", ground="owned",
    )  # fmt: skip
    collected.poll()
    (blocker,) = collected.offset("gr-pin-waits", "gr-pin", 0).blockers
    assert (blocker["transactional_id"], blocker["start_offset"], blocker["pending"]) == (
        "gr-pin-holder", 10, False
    )  # fmt: skip
    holder.commit()
    wait_for(lambda: collected.poll()["gr-pin-waits"].blocked == 0, "it is released", 60)
    commit_offsets(where, "gr-pin-waits", "gr-pin", p0=17)
    wait_for(lambda: collected.poll()["gr-pin-waits"].status == "OK", "it has read on", 60)
    row = collected.offset("gr-pin-waits", "gr-pin", 0)
    assert (row.waiting, row.waiting_ms, row.blockers, row.lso) == ("", None, [], 17)


def test_without_the_leaders_answer_the_open_transaction_is_named_as_probable_blocker(
    kafka_42: Broker,
    collected_42: CollectedGroups,
) -> None:
    create_topics(kafka_42.bootstrap, "gr-maybe", partitions=1)
    holder = open_in(kafka_42.bootstrap, "gr-maybe-holder", "gr-maybe", 0)
    commit_offsets(kafka_42.bootstrap, "gr-maybe", "gr-maybe", p0=0)
    for number, name in enumerate(("gr-maybe-holder", "gr-maybe-other")):
        Transaction.objects.create(
            cluster_id=collected_42.lease.cluster_id, key=bytes([number]) * 32, transactional_id=name,
            application=name, state="Ongoing", producer_id=number, producer_epoch=0, timeout_ms=60_000,
            updated_ms=0, partitions='[["gr-maybe",[0]]]', partition_count=1, client_version=0,
            log_partition=0, log_offset=0, rev=1,
        )  # fmt: skip
        collected_42.poll()
        blockers = collected_42.offset("gr-maybe", "gr-maybe", 0).blockers
        assert [each["certain"] for each in blockers] == ([True] if number == 0 else [False, False])
    holder.abort()


@pytest.mark.parametrize("committed", [True, False])
def test_a_group_before_a_marker_or_aborted_records_has_no_lag(
    kafka_42: Broker, collected_42: CollectedGroups, java: JavaGateway, committed: bool
) -> None:
    """librdkafka commits behind the last record that it delivered, Kafka's tool shows a lag for ever."""
    where, topic = kafka_42.bootstrap, f"gr-marker-{committed}".lower()
    create_topics(where, topic, partitions=1)
    producer = LibrdkafkaProducer(where, topic)
    producer.init()
    for ends in (producer.commit, producer.commit if committed else producer.abort):
        producer.begin()
        producer.send(topic, 0)
        producer.flush()
        ends()
    settings = {"bootstrap.servers": where, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0)])
    for _ in range(2 if committed else 1):
        message = wait_for(lambda: consumer.poll(0.2), "a record", 30)
        assert message.error() is None
    consumer.commit(message=message, asynchronous=False)
    consumer.close()
    collected_42.poll(2)
    row = collected_42.offset(topic, topic, 0)
    line = groups_by_kafka_tool(KafkaTool(kafka_42, java))[topic, topic, 0]
    assert line.lag == (1 if committed else 3)
    assert collected_42.lines()[topic, topic, 0] == line
    assert (row.only_markers, row.status, row.lag_ms) == (True, "OK", 0)
    write_records(where, topic, 1, 1)
    collected_42.poll(2)
    row = collected_42.offset(topic, topic, 0)
    assert (row.only_markers, row.status in ("OK", "UNKNOWN")) == (False, True)


def test_a_recreated_topic_loses_its_offsets(
    kafka: Broker, tool: KafkaTool, collected: CollectedGroups
) -> None:
    where = kafka.bootstrap
    create_topics(where, "gr-again")
    write_records(where, "gr-again")
    commit_offsets(where, "gr-again", "gr-again", p0=8)
    commit_offsets(where, "gr-again", "gr-again", p1=8)
    collected.poll()
    delete_topic(where, "gr-again")

    def is_gone() -> bool:
        collected.poll()
        return not GroupOffset.objects.filter(topic="gr-again").exists()

    wait_for(is_gone, "its offsets are gone", 60)
    # The coordinator tells of it before the log does.
    collected.read()
    create_topics(where, "gr-again")
    write_records(where, "gr-again", 6)
    commit_offsets(where, "gr-again", "gr-again", p0=1)
    collected.poll(2)
    row = collected.offset("gr-again", "gr-again", 0)
    assert (row.offset, row.high_watermark, row.status in ("OK", "UNKNOWN")) == (1, 2, True), row.status
    expected = groups_by_kafka_tool(tool)["gr-again", "gr-again", 0]
    assert collected.lines()["gr-again", "gr-again", 0] == expected


def read_until_ms(collected: CollectedGroups) -> int:
    """Read for a while as a worker does; return up to when everything is read."""
    with only_cluster(collected.cluster.name, collected.cluster.properties):
        tails.tailed_offsets.read_until(collected.tail, time.monotonic() + 0.6)
    return Collector.objects.get(name=collected.tail.name).seen_through_ms or 0


def test_commits_of_transactions_that_never_pause_are_read_through(
    kafka_42: Broker, collected_42: CollectedGroups
) -> None:
    create_topics(kafka_42.bootstrap, "gr-busy")
    producer, stop = LibrdkafkaProducer(kafka_42.bootstrap, "gr-busy-tx"), threading.Event()
    producer.init()

    def commit_on() -> None:
        offset = 0
        # More often than a fetch that waits returns without a record: no end of the partition is announced.
        while not stop.wait(0.2):
            offset += 1
            producer.begin()
            producer.send_offsets("gr-busy", {("gr-busy", 0): offset})
            producer.commit()

    thread = threading.Thread(target=commit_on, daemon=True)
    thread.start()
    try:
        for _ in range(3):
            asked_ms = loop.now_ms()
            wait_for(
                lambda asked_ms=asked_ms: read_until_ms(collected_42) > asked_ms, "all commits are read", 60
            )  # type: ignore[misc]
    finally:
        stop.set()
        thread.join()
