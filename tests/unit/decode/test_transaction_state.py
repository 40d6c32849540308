"""Proves that one record of `__transaction_state` is decoded correctly, or counted by the reason why it is
not: by vectors, what Kafka's own tool printed of real bytes (`tests/data/capture_transaction_state.py`), and
kafka-python's codec, driven by Kafka's own schema. Hostile bytes are in test_bytes.py."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.decode.text import unescape_text
from fenceline.decode.transaction_state import (
    STATES,
    decode_key,
    decode_record,
    decode_value,
    peek_value,
    record_of,
)
from fenceline.facts import Tombstone, TopicPartitions, TransactionRecord, TransactionState, Undecoded
from fenceline.kafka.coordinator import partition_for
from tests.cases import cases
from tests.transaction_state_records import encode_key, encode_uvarint, encode_value
from tests.unit.decode import samples
from tests.unit.decode.kafka_schema import LaterValue, TransactionLogKey, TransactionLogValue

KEY = bytes.fromhex("0000000574786e2d31")
T = 1_700_000_000_000
OPENED = TransactionRecord(
    "txn-1", TransactionState.ONGOING, 1000, 5, 60000, (TopicPartitions("t", (0, 2)),), T + 123, T, 2
)
VECTORS = [
    (
        "000000000000000003e800050000ea6001000000010001740000000200000000000000020000018bcfe5687b0000018bcfe56800",
        OPENED._replace(client_version=0, value_version=0),
    ),
    (
        "000000000000000003e800000000ea6000ffffffff0000018bcfe56800ffffffffffffffff",
        TransactionRecord("txn-1", TransactionState.EMPTY, 1000, 0, 60000, None, T, None, value_version=0),
    ),
    (
        "000100000000000003e800050000ea6001020274030000000000000002000000018bcfe5687b0000018bcfe568000102020002",
        OPENED,
    ),
    (
        "000100000000000003e900000000ea6004010000018bcfe569f40000018bcfe5680002000800000000000003e802020002",
        TransactionRecord("txn-1", TransactionState.COMPLETE_COMMIT, 1001, 0, 60000, (), T + 500, T, 2, 1000),
    ),
]
ONGOING_V0, EMPTY_V0, ONGOING_V1, COMPLETE_V1 = (bytes.fromhex(value) for value, _ in VECTORS)


@pytest.mark.parametrize(("value", "record"), VECTORS)
def test_it_reads_and_writes_the_known_vectors(value: str, record: TransactionRecord) -> None:
    assert decode_record(KEY, bytes.fromhex(value)) == record
    assert encode_key("txn-1") == KEY
    assert encode_value(record) == bytes.fromhex(value)


@given(samples.raw_ids)
def test_it_reads_a_record_without_a_value_as_tombstone(raw: bytes) -> None:
    key = b"\x00\x00" + len(raw).to_bytes(2, "big") + raw
    read = decode_record(key, None)
    assert isinstance(read, Tombstone)
    assert encode_key(read.transactional_id) == key


def test_unknown_tags_are_skipped_by_their_size() -> None:
    known = b"\x02\x02\x00\x02"  # tag 2, two bytes, version 2
    strange = encode_uvarint(300) + encode_uvarint(200) + b"x" * 200
    value = ONGOING_V1[:-5] + b"\x02" + known + strange
    assert decode_record(KEY, value) == decode_record(KEY, ONGOING_V1)


#: Each tag as Kafka writes it, with the field that it fills. A producer id whose last byte is 0 looks like a
#: section without tags, and one whose last byte is 1 like the count of a section.
WRITTEN_TAGS = {
    0: (b"\x00\x08" + (1024).to_bytes(8, "big"), {"previous_producer_id": 1024}),
    1: (b"\x01\x08" + (1025).to_bytes(8, "big"), {"next_producer_id": 1025}),
    2: (b"\x02\x02\x00\x02", {"client_version": 2}),
    4: (b"\x04\x02\x01\x01", {"last_producer_epoch": 257}),
}
TAG_SETS = [tags for size in range(5) for tags in combinations(WRITTEN_TAGS, size)]


@pytest.mark.parametrize("tags", TAG_SETS, ids=str)
def test_the_short_path_reads_every_set_of_tags(tags: tuple[int, ...]) -> None:
    value = ONGOING_V1[:-5] + bytes([len(tags)]) + b"".join(WRITTEN_TAGS[tag][0] for tag in tags)
    fields = dict(item for tag in tags for item in WRITTEN_TAGS[tag][1].items())
    expected = VECTORS[2][1]._replace(client_version=0)._replace(**fields)
    assert decode_record(KEY, value) == expected
    peeked = peek_value(value)
    assert peeked is not None
    assert record_of("txn-1", peeked, value) == expected


@pytest.mark.parametrize("tags", TAG_SETS, ids=str)
def test_an_unknown_tag_leaves_the_others_as_they_are_and_one_that_is_missing_truncates(
    tags: tuple[int, ...],
) -> None:
    section = b"".join(WRITTEN_TAGS[tag][0] for tag in tags)
    known = ONGOING_V1[:-5] + bytes([len(tags)]) + section
    one_more = ONGOING_V1[:-5] + bytes([len(tags) + 1]) + section
    assert decode_record(KEY, one_more + b"\x05\x02\x00\x02") == decode_record(KEY, known)
    assert decode_record(KEY, one_more) == Undecoded(
        "truncated", f"value cut off after {len(one_more)} bytes"
    )


def test_it_skips_tags_inside_a_topic() -> None:
    """No version has any yet; a flexible record may get them without a new version (KIP-482)."""
    at = ONGOING_V1.index(b"\x02t\x03") + 3 + 8
    value = ONGOING_V1[:at] + b"\x01\x07\x03abc" + ONGOING_V1[at + 1 :]
    assert decode_record(KEY, value) == decode_record(KEY, ONGOING_V1)


@cases(
    (None, "no_key", "a record without a key"),
    (b"", "truncated", "key cut off after 0 bytes"),
    (b"\x00", "truncated", "key cut off after 1 bytes"),
    (b"\x00\x00", "truncated", "key cut off after 2 bytes"),
    (KEY[:-1], "truncated", "key cut off after 8 bytes"),
    (KEY + b"!!", "trailing", "key with 2 bytes after its end"),
    (b"\x00\x00\xff\xff", "length", "key with an id of -1 bytes"),
    (b"\x00\x01" + KEY[2:], "key_version", "key version 1"),
    (b"\xff\xff" + KEY[2:], "key_version", "key version -1"),
)
def test_an_unreadable_key_is_counted_by_reason(key: bytes | None, reason: str, detail: str) -> None:
    """Also for tombstones: a key type that Kafka adds later has tombstones of its own."""
    expected = Undecoded(reason, detail)
    assert decode_record(key, ONGOING_V1) == decode_record(key, None) == decode_key(key) == expected


@cases(
    (b"", "truncated", "value cut off after 0 bytes"),
    (b"\x00", "truncated", "value cut off after 1 bytes"),
    (b"\x00\x02" + ONGOING_V1[2:], "value_version", "value version 2"),
    (b"\x80\x00", "value_version", "value version -32768"),
    (ONGOING_V0 + b"\x00", "trailing", "value with 1 bytes after its end"),
    (ONGOING_V1 + b"\x00\x00", "trailing", "value with 2 bytes after its end"),
    (ONGOING_V1[:16] + b"\x06" + ONGOING_V1[17:], "status", "status 6"),  # Dead
    (ONGOING_V1[:16] + b"\x07" + ONGOING_V1[17:], "status", "status 7"),  # PrepareEpochFence
    (ONGOING_V0[:16] + b"\xff" + ONGOING_V0[17:], "status", "status -1"),
    (ONGOING_V0[:-8] + b"\xff" * 7 + b"\xfe", "instant", "updated at 1700000000123 ms, started at -2 ms"),
    (
        ONGOING_V0[:-16] + b"\x7f" * 8 + ONGOING_V0[-8:],
        "instant",
        "updated at 9187201950435737471 ms, started at 1700000000000 ms",
    ),
    (EMPTY_V0[:17] + b"\xff\xff\xff\xfe" + EMPTY_V0[21:], "length", "-2 topics"),
    (
        ONGOING_V0.replace(b"\x00\x01t", b"\xff\xfft"),
        "length",
        "a topic name of -1 bytes, with -9175040 partitions",
    ),
    (COMPLETE_V1[:-13] + b"\x04" + COMPLETE_V1[-12:], "length", "tag 0 of 4 bytes"),
    (ONGOING_V1[:-4] + b"\x02\x03\x00\x00\x02", "length", "tag 2 of 3 bytes"),
    (ONGOING_V1[:17] + b"\xff\xff\xff\xff\x08" + ONGOING_V1[18:], "length", "a length beyond 2147483647"),
    (ONGOING_V1[:17] + b"\x80\x80\x80\x80\x80\x01", "length", "a length beyond 2147483647"),
)
def test_an_unreadable_value_is_counted_by_reason(value: bytes, reason: str, detail: str) -> None:
    assert decode_value("txn-1", value) == Undecoded(reason, detail)


FOLDER = Path(__file__).parents[2] / "data" / "transaction_state"
#: `transaction.state.log.num.partitions` of the brokers that wrote the files.
PARTITIONS = 10
Row = dict[str, Any]


def rows(version: str) -> list[Row]:
    """The captured records of one version, ordered by partition and offset."""
    return [json.loads(line) for line in (FOLDER / f"kafka-{version}.jsonl").read_text().splitlines()]


def read(row: Row) -> TransactionRecord | Tombstone:
    """The record that the decoder returns for a row."""
    value = None if row["value"] is None else bytes.fromhex(row["value"])
    found = decode_record(bytes.fromhex(row["key"]), value)
    assert isinstance(found, TransactionRecord | Tombstone), found
    return found


def record_printed_by_kafka(row: Row) -> TransactionRecord | Tombstone:
    """What Kafka's formatter printed of a row, as a record of the decoder."""
    transactional_id = row["formatter"]["key"]["data"]["transactionalId"].replace("\\", "\\\\")
    transactional_id = transactional_id.replace("\t", "\\x09")
    if row["formatter"]["value"] is None:
        return Tombstone(transactional_id)
    data = row["formatter"]["value"]["data"]
    topics = data["transactionPartitions"]
    start = data["transactionStartTimestampMs"]
    return TransactionRecord(
        transactional_id,
        STATES[data["transactionStatus"]],
        data["producerId"],
        data["producerEpoch"],
        data["transactionTimeoutMs"],
        None
        if topics is None
        else tuple(TopicPartitions(topic["topic"], tuple(topic["partitionIds"])) for topic in topics),
        data["transactionLastUpdateTimestampMs"],
        None if start == -1 else start,
        # The formatter leaves tags out that have their default.
        data.get("clientTransactionVersion", 0),
        data.get("previousProducerId"),
        data.get("nextProducerId"),
        data.get("nextProducerEpoch"),
        value_version=row["formatter"]["value"]["version"],
    )


