"""Polls of partitions that are kept as figures over time, and ranges that are read of them."""

from typing import Any

from django.db import transaction

from dashboard.models import Cluster, Series
from dashboard.series.queries import SubjectReading, read_series
from dashboard.series.store import SOURCES, SeriesSample, extend_span, save_samples
from fenceline.facts import TopicPartition
from fenceline.history.time_range import TimeRange
from fenceline.kafka.partitions import KnownPartition, ObservedPartitions, PartitionPlace, PartitionVerdict
from fenceline.series import packing
from fenceline.series.points import SeriesKind, Values
from tests.db.conftest import NOW_MS

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
PLACE = PartitionPlace("topic-1", 1, 5, (1, 2))


def known(where: TopicPartition, lso: int, end: int, at_ms: int, error: str = "") -> KnownPartition:
    seen_ms = at_ms - 9_000 if error else at_ms
    return KnownPartition(*where, PLACE, 0, lso, end, seen_ms, None, PartitionVerdict.CLEAR, error)


def look(at_ms: int, *rows: KnownPartition, **more: Any) -> ObservedPartitions:
    found = {TopicPartition(each.topic, each.partition): each for each in rows}
    return ObservedPartitions(at_ms, full=True, rows=found, **more)


def points(kind: SeriesKind, name: str) -> list[tuple[int, Values]]:
    """The open points of a subject, as ms from now and figures."""
    row = Series.objects.get(kind=kind.code, name=name)
    found = packing.unpack_points(bytes(row.points), len(kind.columns))
    return [(point.at_ms - NOW_MS, point.values) for point in found]


def polled(kind: SeriesKind, name: str, *polls: tuple[int, Values | None], span: bool = False) -> None:
    """Save polls of one subject, each so many ms from now."""
    cluster_id = Cluster.objects.get().pk
    with transaction.atomic():
        for at_ms, values in polls:
            save_samples(cluster_id, kind, [SeriesSample(name, values)], at_ms=NOW_MS + at_ms)
            if span:
                extend_span(cluster_id, SOURCES[kind], at_ms=NOW_MS + at_ms)


def reading(
    kind: SeriesKind, name: str, from_ms: int, to_ms: int, *, now_ms: int = 0, most: int = 500
) -> SubjectReading:
    """What is read of a range, each instant in ms from now; by default it is the range's end now."""
    shown = TimeRange(NOW_MS + from_ms, NOW_MS + to_ms)
    now = NOW_MS + (now_ms or to_ms)
    return read_series(Cluster.objects.get().pk, kind, name, shown, now_ms=now, most=most)


def held_at(subject: SubjectReading, at_ms: int) -> int | None:
    """The last of the first figures of the step that holds at an instant."""
    steps = [step for step in subject.reading.steps if step.at_ms - NOW_MS <= at_ms]
    return steps[-1].extents[0].last
