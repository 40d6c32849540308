"""Decode records of `__consumer_offsets`: commits, members, tombstones, or Newer and Undecoded for others.

The key begins with the record's type. Types 0 and 1 are offset commits (values v0 to v4), 2 is the members
of a classic group (v0 to v4), 5 a member of a consumer group (KIP-848), 10 of a share group (KIP-932), 19 of
a Streams group (KIP-1071), whose value begins like that of 5. Kafka's other types are `Newer`: counted by
number, and no error. The layouts are Kafka's own schema, OffsetCommitKey.json and its neighbours of the group
coordinator; every length is checked against the remaining bytes before it is used.

Of millions of commits only the newest few are kept, so reading them must be quick. The values of one key have
the same layout, and `peek_commits` unpacks the instants and offsets of many at once. Values of another layout
are read field by field.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from fenceline.decode.cursor import Cursor, Unreadable
from fenceline.decode.text import escape_bytes
from fenceline.facts import Undecoded
from fenceline.tuples import new_tuple

#: Record types that Kafka writes or wrote: 3 to 8 and 16 of consumer groups (KIP-848), 9 to 15 of share
#: groups (KIP-932), 17 to 23 of Streams groups (KIP-1071). Only 5, 10 and 19 are read.
NEWER_TYPES = frozenset(range(3, 24))
#: Offset commits, by either version of their key.
COMMIT_TYPES = (0, 1)
_GROUP_TYPE, _CONSUMER, _SHARE, _STREAMS = 2, 5, 10, 19
_MEMBER_TYPES = (_CONSUMER, _SHARE, _STREAMS)
#: The protocol of classic groups with subscriptions, and the maximum topics kept per member.
_SUBSCRIBES, _MOST_TOPICS = "consumer", 200
#: How keys of offset commits begin.
COMMIT_KEYS = (b"\x00\x00", b"\x00\x01")
#: From here on an int16 is negative.
_LONGEST_STRING = 2**15
#: Maximum length of a topic's name.
_LONGEST_TOPIC = 249
#: The first millisecond of the year 9999, UTC.
_LATEST_MS = 253_370_764_800_000
_TOPIC_ID = b"\x01\x00\x10"
#: Bytes around the metadata: in v3; in v4 without tags.
_AROUND_V3, _AROUND_V4 = 24, 24
#: Longer metadata is read field by field: its length in v4 takes a second byte.
_LONGEST_METADATA = 126


class OffsetCommit(NamedTuple):
    """A group's commit for one partition. Names are text escaped by `decode.text.escape_bytes`."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    #: By the coordinator's clock.
    commit_ms: int
    expire_ms: int | None = None
    #: The topic's id in Kafka's base64 form; "" if the record has none.
    topic_id: str = ""
    value_version: int = 4


class OffsetTombstone(NamedTuple):
    """A group's commits for one partition are gone: deleted, expired, or their topic was deleted."""

    group: str
    topic: str
    partition: int


class Member(NamedTuple):
    """A member of a group: its client id, and its host."""

    client_id: str
    #: `/127.0.0.1`, as Kafka writes addresses.
    host: str
    #: The topics that it subscribes to; None without topics, or if the record does not have all of them.
    topics: tuple[str, ...] | None = None


class GroupMetadata(NamedTuple):
    """A classic group after a rebalance: all its members, by their ids."""

    group: str
    members: Mapping[str, Member]


class GroupTombstone(NamedTuple):
    """A classic group is gone, or became another kind."""

    group: str


class GroupMember(NamedTuple):
    """A member of a consumer, share or Streams group; `member` is None after it left."""

    group: str
    member_id: str
    member: Member | None


class Newer(NamedTuple):
    """A record of a type that Fenceline does not show; counted by type."""

    type: int


Record = (
    OffsetCommit
    | OffsetTombstone
    | GroupMetadata
    | GroupTombstone
    | GroupMember
    | Newer
    | Undecoded
)  # fmt: skip


class _Layout(NamedTuple):
    """The layout of a commit's value: version, offset, epoch, length, metadata, instant, tags."""

    unpack: Struct
    #: The required values of the version and length fields.
    version: int
    length: int


