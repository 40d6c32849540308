"""Proves that records of `__consumer_offsets` are decoded correctly, or counted by the reason why they are
not.

Against the known vectors, Kafka's own schema in another codec, what real 3.9.1 and 4.2.0 brokers wrote and
their own tools printed, and bytes that are invalid. What other tools' decoders get wrong has tests
of its own.
"""

from __future__ import annotations

import base64
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
from fenceline.decode.text import escape_bytes, unescape_text
from fenceline.facts import Undecoded
from tests.transaction_state_records import encode_uvarint
from tests.unit.decode import samples
from tests.unit.decode.kafka_schema import codec

KEY = bytes.fromhex("000100016700017400000003")
V3 = bytes.fromhex("0003000000000000002a0000000500000000018bcfe56800")
V4 = bytes.fromhex("0004000000000000002a00000005010000018bcfe5680000")
T = 1_700_000_000_000
COMMIT = OffsetCommit("g", "t", 3, 42, 5, "", T)
ID = uuid.UUID("b81f9869-6326-4e23-b911-ce626616200d")
ID_TEXT = "uB-YaWMmTiO5Ec5iZhYgDQ"

CommitKey, CommitValue = codec("OffsetCommitKey"), codec("OffsetCommitValue")
GroupKey, GroupValue = codec("GroupMetadataKey"), codec("GroupMetadataValue")
MemberKey, MemberValue = codec("ConsumerGroupMemberMetadataKey"), codec("ConsumerGroupMemberMetadataValue")

#: The other codec reads and writes names as UTF-8 text.
texts = st.text(st.characters(codec="utf-8"), max_size=20) | samples.many.map(lambda length: "m" * length)
nullable = st.none() | texts
instants = st.integers(0, 253_370_764_799_999)
versions = st.integers(0, 4)


def encoded_key(kind: int, key: Any) -> bytes:
    """A key as the other codec writes it, under the record type that is its version."""
    return pack(">h", kind) + bytes(key.encode(version=0))[2:]


def topic_text(topic_id: uuid.UUID) -> str:
    """A topic's id as Kafka's own tools write it."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def escaped_name(text: str) -> str:
    return escape_bytes(text.encode())


@pytest.mark.parametrize(
    ("value", "commit"),
    [
        (V3, COMMIT._replace(value_version=3)),
        (V4, COMMIT),
        (V4[:-1] + b"\x01\x00\x10" + ID.bytes, COMMIT._replace(topic_id=ID_TEXT)),
    ],
)
def test_it_reads_the_known_vectors(value: bytes, commit: OffsetCommit) -> None:
    assert decode_record(KEY, value) == commit
    assert peek_commits([value] * 3) == [(T, 42)] * 3


@st.composite
def commits(draw: st.DrawFn) -> tuple[bytes, bytes, OffsetCommit]:
    """A commit in any version as Kafka's schema has it, with its decoded form."""
    version, kind = draw(versions), draw(st.sampled_from([0, 1]))
    group, topic = draw(texts), draw(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True))
    partition, offset, epoch = draw(samples.int32), draw(samples.int64), draw(samples.int32)
    metadata, at_ms, expire_ms = draw(texts), draw(instants), draw(samples.int64)
    topic_id = draw(st.none() | st.uuids()) if version == 4 else None
    key = encoded_key(kind, CommitKey(group=group, topic=topic, partition=partition))
    fields: dict[str, Any] = {"offset": offset, "metadata": metadata, "commit_timestamp": at_ms}
    if version == 1:
        fields["expire_timestamp"] = expire_ms
    if version >= 3:
        fields["leader_epoch"] = epoch
    if topic_id is not None:
        fields["topic_id"] = topic_id
    value = bytes(CommitValue(version=version, **fields).encode(version=version))
    said = OffsetCommit(
        escaped_name(group),
        topic,
        partition,
        offset,
        epoch if version >= 3 and epoch != -1 else None,
        escaped_name(metadata),
        at_ms,
        expire_ms if version == 1 and expire_ms != -1 else None,
        topic_text(topic_id) if topic_id is not None else "",
        version,
    )
    return key, value, said


@given(commits())
def test_it_reads_every_commit_that_the_schema_can_write(written: tuple[bytes, bytes, OffsetCommit]) -> None:
    key, value, said = written
    assert decode_record(key, value) == said
    assert decode_record(key, None) == OffsetTombstone(said.group, said.topic, said.partition)
    seen = peek_commits([value, value])
    assert seen in (None, [(said.commit_ms, said.offset)] * 2)
    if said.value_version >= 3 and len(unescape_text(said.metadata)) < 126:
        assert seen is not None


@st.composite
def classic_groups(draw: st.DrawFn) -> tuple[bytes, bytes, GroupMetadata]:
    """The members of a classic group in any version, with their decoded form."""
    version, group = draw(versions), draw(texts)
    protocol_type, generation = draw(texts), draw(samples.int32)
    protocol, leader, state_ms = draw(nullable), draw(nullable), draw(samples.int64)
    members, said = [], []
    for _ in range(draw(st.integers(0, 3))):
        member_id, client, host, instance = draw(texts), draw(texts), draw(texts), draw(nullable)
        fields: dict[str, Any] = {"member_id": member_id, "client_id": client, "client_host": host}
        fields |= {"session_timeout": 10_000, "subscription": draw(st.binary(max_size=300))}
        fields |= {"assignment": draw(st.binary(max_size=300))}
        if version >= 1:
            fields["rebalance_timeout"] = 60_000
        if version >= 3:
            fields["group_instance_id"] = instance
        members.append(GroupValue.MemberMetadata(version=version, **fields))
        shown = escaped_name(instance) if version >= 3 and instance is not None else None
        said.append(Member(escaped_name(member_id), escaped_name(client), escaped_name(host), shown))
    more = {"current_state_timestamp": state_ms} if version >= 2 else {}
    value = GroupValue(
        version=version, protocol_type=protocol_type, generation=generation, protocol=protocol,
        leader=leader, members=members, **more,
    )  # fmt: skip
    metadata = GroupMetadata(
        escaped_name(group), escaped_name(protocol_type), generation,
        None if protocol is None else escaped_name(protocol),
        None if leader is None else escaped_name(leader), state_ms if more and state_ms != -1 else None,
        tuple(said), version,
    )  # fmt: skip
    return encoded_key(2, GroupKey(group=group)), bytes(value.encode(version=version)), metadata


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
    member = Member(
        escaped_name(member_id),
        escaped_name(client),
        escaped_name(host),
        None if instance is None else escaped_name(instance),
    )
    assert decode_record(key, bytes(value.encode(version=0))) == GroupMember(
        escaped_name(group), escaped_name(member_id), member
    )
    assert decode_record(key, None) == GroupMember(escaped_name(group), escaped_name(member_id), None)


