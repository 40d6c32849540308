"""Points and buckets as bytes: a checksum, their number, the newest one whole, each older one as a
difference.

The newest comes first, so that another one can be prepended without reading the rest. Differences are
variable-length integers (as in Protocol Buffers): a point of a busy partition takes five or six bytes.
"""

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from fenceline.series.points import Extent, Resolution, SeriesBucket, SeriesPoint

_FORMAT = b"\x01"
_CHECK = 4
_HEAD = len(_FORMAT) + _CHECK


class DamagedSeries(ValueError):
    """The bytes differ from the packed ones."""


class PackedRow(NamedTuple):
    """A time, in any unit, and its numbers."""

    at: int
    numbers: tuple[int | None, ...]


def add_row(packed: bytes, row: PackedRow) -> bytes:
    """Add a newer row to packed rows; raises DamagedSeries, and ValueError for a row that is not newer."""
    if not packed:
        return _sealed(_number(1) + _whole(row))
    count, place = _counted(packed)
    newest, end = _read_whole(packed, place, len(row.numbers))
    if row.at <= newest.at:
        raise ValueError(f"{row.at} is not after {newest.at}")
    return _sealed(_number(count + 1) + _whole(row) + _difference(newest, row) + packed[end:])


def pack_rows(rows: Sequence[PackedRow]) -> bytes:
    """Return rows, oldest first, as bytes; b"" for none."""
    if not rows:
        return b""
    older = b"".join(_difference(rows[n - 1], rows[n]) for n in range(len(rows) - 1, 0, -1))
    return _sealed(_number(len(rows)) + _whole(rows[-1]) + older)


def count_rows(packed: bytes) -> int:
    """Return the number of rows in bytes; raises DamagedSeries."""
    return _counted(packed)[0] if packed else 0


def newest_row(packed: bytes, width: int) -> PackedRow | None:
    """Return the newest of rows with `width` numbers each, None without any; raises DamagedSeries."""
    return _read_whole(packed, _counted(packed)[1], width)[0] if packed else None


def unpack_rows(packed: bytes, width: int) -> list[PackedRow]:
    """Unpack rows, oldest first; raises DamagedSeries."""
    if not packed:
        return []
    count, place = _counted(packed)
    try:
        row, place = _read_whole(packed, place, width)
        unpacked = [row]
        for _ in range(count - 1):
            row, place = _read_row(packed, place, row.at, row.numbers)
            unpacked.append(row)
    except IndexError:
        raise DamagedSeries("it ends too early") from None
    if place != len(packed):
        raise DamagedSeries("it does not end where it should")
    return unpacked[::-1]


def pack_points(points: Sequence[SeriesPoint]) -> bytes:
    return pack_rows([PackedRow(*point) for point in points])


def unpack_points(packed: bytes, columns: int) -> list[SeriesPoint]:
    """Unpack points, oldest first; raises DamagedSeries."""
    return [SeriesPoint(*row) for row in unpack_rows(packed, columns)]


def pack_buckets(buckets: Sequence[SeriesBucket], resolution: Resolution) -> bytes:
    span_ms = resolution.span_ms
    return pack_rows(
        [
            PackedRow(
                bucket.at_ms // span_ms, tuple(n for extent in bucket.extents for n in _near_last(extent))
            )
            for bucket in buckets
        ]
    )


def unpack_buckets(packed: bytes, columns: int, resolution: Resolution) -> list[SeriesBucket]:
    """Unpack buckets, oldest first; raises DamagedSeries."""
    span_ms, width = resolution.span_ms, len(Extent._fields)
    rows = unpack_rows(packed, columns * width)
    # The last, low and high figures of a column are adjacent.
    return [
        SeriesBucket(at * span_ms, tuple(map(_from_last, numbers[0::3], numbers[1::3], numbers[2::3])))
        for at, numbers in rows
    ]


def _near_last(extent: Extent) -> tuple[int | None, ...]:
    """Return the last figure, and the others' differences from it, which are mostly 0."""
    low, high, last = extent
    near = last or 0
    return last, None if low is None else low - near, None if high is None else high - near


def _from_last(last: int | None, low: int | None, high: int | None) -> Extent:
    near = last or 0
    return Extent(None if low is None else low + near, None if high is None else high + near, last)


def _sealed(content: bytes) -> bytes:
    return _FORMAT + crc32(content).to_bytes(_CHECK, "little") + content


def _counted(packed: bytes) -> tuple[int, int]:
    """Return the number of rows, and the position of the newest."""
    content = packed[_HEAD:]
    if packed[: len(_FORMAT)] != _FORMAT or crc32(content) != int.from_bytes(packed[1:_HEAD], "little"):
        raise DamagedSeries("its check sum is another one")
    try:
        count, place = _read(packed, _HEAD)
    except IndexError:
        raise DamagedSeries("it is too short") from None
    if not count:
        raise DamagedSeries("it has no rows")
    return count, place


def _whole(row: PackedRow) -> bytes:
    return _written(row.at, row.numbers, (0,) * len(row.numbers))


def _difference(older: PackedRow, newer: PackedRow) -> bytes:
    return _written(newer.at - older.at, older.numbers, newer.numbers)


def _written(at: int, numbers: Sequence[int | None], near: Sequence[int | None]) -> bytes:
    """Return a row as its difference from another one, with a bit for each unknown number."""
    if None in numbers:
        mask = sum(1 << n for n, number in enumerate(numbers) if number is not None)
        parts = [_number(at << 1 | 1), _number(mask)]
    else:
        parts = [_number(at << 1)]
    for number, other in zip(numbers, near, strict=True):
        if number is not None:
            change = number - (other or 0)
            parts.append(_number(change << 1 if change >= 0 else ~(change << 1)))
    return b"".join(parts)


def _read_whole(packed: bytes, place: int, width: int) -> tuple[PackedRow, int]:
    try:
        return _read_row(packed, place, 0, (0,) * width)
    except IndexError:
        raise DamagedSeries("it ends too early") from None


def _read_row(packed: bytes, place: int, newer_at: int, near: Sequence[int | None]) -> tuple[PackedRow, int]:
    at, place = _read(packed, place)
    mask = -1
    if at & 1:
        mask, place = _read(packed, place)
    numbers: list[int | None] = []
    for n, other in enumerate(near):
        if mask >> n & 1:
            change, place = _read(packed, place)
            numbers.append((~(change >> 1) if change & 1 else change >> 1) + (other or 0))
        else:
            numbers.append(None)
    at >>= 1
    return PackedRow(newer_at - at if newer_at else at, tuple(numbers)), place


def _number(value: int) -> bytes:
    """Return a number of at least 0 in groups of seven bits, the lowest first."""
    if value < 0x80:
        return bytes((value,))
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def _read(packed: bytes, place: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it; raises IndexError at the end."""
    byte = packed[place]
    place += 1
    if byte < 0x80:
        return byte, place
    value, shift = byte & 0x7F, 7
    while True:
        byte = packed[place]
        place += 1
        if byte < 0x80:
            return value | byte << shift, place
        value |= (byte & 0x7F) << shift
        shift += 7
