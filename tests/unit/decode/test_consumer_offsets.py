"""Proves that records of `__consumer_offsets` are decoded correctly, or counted by the reason why they are
not: by known vectors, Kafka's own schema in another codec, and what tools of real brokers printed."""

import json
import tracemalloc
import uuid
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.decode.consumer_offsets import (
    NEWER_TYPES,
    GroupMember,
    GroupMetadata,
    GroupTombstone,
    Member,
    Newer,
    OffsetCommit,
    OffsetTombstone,
    Record,
    decode_record,
    peek_commits,
)
from fenceline.decode.text import unescape_text
from fenceline.facts import Undecoded
from tests.cases import cases
from tests.transaction_state_records import encode_uvarint
from tests.unit.decode.consumer_offsets import (
    COMMIT,
    KEY,
    V4,
    T,
    classic_groups,
    commits,
    encoded_key,
    escaped_name,
    nullable,
    texts,
)
from tests.unit.decode.kafka_schema import codec

V3 = bytes.fromhex("0003000000000000002a0000000500000000018bcfe56800")
ID = uuid.UUID("b81f9869-6326-4e23-b911-ce626616200d")
ID_TEXT = "uB-YaWMmTiO5Ec5iZhYgDQ"
MemberKey, MemberValue = codec("ConsumerGroupMemberMetadataKey"), codec("ConsumerGroupMemberMetadataValue")
ShareKey, ShareValue = codec("ShareGroupMemberMetadataKey"), codec("ShareGroupMemberMetadataValue")


@cases(
    (V3, COMMIT._replace(value_version=3)),
    (V4, COMMIT),
    (V4[:-1] + b"\x01\x00\x10" + ID.bytes, COMMIT._replace(topic_id=ID_TEXT)),
)
def test_it_reads_the_known_vectors(value: bytes, commit: OffsetCommit) -> None:
    assert decode_record(KEY, value) == commit
    assert peek_commits([value] * 3) == [(T, 42)] * 3


@given(commits())
def test_it_reads_every_commit_that_the_schema_can_write(written: tuple[bytes, bytes, OffsetCommit]) -> None:
    key, value, said = written
    assert decode_record(key, value) == said
    assert decode_record(key, None) == OffsetTombstone(said.group, said.topic, said.partition)
    seen = peek_commits([value, value])
    assert seen in (None, [(said.commit_ms, said.offset)] * 2)
    if said.value_version >= 3 and len(unescape_text(said.metadata)) < 126:
        assert seen is not None


@given(classic_groups())
def test_it_reads_every_group_that_the_schema_can_write(written: tuple[bytes, bytes, GroupMetadata]) -> None:
    key, value, said = written
    assert decode_record(key, value) == said
    assert decode_record(key, None) == GroupTombstone(said.group)


@given(texts, texts, texts, texts, nullable, st.lists(texts, max_size=3))
def test_it_reads_members_of_consumer_groups(
    group: str, member_id: str, client: str, host: str, instance: str | None, topics: list[str]
) -> None:
    key = encoded_key(5, MemberKey(group_id=group, member_id=member_id))
    value = MemberValue(
        version=0, instance_id=instance, rack_id=None, client_id=client, client_host=host,
        subscribed_topic_names=topics, subscribed_topic_regex=None, rebalance_timeout_ms=1,
        server_assignor=None,
    )  # fmt: skip
    names = [escaped_name(each) for each in (group, member_id, client, host)]
    member = Member(*names[2:], tuple(map(escaped_name, topics)) or None)
    assert decode_record(key, bytes(value.encode(version=0))) == GroupMember(*names[:2], member)
    value.subscribed_topic_regex = "t.*"
    by_pattern = decode_record(key, bytes(value.encode(version=0)))
    assert by_pattern == GroupMember(*names[:2], member._replace(topics=None))
    assert decode_record(key, None) == GroupMember(*names[:2], None)


@given(texts, texts, texts, texts, nullable, st.lists(texts, max_size=3))
def test_it_reads_members_of_share_groups(
    group: str, member_id: str, client: str, host: str, rack: str | None, topics: list[str]
) -> None:
    key = encoded_key(10, ShareKey(group_id=group, member_id=member_id))
    value = ShareValue(
        version=0, rack_id=rack, client_id=client, client_host=host, subscribed_topic_names=topics
    )
    names = [escaped_name(each) for each in (group, member_id, client, host)]
    member = Member(*names[2:], tuple(map(escaped_name, topics)) or None)
    assert decode_record(key, bytes(value.encode(version=0))) == GroupMember(*names[:2], member)
    assert decode_record(key, None) == GroupMember(*names[:2], None)


