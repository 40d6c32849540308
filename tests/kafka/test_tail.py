"""Proves the tail on a real broker: where it begins, what it skips, and how it reports that it cannot
read.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from collectors.kafka.internal_topics import CannotSee, Tail, TopicReplaced
from fenceline.decode.tail_batch import TailBatch
from fenceline.decode.transaction_state import decode_record
from fenceline.facts import Tombstone, TopicPartition, TransactionRecord, TransactionState, Undecoded
from sandbox.kafka import Broker, Sasl
from tests.brokers import create_topics
from tests.kafka.driven import at_once
from tests.kafka.group_commits import write_records
from tests.transaction_load import commit
from tests.transaction_state_records import encode_key, encode_value
from tests.waiting import wait_for
from transaction_admin.api import AdminUnavailable
from transaction_admin.log_reader import Fetched, LogReader, OutOfRange

pytestmark = pytest.mark.kafka

USERS = {"viewer": "right"}
#: A topic of one partition.
EPOCHS = "epochs"
Fact = TransactionRecord | Tombstone | Undecoded


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a SASL listener on which ACLs count, and one topic."""
    folder = tmp_path_factory.mktemp("kafka")
    with Broker(folder, sasl=Sasl(users=USERS), authorizer=True) as broker:
        create_topics(broker.bootstrap, "t", partitions=2)
        commit(broker.bootstrap, "first")
        yield broker


