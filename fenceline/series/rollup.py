"""Roll points up to minutes, and minutes to hours: a full part is closed, and leaves its extents.

A series has three open parts: points, minutes, hours. A full part is closed as a chunk, which holds from its
first row until the first row of the next part. So chunks of one resolution are adjacent, and a figure that
does not change for days is in the one chunk that holds then.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fenceline.series import packing
from fenceline.series.packing import DamagedSeries, PackedRow
from fenceline.series.points import (
    Extent,
    Resolution,
    SeriesBucket,
    SeriesKind,
    SeriesPoint,
    end_of_growth,
    extents_of,
    is_news,
    join_extents,
    values_at,
)

#: Points of a part at its closing. They differ by series, so that not all parts close at once.
FEWEST_POINTS, MORE_POINTS = 96, 64
#: Minutes, or hours, of a part at its closing.
MOST_BUCKETS = 60

_POINTS_TO_MINUTES = Resolution.DETAIL, Resolution.MINUTE
_MINUTES_TO_HOURS = Resolution.MINUTE, Resolution.HOUR


class ClosedChunk(NamedTuple):
    """A full part: rows that hold from `start_ms` until `until_ms`.

    `peak` is the maximum of the ranking figure, None if it was never known.
    """

    resolution: Resolution
    start_ms: int
    until_ms: int
    peak: int | None
    packed: bytes


class SeriesTile(NamedTuple):
    """A part of a series, valid from `start_ms` until `until_ms`; `buckets` are None if damaged."""

    start_ms: int
    until_ms: int
    buckets: Sequence[SeriesBucket] | None


class OpenParts(NamedTuple):
    """The open parts of a series; its open points begin at `start_ms`."""

    start_ms: int
    points: bytes
    minutes: bytes
    hours: bytes

    def part(self, resolution: Resolution) -> bytes:
        return (self.points, self.minutes, self.hours)[resolution]


def most_points(key: bytes) -> int:
    """Return the number of points at which a series closes."""
    return FEWEST_POINTS + key[0] % MORE_POINTS


def add_point(
    kind: SeriesKind, points: bytes, point: SeriesPoint, *, most: int, polled_ms: int = 0
) -> tuple[bytes, bytes | None] | None:
    """Return open points with a new one, and the points that were closed for it, None without any.

    None if it is no news, or not newer than the last.
    `polled_ms` is the subject's previous poll. Damaged points are closed, because they cannot be read any
    more.
    """
    try:
        row = packing.newest_row(points, len(kind.columns))
        full = packing.count_rows(points) >= most
    except DamagedSeries:
        return packing.pack_points([point]), points
    if row is None:
        return packing.pack_points([point]), None
    newest = SeriesPoint(*row)
    if point.at_ms <= newest.at_ms or not is_news(kind, newest, point):
        return None
    last = end_of_growth(kind, newest, point, polled_ms)
    whole = points if last is None else packing.add_row(points, PackedRow(*last))
    if full:
        return packing.pack_points([point]), whole
    return packing.add_row(whole, PackedRow(*point)), None


def roll_up(
    kind: SeriesKind, points: bytes, minutes: bytes, hours: bytes, *, start_ms: int, following: SeriesPoint
) -> tuple[Sequence[ClosedChunk], tuple[bytes, int | None], tuple[bytes, int | None], int]:
    """Close points at the arrival of a new one: store them, and add their minutes to the open ones.

    Return the closed chunks, the open minutes and the open hours, each with its peak, and the begin of the
    open minutes.
    `start_ms` is the instant of the first point, for damaged points: they leave a hole.
    """
    (later,) = as_buckets([following])
    try:
        points_read = packing.unpack_points(points, len(kind.columns))
    except DamagedSeries:
        points_read = [SeriesPoint(start_ms, kind.hole)]
    peak = _highest(kind, as_buckets(points_read))
    chunks = [ClosedChunk(Resolution.DETAIL, start_ms, following.at_ms, peak, points)]
    open_minutes = _unpacked(kind, minutes, Resolution.MINUTE)
    open_hours = _unpacked(kind, hours, Resolution.HOUR)
    for minute in merge_buckets(kind, as_buckets(points_read), _POINTS_TO_MINUTES, following=later):
        closed = _add(open_minutes, minute)
        if closed:
            chunks.append(_chunk(kind, closed, Resolution.MINUTE, minute.at_ms))
            for hour in merge_buckets(kind, closed, _MINUTES_TO_HOURS, following=minute):
                full = _add(open_hours, hour)
                chunks += [_chunk(kind, full, Resolution.HOUR, hour.at_ms)] if full else []
    return (
        chunks,
        (packing.pack_buckets(open_minutes, Resolution.MINUTE), _highest(kind, open_minutes)),
        (packing.pack_buckets(open_hours, Resolution.HOUR), _highest(kind, open_hours)),
        open_minutes[0].at_ms,
    )


def open_tiles(
    kind: SeriesKind, opened: OpenParts, resolution: Resolution, *, until_ms: int
) -> list[SeriesTile]:
    """Return the open parts as tiles of a resolution, oldest first, the last one until `until_ms`."""
    tiles: list[SeriesTile] = []
    for finer in (part for part in Resolution if part <= resolution and opened.part(part)):
        newer = tiles[-1] if tiles else SeriesTile(until_ms, until_ms, None)
        tile = _open_tile(kind, opened, (finer, resolution), newer)
        tiles += [] if tile is None else [tile]
    return tiles[::-1]


def _open_tile(
    kind: SeriesKind, opened: OpenParts, step: tuple[Resolution, Resolution], newer: SeriesTile
) -> SeriesTile | None:
    """Return one open part; None for damaged minutes or hours, whose begin is unknown."""
    finer, resolution = step
    is_detail = finer is Resolution.DETAIL
    try:
        buckets = unpack_part(kind, opened.part(finer), finer)
    except DamagedSeries:
        return SeriesTile(opened.start_ms, newer.start_ms, None) if is_detail else None
    start_ms = opened.start_ms if is_detail else buckets[0].at_ms
    if finer is not resolution:
        following = next(iter(newer.buckets or ()), None)
        buckets = merge_buckets(kind, buckets, step, following=following, until_ms=newer.start_ms)
    return SeriesTile(start_ms, newer.start_ms, buckets)


def closed_tile(
    kind: SeriesKind, packed: bytes, resolution: Resolution, *, start_ms: int, until_ms: int
) -> SeriesTile:
    try:
        return SeriesTile(start_ms, until_ms, unpack_part(kind, packed, resolution))
    except DamagedSeries:
        return SeriesTile(start_ms, until_ms, None)


def unpack_part(kind: SeriesKind, packed: bytes, resolution: Resolution) -> list[SeriesBucket]:
    """Return the buckets of a part, points as buckets at their own instants; raises DamagedSeries."""
    if resolution is Resolution.DETAIL:
        return as_buckets(packing.unpack_points(packed, len(kind.columns)))
    return packing.unpack_buckets(packed, len(kind.columns), resolution)


def as_buckets(points: Iterable[SeriesPoint]) -> list[SeriesBucket]:
    """Return points as buckets at their own instants."""
    return [SeriesBucket(point.at_ms, extents_of(point.values)) for point in points]


def merge_buckets(
    kind: SeriesKind,
    buckets: Sequence[SeriesBucket],
    step: tuple[Resolution, Resolution],
    *,
    following: SeriesBucket | None = None,
    until_ms: int = 0,
) -> list[SeriesBucket]:
    """Return buckets of the finer resolution in one step, oldest first, as a bucket of the coarser one.

    The last one held until the next bucket; without any, until `until_ms`.
    """
    finer, coarser = step
    merged: list[SeriesBucket] = []
    for bucket, later in zip(buckets, [*buckets[1:], following], strict=True):
        at_ms = bucket.at_ms - bucket.at_ms % coarser.span_ms
        held_ms = min(until_ms if later is None else later.at_ms, at_ms + coarser.span_ms)
        whole = SeriesBucket(at_ms, _held(kind, bucket, finer, held_ms, later))
        if merged and merged[-1].at_ms == at_ms:
            merged[-1] = join_buckets(merged[-1], whole)
        else:
            merged.append(whole)
    return merged


def _held(
    kind: SeriesKind, bucket: SeriesBucket, finer: Resolution, until_ms: int, later: SeriesBucket | None
) -> tuple[Extent, ...]:
    """Return the extents of a bucket with its last figures' values until an instant."""
    known = as_of_end(bucket, finer)
    values = values_at(kind, known, until_ms, later)
    if values == known.values:
        return bucket.extents
    return tuple(map(join_extents, bucket.extents, extents_of(values)))