FOLDER = Path(__file__).parents[2] / "data" / "consumer_offsets"


def record_printed_by_kafka(row: dict[str, Any]) -> Record:
    """What Kafka's formatter printed of a row, as a record of the decoder."""
    key, value = row["formatter"]["key"], row["formatter"]["value"]
    data, said = key["data"], value and value["data"]
    group = escaped_name(data["group"])
    if key["type"] == 2 and value is None:
        return GroupTombstone(group)
    if key["type"] == 2:
        members = {
            # It prints the subscription as bytes; each of these members subscribes to one topic.
            each["memberId"]: Member(each["clientId"], each["clientHost"], ("orders",))
            for each in said["members"]
        }
        return GroupMetadata(group, members)
    if value is None:
        return OffsetTombstone(group, data["topic"], data["partition"])
    epoch = None if said["leaderEpoch"] == -1 else said["leaderEpoch"]
    place = group, data["topic"], data["partition"], said["offset"], epoch
    shown = escaped_name(said["metadata"]), said["commitTimestamp"], None, said.get("topicId", "")
    return OffsetCommit(*place, *shown, value["version"])


@pytest.mark.parametrize(("version", "value_version"), [("3.9.1", 3), ("4.2.0", 4)])
def test_it_reads_what_kafka_prints(version: str, value_version: int) -> None:
    found = set()
    for line in (FOLDER / f"kafka-{version}.jsonl").read_text().splitlines():
        row = json.loads(line)
        value = None if row["value"] is None else bytes.fromhex(row["value"])
        read = decode_record(bytes.fromhex(row["key"]), value)
        found.add(type(read))
        if row["formatter"] is not None:
            assert read == record_printed_by_kafka(row), row
        else:
            assert isinstance(read, Newer | GroupMember), row
        if isinstance(read, OffsetCommit):
            assert read.value_version == value_version
            assert peek_commits([value or b""]) in (None, [(read.commit_ms, read.offset)])
    assert found >= {OffsetCommit, OffsetTombstone, GroupMetadata}
    assert (Newer in found) == (version == "4.2.0")


def v4(metadata: bytes, tags: bytes = b"\x00") -> bytes:
    return pack(">hqi", 4, 42, 5) + encode_uvarint(len(metadata) + 1) + metadata + pack(">q", T) + tags


def test_metadata_of_127_bytes_and_more_on_v4_is_read_whole_and_unknown_tags_are_skipped() -> None:
    """Burrow takes the length of a compact string for one byte."""
    for length in (125, 126, 127, 128, 255, 4096, 20_000):
        assert decode_record(KEY, v4(b"m" * length)) == COMMIT._replace(metadata="m" * length)
    tags = b"\x02" + b"\x00\x10" + ID.bytes + encode_uvarint(300) + encode_uvarint(200) + b"x" * 200
    assert decode_record(KEY, v4(b"", tags)) == COMMIT._replace(topic_id=ID_TEXT)


def test_a_member_of_a_streams_group_is_read() -> None:
    # Written by Kafka 4.2 for an application with group.protocol=streams.
    key = b"\0\x13\0\x07new-app\0\x163X-z_M1QSfGV7WsxetkuWQ"
    value = (
        b"\0\0\0\0Enew-app-e58fad35-0efe-47d1-9b28-34cb617864ba-StreamThread-1-consumer\x0b/127.0.0.1"
        b"\0\x04\x93\xe0\0\0\0\0%e58fad35-0efe-47d1-9b28-34cb617864ba\xff\x01\0"
    )
    name = "new-app-e58fad35-0efe-47d1-9b28-34cb617864ba-StreamThread-1-consumer"
    member_id = "3X-z_M1QSfGV7WsxetkuWQ"
    assert decode_record(key, value) == GroupMember("new-app", member_id, Member(name, "/127.0.0.1"))
    assert decode_record(key, None) == GroupMember("new-app", member_id, None)


@pytest.mark.parametrize("kind", sorted(NEWER_TYPES - {5, 10, 19}))
@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x01\x00"])
def test_newer_records_are_counted_by_type_and_raise_no_error(kind: int, value: bytes | None) -> None:
    """Burrow warns about each record of KIP-848, kafbat throws at key types from 3 on, Console refuses."""
    assert decode_record(pack(">hh", kind, 1) + b"g", value) == Newer(kind)


