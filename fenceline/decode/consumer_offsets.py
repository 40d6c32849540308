"""Records of `__consumer_offsets` -> commits, members, tombstones or, for all else, Newer and Undecoded.

The key begins with the record's type. Types 0 and 1 are offset commits (values v0 to v4), 2 is the members
of a classic group (v0 to v4), 5 a member of a consumer group (KIP-848). The other types that Kafka has are
`Newer`: counted by number and no error. The layouts are Kafka's own schema, OffsetCommitKey.json and its
neighbours of the group coordinator; every length is checked against what is there before it is used.

Of millions of commits only the newest few are kept, so the way to all of them is short: `peek` tells when
and which offset; `decode` tells the rest and is called for those alone.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from struct import Struct, error
from typing import NamedTuple

from fenceline.decode.text import escape
from fenceline.facts import Undecoded

#: Record types that Kafka writes or wrote: 3 to 8 and 16 of consumer groups (KIP-848), 9 to 15 of share
#: groups (KIP-932), 17 to 23 of Streams groups (KIP-1071). Only 5 is read.
NEWER_TYPES = frozenset(range(3, 24))
#: Offset commits, by either version of their key.
COMMIT_TYPES = (0, 1)
_GROUP_TYPE, _MEMBER_TYPE = 2, 5
#: No topic has a longer name.
_LONGEST_TOPIC = 249
#: The first millisecond of the year 9999, UTC.
_LATEST_MS = 253_370_764_800_000
_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
#: Version, offset, leader epoch, length of the metadata: v3. Then the metadata and the commit's instant.
_V3 = Struct(">hqih")
#: The same of v4, whose length is a varint: one byte up to 126 bytes of metadata.
_V4 = Struct(">hqiB")
_V3_LENGTH, _V4_LENGTH = _V3.size + 8, _V4.size + 8
_NO_TAGS, _TOPIC_ID = b"\x00", b"\x01\x00\x10"


class OffsetCommit(NamedTuple):
    """A commit of a group for one partition. Names are text as `decode.text.escape` writes it."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    #: By the coordinator's clock.
    commit_ms: int
    expire_ms: int | None = None
    #: Kafka's id of the topic as Kafka writes it (base64); "" where the record has none.
    topic_id: str = ""
    value_version: int = 4


class OffsetTombstone(NamedTuple):
    """The commits of a group for one partition are gone: deleted, expired, or the topic was."""

    group: str
    topic: str
    partition: int


class Member(NamedTuple):
    """Who takes part in a group: the client's own name, and from where it spoke."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None


class GroupMetadata(NamedTuple):
    """A classic group after a rebalance: its protocol, and all its members."""

    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int | None
    members: tuple[Member, ...]
    value_version: int = 3


class GroupTombstone(NamedTuple):
    """A classic group is gone, or became another kind."""

    group: str


class GroupMember(NamedTuple):
    """A member of a consumer group (KIP-848); `member` is None in the tombstone of one that left."""

    group: str
    member_id: str
    member: Member | None


class Newer(NamedTuple):
    """A record of a type that tells nothing which is shown; counted by its number."""

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


class _Unreadable(Exception):
    """Ends the reading of one record; never leaves this module."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.undecoded = Undecoded(reason, detail)


def peek(value: bytes) -> tuple[int, int] | None:
    """Return the instant and the offset of a commit if they lie where they mostly do, else None.

    Then `decode` tells. Where it returns something it agrees with `decode`.
    """
    try:
        if value[:2] == b"\x00\x03":
            _, offset, _, length = _V3.unpack_from(value)
            if length < 0 or len(value) != _V3_LENGTH + length:
                return None
            (at_ms,) = _INT64.unpack_from(value, _V3.size + length)
        elif value[:2] == b"\x00\x04":
            _, offset, _, length = _V4.unpack_from(value)
            end = _V4_LENGTH + length - 1
            if not 0 < length < 0x80 or not _plain_tags(value, end):
                return None
            (at_ms,) = _INT64.unpack_from(value, end - 8)
        else:
            return None
    except error:
        return None
    return (at_ms, offset) if 0 <= at_ms < _LATEST_MS else None


def _plain_tags(value: bytes, end: int) -> bool:
    """Whether a v4 value ends at `end` with no tags, or with the topic's id alone."""
    tail = value[end:]
    return tail == _NO_TAGS or (len(tail) == 19 and tail[:3] == _TOPIC_ID)


def decode(key: bytes | None, value: bytes | None) -> Record:
    """Return what one record says. Never raises, whatever the bytes.

    The reasons of an Undecoded: `no_key`, `key_type` (none that Kafka has), `value_version`, `instant`,
    `topic` (a name that no topic can have), `truncated`, `length` (negative, or null where there is no
    null), `trailing` (bytes after the end).
    """
    if key is None:
        return Undecoded("no_key", "a record without a key")
    try:
        cursor = _Cursor(key, "key")
        kind = cursor.int16()
        if kind in COMMIT_TYPES:
            return _commit(cursor, value)
        if kind == _GROUP_TYPE:
            return _group(cursor, value)
        if kind == _MEMBER_TYPE:
            return _member(cursor, value)
    except _Unreadable as problem:
        return problem.undecoded
    if kind in NEWER_TYPES:
        return Newer(kind)
    return Undecoded("key_type", f"key type {kind}")