# What real brokers wrote (tests/data/capture_consumer_offsets.py made the files).

FOLDER = Path(__file__).parents[2] / "data" / "consumer_offsets"


def record_printed_by_kafka(row: dict[str, Any]) -> Record:
    """What Kafka's formatter printed of a row, as a record of the decoder."""
    key, value = row["formatter"]["key"], row["formatter"]["value"]
    data, said = key["data"], value and value["data"]
    group = escaped_name(data["group"])
    if key["type"] == 2 and value is None:
        return GroupTombstone(group)
    if key["type"] == 2:
        head = said["protocolType"], said["generation"], said["protocol"], said["leader"]
        members = tuple(
            Member(each["memberId"], each["clientId"], each["clientHost"], each["groupInstanceId"])
            for each in said["members"]
        )
        return GroupMetadata(group, *head, said["currentStateTimestamp"], members, value["version"])
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


# What other tools' decoders get wrong.


def v4(metadata: bytes, tags: bytes = b"\x00") -> bytes:
    return pack(">hqi", 4, 42, 5) + encode_uvarint(len(metadata) + 1) + metadata + pack(">q", T) + tags


@pytest.mark.parametrize("length", [125, 126, 127, 128, 255, 4096, 20_000])
def test_metadata_of_127_bytes_and_more_on_v4_is_read_whole(length: int) -> None:
    """Burrow takes the length of a compact string for one byte."""
    assert decode_record(KEY, v4(b"m" * length)) == COMMIT._replace(metadata="m" * length)


def test_value_v2_is_read() -> None:
    """Burrow has no value v2."""
    value = pack(">hqh", 2, 42, 0) + pack(">q", T)
    assert decode_record(KEY, value) == COMMIT._replace(leader_epoch=None, value_version=2)


def test_group_metadata_v4_is_read() -> None:
    """Burrow has no GroupMetadata v4."""
    member = b"\x02m\x00\x02c\x02h" + pack(">ii", 1, 2) + b"\x03ab\x01" + b"\x00"
    value = (
        b"\x00\x04\x09consumer"
        + pack(">i", 7)
        + b"\x06range\x02m"
        + pack(">q", T)
        + b"\x02"
        + member
        + b"\x00"
    )
    assert decode_record(b"\x00\x02\x00\x01g", value) == GroupMetadata(
        "g", "consumer", 7, "range", "m", T, (Member("m", "c", "h"),), 4
    )


def test_a_member_of_a_streams_group_is_read() -> None:
    # Written by Kafka 4.2 for an application with group.protocol=streams.
    key = b"\0\x13\0\x07new-app\0\x163X-z_M1QSfGV7WsxetkuWQ"
    value = (
        b"\0\0\0\0Enew-app-e58fad35-0efe-47d1-9b28-34cb617864ba-StreamThread-1-consumer\x0b/127.0.0.1"
        b"\0\x04\x93\xe0\0\0\0\0%e58fad35-0efe-47d1-9b28-34cb617864ba\xff\x01\0"
    )
    name = "new-app-e58fad35-0efe-47d1-9b28-34cb617864ba-StreamThread-1-consumer"
    member = Member("3X-z_M1QSfGV7WsxetkuWQ", name, "/127.0.0.1")
    assert decode_record(key, value) == GroupMember("new-app", member.member_id, member)
    assert decode_record(key, None) == GroupMember("new-app", member.member_id, None)


@pytest.mark.parametrize("kind", sorted(NEWER_TYPES - {5, 19}))
@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x01\x00"])
def test_newer_records_are_counted_by_type_and_raise_no_error(kind: int, value: bytes | None) -> None:
    """Burrow warns about each record of KIP-848, kafbat throws at key types from 3 on, Console refuses."""
    assert decode_record(pack(">hh", kind, 1) + b"g", value) == Newer(kind)


def test_offset_tombstones_are_decoded() -> None:
    """Burrow passes them over, and keeps groups that are gone."""
    assert decode_record(KEY, None) == OffsetTombstone("g", "t", 3)


# What nobody should write.


@pytest.mark.parametrize(
    ("key", "value", "reason", "detail"),
    [
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
    ],
)
def test_unreadable_records_are_counted_by_reason(
    key: bytes | None, value: bytes | None, reason: str, detail: str
) -> None:
    assert decode_record(key, value) == Undecoded(reason, detail)


def test_unknown_tags_are_skipped_by_their_size() -> None:
    tags = b"\x02" + b"\x00\x10" + ID.bytes + encode_uvarint(300) + encode_uvarint(200) + b"x" * 200
    assert decode_record(KEY, v4(b"", tags)) == COMMIT._replace(topic_id=ID_TEXT)


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
