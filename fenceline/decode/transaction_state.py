"""Decode records of `__transaction_state`: TransactionRecord, Tombstone, or Undecoded for others.

Key version 0, value versions 0 (until Kafka 3.9) and 1 (flexible, Kafka 4). The layout is Kafka's own
schema, TransactionLogKey.json and TransactionLogValue.json of its transaction coordinator.

This is the hot path of a cold start (millions of records): precompiled structs, no object per field.
Positions only grow, and every read is checked by `unpack_from` or an index. So a count or length beyond the
value's end is `truncated` before anything of that size is allocated.
"""

from __future__ import annotations

from struct import Struct, error, unpack_from
from typing import Optional

from fenceline.decode.text import escape_bytes
from fenceline.facts import Tombstone, TopicPartitions, TransactionRecord, TransactionState, Undecoded
from fenceline.tuples import new_tuple

#: The state for each status byte. Dead (6) and PrepareEpochFence (7) never leave the coordinator's memory.
STATES = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)

_KEY_VERSION = b"\x00\x00"
_VALUE_V0 = b"\x00\x00"
_VALUE_V1 = b"\x00\x01"
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
#: Producer id, epoch, timeout, status; they follow the version.
_HEAD = Struct(">qhib")
#: Last update, start.
_TIMES = Struct(">qq")
#: Tag -> its type: previous producer id, next producer id, client version, next and last producer epoch.
_TAGS = {0: _INT64, 1: _INT64, 2: _INT16, 3: _INT16, 4: _INT16}
_NO_TAGS: dict[int, Struct] = {}
#: The fields from client_version on. Kafka up to 4.2 writes only these two tag sections.
_COMMON_TAILS = {
    b"\x00": (0, None, None, None, None, 1),
    b"\x01\x02\x02\x00\x02": (2, None, None, None, None, 1),
}
#: The client version by tag section without the number in tag 0, for the sections of most records of Kafka
#: 4.3; then of later versions, also without tag 4 at the end.
_BESIDE_TAG_0 = {b"\x01\x00\x08": 0, b"\x02\x00\x08\x02\x02\x00\x02": 2}
_BESIDE_TAGS_0_AND_4 = {b"\x02\x00\x08": 0, b"\x03\x00\x08\x02\x02\x00\x02": 2}
_V0_EXTRAS = (0, None, None, None, None, 0)
#: The first millisecond of the year 9999, UTC.
LATEST_MS = 253_370_764_800_000
_LARGEST = 2**31 - 1

_Partitions = Optional[tuple[TopicPartitions, ...]]


class _UndecodedRecord(Exception):
    """Ends the reading of one record; never leaves this module."""

    def __init__(self, undecoded: Undecoded) -> None:
        super().__init__(undecoded)
        self.undecoded = undecoded


#: Cache of decoded partition sections by their bytes: producers write to the same partitions repeatedly. A
#: section's end follows from its own bytes, so a value with a known section between its head and its times
#: decodes to exactly those partitions.
_sections: tuple[dict[bytes, _Partitions], dict[bytes, _Partitions]] = ({}, {})
_UNSEEN = object()
_MOST_SECTIONS = 8_192
#: Longer sections, of hundreds of partitions, are not cached: while a section grows, each state would be.
_LONGEST_SECTION = 1_024
#: A section of tag 2 alone, and the start and end of the everyday sections of Kafka 4.3 and later versions.
_ONLY_TAG_2 = b"\x01\x02\x02\x00\x02"
_TAG_0_OF_2, _TAG_0_OF_3, _TAGS_2_AND_4 = b"\x02\x00\x08", b"\x03\x00\x08", b"\x02\x02\x00\x02\x04\x02"
#: Tags with their sizes; tag 2 has its value, too.
_TAG_0, _TAG_1, _TAG_2, _TAG_4 = b"\x00\x08", b"\x01\x08", b"\x02\x02\x00\x02", b"\x04\x02"
#: Producer id, epoch, timeout, status, the partition section, last update, start: by the section's length.
_layouts = tuple(Struct(f">xxqhib{length}sqq").unpack_from for length in range(_LONGEST_SECTION + 1))
#: Bytes of a value without its partition section and its tags.
_AROUND = 17 + 16


