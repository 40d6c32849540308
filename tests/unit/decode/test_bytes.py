"""Proves that records are read from raw batches as they were written; that no bytes make the decoder raise,
allocate a claimed size, or confuse two ids; and that any bytes have a text form that turns back into them."""

import random
import tracemalloc
from datetime import UTC, datetime
from itertools import pairwise
from struct import pack

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from collectors.kafka.compression import decompress
from fenceline.decode.columns import PADDING, ByteStrings
from fenceline.decode.log_parts import Hole, LogPart, read_parts, whole_batches
from fenceline.decode.record_table import RecordTable
from fenceline.decode.text import escape_bytes, unescape_text
from fenceline.decode.transaction_state import decode_record
from fenceline.facts import (
    RawRecord,
    Tombstone,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
    Undecoded,
)
from tests.cases import cases
from tests.raw_batches import CODECS, GZIP, LZ4, TRANSACTIONAL, marker, raw_batch, varint
from tests.transaction_state_records import encode_key, encode_uvarint, encode_value
from tests.unit.decode import samples

Log = list[tuple[bytes | None, RawRecord]]


def random_log(dice: random.Random, records: int, gone: float = 0.0) -> Log:
    """Return records with keys, values and instants of any size; a share of the offsets is gone."""
    log: Log = []
    for offset in range(records):
        if dice.random() < gone:
            continue
        key = None if dice.random() < 0.05 else dice.randbytes(dice.choice((0, 1, 9, 30, 200, 300)))
        value = None if dice.random() < 0.2 else dice.randbytes(dice.choice((0, 1, 60, 128, 20_000)))
        log.append((key, RawRecord(value, offset, dice.randrange(10**12))))
    return log


def batches_of(dice: random.Random, log: Log) -> list[bytes]:
    batches, at = [], 0
    while at < len(log):
        size = dice.choice((1, 1, 1, 2, 7, 100))
        batches.append(raw_batch(log[at : at + size], codec=dice.choice(CODECS)))
        at += size
    return batches


def found_in(parts: list[LogPart]) -> tuple[dict[tuple[int, bytes], list[RawRecord]], list[Hole], int]:
    columns, holes, bad = read_parts(parts, decompress)
    table = RecordTable.sort(columns, bad)
    keys = {(number, key): list(raws) for number, some in table.items() for key, raws in some.items()}
    return keys, holes, len(bad)


def expected_keys(number: int, log: Log) -> dict[tuple[int, bytes], list[RawRecord]]:
    keys: dict[tuple[int, bytes], list[RawRecord]] = {}
    for key, raw in log:
        seen = raw if raw.value is None else raw._replace(at_ms=None)
        keys.setdefault((number, key or b""), []).append(seen)
    return keys


@settings(max_examples=40)
@given(st.integers(0, 10**9), st.integers(0, 300))
def test_records_are_read_as_they_were_written(seed: int, records: int) -> None:
    dice = random.Random(seed)
    expected, parts = {}, []
    for number in (0, 7, 49):
        log = random_log(dice, records)
        data = b"".join(batches_of(dice, log))
        start = dice.randrange(records + 1)
        parts.append(LogPart(number, start, data, whole_batches(data)))
        expected |= expected_keys(number, [each for each in log if each[1].offset >= start])
    assert found_in(parts) == (expected, [], 0)


def test_they_are_those_that_kafka_python_reads() -> None:
    dice = random.Random(3)
    log = random_log(dice, 400)
    data = b"".join(raw_batch(log[at : at + 5], codec=dice.choice((0, GZIP))) for at in range(0, 400, 5))
    columns, _, _ = read_parts([LogPart(0, 0, data, whole_batches(data))], decompress)
    read = zip(columns.offset.tolist(), columns.at_ms.tolist(), strict=True)
    theirs = [(record.offset, record.timestamp) for batch in MemoryRecords(data) for record in batch]
    assert list(read) == theirs


@given(st.integers(0, 10**9))
def test_holes_are_where_records_are_gone(seed: int) -> None:
    dice = random.Random(seed)
    log = random_log(dice, 120, gone=0.3) or [(b"", RawRecord(b"", 0, 0))]
    data = b"".join(batches_of(dice, log))
    _, holes, _ = found_in([LogPart(3, 0, data, whole_batches(data))])
    edges = [-1, *(raw.offset for _, raw in log)]
    gaps = [(b, b - a - 1) for a, b in pairwise(edges) if b - a > 1]
    assert [(hole.offset, hole.missing) for hole in holes] == gaps


