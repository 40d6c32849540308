"""Figures over time for pages and API: one subject, the worst subjects, and the reasons for holes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Max, Q

from dashboard.models import GapRecord, ObservedSpan, Series, SeriesChunk
from dashboard.runtime.retention import series_kept_ms
from dashboard.series.store import SOURCES, series_key
from fenceline.findings import EVERYWHERE, expected_ms
from fenceline.history.time_range import TimeRange
from fenceline.series.points import Resolution, SeriesKind
from fenceline.series.reading import (
    MOST_STEPS,
    HoleReason,
    ReadingPlan,
    SeriesHole,
    SeriesReading,
    not_observed,
    plan_reading,
    read_tiles,
)
from fenceline.series.rollup import OpenParts, SeriesTile, closed_tile, open_tiles

_PEAKS = ("pk", "peak", "hours_peak", "open_ms", "minutes_ms")
#: Ranges longer than two days have longer steps.
_LONGEST_BY_MINUTE_MS = 600_000
_OPEN = ("pk", "name", "since_ms", "open_ms", "points", "minutes", "hours")


@dataclass(frozen=True, slots=True)
class SubjectReading:
    """A range of a subject's figures; `kept_since_ms` is None if none was ever stored."""

    kind: SeriesKind
    name: str
    kept_since_ms: int | None
    reading: SeriesReading

    @property
    def worst(self) -> int:
        """Return the greatest leading figure in the range, 0 without any."""
        highs = (step.extents[self.kind.lead].high for step in self.reading.steps)
        return max((high for high in highs if high is not None), default=0)


@dataclass(frozen=True, slots=True)
class _Range:
    """The parameters of reading a range of a cluster's series of one kind."""

    cluster_id: int
    kind: SeriesKind
    from_ms: int
    to_ms: int
    now_ms: int
    plan: ReadingPlan
    kept_since: Mapping[Resolution, int]


#: A subject, the start of its series, and its tiles.
_Unpacked = tuple[str, int, Sequence[SeriesTile]]


def read_series(
    cluster_id: int,
    kind: SeriesKind,
    name: str,
    time_range: TimeRange,
    *,
    now_ms: int,
    most: int = MOST_STEPS,
) -> SubjectReading:
    """Return a range of a subject's figures, in at most `most` steps."""
    wanted = _range(cluster_id, kind, time_range, now_ms, most)
    rows = Series.objects.filter(cluster_id=cluster_id, kind=kind.code, key=series_key(name))
    readings = _readings(wanted, list(_unpacked(wanted, list(rows.values_list(*_OPEN)))))
    if readings:
        return readings[0]
    hole = SeriesHole(wanted.from_ms, wanted.to_ms, HoleReason.NOT_RECORDED)
    nothing = SeriesReading(wanted.plan, wanted.from_ms, wanted.to_ms, (), (hole,))
    return SubjectReading(kind, name, None, nothing)


def worst_series(
    cluster_id: int, kind: SeriesKind, time_range: TimeRange, *, now_ms: int, number: int, most: int
) -> Sequence[SubjectReading]:
    """Return the subjects with the greatest leading figure in a range, the worst first, without zeros."""
    wanted = _range(cluster_id, kind, time_range, now_ms, most)
    peaks = _peaks(wanted)
    # Parts reach beyond the range, so more subjects are unpacked and ranked by their figures within the
    # range.
    ranked = sorted(peaks, key=lambda pk: (-peaks[pk], pk))[: number + 2]
    rows = Series.objects.filter(pk__in=ranked).values_list(*_OPEN)
    packed = sorted(_unpacked(wanted, list(rows)), key=lambda series: -_greatest(wanted, series[2]))[:number]
    readings = sorted(_readings(wanted, packed), key=lambda reading: (-reading.worst, reading.name))
    return [reading for reading in readings if reading.worst > 0]


def _range(cluster_id: int, kind: SeriesKind, time_range: TimeRange, now_ms: int, most: int) -> _Range:
    to_ms = max(min(time_range.to_ms, now_ms), time_range.from_ms + 1)
    kept = series_kept_ms(settings.FENCELINE.retention)
    kept_since = {resolution: now_ms - ms for resolution, ms in kept.items()}
    plan = plan_reading(time_range.from_ms, to_ms, kept_since, most=most)
    return _Range(cluster_id, kind, time_range.from_ms, to_ms, now_ms, plan, kept_since)


