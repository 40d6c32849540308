"""Proves the verdict on one of each kind of open transaction on a real broker, beside Kafka's own tools, and
that it is correct where they are wrong by design.

`find-hanging` only looks at transactions whose newest record is older than its `--max-transaction-timeout`;
so it is run with 0 here (every open one is a candidate), or the records are backdated, as each test
describes.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway

from dashboard.runtime import loop
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import PartitionVerdict, ProducerOwners, VerdictReason
from sandbox.kafka import Broker
from sandbox.scenes.wire import Identity
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin, JavaProducer
from tests.java.tools import KafkaTool
from tests.kafka.collected_partitions import CollectedPartitions, abort, describe_producers, find_hanging
from tests.kafka.producers import LibrdkafkaProducer, TransactionalProducer
from tests.kafka.random_transactions import LONG_MS
from tests.kafka.raw_producers import RawProducer
from tests.kafka.stray_records import identity_of, verification_disabled, write_stray_records
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

MINUTE_MS = 60_000
OWNED = PartitionVerdict.OPEN, VerdictReason.OWNED
NOT_ITS = PartitionVerdict.HANGING, VerdictReason.NOT_ITS_PARTITION
SETTINGS = {"transaction.timeout.ms": str(LONG_MS), "linger.ms": "0"}


@pytest.fixture
def collected(kafka: Broker) -> Iterator[CollectedPartitions]:
    made = CollectedPartitions(kafka.bootstrap)
    yield made
    made.close()


@pytest.fixture
def name(kafka: Broker) -> str:
    """A topic of three partitions, and an id of the same name."""
    made = f"verdict-{random.getrandbits(40):x}"
    create_topics(kafka.bootstrap, made)
    return made


def open_in(producer: TransactionalProducer, topic: str, *partitions: int) -> None:
    producer.init()
    producer.begin()
    for number in partitions:
        producer.send(topic, number)
    producer.flush()


def hangs_by_the_tool(tool: KafkaTool, topic: str, *, timeout_minutes: int = 0) -> list[int]:
    return sorted(
        each.partition for each in find_hanging(tool, timeout_minutes=timeout_minutes) if each.topic == topic
    )


@pytest.mark.parametrize("library", ["librdkafka", "java"])
def test_an_open_transaction_is_open(
    kafka: Broker, tool: KafkaTool, java: JavaGateway, collected: CollectedPartitions, name: str, library: str
) -> None:
    producer: TransactionalProducer
    if library == "java":
        producer = JavaProducer(java, kafka.bootstrap, name, SETTINGS)
    else:
        producer = LibrdkafkaProducer(kafka.bootstrap, name, SETTINGS)
    # A transaction before, so that under protocol 2 the epochs here and at the coordinator have moved.
    open_in(producer, name, 0)
    producer.commit()
    producer.begin()
    producer.send(name, 0)
    producer.send(name, 2)
    producer.flush()
    collected.poll_repeatedly()
    for number in 0, 2:
        assert collected.verdicts(name, number) == [(name, *OWNED)]
        row, (pin,) = collected.row(name, number), collected.blockers(name, number)
        assert (row.verdict, row.error, row.lso, row.high_watermark) == (
            "open", "", pin.start_offset, pin.start_offset + 1,
        )  # fmt: skip
        assert row.pinned_ms == pin.first_seen_ms
        assert (pin.producer_id, pin.producer_epoch, pin.start_offset) in describe_producers(
            tool, name, number
        )
    assert collected.verdict(name, 1) is PartitionVerdict.CLEAR
    assert hangs_by_the_tool(tool, name) == []
    producer.commit()
    # Between the end and the move of the LSO the verdict is unknown.
    wait_for(
        lambda: (
            collected.poll()
            and {collected.verdict(name, number) for number in (0, 2)} == {PartitionVerdict.CLEAR}
        ),
        "it is released",
    )
    assert not collected.blockers(name, 0)
    assert collected.row(name, 0).pinned_ms is None


def test_a_transaction_that_ends_between_the_two_requests_is_ended(
    kafka: Broker, collected: CollectedPartitions, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its LSO was read before: that it has not moved yet is expected."""
    producer = LibrdkafkaProducer(kafka.bootstrap, name, SETTINGS)
    open_in(producer, name, 0)
    collected.poll_repeatedly(2)
    assert collected.verdicts(name) == [(name, *OWNED)]
    owners = collected.watcher._asker.find_owners

    def commit_meanwhile(*arguments: Any, **named: Any) -> ProducerOwners:
        told = owners(*arguments, **named)
        producer.commit()
        reads, where = collected.watcher._reads, TopicPartition(name, 0)
        wait_for(
            lambda: not any(p.start_offset is not None for p in reads.describe_producers([where])[where]),
            "over",
        )
        return told

    with monkeypatch.context() as patch:
        patch.setattr(collected.watcher._asker, "find_owners", commit_meanwhile)
        collected.poll(full=False)
    row = collected.row(name)
    assert (collected.verdicts(name), row.verdict, row.pinned_ms, row.error) == ([], "clear", None, "")
    collected.poll(full=False)
    assert (collected.row(name).lso, collected.verdict(name)) == (2, PartitionVerdict.CLEAR)


