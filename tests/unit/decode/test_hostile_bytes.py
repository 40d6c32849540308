"""Proves that no bytes at all make the decoder raise, allocate a claimed size, or confuse two ids; and that
any bytes have a text form that can be stored, shown and turned back into the same bytes."""

import tracemalloc
from datetime import UTC, datetime
from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fenceline.decode.text import escape_bytes, unescape_text
from fenceline.decode.transaction_state import decode_record
from fenceline.facts import Tombstone, TopicPartitions, TransactionRecord, TransactionState, Undecoded
from tests.transaction_state_records import encode_key, encode_uvarint, encode_value
from tests.unit.decode import samples

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


@given(st.none() | st.binary(max_size=100), st.none() | st.binary(max_size=300))
def test_it_never_raises_on_any_bytes(key: bytes | None, value: bytes | None) -> None:
    check(key, value)


@given(st.sampled_from([V0, V1]), st.binary(max_size=300))
def test_it_never_raises_on_noise_after_a_valid_header(head: bytes, noise: bytes) -> None:
    check(KEY, head + noise)


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
    for version in (0, 1):
        record = TransactionRecord(
            "txn-1", TransactionState.ONGOING, 1, 0, 60000, topics, 2, 1, 2 * version, value_version=version
        )
        value = encode_value(record)
        assert [decode_record(KEY, value[:length]) for length in range(len(value))] == [
            Undecoded("truncated", f"value cut off after {length} bytes") for length in range(len(value))
        ]


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
def test_any_bytes_survive_as_text_that_postgresql_accepts(raw: bytes) -> None:
    text = escape_bytes(raw)
    assert unescape_text(text) == raw
    assert text.isprintable()  # hence no NUL, no surrogate, no control character
    text.encode()


def test_the_longest_id_of_kafka_is_escaped() -> None:
    raw = bytes(range(256)) * 127 + b"\\" * 255
    assert len(raw) == 32767
    assert unescape_text(escape_bytes(raw)) == raw


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        (r"\x2e", b"."),
        (r"\x2e\x2E", b".."),
        (r"a\x2fb", b"a/b"),
        (r"\xc3\xbc", "ü".encode()),
        ("a\nb", b"a\nb"),
    ],
)
def test_other_spellings_are_read(text: str, raw: bytes) -> None:
    """A path segment of dots alone would be folded away by browsers: such ids have a second spelling."""
    assert unescape_text(text) == raw


@pytest.mark.parametrize(
    ("text", "place"),
    [("\\", 1), (r"ab\n", 3), (r"\x4", 1), (r"\xzz", 1), (r"ü\\\q", 4), (r"\\\\\\" + "\\", 7)],
)
def test_a_backslash_that_starts_no_escape_is_named(text: str, place: int) -> None:
    with pytest.raises(ValueError, match=f"backslash at character {place} starts no escape"):
        unescape_text(text)


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="character 2 is half of a surrogate pair"):
        unescape_text("a\udcff")