def _unpacked(
    wanted: _Range, rows: Sequence[tuple[int, str, int, int, bytes, bytes, bytes]]
) -> Iterator[_Unpacked]:
    closed = _closed(wanted, [row[0] for row in rows]) if rows else {}
    for pk, name, since_ms, open_ms, *parts in rows:
        opened = OpenParts(open_ms, *map(bytes, parts))
        newest = open_tiles(wanted.kind, opened, wanted.plan.resolution, until_ms=wanted.now_ms)
        yield name, since_ms, [*closed.get(pk, ()), *newest]


def _greatest(wanted: _Range, tiles: Iterable[SeriesTile]) -> int:
    """Return the greatest leading figure in a range, or held since before it; 0 if unknown."""
    span_ms, lead, held = wanted.plan.resolution.span_ms, wanted.kind.lead, None
    highs: list[int | None] = []
    for bucket in (bucket for tile in tiles for bucket in tile.buckets or ()):
        if bucket.at_ms + span_ms <= wanted.from_ms:
            held = bucket.extents[lead].last
        elif bucket.at_ms < wanted.to_ms:
            highs.append(bucket.extents[lead].high)
    return max((high for high in (held, *highs) if high is not None), default=0)


def _readings(wanted: _Range, some: Sequence[_Unpacked]) -> list[SubjectReading]:
    if not some:
        return []
    unseen, longest_ms = _unseen(wanted), min(wanted.kept_since.values())
    readings = []
    for name, since_ms, tiles in some:
        never = SeriesHole(0, since_ms, HoleReason.NOT_RECORDED)
        reading = read_tiles(
            wanted.kind, tiles, wanted.plan,
            from_ms=wanted.from_ms, to_ms=wanted.to_ms, unseen=[never, *unseen],
        )  # fmt: skip
        readings.append(SubjectReading(wanted.kind, name, max(since_ms, longest_ms), reading))
    return readings


def _closed(wanted: _Range, keys: Sequence[int]) -> Mapping[int, Sequence[SeriesTile]]:
    rows = SeriesChunk.objects.filter(
        series__in=keys,
        resolution=wanted.plan.resolution.value,
        until_ms__gt=wanted.from_ms,
        start_ms__lt=wanted.to_ms,
    )
    tiles: dict[int, list[SeriesTile]] = defaultdict(list)
    columns = rows.order_by("series", "until_ms").values_list("series", "start_ms", "until_ms", "packed")
    for pk, start_ms, until_ms, packed in columns:
        tiles[pk].append(
            closed_tile(
                wanted.kind, bytes(packed), wanted.plan.resolution, start_ms=start_ms, until_ms=until_ms
            )
        )
    return tiles


def _unseen(wanted: _Range) -> Sequence[SeriesHole]:
    """Return the deleted part of a range, and the pauses of its collector."""
    rows = ObservedSpan.objects.filter(
        cluster_id=wanted.cluster_id,
        source=SOURCES[wanted.kind],
        to_ms__gte=wanted.from_ms,
        from_ms__lt=wanted.to_ms,
    )
    pause_ms = expected_ms(settings.FENCELINE.limits, reads_on=False)
    spans = not_observed(
        rows.values_list("from_ms", "to_ms"),
        wanted.from_ms,
        wanted.to_ms,
        # A range that ends now has its last poll shortly before its end.
        pause_ms=pause_ms if wanted.now_ms - wanted.to_ms < pause_ms else 0,
    )
    return [SeriesHole(0, min(wanted.kept_since.values()), HoleReason.NOT_KEPT), *spans]