@cases(
    (None, V4, "no_key", "a record without a key"),
    (b"", V4, "truncated", "key cut off after 0 bytes"),
    (b"\x00\x18\x00\x01g", V4, "key_type", "key type 24"),
    (b"\xff\xff\x00\x01g", None, "key_type", "key type -1"),
    (KEY[:-1], V4, "truncated", "key cut off after 11 bytes"),
    (KEY + b"!", V4, "trailing", "key with 1 bytes after its end"),
    (b"\x00\x01\xff\xff" + KEY[5:], V4, "length", "key with a length of -1"),
    (KEY[:5] + b"\x01\x00" + b"t" * 256 + KEY[-4:], V4, "topic", "a topic name of 256 characters"),
    (KEY, b"", "truncated", "value cut off after 0 bytes"),
    (KEY, b"\x00\x05" + V4[2:], "value_version", "value version 5"),
    (KEY, V3 + b"\x00", "trailing", "value with 1 bytes after its end"),
    (KEY, V3[:14] + b"\xff\xff" + V3[16:], "length", "value with a length of -1"),
    (KEY, V4[:14] + b"\x00" + V4[15:], "length", "value with a length of -1"),
    (KEY, V4[:-9] + b"\xff" * 8 + b"\x00", "instant", "committed at -1 ms"),
    (KEY, V4[:-1] + b"\x01\x00\x04abcd", "length", "a topic id of 4 bytes"),
    (KEY, V4[:14] + b"\xff\xff\xff\xff\x7f" + V4[15:], "length", "a length beyond 2147483647"),
)
def test_unreadable_records_are_counted_by_reason(
    key: bytes | None, value: bytes | None, reason: str, detail: str
) -> None:
    assert decode_record(key, value) == Undecoded(reason, detail)


def check(key: bytes | None, value: bytes | None) -> Record:
    """Decode, and check that every text of the answer can be stored and shown as it is."""
    read = decode_record(key, value)
    if isinstance(read, Undecoded):
        assert len(read.detail) < 100
    else:
        assert all(text.isprintable() for text in read if isinstance(text, str))
    if isinstance(read, OffsetCommit | OffsetTombstone):
        assert len(read.topic) <= 249
    return read


@given(st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=200))
def test_it_never_raises_on_any_bytes(key: bytes | None, value: bytes | None) -> None:
    check(key, value)
    peek_commits([value or b"", V4])


@given(st.integers(0, 23), st.integers(0, 4), st.binary(max_size=60), st.binary(max_size=200))
def test_it_never_raises_on_noise_after_a_valid_header(
    kind: int, version: int, key: bytes, value: bytes
) -> None:
    check(pack(">h", kind) + key, pack(">h", version) + value)
    check(KEY, pack(">h", version) + value)
    check(b"\x00\x02\x00\x01g", pack(">h", version) + value)
    peek_commits([pack(">h", version) + value])


@given(commits() | classic_groups(), st.data())
def test_every_truncated_record_is_reported_and_both_decoders_agree(
    written: tuple[bytes, bytes, Any], data: st.DataObject
) -> None:
    key, value, _ = written
    cut = value[: data.draw(st.integers(0, len(value) - 1))]
    read = check(key, cut)
    assert isinstance(read, Undecoded)
    assert read.reason == "truncated"
    changed = bytearray(value)
    changed[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    read, seen = check(key, bytes(changed)), peek_commits([value, bytes(changed)])
    if seen is not None and key[1] < 2:
        assert isinstance(read, OffsetCommit)
        assert seen[1] == (read.commit_ms, read.offset)


HUGE = 2**31 - 1
#: Up to the members, by the version of the value.
OLD = b"\x00\x03\x00\x01c" + pack(">ihhq", 1, -1, -1, T)
NEW = b"\x00\x04\x02c" + pack(">i", 1) + b"\x00\x00" + pack(">q", T)
CLAIMS = [
    OLD + pack(">i", HUGE) + b"\x00" * 600,
    NEW + encode_uvarint(HUGE) + b"\x01" * 600,
    NEW + b"\x01" + encode_uvarint(HUGE) + b"\x09\x00" * 300,
]


@pytest.mark.parametrize("value", CLAIMS)
def test_a_claimed_count_allocates_no_memory(value: bytes) -> None:
    tracemalloc.start()
    try:
        read = decode_record(b"\x00\x02\x00\x01g", value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(read, Undecoded)
    assert read.reason == "truncated"
    assert peak < 200_000