def _commit(key: _Cursor, value: bytes | None) -> OffsetCommit | OffsetTombstone:
    group, topic, partition = key.string(), key.string(), key.int32()
    key.finish()
    if len(topic) > _LONGEST_TOPIC:
        raise _Unreadable("topic", f"a topic name of {len(topic)} characters")
    if value is None:
        return OffsetTombstone(group, topic, partition)
    cursor = _Cursor(value, "value")
    version = _version(cursor)
    offset = cursor.int64()
    leader_epoch = cursor.int32() if version >= 3 else -1
    metadata = cursor.compact_string() if version >= 4 else cursor.string()
    commit_ms = cursor.int64()
    expire_ms = cursor.int64() if version == 1 else -1
    tags = cursor.tags() if version >= 4 else {}
    cursor.finish()
    if not 0 <= commit_ms < _LATEST_MS:
        raise _Unreadable("instant", f"committed at {commit_ms} ms")
    first = group, topic, partition, offset, _or_none(leader_epoch), metadata, commit_ms
    return OffsetCommit(*first, _or_none(expire_ms), _topic_id(tags), version)


def _topic_id(tags: dict[int, bytes]) -> str:
    raw = tags.get(0)
    if raw is None:
        return ""
    if len(raw) != 16:
        raise _Unreadable("length", f"a topic id of {len(raw)} bytes")
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _group(key: _Cursor, value: bytes | None) -> GroupMetadata | GroupTombstone:
    group = key.string()
    key.finish()
    if value is None:
        return GroupTombstone(group)
    cursor = _Cursor(value, "value")
    version = _version(cursor)
    flexible = version >= 4
    protocol_type = cursor.text(flexible)
    generation = cursor.int32()
    protocol, leader = cursor.text_or_null(flexible), cursor.text_or_null(flexible)
    state_ms = cursor.int64() if version >= 2 else -1
    members = tuple(_classic_member(cursor, version) for _ in range(cursor.count(flexible)))
    if flexible:
        cursor.tags()
    cursor.finish()
    return GroupMetadata(
        group, protocol_type, generation, protocol, leader, _or_none(state_ms), members, version
    )


def _classic_member(cursor: _Cursor, version: int) -> Member:
    flexible = version >= 4
    member_id = cursor.text(flexible)
    instance_id = cursor.text_or_null(flexible) if version >= 3 else None
    client_id, host = cursor.text(flexible), cursor.text(flexible)
    if version >= 1:
        cursor.int32()
    cursor.int32()
    for _ in ("subscription", "assignment"):
        cursor.skip_bytes(flexible)
    if flexible:
        cursor.tags()
    return Member(member_id, client_id, host, instance_id)


def _member(key: _Cursor, value: bytes | None) -> GroupMember:
    """Read a member up to its host; what follows (subscriptions, assignors) is not shown."""
    group, member_id = key.string(), key.string()
    key.finish()
    if value is None:
        return GroupMember(group, member_id, None)
    cursor = _Cursor(value, "value")
    version = cursor.int16()
    if version:
        raise _Unreadable("value_version", f"value version {version}")
    instance_id, _rack = cursor.text_or_null(True), cursor.text_or_null(True)
    client_id, host = cursor.compact_string(), cursor.compact_string()
    return GroupMember(group, member_id, Member(member_id, client_id, host, instance_id))


def _version(cursor: _Cursor) -> int:
    version = cursor.int16()
    if not 0 <= version <= 4:
        raise _Unreadable("value_version", f"value version {version}")
    return version


def _or_none(number: int) -> int | None:
    return None if number == -1 else number


class _Cursor:
    """Reads a key or a value from its beginning to its end. Raises `_Unreadable`."""

    def __init__(self, data: bytes, part: str) -> None:
        self._data, self._part, self._at = data, part, 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def string(self) -> str:
        """Read a string whose length is an int16."""
        return escape(self._take(self.int16()))

    def compact_string(self) -> str:
        """Read a string whose length, and one more, is a varint (KIP-482): of any number of bytes."""
        return escape(self._take(self._uvarint() - 1))

    def text(self, flexible: bool) -> str:
        """Read a string in either form."""
        return self.compact_string() if flexible else self.string()

    def text_or_null(self, flexible: bool) -> str | None:
        """Read a string that may be null, in either form."""
        length = self._uvarint() - 1 if flexible else self.int16()
        return None if length == -1 else escape(self._take(length))

    def skip_bytes(self, flexible: bool) -> None:
        """Pass over bytes, in either form; null is none."""
        length = self._uvarint() - 1 if flexible else self.int32()
        self._take(0 if length == -1 else length)

    def count(self, flexible: bool) -> int:
        """Read how many things follow: no more than there are bytes left."""
        amount = self._uvarint() - 1 if flexible else self.int32()
        if amount > len(self._data) - self._at:
            raise self._truncated()
        return max(amount, 0)

    def tags(self) -> dict[int, bytes]:
        """Read a section of tagged fields; unknown ones are passed over by their size."""
        found = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            found[tag] = self._take(self._uvarint())
        return found

    def finish(self) -> None:
        """Refuse bytes after the end."""
        surplus = len(self._data) - self._at
        if surplus:
            raise _Unreadable("trailing", f"{self._part} with {surplus} bytes after its end")

    def _number(self, kind: Struct) -> int:
        try:
            (number,) = kind.unpack_from(self._data, self._at)
        except error:
            raise self._truncated() from None
        self._at += kind.size
        return int(number)

    def _take(self, length: int) -> bytes:
        if length < 0:
            raise _Unreadable("length", f"{self._part} with a length of {length}")
        end = self._at + length
        if end > len(self._data):
            raise self._truncated()
        taken, self._at = self._data[self._at : end], end
        return taken

    def _uvarint(self) -> int:
        number = 0
        for shift in (0, 7, 14, 21, 28):
            if self._at >= len(self._data):
                raise self._truncated()
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80 and number < 2**31:
                return number
        raise _Unreadable("length", "a length beyond 2147483647")

    def _truncated(self) -> _Unreadable:
        return _Unreadable("truncated", f"{self._part} cut off after {len(self._data)} bytes")