def _peaks(wanted: _Range) -> Mapping[int, int]:
    """Return the greatest leading figures of subjects in parts that overlap the range."""
    of = {"cluster_id": wanted.cluster_id, "kind": wanted.kind.code}
    # A long range has as few parts by hour as a day has by minute.
    by_hour = wanted.plan.step_ms > _LONGEST_BY_MINUTE_MS
    resolution = Resolution.HOUR if by_hour else Resolution.MINUTE
    chunks = SeriesChunk.objects.filter(
        **of, resolution=resolution.value, until_ms__gt=wanted.from_ms, peak__gt=0
    )
    if wanted.to_ms < wanted.now_ms:
        chunks = chunks.filter(start_ms__lt=wanted.to_ms)
    peaks_by_series = dict(chunks.order_by().values_list("series").annotate(Max("peak")))
    opened = Series.objects.filter(**of).filter(Q(peak__gt=0) | Q(hours_peak__gt=0))
    for pk, peak, hours_peak, *since in opened.values_list(*_PEAKS):
        reaches = min(instant_ms for instant_ms in since if instant_ms is not None) < wanted.to_ms
        peaks = (peak if reaches else None, hours_peak if by_hour else None, peaks_by_series.get(pk))
        peaks_by_series[pk] = max((value for value in peaks if value is not None), default=0)
    return peaks_by_series


#: Maximum holes of a range that are explained, the newest ones, and maximum recorded gaps for them.
MOST_HOLES, _MOST_GAPS = 50, 500
_WORDS: Mapping[HoleReason, str] = {
    HoleReason.NOT_RECORDED: "Nothing was recorded before.",
    HoleReason.NOT_KEPT: "History was not kept that long: see retention in fenceline.toml.",
    HoleReason.NOT_OBSERVED: "The collector did not run.",
    HoleReason.DAMAGED: "What was stored of it is damaged.",
    HoleReason.UNAVAILABLE: "It could not be read.",
}


def explained_holes(
    cluster_id: int, subject: SubjectReading, *, without: Collection[HoleReason] = ()
) -> Sequence[GapRecord]:
    """Return the newest holes of a range, up to the maximum, as unsaved gaps with reasons, oldest first."""
    holes = [hole for hole in subject.reading.holes[-MOST_HOLES:] if hole.reason not in without]
    gaps = _gaps(cluster_id, subject, holes)
    source = SOURCES[subject.kind]
    scope = f"{subject.kind.name}:{subject.name}" if subject.name else EVERYWHERE
    return [
        GapRecord(
            cluster_id=cluster_id,
            source=source,
            scope=scope,
            since_ms=hole.from_ms,
            until_ms=hole.to_ms,
            reason=_reason(hole, scope, gaps),
        )
        for hole in holes
    ]


def _gaps(
    cluster_id: int, subject: SubjectReading, holes: Iterable[SeriesHole]
) -> Sequence[tuple[str, int, int | None, str]]:
    """Return the gaps that its collector recorded: scope, since, until, reason."""
    blind = [hole for hole in holes if hole.reason in (HoleReason.NOT_OBSERVED, HoleReason.UNAVAILABLE)]
    if not blind:
        return ()
    rows = GapRecord.objects.filter(
        cluster_id=cluster_id, source=SOURCES[subject.kind], since_ms__lt=blind[-1].to_ms
    )
    rows = rows.exclude(until_ms__lt=blind[0].from_ms).order_by("-since_ms")
    return list(rows.values_list("scope", "since_ms", "until_ms", "reason")[:_MOST_GAPS])


def _reason(hole: SeriesHole, scope: str, gaps: Iterable[tuple[str, int, int | None, str]]) -> str:
    """Return the reason of a hole: the subject's own gap, else a general one, or its place's."""
    at_the_time = [
        (gap_scope, why)
        for gap_scope, since_ms, until_ms, why in gaps
        if since_ms < hole.to_ms and (until_ms is None or until_ms > hole.from_ms)
    ]
    if hole.reason is HoleReason.NOT_OBSERVED:
        at_the_time = [gap for gap in at_the_time if gap[0] == EVERYWHERE]
    elif hole.reason is not HoleReason.UNAVAILABLE:
        at_the_time = []
    own = [why for gap_scope, why in at_the_time if gap_scope == scope]
    places = [why for gap_scope, why in at_the_time if gap_scope.partition(":")[0] not in _NAMES]
    return next(iter((*own, *places)), _WORDS[hole.reason])


#: Scopes that name one subject: other subjects' gaps do not concern this one.
_NAMES = frozenset({"partition", "group", "transaction", "query"})