def test_a_transaction_is_late_after_its_timeout_and_never_in_two_phase_commit(
    kafka: Broker, tool: KafkaTool, collected: CollectedPartitions, name: str
) -> None:
    """Its coordinator ends it in time here, so the local clock is moved on instead: 15 s are the grace."""
    open_in(LibrdkafkaProducer(kafka.bootstrap, name, SETTINGS), name, 0)
    collected.poll_repeatedly(2)
    assert collected.verdicts(name) == [(name, *OWNED)]
    collected.poll(later_ms=LONG_MS + 14_000)
    assert collected.verdicts(name) == [(name, *OWNED)]
    collected.poll(later_ms=LONG_MS + 30_000)
    assert collected.verdicts(name) == [(name, PartitionVerdict.LATE, VerdictReason.PAST_TIMEOUT)]
    assert collected.verdict(name) is PartitionVerdict.LATE
    # The tool has no word for it: it knows hanging ones alone.
    assert hangs_by_the_tool(tool, name) == []


def watched_identity(collected: CollectedPartitions, name: str) -> Identity:
    collected.poll_repeatedly(2)
    (pin,) = collected.blockers(name)
    return Identity(pin.producer_id, pin.producer_epoch)


def test_a_transaction_is_hanging_after_two_answers_of_its_coordinator(
    kafka: Broker, tool: KafkaTool, collected: CollectedPartitions, name: str
) -> None:
    given = identity_of(kafka, name)
    with verification_disabled(kafka):
        offset = write_stray_records(kafka, name, given, (name, 1), records=3)
    seen = []
    for _ in range(4):
        collected.poll()
        seen.append((collected.verdict(name, 1), *[ground for _, _, ground in collected.verdicts(name, 1)]))
    assert seen == [
        (PartitionVerdict.CLEAR,),
        (PartitionVerdict.UNKNOWN, VerdictReason.SEEN_ONCE),
        (PartitionVerdict.HANGING, VerdictReason.NOT_ITS_PARTITION),
        (PartitionVerdict.HANGING, VerdictReason.NOT_ITS_PARTITION),
    ]
    (pin,) = collected.blockers(name, 1)
    assert (pin.producer_id, pin.producer_epoch, pin.start_offset) == (*given, offset)
    assert describe_producers(tool, name, 1) == {(*given, offset)}
    assert hangs_by_the_tool(tool, name) == [1]