def test_a_record_gone_from_the_end_of_its_batch_is_a_hole_behind_it() -> None:
    data = raw_batch([(b"k", RawRecord(b"v", 5, 0))], last=9)
    part = LogPart(1, 5, data, whole_batches(data))
    assert part.next == 10
    assert found_in([part])[1] == [Hole(1, 10, 4)]


def test_an_answer_may_be_cut_anywhere() -> None:
    dice = random.Random(5)
    log: Log = [(dice.randbytes(at), RawRecord(dice.randbytes(9 * at), at, at)) for at in range(9)]
    batches = [raw_batch(log[:1]), raw_batch(log[1:6], codec=LZ4), raw_batch(log[6:])]
    data = b"".join(batches)
    ends = [0, len(batches[0]), len(batches[0] + batches[1]), len(data)]
    counts = [0, 1, 6, 9]
    for cut in range(len(data) + 1):
        whole = max(number for number, end in enumerate(ends) if end <= cut)
        part = LogPart(0, 0, data[:cut], whole_batches(data[:cut]))
        assert len(part.places) == whole
        assert part.next == counts[whole]
        assert found_in([part])[0] == expected_keys(0, log[: counts[whole]])


def test_markers_and_what_was_aborted_are_left_out_and_are_no_hole() -> None:
    def of(producer: int, offset: int) -> bytes:
        record = (f"{producer}-{offset}".encode(), RawRecord(b"v", offset, 0))
        return raw_batch([record], attributes=TRANSACTIONAL, producer_id=producer)

    batches = [of(1, 0), of(2, 1), marker(2, 1, commit=False), of(1, 3), marker(4, 2, commit=True)]
    data = b"".join([*batches, marker(5, 1, commit=True)])
    places = whole_batches(data)
    everything = found_in([LogPart(0, 0, data, places)])
    committed = found_in([LogPart(0, 0, data, places, [(1, 0)])])
    assert sorted(key for _, key in everything[0]) == [b"1-0", b"1-3", b"2-1"]
    assert sorted(key for _, key in committed[0]) == [b"1-3", b"2-1"]
    assert everything[1] == committed[1] == []


@pytest.mark.parametrize("what", ["codec", "compressed", "magic", "count"])
def test_a_bad_batch_is_reported_with_its_offset_and_harms_no_other(what: str) -> None:
    log: Log = [(b"k", RawRecord(b"v" * 9, offset, 0)) for offset in range(9)]
    bad = bytearray(raw_batch(log[3:6], codec=GZIP if what == "compressed" else 0))
    if what == "codec":
        bad[22] |= 6
    elif what == "compressed":
        bad[61:] = b"\xff" * (len(bad) - 61)
    elif what == "magic":
        bad[16] = 1
    else:
        bad[57:61] = (999).to_bytes(4, "big")
    data = raw_batch(log[:3]) + bytes(bad) + raw_batch(log[6:])
    columns, _, found = read_parts([LogPart(2, 0, data, whole_batches(data))], decompress)
    assert [batch.partition for batch in found] == [2]
    assert 3 <= found[0].offset <= 6
    offsets = set(columns.offset.tolist())
    assert {0, 1, 2, 6, 7, 8} <= offsets


@pytest.mark.parametrize("length", [2**63 - 1, 2**63 - 200, 2**62, -(2**63)])
@pytest.mark.parametrize("nth", [0, 1])
def test_no_length_is_too_large_to_be_reported(length: int, nth: int) -> None:
    records = [(b"k", RawRecord(b"v" * 9, offset, 0)) for offset in range(3)]
    pieces = [raw_batch([each])[61:] for each in records]
    pieces[nth] = varint(length)[:10] + pieces[nth][1:]
    body = b"".join(pieces)
    good = bytearray(raw_batch(records))
    good[8:12] = (49 + len(body)).to_bytes(4, "big")
    data = bytes(good[:61]) + body + raw_batch([(b"k", RawRecord(b"v", 3, 0))])
    columns, _, bad = read_parts([LogPart(0, 0, data, whole_batches(data))], decompress)
    assert [batch.offset for batch in bad] == [nth]
    assert columns.offset.tolist()[-1] == 3