@pytest.mark.parametrize(("version", "value_version"), [("3.9.1", 0), ("4.2.0", 1)])
def test_it_reads_what_kafka_prints(version: str, value_version: int) -> None:
    captured = rows(version)
    assert len(captured) > 100
    for row in captured:
        assert read(row) == record_printed_by_kafka(row), row
    found = {record.value_version for row in captured if isinstance(record := read(row), TransactionRecord)}
    assert found == {value_version}


@pytest.mark.parametrize("version", ["3.9.1", "4.2.0"])
def test_ids_map_to_the_partitions_that_kafka_chose(version: str) -> None:
    for row in rows(version):
        raw = unescape_text(read(row).transactional_id)
        assert partition_for(raw, PARTITIONS) == row["partition"], row


#: Its codec reads and writes names as UTF-8 text, so only ids that are text can be compared.
text_ids = samples.names


def other_codec_value(record: TransactionRecord, schema: Any = TransactionLogValue) -> Any:
    """The same facts in the other codec's class."""
    return schema(
        version=record.value_version,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=STATES.index(record.state),
        transaction_partitions=other_codec_topics(record, schema.PartitionsSchema),
        transaction_last_update_timestamp_ms=record.updated_ms,
        transaction_start_timestamp_ms=-1 if record.started_ms is None else record.started_ms,
        **other_codec_tags(record),
    )


