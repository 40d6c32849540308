"""Proves that no bytes make the decoder of `__consumer_offsets` raise or allocate what they claim, and that
each truncated record is reported."""

import tracemalloc
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.decode.consumer_offsets import (
    OffsetCommit,
    OffsetTombstone,
    Record,
    decode_record,
    peek_commits,
)
from fenceline.facts import Undecoded
from tests.transaction_state_records import encode_uvarint
from tests.unit.decode.consumer_offsets import KEY, V4, T, classic_groups, commits


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