def test_a_batch_without_its_marker_ends_no_aborted_transaction() -> None:
    def of(offset: int) -> bytes:
        record = (b"%d" % offset, RawRecord(b"v", offset, 0))
        return raw_batch([record], attributes=TRANSACTIONAL, producer_id=1)

    emptied = bytearray(marker(255, 1, commit=False)[:61])
    emptied[8:12], emptied[57:61] = (49).to_bytes(4, "big"), bytes(4)
    # The next offset's last byte and the length's first lie where the type of a marker would.
    data = of(254) + bytes(emptied) + of(256)
    found = found_in([LogPart(0, 254, data, whole_batches(data), [(1, 254)])])
    assert found == ({}, [], 0)


def test_keys_with_one_hash_are_filed_apart() -> None:
    """Each step of the hash can be undone, so that a second name of sixteen bytes can be computed."""
    one = bytes.fromhex("00000000000000011234567812345678")
    other = bytes.fromhex("0000000000000002123456d01534568d")
    names = ByteStrings(one + other + bytes(PADDING), np.array([0, 16]), np.array([16, 16]))
    assert names.hashes[0] == names.hashes[1]
    log: Log = [(key, RawRecord(b"v", offset, 0)) for offset, key in enumerate((one, other, other, one))]
    data = raw_batch(log)
    assert found_in([LogPart(3, 0, data, whole_batches(data))])[0] == expected_keys(3, log)


def test_offsets_and_epochs_may_be_large() -> None:
    log: Log = [(b"k", RawRecord(b"v", 2**62 + number, 0)) for number in range(3)]
    data = bytearray(raw_batch(log))
    data[12:16] = (2**31 - 1).to_bytes(4, "big")
    part = LogPart(0, 2**62, bytes(data), whole_batches(bytes(data)))
    assert (part.next, part.last_epoch) == (2**62 + 3, 2**31 - 1)
    assert found_in([part]) == (expected_keys(0, log), [], 0)


KEY = encode_key("txn-1")
REASONS = {"no_key", "key_version", "value_version", "status", "instant", "truncated", "length", "trailing"}
#: A head that is right, so that the noise behind it is what is read.
V0, V1 = (pack(">hqhib", version, 1000, 5, 60000, 1) for version in (0, 1))


def check(key: bytes | None, value: bytes | None) -> TransactionRecord | Tombstone | Undecoded:
    """Decode, and check that the answer is one of the three and can be stored as it is."""
    read = decode_record(key, value)
    if isinstance(read, Undecoded):
        assert read.reason in REASONS
        assert len(read.detail) < 100
    else:
        assert encode_key(read.transactional_id) == key
        assert read.transactional_id.isprintable()
    if isinstance(read, TransactionRecord):
        assert datetime.fromtimestamp(read.updated_ms / 1000, UTC).year < 9999
        assert datetime.fromtimestamp((read.started_ms or 0) / 1000, UTC).year < 9999
    return read


NOISE = st.builds(bytes.__add__, st.sampled_from([V0, V1]), st.binary(max_size=300))


@settings(max_examples=200)
@given(
    st.tuples(st.none() | st.binary(max_size=100), st.none() | st.binary(max_size=300))
    | st.tuples(st.just(KEY), NOISE)
)
def test_it_never_raises_on_any_bytes_nor_on_noise_after_a_valid_header(
    record: tuple[bytes | None, bytes | None],
) -> None:
    check(*record)


@given(samples.records(), st.data())
def test_it_never_raises_on_a_changed_record(record: TransactionRecord, data: st.DataObject) -> None:
    key, value = encode_key(record.transactional_id), bytearray(encode_value(record))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    check(key, bytes(value))


@given(samples.records(version=0) | samples.records(version=1), st.data())
def test_a_record_cut_anywhere_is_truncated(record: TransactionRecord, data: st.DataObject) -> None:
    key, value = encode_key(record.transactional_id), encode_value(record)
    read = check(key, value[: data.draw(st.integers(0, len(value) - 1))])
    assert isinstance(read, Undecoded)
    assert read.reason == "truncated"


def test_a_record_cut_at_each_length_is_truncated_at_that_length() -> None:
    topics = (TopicPartitions("orders", (0, 1, 2)), TopicPartitions("__consumer_offsets", (7,)))
    of_version_0 = TransactionRecord("txn-1", TransactionState.ONGOING, 1, 0, 60000, topics, 2, 1)
    for version in (0, 1):
        value = encode_value(of_version_0._replace(client_version=2 * version, value_version=version))
        for length in range(len(value)):
            cut = Undecoded("truncated", f"value cut off after {length} bytes")
            assert decode_record(KEY, value[:length]) == cut


