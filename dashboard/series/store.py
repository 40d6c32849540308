"""Adds polled figures to series, in the poller's write transaction: their only writer.

The cluster's row, which that transaction has locked, guards series. An unchanged series is read and not
written. For a changed one, its small row of open points is written; full points are closed, and leave minutes
and hours (`fenceline.series.rollup`).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from django.conf import settings
from django.db import connection

from dashboard.models import ObservedSpan, Series, SeriesChunk
from dashboard.runtime.collector_names import GROUPS, JUDGE, PARTITIONS
from dashboard.runtime.sql import Row, in_portions
from fenceline.findings import expected_ms
from fenceline.series import packing
from fenceline.series.points import (
    APPLICATION,
    GROUP,
    PARTITION,
    SeriesKind,
    SeriesPoint,
    Values,
    known_values,
)
from fenceline.series.rollup import add_point, greater_known, most_points, roll_up

#: The collector that polls the subjects of a kind.
SOURCES: Mapping[SeriesKind, str] = {PARTITION: PARTITIONS, GROUP: GROUPS, APPLICATION: JUDGE}
_KNOWN = ("key", "pk", "open_ms", "points", "peak", "ended_ms")
_TABLE = Series._meta.db_table
_ADD = f"UPDATE {_TABLE} SET points = %s, peak = %s, ended_ms = %s WHERE id = %s"  # noqa: S608 - our own
_CLOSED = (
    "points", "peak", "ended_ms", "open_ms", "minutes", "hours", "minutes_ms", "hours_peak",
)  # fmt: skip
_CLOSE = f"UPDATE {_TABLE} SET {', '.join(f'{name} = %s' for name in _CLOSED)} WHERE id = %s"  # noqa: S608


class SeriesSample(NamedTuple):
    """A poll's figures of a subject; `values` are None if it could not be read.

    `ended`: the subject is gone, or has no figures until it returns.
    """

    name: str
    values: Values | None
    ended: bool = False


class _Known(NamedTuple):
    """A series without its minutes and hours."""

    pk: int
    open_ms: int
    points: bytes
    peak: int | None
    ended_ms: int | None


#: A full series: its row, its closed points, its new points, which hold one, that point, and its end.
_Closing = tuple[_Known, bytes, bytes, SeriesPoint, int | None]


def series_key(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def save_samples(cluster_id: int, kind: SeriesKind, samples: Iterable[SeriesSample], *, at_ms: int) -> None:
    """Add the figures of a poll at an instant; call it in a transaction that has locked the cluster's row."""
    by_key = {series_key(sample.name): sample for sample in samples}
    if not by_key:
        return
    known = _known(cluster_id, kind, list(by_key))
    polled_ms = _polled_ms(cluster_id, kind)
    news: list[Series] = []
    added: list[Row] = []
    closing: list[_Closing] = []
    for key, sample in sorted(by_key.items()):
        point = SeriesPoint(at_ms, kind.hole if sample.values is None else sample.values)
        ended_ms = at_ms if sample.ended else None
        row = known.get(key)
        if row is None:
            news += [_new(cluster_id, kind, key, sample, point)] if known_values(point.values) else []
            continue
        more = add_point(kind, row.points, point, most=most_points(key), polled_ms=polled_ms)
        if more is not None:
            points, closed = more
            if closed is not None:
                closing.append((row, closed, points, point, ended_ms))
            else:
                added.append((points, greater_known(row.peak, point.values[kind.lead]), ended_ms, row.pk))
        elif (ended_ms is None) != (row.ended_ms is None):
            added.append((row.points, row.peak, ended_ms, row.pk))
    Series.objects.bulk_create(news)
    _update(_ADD, added)
    _close(cluster_id, kind, closing)


def open_subjects(cluster_id: int, kind: SeriesKind) -> frozenset[str]:
    rows = Series.objects.filter(cluster_id=cluster_id, kind=kind.code, ended_ms=None)
    return frozenset(rows.values_list("name", flat=True))


def extend_span(cluster_id: int, source: str, *, at_ms: int) -> None:
    """Record a collector's observation until an instant, in a new span after a long pause."""
    rows = ObservedSpan.objects.filter(cluster_id=cluster_id, source=source)
    since_ms = at_ms - expected_ms(settings.FENCELINE.limits, reads_on=False)
    if rows.filter(to_ms__gte=since_ms, to_ms__lte=at_ms).update(to_ms=at_ms):
        return
    # After a clock was set back, no span is recorded until the clock has caught up.
    if not rows.filter(to_ms__gt=at_ms).exists():
        rows.create(cluster_id=cluster_id, source=source, from_ms=at_ms, to_ms=at_ms)


def _polled_ms(cluster_id: int, kind: SeriesKind) -> int:
    """Return the last poll of all subjects of a kind; 0 for a kind without ages."""
    if not kind.has_ramps:
        return 0
    rows = ObservedSpan.objects.filter(cluster_id=cluster_id, source=SOURCES[kind])
    return rows.order_by("-to_ms").values_list("to_ms", flat=True).first() or 0


def _known(cluster_id: int, kind: SeriesKind, keys: Sequence[bytes]) -> Mapping[bytes, _Known]:
    known: dict[bytes, _Known] = {}
    for rows in in_portions(Series.objects.filter(cluster_id=cluster_id, kind=kind.code), "key", keys):
        for key, pk, open_ms, points, *rest in rows.values_list(*_KNOWN):
            known[bytes(key)] = _Known(pk, open_ms, bytes(points), *rest)
    return known


def _new(cluster_id: int, kind: SeriesKind, key: bytes, sample: SeriesSample, point: SeriesPoint) -> Series:
    return Series(
        cluster_id=cluster_id,
        kind=kind.code,
        key=key,
        name=sample.name,
        since_ms=point.at_ms,
        open_ms=point.at_ms,
        points=packing.pack_points([point]),
        peak=point.values[kind.lead],
        ended_ms=point.at_ms if sample.ended else None,
    )


def _update(statement: str, rows: Sequence[Row]) -> None:
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(statement, rows)


def _close(cluster_id: int, kind: SeriesKind, closing: Sequence[_Closing]) -> None:
    """Close full points: as chunks, and as minutes and hours."""
    if not closing:
        return
    rows = Series.objects.filter(pk__in=[row.pk for row, *_ in closing])
    parts = {pk: tuple(map(bytes, packed)) for pk, *packed in rows.values_list("pk", "minutes", "hours")}
    updates: list[Row] = []
    chunks: list[SeriesChunk] = []
    for row, closed, points, point, ended_ms in closing:
        full, (minutes, minutes_peak), (hours, hours_peak), minutes_ms = roll_up(
            kind, closed, *parts[row.pk], start_ms=row.open_ms, following=point
        )
        peak = greater_known(minutes_peak, point.values[kind.lead])
        opened = minutes, hours, minutes_ms, hours_peak
        updates.append((points, peak, ended_ms, point.at_ms, *opened, row.pk))
        whose = {"cluster_id": cluster_id, "kind": kind.code, "series_id": row.pk}
        chunks += [SeriesChunk(**whose, **chunk._asdict()) for chunk in full]
    _update(_CLOSE, updates)
    SeriesChunk.objects.bulk_create(chunks)