#: Status byte, producer id, epoch, timeout, last update, start (-1: none), client version, partitions, bytes
#: of the tag section.
Peek = tuple[int, int, int, int, int, int, int, _Partitions, int]


def peek_value(value: bytes) -> Peek | None:
    """Return the plain fields of a value if it has the usual layout, else None: then use `decode_value`.

    `decode_value` is needed for a rare tag section, new partitions, and implausible numbers. It takes three
    times as long, and always agrees.
    """
    length, client_version, tags = len(value) - _AROUND, 0, 0
    version = value[:2]
    if version == _VALUE_V1 and length > 0:
        known = _sections[1]
        if not value[-1] and value[-9] != 8 and value[-4:-2] != _TAG_4:
            tags = 1
        elif value[-5:] == _ONLY_TAG_2 and value[-13] != 8:
            tags, client_version = 5, 2
        elif value[-15:-12] == _TAG_0_OF_2 and value[-4:] == _TAG_2:
            tags, client_version = 15, 2
        else:
            tags, client_version = _measure_tags(value)
            if not tags:
                return None
        length -= tags
    elif version == _VALUE_V0:
        known = _sections[0]
    else:
        return None
    if not 0 < length <= _LONGEST_SECTION:
        return None
    producer_id, epoch, timeout_ms, status, section, updated_ms, started_ms = _layouts[length](value)
    partitions = known.get(section, _UNSEEN)
    if partitions is _UNSEEN or not 0 <= status < 6 or not 0 <= updated_ms < LATEST_MS:
        return None
    if not -1 <= started_ms <= updated_ms:
        return None
    return status, producer_id, epoch, timeout_ms, updated_ms, started_ms, client_version, partitions, tags  # type: ignore[return-value]


def _measure_tags(value: bytes) -> tuple[int, int]:
    """Return the length of a tag section with any of the tags 0, 1, 2 and 4, and the client version.

    The section is read backwards, because the partitions before it have no fixed length. (0, 0) if its count
    of tags disagrees. Kafka 4.3 and 4.4 write tag 0 in nearly every record, later versions tag 4 too.
    """
    if value[-19:-16] == _TAG_0_OF_3 and value[-8:-2] == _TAGS_2_AND_4:
        return 19, 2
    end, count, client_version = len(value), 0, 0
    if value[-4:-2] == _TAG_4:
        end, count = end - 4, 1
    if value[end - 4 : end] == _TAG_2:
        end, count, client_version = end - 4, count + 1, 2
    if value[end - 10 : end - 8] == _TAG_1:
        end, count = end - 10, count + 1
    if value[end - 10 : end - 8] == _TAG_0:
        end, count = end - 10, count + 1
    return (len(value) - end + 1, client_version) if value[end - 1] == count else (0, 0)


def decode_record(key: bytes | None, value: bytes | None) -> TransactionRecord | Tombstone | Undecoded:
    """Decode one record. Never raises, whatever the bytes.

    The reasons of an Undecoded: `no_key`, `key_version`, `value_version`, `status`, `instant` (before 1970 or
    after 9998, beyond every clock and calendar), `truncated` (also for a count or length beyond the end),
    `length` (negative, null in a field that may not be null, or of the wrong size for its field), `trailing`
    (bytes after the end).
    """
    transactional_id = decode_key(key)
    if isinstance(transactional_id, Undecoded):
        return transactional_id
    if value is None:
        return Tombstone(transactional_id)
    return decode_value(transactional_id, value)


def decode_key(key: bytes | None) -> str | Undecoded:
    """Return the transactional id, escaped by `text.escape_bytes`. Its raw bytes are `key[4:]`."""
    if key is None:
        return Undecoded("no_key", "a record without a key")
    if key[:2] != _KEY_VERSION:
        return _strange_version("key", key)
    try:
        (length,) = _INT16.unpack_from(key, 2)
    except error:
        return _truncated("key", key)
    if length == len(key) - 4:
        return escape_bytes(key[4:])
    if length < 0:
        return Undecoded("length", f"key with an id of {length} bytes")
    return _truncated("key", key) if length > len(key) - 4 else _trailing("key", len(key) - 4 - length)