def other_codec_topics(record: TransactionRecord, make: Any) -> list[Any] | None:
    """Topics as the other codec takes them."""
    if record.partitions is None:
        return None
    version = record.value_version
    return [
        make(version=version, topic=unescape_text(topic).decode(), partition_ids=list(numbers))
        for topic, numbers in record.partitions
    ]


def other_codec_tags(record: TransactionRecord) -> dict[str, int]:
    """Tags that differ from their default; the other codec writes every tag that it is given."""
    tags = {
        "client_transaction_version": record.client_version or None,
        "previous_producer_id": record.previous_producer_id,
        "next_producer_id": record.next_producer_id,
        "next_producer_epoch": record.next_producer_epoch,
        "last_producer_epoch": record.last_producer_epoch,
    }
    return {name: number for name, number in tags.items() if number is not None}


@given(samples.records(text_ids))
def test_it_reads_what_the_other_codec_writes_and_writes_the_same_bytes(record: TransactionRecord) -> None:
    key = TransactionLogKey(transactional_id=unescape_text(record.transactional_id).decode()).encode(
        version=0
    )
    value = other_codec_value(record).encode(version=record.value_version)
    assert decode_record(key, value) == record
    assert (encode_key(record.transactional_id), encode_value(record)) == (key, value)


@given(samples.records(text_ids, version=1), st.binary(min_size=1, max_size=300))
def test_fields_of_a_later_schema_are_skipped(record: TransactionRecord, noise: bytes) -> None:
    later = other_codec_value(record, LaterValue)
    later.later = noise
    for topic in later.transaction_partitions or ():
        topic.later = noise
    written = later.encode(version=1)
    assert noise in written
    assert decode_record(encode_key(record.transactional_id), written) == record