HUGE = 2**31 - 1
CLAIMS = [
    ("v0 topics", V0 + pack(">i", HUGE)),
    ("v0 topics, all nameless", V0 + pack(">i", HUGE) + b"\x00" * 600),
    ("v0 partitions", V0 + pack(">ih1si", 1, 1, b"t", HUGE) + b"\x00" * 64),
    ("v0 topic name", V0 + pack(">ih", 1, 32767) + b"t" * 64),
    ("v1 topics", V1 + encode_uvarint(HUGE) + b"\x01\x01\x00" * 200),
    ("v1 partitions", V1 + b"\x02\x02t" + encode_uvarint(HUGE) + b"\x00" * 64),
    ("v1 topic name", V1 + b"\x02" + encode_uvarint(HUGE) + b"t" * 64),
    ("v1 tags", V1 + b"\x00" + b"\x00" * 16 + encode_uvarint(HUGE) + b"\x09\x00" * 200),
    ("v1 size of a tag", V1 + b"\x00" + b"\x00" * 16 + b"\x01\x09" + encode_uvarint(HUGE)),
    ("v1 tags of a topic", V1 + b"\x02\x02t\x01" + encode_uvarint(HUGE) + b"\x09\x00" * 200),
]


@pytest.mark.parametrize(("claim", "value"), CLAIMS, ids=[name for name, _ in CLAIMS])
def test_a_claimed_count_allocates_no_memory(claim: str, value: bytes) -> None:
    tracemalloc.start()
    try:
        read = decode_record(KEY, value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(read, Undecoded)
    assert read.reason == "truncated"
    assert peak < 200_000


CASES = [
    (b"", ""),
    (b"orders-gateway-7", "orders-gateway-7"),
    (b"with space / and % ~", "with space / and % ~"),
    ("zahlungen-größe-✓".encode(), "zahlungen-größe-✓"),
    (b"C:\\temp", r"C:\\temp"),
    (b"\\x41", r"\\x41"),  # spelled like an escape, and is none
    (b"a\x00b", r"a\x00b"),
    (b"line\nbreak\ttab\x7f", r"line\x0abreak\x09tab\x7f"),
    (b"\xff\xfe", r"\xff\xfe"),
    (b"caf\xe9", r"caf\xe9"),  # Latin-1, hence no UTF-8
    (b"\xed\xa0\x80", r"\xed\xa0\x80"),  # a surrogate, written as UTF-8 would
    ("a\u202eb".encode(), r"a\xe2\x80\xaeb"),  # right-to-left override: would turn the page around
    ("a\u00a0b".encode(), r"a\xc2\xa0b"),  # no-break space: looks like another id
    (b"caf\xe9\\\n\xc3\xbc", r"caf\xe9\\\x0aü"),
]


@pytest.mark.parametrize(("raw", "text"), CASES)
def test_it_writes_bytes_as_text_and_back(raw: bytes, text: str) -> None:
    assert escape_bytes(raw) == text
    assert unescape_text(text) == raw


@given(st.binary(max_size=200) | st.text(max_size=60).map(lambda text: text.encode(errors="replace")))
@example(b"\\" * 3)
@example(b"\\\xff\\xff\n")
@example(bytes(range(256)) * 127 + b"\\" * 255)  # the longest id of Kafka
def test_any_bytes_survive_as_text_that_postgresql_accepts(raw: bytes) -> None:
    text = escape_bytes(raw)
    assert unescape_text(text) == raw
    assert text.isprintable()  # hence no NUL, no surrogate, no control character
    text.encode()


@cases(
    (r"\x2e", b"."),
    (r"\x2e\x2E", b".."),
    (r"a\x2fb", b"a/b"),
    (r"\xc3\xbc", "ü".encode()),
    ("a\nb", b"a\nb"),
)
def test_other_spellings_are_read(text: str, raw: bytes) -> None:
    """A path segment of dots alone would be folded away by browsers: such ids have a second spelling."""
    assert unescape_text(text) == raw


@cases(("\\", 1), (r"ab\n", 3), (r"\x4", 1), (r"\xzz", 1), (r"ü\\\q", 4), (r"\\\\\\" + "\\", 7))
def test_a_backslash_that_starts_no_escape_and_half_a_surrogate_pair_are_named(text: str, place: int) -> None:
    with pytest.raises(ValueError, match=f"backslash at character {place} starts no escape"):
        unescape_text(text)
    with pytest.raises(ValueError, match="character 2 is half of a surrogate pair"):
        unescape_text("a\udcff")
