"""Proves that any bytes have a text form that can be stored, shown and turned back into the same bytes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fenceline.decode.text import escape_bytes, unescape_text

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