def test_a_transaction_is_hanging_although_its_id_has_another_one_open_elsewhere(
    kafka: Broker, tool: KafkaTool, collected: CollectedPartitions, name: str
) -> None:
    producer = LibrdkafkaProducer(kafka.bootstrap, name, SETTINGS)
    open_in(producer, name, 0)
    given = watched_identity(collected, name)
    with verification_disabled(kafka):
        write_stray_records(kafka, name, given, (name, 1))
    collected.poll_repeatedly()
    expected = ([(name, *OWNED)], [(name, *NOT_ITS)])
    assert (collected.verdicts(name, 0), collected.verdicts(name, 1)) == expected
    assert hangs_by_the_tool(tool, name) == [1]
    # Once the partition is added, the commit will end it there as well.
    RawProducer(kafka.bootstrap, name, LONG_MS, given).send(name, 1)
    collected.poll()
    assert collected.verdicts(name, 1) == [(name, *OWNED)]
    assert hangs_by_the_tool(tool, name) == []


def test_a_transaction_is_hanging_with_a_producer_id_of_no_id(
    kafka: Broker, tool: KafkaTool, collected: CollectedPartitions, name: str
) -> None:
    nobody = Identity(900_000_000_000 + random.getrandbits(30), 3)
    with verification_disabled(kafka):
        write_stray_records(kafka, name, nobody, (name, 0))
    collected.poll_repeatedly()
    assert collected.verdicts(name) == [("", PartitionVerdict.HANGING, VerdictReason.NO_SUCH_PRODUCER)]
    assert hangs_by_the_tool(tool, name) == [0]


def test_a_verdict_is_unknown_where_ids_may_be_hidden(kafka: Broker, name: str) -> None:
    """No tail reads, and the configuration does not vouch: a producer id of no id may belong to a hidden
    one.
    """
    collected = CollectedPartitions(kafka.bootstrap, vouched=False)
    given = identity_of(kafka, name)
    with verification_disabled(kafka):
        write_stray_records(kafka, name, Identity(900_000_000_000 + random.getrandbits(30), 3), (name, 0))
        write_stray_records(kafka, name, given, (name, 1))
    collected.poll_repeatedly()
    collected.close()
    assert collected.verdicts(name, 0) == [("", PartitionVerdict.UNKNOWN, VerdictReason.MAY_BE_HIDDEN)]
    assert collected.verdicts(name, 1) == [(name, *NOT_ITS)]


def test_a_partition_has_the_worst_of_two_verdicts(
    kafka: Broker, tool: KafkaTool, collected: CollectedPartitions, name: str
) -> None:
    open_in(LibrdkafkaProducer(kafka.bootstrap, name, SETTINGS), name, 0)
    other = f"{name}-other"
    given = identity_of(kafka, other)
    with verification_disabled(kafka):
        write_stray_records(kafka, other, given, (name, 0))
    collected.poll_repeatedly()
    assert collected.verdicts(name) == [(name, *OWNED), (other, *NOT_ITS)]
    assert collected.verdict(name) is PartitionVerdict.HANGING
    assert hangs_by_the_tool(tool, name) == [0]


def test_a_transaction_and_its_successor_are_timed_separately(
    kafka: Broker, collected: CollectedPartitions, name: str
) -> None:
    first = LibrdkafkaProducer(kafka.bootstrap, name, SETTINGS)
    open_in(first, name, 0)
    open_in(LibrdkafkaProducer(kafka.bootstrap, f"{name}-2", SETTINGS), name, 0)
    collected.poll_repeatedly(2)
    before = collected.blockers(name)
    assert len(before) == 2
    first.commit()
    wait_for(lambda: collected.poll() and len(collected.blockers(name)) == 1, "the first one is over")
    (left,) = collected.blockers(name)
    assert (left.start_offset, left.first_seen_ms) == (before[1].start_offset, before[1].first_seen_ms)
    assert collected.verdict(name) is PartitionVerdict.OPEN


