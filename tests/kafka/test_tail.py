"""Proves the tail on a real broker: where it begins, what it skips, and how it reports that it cannot
read.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
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

from collectors.kafka.internal_topics import CannotSee, NoSuchTopic, Tail, TopicReplaced
from fenceline.decode.tail_batch import TailBatch
from fenceline.decode.transaction_state import decode_record
from fenceline.facts import Tombstone, TopicPartition, TransactionRecord, TransactionState, Undecoded
from sandbox.kafka import Broker, Sasl
from sandbox.ports import free_port
from tests.brokers import create_topics
from tests.kafka.topic_records import last_record
from tests.transaction_load import commit
from tests.transaction_state_records import encode_key, encode_value
from tests.waiting import wait_for
from transaction_admin.api import AdminUnavailable
from transaction_admin.log_reader import Fetched, LogReader, OutOfRange
from transaction_admin.partition_requests import LATEST

pytestmark = pytest.mark.kafka

USERS = {"viewer": "right"}
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
    while seen_ms < began_ms:
        assert time.monotonic() < end, "the end was never reached"
        look = tail.poll(0.1)
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


def test_a_cluster_without_transactions_has_no_such_topic(tmp_path: Path) -> None:
    with Broker(tmp_path) as fresh:
        tail = Tail({"bootstrap.servers": fresh.bootstrap})
        with pytest.raises(NoSuchTopic):
            tail.seek("", {})
        assert (
            "__transaction_state"
            not in AdminClient({"bootstrap.servers": fresh.bootstrap}).list_topics(timeout=10).topics
        )
        tail.close()


def sasl(broker: Broker, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "viewer",
        "sasl.password": password,
    }


def poll_once(properties: Mapping[str, str]) -> None:
    tail = Tail(properties)
    try:
        tail.seek("", {})
    finally:
        tail.close()


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
        end = time.monotonic() + 3
        while time.monotonic() < end:
            tail.mark_saved(tail.poll(0.1))
        tail.close()
    finally:
        admin.delete_acls([acl_filter(acl)])[acl_filter(acl)].result(30)


def acl_filter(acl: AclBinding) -> AclBindingFilter:
    what = (acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host)
    return AclBindingFilter(*what, acl.operation, acl.permission_type)


def test_an_unreachable_broker_is_named(broker: Broker) -> None:
    where = f"127.0.0.1:{free_port()}"
    text = refusal({"bootstrap.servers": where})
    assert where in text
    assert "refused" in text.lower()


def test_an_unknown_host_is_named() -> None:
    assert "nowhere.invalid" in refusal({"bootstrap.servers": "nowhere.invalid:9092"})


def test_a_property_unknown_to_librdkafka_is_named() -> None:
    text = refusal({"bootstrap.servers": "127.0.0.1:1", "bootstrap.severs": "x"})
    assert "bootstrap.severs" in text


def test_tls_against_a_plain_port_is_named(broker: Broker) -> None:
    text = refusal({"bootstrap.servers": broker.bootstrap, "security.protocol": "SSL"})
    assert "SSL" in text


def test_a_log_that_lost_its_end_is_told_by_its_leader(tmp_path: Path) -> None:
    """The broker looks up the epoch of the batch that was read last in its own log."""
    with Broker(tmp_path) as kafka:
        create_topics(kafka.bootstrap, "t", partitions=1)
        commit(kafka.bootstrap, "first")
        # Else the coordinator writes its marker once more, in the next epoch.
        wait_for(lambda: is_complete(kafka.bootstrap, "first"), "the commit is complete")
        kafka.stop()
        kafka.start()
        kafka.wait_ready()
        reader = LogReader({"bootstrap.servers": kafka.bootstrap}, "t", timeout_s=5)
        reader.describe()
        end = wait_for(
            lambda: reader.ask_offsets([0], LATEST)[0],
            "the broker leads its partition again",
            until=lambda answer: isinstance(answer, int),
        )
        assert isinstance(end, int)
        commit(kafka.bootstrap, "second")
        epoch = reader._leaders.leader_epoch(TopicPartition("t", 0))
        assert epoch is not None
        assert isinstance(answer_of(reader, end, 0), Fetched)
        assert isinstance(answer_of(reader, end + 1, epoch), Fetched)
        # The first epoch ended there: what was read of it beyond is not in this log.
        assert answer_of(reader, end + 1, 0) == OutOfRange()
        assert answer_of(reader, end, epoch + 1) == OutOfRange()
        reader.close()


def test_an_outdated_leader_epoch_is_refused_and_asked_for_again(tmp_path: Path) -> None:
    with Broker(tmp_path) as kafka:
        create_topics(kafka.bootstrap, "t", partitions=1)
        commit(kafka.bootstrap, "first")
        reader = LogReader({"bootstrap.servers": kafka.bootstrap}, "t", timeout_s=5)
        reader.describe()
        known = reader._leaders._known["t"]
        assert isinstance(answer_of(reader, 0, -1), Fetched)
        before = known[0].leader_epoch
        kafka.stop()
        kafka.start()
        kafka.wait_ready()
        assert isinstance(answer_of(reader, 0, -1), Fetched)
        assert reader._leaders.leader_epoch(TopicPartition("t", 0)) != before
        reader.close()


def is_complete(bootstrap: str, name: str) -> bool:
    return last_record(bootstrap, name).state is TransactionState.COMPLETE_COMMIT


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