def decode_value(transactional_id: str, value: bytes) -> TransactionRecord | Undecoded:
    """Decode the value of an id, given as text. Never raises."""
    fields = peek_value(value)
    if fields is not None:
        return record_of(transactional_id, fields, value)
    try:
        version = value[:2]
        if version == _VALUE_V1:
            return _decode_v1(transactional_id, value)
        if version == _VALUE_V0:
            return _decode_v0(transactional_id, value)
        return _strange_version("value", value)
    except _UndecodedRecord as problem:
        return problem.undecoded
    except (error, IndexError):
        return _truncated("value", value)


def record_of(transactional_id: str, fields: Peek, value: bytes) -> TransactionRecord:
    """Build the record of an id, given as text, from its value and the fields returned by `peek_value`."""
    status, producer_id, epoch, timeout_ms, updated_ms, started_ms, _, partitions, tags = fields
    first = transactional_id, STATES[status], producer_id, epoch, timeout_ms, partitions, updated_ms
    extras = tag_fields(value[len(value) - tags :])
    return new_tuple(TransactionRecord, (*first, None if started_ms == -1 else started_ms, *extras))


def tag_fields(tags: bytes) -> tuple[int | None, ...]:
    """Return the fields of a record from client_version on; version 0 has no bytes of tags."""
    return (_COMMON_TAILS.get(tags) or _extras(tags, 0)) if tags else _V0_EXTRAS


def _decode_v0(transactional_id: str, value: bytes) -> TransactionRecord:
    partitions, at = _partitions_v0(value)
    _know(0, value, at, partitions)
    if at + 16 < len(value):
        raise _UndecodedRecord(_trailing("value", len(value) - at - 16))
    return _record(transactional_id, value, partitions, at, _V0_EXTRAS)


def _decode_v1(transactional_id: str, value: bytes) -> TransactionRecord:
    partitions, at = _partitions_v1(value)
    _know(1, value, at, partitions)
    extras = _COMMON_TAILS.get(value[at + 16 :]) or _extras(value, at + 16)
    return _record(transactional_id, value, partitions, at, extras)


def decode_section(version: int, section: bytes) -> _Partitions | Undecoded:
    """Decode the partitions of a value from their own bytes. Never raises."""
    value = bytes(_HEAD.size + 2) + section
    try:
        partitions, end = (_partitions_v1 if version else _partitions_v0)(value)
    except _UndecodedRecord as problem:
        return problem.undecoded
    except (error, IndexError):
        return _truncated("value", value)
    return partitions if end == len(value) else _trailing("value", len(value) - end)


def _know(version: int, value: bytes, end: int, partitions: _Partitions) -> None:
    """Cache a section if the times still fit after its end, which proves that it was read completely."""
    known = _sections[version]
    if len(known) >= _MOST_SECTIONS:
        known.clear()
    if end + 16 <= len(value) and end <= _LONGEST_SECTION:
        known[value[17:end]] = partitions


def _record(
    transactional_id: str, value: bytes, partitions: _Partitions, at: int, extras: tuple[int | None, ...]
) -> TransactionRecord:
    """Build a record; `at` is the end of the partitions, `extras` its fields from client_version on."""
    producer_id, epoch, timeout_ms, status = _HEAD.unpack_from(value, 2)
    updated_ms, started_ms = _TIMES.unpack_from(value, at)
    if not 0 <= status < len(STATES):
        raise _UndecodedRecord(Undecoded("status", f"status {status}"))
    if not (0 <= updated_ms < LATEST_MS and -1 <= started_ms < LATEST_MS):
        raise _UndecodedRecord(
            Undecoded("instant", f"updated at {updated_ms} ms, started at {started_ms} ms")
        )
    state, started = STATES[status], None if started_ms == -1 else started_ms
    first = (transactional_id, state, producer_id, epoch, timeout_ms, partitions, updated_ms, started)
    return new_tuple(TransactionRecord, first + extras)