def test_ages_survive_a_restart_of_the_collector(
    kafka: Broker, collected: CollectedPartitions, name: str
) -> None:
    open_in(LibrdkafkaProducer(kafka.bootstrap, name, SETTINGS), name, 0)
    other = f"{name}-other"
    given = identity_of(kafka, other)
    with verification_disabled(kafka):
        write_stray_records(kafka, other, given, (name, 1))
    collected.poll_repeatedly()
    before = [collected.blockers(name, number)[0].first_seen_ms for number in (0, 1)]
    collected.close()
    collected.start()
    seen = collected.poll(full=False)
    assert (seen.rows, seen.pins, seen.ended) == ({}, (), ())
    assert [collected.blockers(name, number)[0].first_seen_ms for number in (0, 1)] == before
    # An accusation is not begun anew either.
    assert collected.verdicts(name, 1) == [(other, *NOT_ITS)]


def test_weak_point_a_backdated_records_do_not_change_ages(
    kafka: Broker, tool: KafkaTool, collected: CollectedPartitions, name: str
) -> None:
    """docs/design/kafka.md §1.1 (a): the tool takes the producer's timestamps for ages; here they are wrong.

    Run with its own default of 15 minutes. It calls the backdated one half an hour old, which is seconds old,
    and does not find the one that is dated ahead at all. The test broker deletes records an hour old.
    """
    ids = [f"{name}-{number}" for number in range(2)]
    given = [identity_of(kafka, each) for each in ids]
    now_ms = loop.now_ms()
    with verification_disabled(kafka):
        write_stray_records(kafka, ids[0], given[0], (name, 0), stamped_ms=now_ms - 30 * MINUTE_MS)
        write_stray_records(kafka, ids[1], given[1], (name, 1), stamped_ms=now_ms + 55 * MINUTE_MS)
    (found,) = [each for each in find_hanging(tool, timeout_minutes=15) if each.topic == name]
    assert (found.partition, found.minutes) == (0, 30)
    collected.poll_repeatedly()
    for number in 0, 1:
        assert collected.verdicts(name, number) == [(ids[number], *NOT_ITS)]
        (pin,) = collected.blockers(name, number)
        assert now_ms <= pin.first_seen_ms <= loop.now_ms()


def test_weak_point_b_a_producer_that_continues_writing_is_found(
    kafka: Broker, tool: KafkaTool, collected: CollectedPartitions, name: str
) -> None:
    """docs/design/kafka.md §1.1 (b): a fresh record hides a hanging transaction from the tool, with its
    default of 15 minutes; the first record is backdated, so that the tool has found it before."""
    given = identity_of(kafka, name)
    with verification_disabled(kafka):
        write_stray_records(kafka, name, given, (name, 0), stamped_ms=loop.now_ms() - 30 * MINUTE_MS)
        assert hangs_by_the_tool(tool, name, timeout_minutes=15) == [0]
        collected.poll_repeatedly()
        write_stray_records(kafka, name, given, (name, 0), sequence=1)
    (before,) = collected.blockers(name)
    assert hangs_by_the_tool(tool, name, timeout_minutes=15) == []
    collected.poll()
    (pin,) = collected.blockers(name)
    assert collected.verdicts(name) == [(name, *NOT_ITS)]
    assert (pin.first_seen_ms, pin.last_sequence) == (before.first_seen_ms, 1)


def test_an_aborted_hanging_transaction_is_ended_in_the_next_poll(
    kafka: Broker, tool: KafkaTool, java: JavaGateway, collected: CollectedPartitions, name: str
) -> None:
    """Ended by a takeover's fence it is not; by a marker it is. `kafka-transactions.sh abort` writes that."""
    given = identity_of(kafka, name)
    with verification_disabled(kafka):
        offset = write_stray_records(kafka, name, given, (name, 0))
    collected.poll_repeatedly()
    with JavaAdmin(java, kafka.bootstrap) as admin:
        admin.fence_producers([name])
    collected.poll()
    assert collected.verdicts(name) == [(name, *NOT_ITS)]
    abort(tool, name, 0, offset)
    collected.poll()
    assert (collected.verdicts(name), collected.verdict(name)) == ([], PartitionVerdict.CLEAR)
