"""Facts -> records of `__transaction_state`, as a coordinator writes them: for tests and benchmarks.

The inverse of `fenceline.decode.transaction_state`.
"""

from struct import Struct, pack

from fenceline.decode.text import unescape_text
from fenceline.decode.transaction_state import STATES
from fenceline.facts import TopicPartitions, TransactionRecord

_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")


def encode_key(transactional_id: str) -> bytes:
    """Return the key of an id given as text (`text.escape_bytes`). Raises struct.error beyond 32767 bytes."""
    raw = unescape_text(transactional_id)
    return pack(">hh", 0, len(raw)) + raw


def encode_value(record: TransactionRecord) -> bytes:
    """Return the value in the record's own `value_version`, 0 or 1; version 0 has no room for tags."""
    flexible = record.value_version > 0
    head = _HEAD.pack(
        record.value_version,
        record.producer_id,
        record.producer_epoch,
        record.timeout_ms,
        STATES.index(record.state),
    )
    partitions = _compact_partitions(record.partitions) if flexible else _partitions(record.partitions)
    times = _TIMES.pack(record.updated_ms, _or_minus_one(record.started_ms))
    return head + partitions + times + (_tags(record) if flexible else b"")


def encode_uvarint(number: int) -> bytes:
    """Return an unsigned varint: 7 bits a byte, lowest first (KIP-482)."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _partitions(topics: tuple[TopicPartitions, ...] | None) -> bytes:
    if topics is None:
        return pack(">i", -1)
    return pack(">i", len(topics)) + b"".join(map(_topic, topics))


def _topic(topic: TopicPartitions) -> bytes:
    name, amount = unescape_text(topic.topic), len(topic.partitions)
    return pack(">h", len(name)) + name + pack(f">i{amount}i", amount, *topic.partitions)


def _compact_partitions(topics: tuple[TopicPartitions, ...] | None) -> bytes:
    if topics is None:
        return encode_uvarint(0)
    return encode_uvarint(len(topics) + 1) + b"".join(map(_compact_topic, topics))


def _compact_topic(topic: TopicPartitions) -> bytes:
    name, amount = unescape_text(topic.topic), len(topic.partitions)
    numbers = pack(f">{amount}i", *topic.partitions)
    return encode_uvarint(len(name) + 1) + name + encode_uvarint(amount + 1) + numbers + encode_uvarint(0)


def _tags(record: TransactionRecord) -> bytes:
    """Write only what differs from its default, as Kafka does."""
    candidates = (
        (0, ">q", _or_minus_one(record.previous_producer_id), -1),
        (1, ">q", _or_minus_one(record.next_producer_id), -1),
        (2, ">h", record.client_version, 0),
        (3, ">h", _or_minus_one(record.next_producer_epoch), -1),
        (4, ">h", _or_minus_one(record.last_producer_epoch), -1),
    )
    written = [(tag, pack(kind, number)) for tag, kind, number, default in candidates if number != default]
    return encode_uvarint(len(written)) + b"".join(
        encode_uvarint(tag) + encode_uvarint(len(data)) + data for tag, data in written
    )


def _or_minus_one(number: int | None) -> int:
    return -1 if number is None else number
