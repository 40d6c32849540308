"""Proves that figures over time keep what was seen: bytes give back what was packed or say that they are
damaged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.series import packing
from fenceline.series.packing import DamagedSeries, PackedRow, add_row, pack_rows, unpack_rows

NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
ROWS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.tuples(*[NUMBERS] * width), min_size=1, max_size=40).flatmap(
        lambda numbers: st.lists(
            st.integers(1, 10**7), min_size=len(numbers), max_size=len(numbers)
        ).map(lambda steps: [PackedRow(sum(steps[: n + 1]), row) for n, row in enumerate(numbers)])
    )
)  # fmt: skip


@given(ROWS)
def test_rows_come_back_as_they_were_packed(rows: list[PackedRow]) -> None:
    packed = pack_rows(rows)
    assert unpack_rows(packed, len(rows[0].numbers)) == rows
    assert packing.newest_row(packed, len(rows[0].numbers)) == rows[-1]
    assert packing.count_rows(packed) == len(rows)


@given(ROWS)
def test_rows_added_one_by_one_are_the_same_bytes(rows: list[PackedRow]) -> None:
    packed = b""
    for row in rows:
        packed = add_row(packed, row)
    assert packed == pack_rows(rows)


def test_a_row_that_is_not_newer_is_refused() -> None:
    packed = add_row(b"", PackedRow(7, (1,)))
    with pytest.raises(ValueError, match="not after"):
        add_row(packed, PackedRow(7, (2,)))


@given(ROWS, st.data())
def test_damaged_bytes_are_found_to_be_damaged(rows: list[PackedRow], data: st.DataObject) -> None:
    packed, width = pack_rows(rows), len(rows[0].numbers)
    place = data.draw(st.integers(0, len(packed) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    flipped = packed[:place] + bytes([packed[place] ^ bit]) + packed[place + 1 :]
    for damaged in (flipped, packed[:place] or b"\0", packed + b"\0"):
        with pytest.raises(DamagedSeries):
            unpack_rows(damaged, width)
        with pytest.raises(DamagedSeries):
            add_row(damaged, PackedRow(rows[-1].at + 1, rows[-1].numbers))


@given(st.binary(min_size=1, max_size=60), st.integers(1, 12))
def test_any_bytes_are_rows_or_damaged(content: bytes, width: int) -> None:
    for packed in (content, packing._sealed(content)):
        try:
            rows = unpack_rows(packed, width)
        except DamagedSeries:
            continue
        assert all(len(row.numbers) == width for row in rows)
