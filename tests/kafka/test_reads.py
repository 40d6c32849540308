"""Proves that the reads of a cluster equal those of librdkafka and Kafka's own tools, in a bounded number of
requests; that missing facts are reported in their place, with the grant where a right is missing."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (
    AdminClient,
    OffsetSpec,
)
from py4j.java_gateway import JavaGateway

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.kafka.groups import Committed
from fenceline.kafka.partitions import Offsets
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin
from tests.java.tools import KafkaTool
from tests.kafka.collected_partitions import describe_producers
from tests.kafka.group_commits import commit_offsets
from tests.kafka.producers import LONG, LibrdkafkaProducer, open_in
from tests.kafka.transactional_ids import initialise_ids
from tests.waiting import wait_for
from transaction_admin import kafka_reads
from transaction_admin.api import Batches, GroupListed, Leader, Unseen, Unstable
from transaction_admin.kafka_reads import ClusterReads
from transaction_admin.leaders import Question
from transaction_admin.partition_requests import parse_batches as headers

pytestmark = pytest.mark.kafka
CLEANUP = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


def partitions_of(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


@pytest.fixture
def topic(kafka: Broker, reads: ClusterReads) -> str:
    """A topic of three partitions, which have leaders."""
    name = f"reads-{random.getrandbits(40):x}"
    create_topics(kafka.bootstrap, name)
    wait_for(lambda: are_all_available(reads, partitions_of(name, 0, 1, 2)), f"{name} has leaders")
    return name


def are_all_available(reads: ClusterReads, partitions: list[TopicPartition]) -> bool:
    return not any(isinstance(each, Unseen) for each in reads.list_offsets(partitions).values())


def wait_for_end(reads: ClusterReads, topic: str, partition: int, end: int) -> None:
    """Wait for a marker: a commit returns once it is decided, and markers follow."""
    where = TopicPartition(topic, partition)

    def there() -> bool:
        found = reads.list_offsets([where])[where]
        return isinstance(found, Offsets) and found.high_watermark == end

    wait_for(there, f"{where} ends at {end}")


def offsets_by_librdkafka(
    bootstrap: str, partitions: list[TopicPartition], spec: Any, level: IsolationLevel
) -> list[int]:
    """The offsets that librdkafka's Admin returns."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    wanted = {Position(*each): spec for each in partitions}
    found = {(p.topic, p.partition): f for p, f in client.list_offsets(wanted, isolation_level=level).items()}
    return [found[each].result(30).offset for each in partitions]


