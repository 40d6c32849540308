"""Proves that columns say what single records say: of batches with a byte changed anywhere, and of values."""

import random
from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.kafka.compression import decompress
from fenceline.decode.log_parts import LogPart, read_parts, whole_batches
from fenceline.decode.record_table import RecordTable
from fenceline.decode.transaction_columns import read_transactions
from fenceline.decode.transaction_state import decode_value
from fenceline.facts import RawRecord, TransactionRecord
from tests.raw_batches import raw_batch
from tests.transaction_state_records import encode_key, encode_value
from tests.unit.decode import samples

HEADER = 61
#: Offset, key and value of a record; nothing but the offset of one that cannot be read.
Read = tuple[int] | tuple[int, bytes | None, bytes | None]


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint and its end."""
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return (number >> 1) ^ -(number & 1), at


def field_at(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Return a field and its end. Raises ValueError if it does not end inside its record."""
    length, at = varint_at(data, at)
    if length < -1 or at + max(length, 0) > end:
        raise ValueError
    return (None if length == -1 else data[at : at + length]), at + max(length, 0)


def read_singly(batch: bytes, count: int, padded: bytes) -> Iterator[Read]:
    """Yield the records of a batch that begins at offset 0, one by one, until one does not fit."""
    at, whole = HEADER, len(batch)
    for nth in range(count):
        length, body = varint_at(padded, at)
        if not 0 <= length <= whole - body:
            yield (nth,)
            return
        _, after = varint_at(padded, body + 1)
        offset, after = varint_at(padded, after)
        try:
            key, after = field_at(padded, after, body + length)
            value, _ = field_at(padded, after, body + length)
        except ValueError:
            yield (offset,)
        else:
            yield offset, key, value
        at = body + length


@settings(max_examples=200)
@given(st.integers(0, 10**9), st.integers(1, 70))
def test_a_batch_with_a_byte_changed_is_read_as_record_by_record(seed: int, records: int) -> None:
    dice = random.Random(seed)
    log = [
        (
            dice.choice((None, b"", dice.randbytes(3))),
            RawRecord(dice.choice((None, b"", dice.randbytes(70))), nth, 0),
        )
        for nth in range(records)
    ]
    batch = bytearray(raw_batch(log))
    batch[dice.randrange(HEADER, len(batch))] = dice.choice((0, 1, 2, 3, 0x7F, 0x80, dice.randrange(256)))
    after = raw_batch([(b"k", RawRecord(b"v", 10**6, 0))])
    data = bytes(batch) + after
    columns, _, bad = read_parts([LogPart(0, 0, data, whole_batches(data))], decompress)
    fields = (columns.offset, columns.key_at, columns.key_length, columns.value_at, columns.value_length)
    read: list[Read] = [
        (
            offset,
            None if key_length == -1 else columns.data[key_at : key_at + key_length],
            None if value_length == -1 else columns.data[value_at : value_at + value_length],
        )
        for offset, key_at, key_length, value_at, value_length in zip(
            *(column.tolist() for column in fields), strict=True
        )
    ]
    singly = [*read_singly(bytes(batch), records, data + bytes(200)), (10**6, b"k", b"v")]
    wanted = [record for record in singly if record[0] >= 0]
    assert read == [record for record in wanted if len(record) > 1]
    assert sorted(each.offset for each in bad) == sorted(record[0] for record in wanted if len(record) == 1)


#: Where a value is changed: its status, the last bytes of its instants and of its tags, or anywhere.
PLACES = st.sampled_from((16, -1, -2, -9, -17)) | st.integers(0, 10**4)
CHANGES = st.sampled_from((0, 1, 2, 5, 6, 8, 0xFF)) | st.integers(0, 255)


@given(st.lists(samples.records(), max_size=10), st.lists(samples.records(), max_size=10), st.data())
def test_plain_rows_are_the_records_that_are_decoded_singly(
    strange: list[TransactionRecord], usual: list[TransactionRecord], data: st.DataObject
) -> None:
    """A record as Kafka writes it, with few partitions, is plain; `strange` ones have a byte changed."""
    changed = [bytearray(encode_value(record)) for record in strange]
    for value in changed:
        place = data.draw(PLACES)
        value[place % len(value)] = data.draw(CHANGES)
    written = [encode_value(as_written(record, data)) for record in usual]
    values = [*map(bytes, changed), *written]
    table = RecordTable.of(
        (0, encode_key(f"{nth:02}"), RawRecord(value, nth)) for nth, value in enumerate(values)
    )
    columns = read_transactions(table)
    plain = np.flatnonzero(columns.plain)
    numbers = table.columns.offset[plain].tolist()
    read = list(columns.records(table, plain, [f"{nth:02}" for nth in numbers]))
    assert read == [decode_value(f"{nth:02}", values[nth]) for nth in numbers]
    assert {nth for nth in range(len(changed), len(values)) if len(values[nth]) < 200} <= set(numbers)


def as_written(record: TransactionRecord, data: st.DataObject) -> TransactionRecord:
    """Return a record whose numbers are as Kafka writes them."""
    started_ms = data.draw(st.none() | st.integers(0, record.updated_ms) | st.just(record.updated_ms))
    version = record.value_version and data.draw(st.sampled_from((0, 2)))
    return record._replace(started_ms=started_ms, client_version=version, next_producer_epoch=None)
