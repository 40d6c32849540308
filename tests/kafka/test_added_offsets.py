"""Proves on real brokers which offsets a transaction adds to groups, while it is open and after its end."""

import pytest
from confluent_kafka import Consumer

from dashboard.runtime import loop
from dashboard.transactions.producers import transaction_offsets
from fenceline.decode.consumer_offsets import OffsetCommit, decode_record
from fenceline.kafka.added_offsets import AddedOffset, Observation, TransactionOffsets
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.group_commits import write_records
from tests.kafka.producers import LibrdkafkaProducer, open_in
from tests.kafka.topic_records import raw_records
from tests.waiting import wait_for
from transaction_admin.api import CONSUMER_OFFSETS

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


def observed(collected: CollectedGroups, name: str) -> TransactionOffsets:
    """Poll twice, so that an LSO that is stuck is read behind; return the offsets of an id's transaction."""
    collected.poll(2)
    return transaction_offsets(collected.transaction(name))


def finished(collected: CollectedGroups, name: str, state: str) -> TransactionOffsets:
    """Poll until the coordinator has completed the transaction and its marker is read, if it ever is."""
    wait_for(lambda: collected.transaction(name).state == state, f"it is {state}", 60)
    return observed(collected, name)


def places(found: TransactionOffsets) -> dict[tuple[str, str, int], int]:
    return {each[:3]: each.offset for each in found.offsets}


def logged(bootstrap: str, added: AddedOffset) -> OffsetCommit:
    """Return the record that an offset was read from, as a consumer reads it once it is committed."""
    (record,) = [
        each
        for each in raw_records(bootstrap, CONSUMER_OFFSETS)
        if each[:2] == (added.log_partition, added.log_offset)
    ]
    found = decode_record(record.key, record.value)
    assert isinstance(found, OffsetCommit)
    # The coordinator takes the one instant when it is asked, the other when it writes.
    assert 0 <= record.timestamp_ms - found.commit_ms < 5_000
    return found


def test_consume_transform_produce_shows_group_partition_offset_and_instant(
    kafka: Broker, collected: CollectedGroups
) -> None:
    where, name = kafka.bootstrap, "ao-enrich"
    create_topics(where, "ao-in", "ao-out")
    write_records(where, "ao-in")
    settings = {"bootstrap.servers": where, "group.id": "ao-group", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False, "log_level": 0})
    consumer.subscribe(["ao-in"])
    producer = open_in(where, name)
    read = wait_for(lambda: consumer.consume(5, 0.5), "records to transform", 60)
    for message in read:
        producer.send("ao-out", 0, f"seen {message.value()!r}")
    begun_ms = loop.now_ms()
    producer.send_positions(consumer)
    sent_ms = loop.now_ms()
    found = observed(collected, name)
    assert (found.observation, found.missing) == (Observation.COMPLETE, ())
    expected = {
        ("ao-group", each.topic, each.partition): each.offset
        for each in consumer.position(consumer.assignment())
        if each.offset >= 0
    }
    assert places(found) == expected
    assert all(begun_ms <= each.at_ms <= sent_ms for each in found.offsets)
    producer.commit()
    done = finished(collected, name, "CompleteCommit")
    assert (done.observation, done.offsets) == (Observation.COMPLETE, found.offsets)
    for each in done.offsets:
        assert logged(where, each)[:4] == each[:4]
        assert logged(where, each).commit_ms == each.at_ms
    consumer.close()


def test_what_was_read_is_of_one_transaction_alone(kafka: Broker, collected: CollectedGroups) -> None:
    """Before transaction version 2 all transactions of a producer have one epoch."""
    name, topic = "ao-one", "ao-one"
    create_topics(kafka.bootstrap, topic)
    producer = open_in(kafka.bootstrap, name)
    producer.send_offsets(topic, {(topic, 0): 5, (topic, 1): 6})
    producer.send_offsets(topic, {(topic, 1): 7})
    open_ = observed(collected, name)
    assert places(open_) == {(topic, topic, 0): 5, (topic, topic, 1): 7}
    producer.send_offsets(topic, {(topic, 2): 8})
    producer.abort()
    aborted = finished(collected, name, "CompleteAbort")
    assert aborted.observation is Observation.COMPLETE
    assert places(aborted) == {**places(open_), (topic, topic, 2): 8}, "also what came after the last poll"
    producer.begin()
    producer.send_offsets(topic, {(topic, 0): 9})
    producer.commit()
    short = finished(collected, name, "CompleteCommit")
    assert (short.observation, short.offsets) == (Observation.NONE, ())
    (why,) = short.missing
    assert "two polls" in why
    producer.begin()
    producer.send(topic, 0)
    producer.flush()
    assert observed(collected, name) == TransactionOffsets(), "its record names no offsets"
    producer.send_offsets(topic, {(topic, 0): 10})
    assert places(observed(collected, name)) == {(topic, topic, 0): 10}
    producer.commit()


def test_two_groups_in_one_transaction_are_both_shown(
    kafka_42: Broker, collected_42: CollectedGroups
) -> None:
    where, name = kafka_42.bootstrap, "ao-two"
    create_topics(where, name)
    producer = open_in(where, name)
    for number in range(4):
        producer.send_offsets(f"ao-two-{number}", {(name, 0): number})
    found = observed(collected_42, name)
    assert places(found) == {(f"ao-two-{number}", name, 0): number for number in range(4)}
    assert len({each.log_partition for each in found.offsets}) > 1
    producer.commit()
    assert finished(collected_42, name, "CompleteCommit").offsets == found.offsets


def test_what_a_restart_of_the_collector_missed_is_named(
    kafka_42: Broker, collected_42: CollectedGroups
) -> None:
    where, name = kafka_42.bootstrap, "ao-restart"
    create_topics(where, name)
    producer = open_in(where, name)
    producer.send_offsets(name, {(name, 0): 1})
    found = observed(collected_42, name)
    collected_42.restart()
    producer.commit()
    done = finished(collected_42, name, "CompleteCommit")
    assert (done.observation, done.offsets) == (Observation.PARTIAL, found.offsets)
    (why,) = done.missing
    assert "not up to its marker" in why


def test_a_transaction_whose_first_offsets_lie_before_the_lso_is_not_shown_as_whole(
    kafka_42: Broker,
    collected_42: CollectedGroups,
) -> None:
    where, group = kafka_42.bootstrap, "ao-before"
    create_topics(where, group)
    ended, blocking = (LibrdkafkaProducer(where, f"ao-before-{n}") for n in ("ended", "blocking"))
    for partition, producer in enumerate((ended, blocking)):
        producer.init()
        producer.begin()
        producer.send_offsets(group, {(group, partition): 1})
    ended.send_offsets(group, {(group, 2): 3})
    ended.commit()
    done = finished(collected_42, "ao-before-ended", "CompleteCommit")
    assert (done.observation, done.offsets) == (Observation.NONE, ())
    assert places(observed(collected_42, "ao-before-blocking")) == {(group, group, 1): 1}
    blocking.abort()