def as_of_end(bucket: SeriesBucket, resolution: Resolution) -> SeriesPoint:
    return SeriesPoint(bucket.at_ms + resolution.span_ms, tuple([extent.last for extent in bucket.extents]))


def greater_known(one: int | None, other: int | None) -> int | None:
    """Return the greater of two values, None if both are unknown."""
    return max((value for value in (one, other) if value is not None), default=None)


def join_buckets(one: SeriesBucket, later: SeriesBucket) -> SeriesBucket:
    """Return two consecutive buckets as one, which begins with the first."""
    return one._replace(extents=tuple(map(join_extents, one.extents, later.extents)))


def _add(opened: list[SeriesBucket], bucket: SeriesBucket) -> list[SeriesBucket]:
    """Add a bucket to the open ones; return the buckets that were closed for it."""
    if opened and opened[-1].at_ms == bucket.at_ms:
        # Points that were closed earlier began its minute.
        opened[-1] = join_buckets(opened[-1], bucket)
        return []
    if len(opened) < MOST_BUCKETS:
        opened.append(bucket)
        return []
    closed, opened[:] = list(opened), [bucket]
    return closed


def _unpacked(kind: SeriesKind, packed: bytes, resolution: Resolution) -> list[SeriesBucket]:
    """Return open buckets; none if they are damaged: their period is then a hole."""
    try:
        return packing.unpack_buckets(packed, len(kind.columns), resolution)
    except DamagedSeries:
        return []


def _chunk(
    kind: SeriesKind, buckets: Sequence[SeriesBucket], resolution: Resolution, until_ms: int
) -> ClosedChunk:
    return ClosedChunk(
        resolution,
        buckets[0].at_ms,
        until_ms,
        _highest(kind, buckets),
        packing.pack_buckets(buckets, resolution),
    )


def _highest(kind: SeriesKind, buckets: Sequence[SeriesBucket]) -> int | None:
    highs = (bucket.extents[kind.lead].high for bucket in buckets)
    return max((high for high in highs if high is not None), default=None)