def _extras(value: bytes, at: int) -> tuple[int | None, ...]:
    """Return the fields of the tag section at `at`, which must end the value."""
    first, behind, end = value[at : at + 3], at + 11, len(value) - 4
    if value[end : end + 2] == _TAG_4:
        if end >= behind and (version := _BESIDE_TAGS_0_AND_4.get(first + value[behind:end])) is not None:
            previous, (last,) = _INT64.unpack_from(value, at + 3)[0], _INT16.unpack_from(value, end + 2)
            return version, _or_none(previous), None, None, _or_none(last), 1
    elif end + 4 >= behind and (version := _BESIDE_TAG_0.get(first + value[behind:])) is not None:
        return version, _or_none(_INT64.unpack_from(value, at + 3)[0]), None, None, None, 1
    tags, end = _tags(value, at, _TAGS)
    if end > len(value):
        raise _UndecodedRecord(_truncated("value", value))
    if end < len(value):
        raise _UndecodedRecord(_trailing("value", len(value) - end))
    numbers = (tags.get(tag, -1) for tag in (0, 1, 3, 4))
    return tags.get(2, 0), *map(_or_none, numbers), 1


def _partitions_v0(value: bytes) -> tuple[_Partitions, int]:
    (count,) = _INT32.unpack_from(value, 17)
    at = 21
    if count < -1:
        raise _UndecodedRecord(Undecoded("length", f"{count} topics"))
    topics = []
    for _ in range(count):
        (length,) = _INT16.unpack_from(value, at)
        (amount,) = _INT32.unpack_from(value, at + 2 + length)
        topic, at = _topic(value, at + 2, length, amount, at + 6 + length)
        topics.append(topic)
    return (None if count < 0 else tuple(topics)), at


def _partitions_v1(value: bytes) -> tuple[_Partitions, int]:
    count, at = _uvarint(value, 17)
    if count < 2:
        return (() if count else None), at
    topics = []
    for _ in range(count - 1):
        length, at = _uvarint(value, at)
        amount, numbers_at = _uvarint(value, at + length - 1)
        topic, at = _topic(value, at, length - 1, amount - 1, numbers_at)
        at = at + 1 if value[at] == 0 else _tags(value, at, _NO_TAGS)[1]
        topics.append(topic)
    return tuple(topics), at


def _topic(value: bytes, at: int, length: int, amount: int, numbers_at: int) -> tuple[TopicPartitions, int]:
    """Return a topic (name: `length` bytes at `at`; `amount` partitions at `numbers_at`), and its end."""
    if length < 0 or amount < 0:
        raise _UndecodedRecord(
            Undecoded("length", f"a topic name of {length} bytes, with {amount} partitions")
        )
    end = numbers_at + 4 * amount
    if end > len(value):
        raise _UndecodedRecord(_truncated("value", value))
    numbers = unpack_from(f">{amount}i", value, numbers_at)
    return new_tuple(TopicPartitions, (escape_bytes(value[at : at + length]), numbers)), end


def _tags(value: bytes, at: int, known: dict[int, Struct]) -> tuple[dict[int, int], int]:
    """Return the numbers of the `known` tags, and the end of the section; other tags are skipped."""
    numbers: dict[int, int] = {}
    count, at = _uvarint(value, at)
    for _ in range(count):
        tag, size, at = value[at], value[at + 1], at + 2
        if tag >= 0x80 or size >= 0x80:
            tag, at = _uvarint(value, at - 2)
            size, at = _uvarint(value, at)
        if tag in known:
            if size != known[tag].size:
                raise _UndecodedRecord(Undecoded("length", f"tag {tag} of {size} bytes"))
            (numbers[tag],) = known[tag].unpack_from(value, at)
        at += size
    return numbers, at


def _uvarint(value: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned varint at `at` (7 bits a byte, lowest first, KIP-482) and its end."""
    byte = value[at]
    if byte < 0x80:
        return byte, at + 1
    number = byte & 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = value[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    if byte >= 0x80 or number > _LARGEST:
        raise _UndecodedRecord(Undecoded("length", "a length beyond 2147483647"))
    return number, at + 1


def _or_none(number: int) -> int | None:
    return None if number == -1 else number


def _strange_version(part: str, data: bytes) -> Undecoded:
    if len(data) < 2:
        return _truncated(part, data)
    return Undecoded(f"{part}_version", f"{part} version {int.from_bytes(data[:2], 'big', signed=True)}")


def _truncated(part: str, data: bytes) -> Undecoded:
    return Undecoded("truncated", f"{part} cut off after {len(data)} bytes")


def _trailing(part: str, surplus: int) -> Undecoded:
    return Undecoded("trailing", f"{part} with {surplus} bytes after its end")