def write(bootstrap: str, *records: tuple[bytes | None, bytes | None]) -> None:
    """Write raw records where only brokers may: they let this client id do it."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "__admin_client"})
    refused: list[object] = []
    for key, value in records:
        producer.produce(
            "__transaction_state", value, key, partition=0, on_delivery=lambda error, _: refused.append(error)
        )
    assert producer.flush(30) == 0
    assert set(refused) == {None}


def newest_of(look: TailBatch) -> dict[str, Fact]:
    """Return the newest record of each key."""
    found = {}
    for records in look.records.values():
        for key, raws in records.items():
            fact = decode_record(key, raws[-1].value)
            found["" if isinstance(fact, Undecoded) else fact.transactional_id] = fact
    return found


def read_all(tail: Tail, seconds: float = 20) -> dict[str, Fact]:
    """Poll, as the collector does, until everything up to now was read."""
    began_ms, end = time.time() * 1000, time.monotonic() + seconds
    changes: dict[str, Fact] = {}
    seen_ms = 0
    with at_once():
        while seen_ms < began_ms:
            assert time.monotonic() < end, "the end was never reached"
            look = tail.poll(0.02)
            changes |= newest_of(look)
            seen_ms = max(seen_ms, look.seen_through_ms or 0)
            tail.mark_saved(look)
    return changes


def opened(bootstrap: str, topic_id: str = "", positions: Mapping[int, int] | None = None) -> Tail:
    tail = Tail({"bootstrap.servers": bootstrap})
    tail.seek(topic_id, positions or {})
    return tail


def positions_of(tail: Tail) -> dict[int, int]:
    return {partition: offset for partition, offset in tail._saved.items() if offset is not None}


def test_the_tail_begins_at_the_oldest_record_and_keeps_the_newest_of_each_id(broker: Broker) -> None:
    commit(broker.bootstrap, "newest", times=3)
    tail = opened(broker.bootstrap)
    record = read_all(tail)["newest"]
    assert isinstance(record, TransactionRecord)
    assert record.state is TransactionState.COMPLETE_COMMIT
    tail.close()


def test_the_tail_resumes_at_the_saved_position_and_reads_nothing_twice(broker: Broker) -> None:
    first = opened(broker.bootstrap)
    read_all(first)
    topic_id, positions = first.topic_id, positions_of(first)
    first.close()
    commit(broker.bootstrap, "after")
    second = opened(broker.bootstrap, topic_id, positions)
    assert second.is_at(topic_id, positions)
    assert set(read_all(second)) == {"after"}
    second.close()


def test_a_batch_that_was_not_saved_is_read_again(broker: Broker) -> None:
    tail = opened(broker.bootstrap)
    read_all(tail)
    topic_id, positions = tail.topic_id, positions_of(tail)
    commit(broker.bootstrap, "again")
    end = time.monotonic() + 20
    while "again" not in newest_of(tail.poll(0.1)):
        assert time.monotonic() < end
    assert not tail.is_at(topic_id, positions), "it must not go on from a look that nobody saved"
    tail.seek(topic_id, positions)
    assert "again" in read_all(tail)
    tail.close()


def test_corrupt_records_and_unknown_versions_are_counted_and_skipped(broker: Broker) -> None:
    tail = opened(broker.bootstrap)
    read_all(tail)
    good = TransactionRecord("good", TransactionState.EMPTY, 1, 0, 60_000, None, 1, None)
    key, value = encode_key("good"), encode_value(good)
    bad: list[tuple[bytes | None, bytes | None]] = [
        (key, b"\x00\x63" + value[2:]),
        (key, value[:-3]),
        (key, b""),
        (b"\x00\x07abc", value),
        (b"", value),
        (encode_key("other"), value[:16] + b"\x2a" + value[17:]),
    ]
    assert all(not isinstance(decode_record(*each), (TransactionRecord, Tombstone)) for each in bad)
    write(broker.bootstrap, *bad, (key, value))
    count, changes, end = 0, dict[str, Fact](), time.monotonic() + 20
    while "good" not in changes:
        assert time.monotonic() < end
        look = tail.poll(0.1)
        count += look.count
        changes |= newest_of(look)
    assert count == len(bad) + 1
    tail.close()


def test_a_tombstone_is_read(broker: Broker) -> None:
    tail = opened(broker.bootstrap)
    write(broker.bootstrap, (encode_key("gone"), None))
    assert read_all(tail)["gone"] == Tombstone("gone")
    tail.close()


def test_a_position_outside_the_topic_is_a_replaced_topic(broker: Broker) -> None:
    tail = opened(broker.bootstrap)
    with pytest.raises(TopicReplaced, match="no longer holds offset 999999"):
        tail.seek(tail.topic_id, {0: 999_999})
    with pytest.raises(TopicReplaced, match="made again"):
        tail.seek("another-id", {})
    tail.close()


@pytest.mark.matrix
def test_a_log_that_lost_its_end_and_grew_again_is_a_replaced_topic(tmp_path: Path) -> None:
    """It is longer than the saved position, but what lies before that was written by a later leader."""
    one_partition = {"transaction.state.log.num.partitions": "1"}
    with Broker(tmp_path / "kafka", properties=one_partition) as broker:
        log, copy = broker.folder / "data" / "__transaction_state-0", tmp_path / "copy"
        create_topics(broker.bootstrap, "t")
        commit(broker.bootstrap, "kept")
        replace_log(broker, log, copy)
        commit(broker.bootstrap, "lost", times=2)
        tail = opened(broker.bootstrap)
        read_all(tail)
        topic_id, positions, epochs = tail.topic_id, positions_of(tail), dict(tail._saved_epochs)
        tail.close()
        replace_log(broker, copy, log)
        commit(broker.bootstrap, "other", times=5)
        again = Tail({"bootstrap.servers": broker.bootstrap})
        again.seek(topic_id, positions, epochs)
        with pytest.raises(TopicReplaced, match="no longer holds the record that came next"):
            read_all(again)
        again.close()


def replace_log(broker: Broker, source: Path, target: Path) -> None:
    """Copy the folder of a log while its broker is stopped."""
    broker.stop()
    rmtree(target, ignore_errors=True)
    copytree(source, target)
    broker.start()
    broker.wait_ready()


def sasl(broker: Broker, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "viewer",
        "sasl.password": password,
    }


def poll_once(properties: Mapping[str, str]) -> None:
    with closing(Tail(properties)) as tail:
        tail.seek("", {})


def refusal(properties: Mapping[str, str]) -> str:
    with pytest.raises(CannotSee) as refused:
        poll_once(properties)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_wrong_password_is_named(broker: Broker) -> None:
    text = refusal(sasl(broker, "wrong"))
    assert "sasl.password" in text
    assert broker.sasl_bootstrap in text
    assert "wrong" not in text


def test_a_missing_acl_comes_with_the_line_that_grants_it(broker: Broker) -> None:
    text = refusal(sasl(broker, "right"))
    assert "cannot read __transaction_state" in text
    assert "no READ on this topic" in text
    assert "kafka-acls --add" in text


def test_read_on_the_topic_is_the_only_right_that_is_needed(broker: Broker) -> None:
    """No right to any group."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = (ResourceType.TOPIC, "__transaction_state", ResourcePatternType.LITERAL)
    acl = AclBinding(*topic, "User:viewer", "*", AclOperation.READ, AclPermissionType.ALLOW)
    admin.create_acls([acl])[acl].result(30)
    try:
        tail = Tail(sasl(broker, "right"))
        tail.seek("", {})
        assert "first" in read_all(tail)
        assert read_all(tail) == {}
        tail.close()
    finally:
        admin.delete_acls([acl_filter(acl)])[acl_filter(acl)].result(30)


