"""Records of `__consumer_offsets` as Kafka's schema writes them, with their decoded form."""

import base64
import uuid
from struct import pack
from typing import Any

from hypothesis import strategies as st

from fenceline.decode.consumer_offsets import GroupMetadata, Member, OffsetCommit
from fenceline.decode.text import escape_bytes
from tests.unit.decode import samples
from tests.unit.decode.kafka_schema import codec

KEY = bytes.fromhex("000100016700017400000003")
V4 = bytes.fromhex("0004000000000000002a00000005010000018bcfe5680000")
T = 1_700_000_000_000
COMMIT = OffsetCommit("g", "t", 3, 42, 5, "", T)
CommitKey, CommitValue = codec("OffsetCommitKey"), codec("OffsetCommitValue")
GroupKey, GroupValue = codec("GroupMetadataKey"), codec("GroupMetadataValue")
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


@st.composite
def classic_groups(draw: st.DrawFn) -> tuple[bytes, bytes, GroupMetadata]:
    """The members of a classic group in any version, with their decoded form."""
    version, group = draw(versions), draw(texts)
    protocol_type, generation = draw(texts), draw(samples.int32)
    protocol, leader, state_ms = draw(nullable), draw(nullable), draw(samples.int64)
    members, said = [], {}
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
        said[escaped_name(member_id)] = Member(escaped_name(client), escaped_name(host))
    more = {"current_state_timestamp": state_ms} if version >= 2 else {}
    value = GroupValue(
        version=version, protocol_type=protocol_type, generation=generation, protocol=protocol,
        leader=leader, members=members, **more,
    )  # fmt: skip
    key, content = encoded_key(2, GroupKey(group=group)), bytes(value.encode(version=version))
    return key, content, GroupMetadata(escaped_name(group), said)