@lru_cache(maxsize=1_024)
def _layout(version: bytes, size: int, length: int) -> _Layout | None:
    """Return the layout for a value's version and lengths; None if it must be read field by field."""
    if version == b"\x00\x03" and 0 <= length <= _LONGEST_METADATA and size == _AROUND_V3 + length:
        return _Layout(Struct(f">hqih{length}sq0s"), 3, length)
    tags = size - (_AROUND_V4 - 1 + length - 1)
    if version == b"\x00\x04" and 0 < length <= _LONGEST_METADATA and tags in (1, 19):
        return _Layout(Struct(f">hqiB{length - 1}sq{tags}s"), 4, length)
    return None


def _layout_of(value: bytes) -> _Layout | None:
    """Return the layout declared by a value."""
    if len(value) < _AROUND_V3:
        return None
    length = value[14] << 8 | value[15] if value[1] == 3 else value[14]
    return _layout(value[:2], len(value), length)


def _is_plain(tags: bytes) -> bool:
    """Whether these bytes are no tags, or only the topic's id; v3 has none at all."""
    return tags in (b"", b"\x00") or (len(tags) == 19 and tags[:3] == _TOPIC_ID)


def peek_commits(values: Sequence[bytes]) -> list[tuple[int, int]] | None:
    """Return the instants and offsets of commits that share one usual layout; None for others.

    For None, use `decode_record`; any other result agrees with `decode_record`.
    """
    layout = _layout_of(values[0]) if values else None
    if layout is None or len({*map(len, values)}) > 1:
        return None
    unpack, version, length = layout
    found = [
        (at_ms, offset)
        for kind, offset, _, size, _, at_ms, tags in unpack.iter_unpack(b"".join(values))
        if kind == version and size == length and 0 <= at_ms < _LATEST_MS and _is_plain(tags)
    ]
    return found if len(found) == len(values) else None


def decode_record(key: bytes | None, value: bytes | None) -> Record:
    """Decode one record. Never raises, whatever the bytes.

    The reasons of an Undecoded: `no_key`, `key_type` (unknown to Kafka), `value_version`, `instant`, `topic`
    (a name that no topic can have), `truncated`, `length` (negative, or null in a field that may not be
    null), `trailing` (bytes after the end).
    """
    if key is None:
        return Undecoded("no_key", "a record without a key")
    try:
        if key[:2] in COMMIT_KEYS and (place := _place(key)) is not None:
            return _commit(place, value)
        cursor = Cursor(key, "key")
        kind = cursor.int16()
        if kind in COMMIT_TYPES:
            place = cursor.string(), cursor.string(), cursor.int32()
            cursor.expect_end()
            return _commit(place, value)
        if kind == _GROUP_TYPE:
            return _group(cursor, value)
        if kind in _MEMBER_TYPES:
            return _member(kind, cursor, value)
    except Unreadable as problem:
        return problem.undecoded
    if kind in NEWER_TYPES:
        return Newer(kind)
    return Undecoded("key_type", f"key type {kind}")


def _place(key: bytes) -> tuple[str, str, int] | None:
    """Return group, topic and partition from a commit's key; None for any other layout."""
    topic_at = 4 + int.from_bytes(key[2:4], "big")
    end = topic_at + 2 + int.from_bytes(key[topic_at : topic_at + 2], "big")
    if len(key) != end + 4 or topic_at > _LONGEST_STRING or end > topic_at + _LONGEST_STRING:
        return None
    group, topic = escape_bytes(key[4:topic_at]), escape_bytes(key[topic_at + 2 : end])
    return group, topic, int.from_bytes(key[end:], "big", signed=True)


def _commit(place: tuple[str, str, int], value: bytes | None) -> OffsetCommit | OffsetTombstone:
    group, topic, partition = place
    if len(topic) > _LONGEST_TOPIC:
        raise Unreadable("topic", f"a topic name of {len(topic)} characters")
    if value is None:
        return OffsetTombstone(group, topic, partition)
    fields = _plain_fields(value) or _fields(Cursor(value, "value"))
    return new_tuple(OffsetCommit, (group, topic, partition, *fields))


#: Offset, leader epoch, metadata, instant, expiry, topic's id, version.
_Fields = tuple[int, int | None, str, int, int | None, str, int]


def _plain_fields(value: bytes) -> _Fields | None:
    """Read a value of the usual layout; None for any other."""
    layout = _layout_of(value)
    if layout is None:
        return None
    version, offset, epoch, _, metadata, at_ms, tags = layout.unpack.unpack(value)
    if not 0 <= at_ms < _LATEST_MS or not _is_plain(tags):
        return None
    topic_id = _topic_id({0: tags[3:]}) if len(tags) > 1 else ""
    return offset, None if epoch == -1 else epoch, escape_bytes(metadata), at_ms, None, topic_id, version