def acl_filter(acl: AclBinding) -> AclBindingFilter:
    what = (acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host)
    return AclBindingFilter(*what, acl.operation, acl.permission_type)


def test_a_property_unknown_to_librdkafka_is_named() -> None:
    text = refusal({"bootstrap.servers": "127.0.0.1:1", "bootstrap.severs": "x"})
    assert "bootstrap.severs" in text


@pytest.fixture(scope="module")
def restarted(broker: Broker) -> Iterator[LogReader]:
    """A reader that knew the leaders of a topic before the broker restarted, which gave them other epochs."""
    create_topics(broker.bootstrap, EPOCHS, partitions=1)
    write_records(broker.bootstrap, EPOCHS, 3, partitions=1)
    reader = LogReader({"bootstrap.servers": broker.bootstrap}, EPOCHS, timeout_s=5)
    reader.describe()
    assert isinstance(answer_of(reader, 0, -1), Fetched)
    broker.stop()
    broker.start()
    broker.wait_ready()
    yield reader
    reader.close()


def test_an_outdated_leader_epoch_is_refused_and_asked_for_again(restarted: LogReader) -> None:
    before = restarted._leaders._known[EPOCHS][0].leader_epoch
    assert isinstance(answer_of(restarted, 0, -1), Fetched)
    assert restarted._leaders.leader_epoch(TopicPartition(EPOCHS, 0)) != before


def test_a_log_that_lost_its_end_is_told_by_its_leader(broker: Broker, restarted: LogReader) -> None:
    """The broker looks up the epoch of the batch that was read last in its own log."""
    write_records(broker.bootstrap, EPOCHS, 2, partitions=1)
    assert isinstance(answer_of(restarted, 3, -1), Fetched)
    epoch = restarted._leaders.leader_epoch(TopicPartition(EPOCHS, 0))
    assert epoch is not None
    assert isinstance(answer_of(restarted, 3, 0), Fetched)
    assert isinstance(answer_of(restarted, 4, epoch), Fetched)
    # The first epoch ended there: what was read of it beyond is not in this log.
    assert answer_of(restarted, 4, 0) == OutOfRange()
    assert answer_of(restarted, 3, epoch + 1) == OutOfRange()


def answer_of(reader: LogReader, start: int, epoch: int) -> object:
    """Return what the leader of partition 0 answers."""
    reader.forget_requests()

    def answered() -> object:
        with suppress(AdminUnavailable):
            reader.request({0: start}, {0: epoch})
        return reader.receive(0.1).get(0)

    return wait_for(answered, "an answer", 20, until=lambda found: found is not None)


def test_closed_tails_leave_no_thread_and_no_socket(broker: Broker) -> None:
    def left() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/dev/fd"))

    before = left()
    for _ in range(10):
        tail = opened(broker.bootstrap)
        tail.poll(0.0)
        # A request is on its way.
        tail.close()
    wait_for(lambda: left() <= before, "threads and sockets are gone", 10)