def test_the_topology_equals_librdkafka_s(kafka: Broker, reads: ClusterReads, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    found = reads.describe_topology()
    metadata = client.list_topics(timeout=30)
    assert set(found.topic_ids) >= {topic}
    assert found.topic_ids.keys() == metadata.topics.keys()
    expected = {f"{name}-{number}" for name, each in metadata.topics.items() for number in each.partitions}
    assert {str(where) for where in found.partitions} == expected
    assert dict(found.brokers) == {1: kafka.bootstrap}
    assert found.partitions[TopicPartition(topic, 2)] == Leader(1, 0, (1,), (1,))
    described = client.describe_topics(TopicCollection([topic]))[topic].result(30)
    assert found.topic_ids[topic] == str(described.topic_id)
    assert found.unseen == ()
    one = reads.describe_topology([topic])
    assert set(one.partitions) == set(partitions_of(topic, 0, 1, 2))
    (gone,) = reads.describe_topology(["no-such-topic"]).unseen
    assert gone.what == "no-such-topic"
    assert "there is no such topic" in gone.reason


def test_offsets_equal_librdkafka_s_with_one_set_of_requests_per_broker(
    kafka: Broker, reads: ClusterReads, topic: str
) -> None:
    open_in(kafka.bootstrap, topic, topic, 0, 2).commit()
    for number in 0, 2:
        wait_for_end(reads, topic, number, 2)
    open_in(kafka.bootstrap, f"{topic}-2", topic, 0)
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    deleted = client.delete_records([Position(topic, 2, 1)])
    for each in deleted.values():
        each.result(30)
    partitions = partitions_of(topic, 0, 1, 2)
    reads.describe_topology()
    before = reads.cost.requests
    found = reads.list_offsets(partitions)
    assert reads.cost.requests - before == 3
    assert list(found) == partitions
    latest, earliest = OffsetSpec.latest(), OffsetSpec.earliest()
    committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    expected = zip(
        offsets_by_librdkafka(kafka.bootstrap, partitions, earliest, uncommitted),
        offsets_by_librdkafka(kafka.bootstrap, partitions, latest, committed),
        offsets_by_librdkafka(kafka.bootstrap, partitions, latest, uncommitted),
        strict=True,
    )
    assert list(found.values()) == [Offsets(*each, leader=1, leader_epoch=0) for each in expected]
    assert found[partitions[0]] == Offsets(0, 2, 3, 1, 0)
    assert found[partitions[2]] == Offsets(1, 2, 2, 1, 0)


def test_an_lso_is_never_above_the_high_watermark_while_transactions_end(
    kafka: Broker, reads: ClusterReads, topic: str
) -> None:
    over = threading.Event()

    def commit_on() -> int:
        producer = LibrdkafkaProducer(kafka.bootstrap, topic, LONG)
        producer.init()
        transactions = 0
        while not over.is_set():
            producer.begin()
            producer.send(topic, 0)
            producer.commit()
            transactions += 1
        producer.abandon()
        return transactions

    thread = threading.Thread(target=commit_on)
    thread.start()
    try:
        seen = []
        while len({each.high_watermark for each in seen}) < 50:
            (found,) = reads.list_offsets(partitions_of(topic, 0)).values()
            assert isinstance(found, Offsets)
            seen.append(found)
    finally:
        over.set()
        thread.join()
    assert all(each.log_start <= each.lso <= each.high_watermark for each in seen)
    assert any(each.lso < each.high_watermark for each in seen)


@pytest.mark.versioned
def test_producers_equal_those_of_kafka_s_own_tool(
    kafka: Broker, tool: KafkaTool, reads: ClusterReads, topic: str
) -> None:
    first = open_in(kafka.bootstrap, topic, topic, 0, 1)
    first.commit()
    for number in 0, 1:
        wait_for_end(reads, topic, number, 2)
    first.begin()
    first.send(topic, 0)
    first.flush()
    plain = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    plain.produce(topic, b"x", partition=0)
    plain.flush(30)
    partitions = partitions_of(topic, 0, 1, 2)
    before = reads.cost.requests
    found = reads.describe_producers(partitions)
    assert reads.cost.requests - before <= 2
    for where, producers in found.items():
        assert not isinstance(producers, Unseen)
        expected = describe_producers(tool, *where)
        assert {(each.producer_id, each.producer_epoch, each.start_offset) for each in producers} == expected
    mine, other = sorted(found[partitions[0]], key=lambda each: each.start_offset is None)  # type: ignore[union-attr,arg-type]
    assert (mine.last_sequence, mine.coordinator_epoch) == (1, 0)
    assert (other.start_offset, other.coordinator_epoch) == (None, None)
    assert found[partitions[2]] == ()
    assert reads.describe_producers(partitions, broker=1) == found
    (elsewhere,) = reads.describe_producers(partitions_of(topic, 0), broker=9).values()
    assert isinstance(elsewhere, Unseen)
    assert elsewhere.broker == 9


@pytest.mark.versioned
def test_the_owner_of_a_producer_id_is_found(
    kafka: Broker, java: JavaGateway, reads: ClusterReads, topic: str
) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    initialise_ids(kafka.bootstrap, names)
    open_in(kafka.bootstrap, names[0], topic, 0)
    with JavaAdmin(java, kafka.bootstrap) as admin:
        listed = admin.list_transactions()
    wanted = {listed[name].producer_id: name for name in names}
    nobody = 900_000_000_000
    assert reads.transactional_ids([*wanted, nobody]) == wanted
    assert reads.transactional_ids([]) == {}
    assert reads.transactional_ids([nobody]) == {}


@pytest.mark.versioned
def test_groups_and_their_committed_offsets_are_read(kafka: Broker, reads: ClusterReads, topic: str) -> None:
    create_topics(kafka.bootstrap, other := f"{topic}-other")
    names = [f"{topic}-group-{number}" for number in range(3)] + [f"{topic}-ü ✓\\"]
    for number, name in enumerate(names):
        commit_offsets(kafka.bootstrap, name, topic, p0=number)
        commit_offsets(kafka.bootstrap, name, other, p1=7)
    listing = reads.list_groups()
    assert listing.unseen == ()
    escaped = [*names[:3], f"{topic}-ü ✓\\\\"]
    assert set(escaped) <= listing.groups.keys()
    assert listing.groups[names[0]] == GroupListed("Empty", "Classic", 1)
    before = reads.cost.requests
    found = reads.committed_offsets([*escaped, f"{topic}-nobody"], require_stable=True)
    # A look-up of the coordinators and one request for all; the topic's existence may be asked once.
    assert reads.cost.requests - before <= 3
    first, second = TopicPartition(topic, 0), TopicPartition(other, 1)
    for number, name in enumerate(escaped):
        assert found[name] == {first: Committed(number), second: Committed(7)}
    assert found[f"{topic}-nobody"] == {}
    assert reads.committed_offsets([], require_stable=False) == {}


@pytest.mark.versioned
def test_a_pending_commit_is_unstable(kafka: Broker, reads: ClusterReads, topic: str) -> None:
    group = f"{topic}-group"
    commit_offsets(kafka.bootstrap, group, topic, p0=3)
    producer = open_in(kafka.bootstrap, topic)
    producer.send_offsets(group, {(topic, 0): 9, (topic, 1): 9})
    first, second = partitions_of(topic, 0, 1)
    assert reads.committed_offsets([group], require_stable=False) == {group: {first: Committed(3)}}
    assert reads.committed_offsets([group], require_stable=True) == {group: {first: Unstable()}}
    # One whose first commit is pending is only told of by its name.
    named = {group: [first, second]}
    expected = {group: {first: Unstable(), second: Unstable()}}
    assert reads.committed_offsets([group], require_stable=True, named=named) == expected
    producer.commit()
    wait_for(
        lambda: (
            reads.committed_offsets([group], require_stable=True)
            == {group: {first: Committed(9), second: Committed(9)}}
        ),
        "the commit is stable",
    )


@pytest.mark.versioned
def test_batches_have_their_producers_and_markers_their_results(
    kafka: Broker, reads: ClusterReads, topic: str
) -> None:
    first = open_in(kafka.bootstrap, topic, topic, 0)
    producers = reads.describe_producers(partitions_of(topic, 0))[TopicPartition(topic, 0)]
    assert not isinstance(producers, Unseen)
    (given,) = producers
    first.commit()
    wait_for_end(reads, topic, 0, 2)
    aborted = open_in(kafka.bootstrap, f"{topic}-2", topic, 0)
    aborted.abort()
    wait_for_end(reads, topic, 0, 4)
    plain = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": "gzip", "linger.ms": 10_000})
    for _ in range(5):
        plain.produce(topic, b"x" * 1_000, partition=0)
    plain.flush(30)
    open_in(kafka.bootstrap, f"{topic}-3", topic, 0)
    where = TopicPartition(topic, 0)
    found = reads.batch_headers(where, 0, most_bytes=1_000_000)
    assert isinstance(found, Batches)
    expected = RecordBatch(0, 0, given.producer_id, 0, True, "", 1, base_sequence=0)
    assert found.batches[0]._replace(max_timestamp_ms=-1) == expected
    stamps = [each.max_timestamp_ms for each in found.batches]
    assert stamps == sorted(stamps)
    assert stamps[0] > 0
    shown = [(b.first, b.last, b.transactional, b.marker, b.records) for b in found.batches]
    assert shown == [
        (0, 0, True, "", 1),
        (1, 1, True, "commit", 1),
        (2, 2, True, "", 1),
        (3, 3, True, "abort", 1),
        (4, 8, False, "", 5),
        (9, 9, True, "", 1),
    ]
    assert (found.next, found.end) == (10, 10)
    assert {b.producer_id for b in found.batches[2:4]} != {given.producer_id}
    # The batch that holds an offset comes whole; the one that does not fit is left for the next question.
    middle = reads.batch_headers(where, 6, most_bytes=1)
    assert isinstance(middle, Batches)
    assert [(each.first, each.last) for each in middle.batches] == [(4, 8)]
    assert middle.next == 9
    walked: list[RecordBatch] = []
    at = 0
    while at < found.end:
        part = reads.batch_headers(where, at, most_bytes=200)
        assert isinstance(part, Batches)
        assert part.next > at
        walked, at = [*walked, *part.batches], part.next
    assert walked == list(found.batches)
    open_from = 9
    assert reads.batch_headers(where, 10, most_bytes=1_000) == Batches((), 10, 10, lso=open_from)
    committed = reads.batch_headers(where, 0, most_bytes=1_000_000, committed=True)
    assert isinstance(committed, Batches)
    assert committed.batches == found.batches[:-1]
    assert committed.aborted == ((found.batches[2].producer_id, 2),)
    beyond = reads.batch_headers(where, 11, most_bytes=1_000)
    assert isinstance(beyond, Unseen)
    assert "OFFSET_OUT_OF_RANGE" in beyond.reason


def test_an_answer_cut_off_anywhere_gives_its_whole_batches(
    kafka: Broker, reads: ClusterReads, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_in(kafka.bootstrap, topic, topic, 0).commit()
    wait_for_end(reads, topic, 0, 2)
    raw: list[bytes] = []

    def noted(records: bytes) -> Iterator[RecordBatch]:
        raw.append(bytes(records))
        return headers(records)

    monkeypatch.setattr(kafka_reads, "parse_batches", noted)
    found = reads.batch_headers(TopicPartition(topic, 0), 0, most_bytes=10_000)
    assert isinstance(found, Batches)
    first, marker = found.batches
    whole = [cut for cut in range(len(raw[0]) + 1) if list(headers(raw[0][:cut])) == [first, marker]]
    one = [cut for cut in range(len(raw[0])) if list(headers(raw[0][:cut])) == [first]]
    none = [cut for cut in range(len(raw[0])) if not list(headers(raw[0][:cut]))]
    assert whole == [len(raw[0])]
    assert one + none
    assert sorted(one + none) == list(range(len(raw[0])))
    assert max(none) + 1 == min(one) > 61


def test_a_broker_setting_is_read(reads: ClusterReads) -> None:
    assert reads.broker_setting(CLEANUP) == "500"
    assert reads.broker_setting("no.such.setting") is None


def test_an_outdated_leader_is_looked_up_again(kafka: Broker, reads: ClusterReads, topic: str) -> None:
    reads.describe_topology()
    mine = reads._leaders._known[topic]
    for number, wrong in ((0, 9), (1, None)):
        mine[number] = mine[number]._replace(leader=wrong)
    del mine[2]
    partitions = partitions_of(topic, 0, 1, 2)
    assert list(reads.list_offsets(partitions).values()) == [Offsets(0, 0, 0, 1, 0)] * 3
    (gone, never) = reads.list_offsets(
        [TopicPartition(topic, 3), TopicPartition("no-such-topic", 0)]
    ).values()
    assert isinstance(gone, Unseen)
    assert gone.reason == "there is no such partition"
    assert isinstance(never, Unseen)
    assert "there is no such topic" in never.reason


def test_many_partitions_are_few_requests_and_no_more_than_four_at_a_time(
    kafka: Broker, reads: ClusterReads, topic: str
) -> None:
    create_topics(kafka.bootstrap, name := f"{topic}-many", partitions=30)
    partitions = partitions_of(name, *range(30))
    wait_for(lambda: are_all_available(reads, partitions), "all partitions have a leader")
    on_their_way, most = [0], [0]
    send = reads._connection._manager.send

    def counted(*arguments: Any, **named: Any) -> Any:
        on_their_way[0] += 1
        most[0] = max(most[0], on_their_way[0])
        future = send(*arguments, **named)
        future.add_both(lambda _: on_their_way.__setitem__(0, on_their_way[0] - 1))
        return future

    reads._connection._manager.send = counted
    before = reads.cost.requests
    expected = reads.list_offsets(partitions)
    assert reads.cost.requests - before == 3
    few_at_once = Question(kafka_reads._offset_requests, reads._read_offsets, "DESCRIBE", most=4)
    assert reads._connection.run(reads._leaders.ask_leaders, partitions * 2, few_at_once) == expected
    assert reads.cost.requests - before == 3 + 3 * 8
    assert most == [4]