def _fields(cursor: Cursor) -> _Fields:
    version = _version(cursor)
    offset = cursor.int64()
    leader_epoch = cursor.int32() if version >= 3 else -1
    metadata = cursor.compact_string() if version >= 4 else cursor.string()
    commit_ms = cursor.int64()
    expire_ms = cursor.int64() if version == 1 else -1
    tags = cursor.tagged_fields() if version >= 4 else {}
    cursor.expect_end()
    if not 0 <= commit_ms < _LATEST_MS:
        raise Unreadable("instant", f"committed at {commit_ms} ms")
    first = offset, _or_none(leader_epoch), metadata, commit_ms
    return (*first, _or_none(expire_ms), _topic_id(tags), version)


def _topic_id(tags: dict[int, bytes]) -> str:
    raw = tags.get(0)
    if raw is None:
        return ""
    if len(raw) != 16:
        raise Unreadable("length", f"a topic id of {len(raw)} bytes")
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _group(key: Cursor, value: bytes | None) -> GroupMetadata | GroupTombstone:
    group = key.string()
    key.expect_end()
    if value is None:
        return GroupTombstone(group)
    cursor = Cursor(value, "value")
    version = _version(cursor)
    flexible = version >= 4
    subscribes = cursor.text(flexible) == _SUBSCRIBES
    _generation = cursor.int32()
    _protocol, _leader = cursor.text_or_null(flexible), cursor.text_or_null(flexible)
    if version >= 2:
        _state_ms = cursor.int64()
    members = dict(_classic_member(cursor, version, subscribes) for _ in range(cursor.array_length(flexible)))
    if flexible:
        cursor.tagged_fields()
    cursor.expect_end()
    return GroupMetadata(group, members)


def _classic_member(cursor: Cursor, version: int, subscribes: bool) -> tuple[str, Member]:
    flexible = version >= 4
    member_id = cursor.text(flexible)
    if version >= 3:
        _instance_id = cursor.text_or_null(flexible)
    client_id, host = cursor.text(flexible), cursor.text(flexible)
    if version >= 1:
        cursor.int32()
    cursor.int32()
    subscription = Cursor(cursor.bytes_of(flexible), "subscription")
    cursor.bytes_of(flexible)
    if flexible:
        cursor.tagged_fields()
    return member_id, Member(client_id, host, _subscribed(subscription) if subscribes else None)


def _subscribed(subscription: Cursor) -> tuple[str, ...] | None:
    """Return the topics of a consumer's subscription (ConsumerProtocolSubscription); None if unreadable."""
    try:
        subscription.int16()
        return _few(tuple(subscription.string() for _ in range(subscription.array_length(False))))
    except Unreadable:
        return None


def _member(kind: int, key: Cursor, value: bytes | None) -> GroupMember:
    """Read a member up to its subscription; the rest (assignors, timeouts) is not shown."""
    group, member_id = key.string(), key.string()
    key.expect_end()
    if value is None:
        return GroupMember(group, member_id, None)
    cursor = Cursor(value, "value")
    version = cursor.int16()
    if version:
        raise Unreadable("value_version", f"value version {version}")
    if kind != _SHARE:
        _instance_id = cursor.text_or_null(True)
    _rack = cursor.text_or_null(True)
    client_id, host = cursor.compact_string(), cursor.compact_string()
    return GroupMember(group, member_id, Member(client_id, host, _named(kind, cursor)))


def _named(kind: int, cursor: Cursor) -> tuple[str, ...] | None:
    """Return the topics that a member subscribes to by name; None if it also subscribes by pattern."""
    if kind == _STREAMS:
        return None
    try:
        topics = tuple(cursor.compact_string() for _ in range(cursor.array_length(True)))
        pattern = cursor.text_or_null(True) if kind == _CONSUMER else None
    except Unreadable:
        return None
    return None if pattern else _few(topics)


def _few(topics: tuple[str, ...]) -> tuple[str, ...] | None:
    return topics if 0 < len(topics) <= _MOST_TOPICS else None


def _version(cursor: Cursor) -> int:
    version = cursor.int16()
    if not 0 <= version <= 4:
        raise Unreadable("value_version", f"value version {version}")
    return version


def _or_none(number: int) -> int | None:
    return None if number == -1 else number
