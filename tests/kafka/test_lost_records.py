"""Proves on real brokers that the range an aborted transaction had written is found to the record.

The oracle is an ordinary read_uncommitted consumer: it gets the very records that were sent.
"""

import uuid
from collections.abc import Callable

import pytest

from collectors.kafka import recoveries
from collectors.kafka.recoveries import Search, find_lost
from fenceline.facts import TopicPartition, TransactionRecord, TransactionState
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaProducer
from tests.kafka.producers import LibrdkafkaProducer, TransactionalProducer
from tests.kafka.topic_records import record_offsets, records_of
from tests.waiting import wait_for
from transaction_admin.kafka_reads import ClusterReads

pytestmark = pytest.mark.kafka
Make = Callable[..., TransactionalProducer]


@pytest.fixture
def topic(kafka: Broker) -> str:
    name = f"lost-{uuid.uuid4().hex[:8]}"
    create_topics(kafka.bootstrap, name, partitions=2)
    return name


@pytest.fixture(params=["librdkafka", "java"])
def make(request: pytest.FixtureRequest, kafka: Broker) -> Make:
    """Make a producer of either library; `timeout_ms` is its transaction's."""

    def make(name: str, timeout_ms: int = 60_000) -> TransactionalProducer:
        settings = {"transaction.timeout.ms": str(timeout_ms)}
        if request.param == "librdkafka":
            return LibrdkafkaProducer(kafka.bootstrap, name, settings)
        return JavaProducer(request.getfixturevalue("java"), kafka.bootstrap, name, settings)

    return make


def search(kafka: Broker, topic: str, name: str, partition: int = 0, start: int = 0) -> Search:
    """Wait for the id's abort to be complete, and return where its records are to be searched."""

    def ended() -> TransactionRecord | None:
        records = records_of(kafka.bootstrap, name)
        return next((r for r in reversed(records) if r.state is TransactionState.COMPLETE_ABORT), None)

    end = wait_for(ended, f"{name} is aborted", 60)
    return Search(TopicPartition(topic, partition), start, end.producer_id, end.producer_epoch, alone=False)


def send(producer: TransactionalProducer, topic: str, value: str, records: int, partition: int = 0) -> None:
    """Send some records, in two batches."""
    for _ in range(records - 1):
        producer.send(topic, partition, value)
    producer.flush()
    producer.send(topic, partition, value)
    producer.flush()


def test_a_taken_over_producer_lost_its_written_records(
    kafka: Broker, topic: str, make: Make, reads: ClusterReads
) -> None:
    name, other = f"{topic}-victim", make(f"{topic}-other")
    victim = make(name)
    for each in (victim, other):
        each.init()
        each.begin()
    send(other, topic, "kept", 3)
    send(victim, topic, "lost", 5)
    send(other, topic, "kept", 2)
    send(victim, topic, "lost", 4)
    make(name).init()
    other.commit()
    lost = find_lost(reads, search(kafka, topic, name))
    expected = record_offsets(kafka, topic, "lost", committed=False)
    assert len(expected) == 9
    assert lost[:6] == (topic, 0, expected[0], expected[-1], 9, True)


def test_the_previous_transaction_is_not_lost(
    kafka: Broker, topic: str, make: Make, reads: ClusterReads
) -> None:
    name = f"{topic}-late"
    producer = make(name, timeout_ms=1_000)
    producer.init()
    producer.begin()
    send(producer, topic, "kept", 4)
    producer.commit()
    producer.begin()
    send(producer, topic, "lost", 3)
    lost = find_lost(reads, search(kafka, topic, name))
    expected = record_offsets(kafka, topic, "lost", committed=False)
    assert lost[:6] == (topic, 0, expected[0], expected[-1], 3, True)


def test_of_two_aborts_the_last_one_is_found(
    kafka: Broker, topic: str, make: Make, reads: ClusterReads
) -> None:
    name = f"{topic}-twice"
    producer = make(name)
    producer.init()
    for value in ("first", "second"):
        producer.begin()
        send(producer, topic, value, 3)
        producer.abort()
    wait_for(lambda: len(record_offsets(kafka, topic, "second", committed=False)) == 3, "both are written")
    where = search(kafka, topic, name)
    expected = record_offsets(kafka, topic, "second", committed=False)

    def found() -> bool:
        # The coordinator may still write the markers of the second abort.
        newest = where._replace(producer_epoch=search(kafka, topic, name).producer_epoch)
        return find_lost(reads, newest)[:6] == (topic, 0, expected[0], expected[-1], 3, True)

    wait_for(found, "the second range")


@pytest.mark.parametrize("make", ["librdkafka"], indirect=True)
def test_records_beyond_the_read_budget_are_given_in_bounds(
    kafka: Broker, topic: str, make: Make, reads: ClusterReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, noise = f"{topic}-far", make(f"{topic}-noise")
    victim = make(name)
    for each in (victim, noise):
        each.init()
        each.begin()
    send(victim, topic, "lost", 3)
    for _ in range(6):
        send(noise, topic, "n" * 900, 2)
    make(name).init()
    noise.commit()
    where = search(kafka, topic, name)
    monkeypatch.setattr(recoveries, "_BYTES_AT_ONCE", 1_000)
    monkeypatch.setattr(recoveries, "_MOST_REQUESTS", 2)
    lost = find_lost(reads, where)
    assert (lost.first, lost.last, lost.sure) == (0, None, False)
    assert "too much" in lost.note


@pytest.mark.parametrize("make", ["librdkafka"], indirect=True)
def test_a_marker_that_is_gone_leaves_bounds(
    kafka: Broker, topic: str, make: Make, reads: ClusterReads
) -> None:
    name = f"{topic}-gone"
    victim = make(name)
    victim.init()
    victim.begin()
    send(victim, topic, "lost", 3)
    make(name).init()
    nobody = search(kafka, topic, name)._replace(producer_id=999_999)
    lost = find_lost(reads, nobody)
    assert (lost.first, lost.sure) == (0, False)
    assert "marker" in lost.note


def test_a_partition_that_does_not_exist_is_no_error(kafka: Broker, topic: str, reads: ClusterReads) -> None:
    lost = find_lost(reads, Search(TopicPartition(f"{topic}-none", 0), 0, 1, 1, alone=True))
    assert (lost.first, lost.last, lost.sure) == (0, None, False)
    assert lost.note
