"""Figures over time for pages to show: series of partitions, groups and applications, saved as polls do."""

from collections.abc import Mapping, Sequence

from django.db import transaction

from dashboard.models import Cluster, ObservedSpan
from dashboard.series.store import SOURCES, SeriesSample, extend_span, save_samples
from fenceline.series.points import APPLICATION, GROUP, PARTITION, SeriesKind, Values
from tests.web import factories

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
#: Polls of an hour: no pause is so long that it would be one.
APART_MS = 20_000
#: How long ago in ms, and the figures then; None where the subject could not be seen.
Polls = Sequence[tuple[int, Values | None]]


def polled(
    of: Cluster, kind: SeriesKind, name: str, polls: Polls, *, now_ms: int | None = None, span: bool = False
) -> None:
    """Save what polls of one subject found, the oldest first; with `span` they were all there was."""
    polled_together(of, kind, {name: polls}, now_ms=now_ms, span=span)


def polled_together(
    of: Cluster,
    kind: SeriesKind,
    polls: Mapping[str, Polls],
    *,
    now_ms: int | None = None,
    span: bool = False,
) -> None:
    """Save what the same polls found of several subjects."""
    now = factories.now_ms() if now_ms is None else now_ms
    with transaction.atomic():
        for found in zip(*polls.values(), strict=True):
            samples = [SeriesSample(name, values) for name, (_, values) in zip(polls, found, strict=True)]
            at_ms = now - found[0][0]
            save_samples(of.pk, kind, samples, at_ms=at_ms)
            if span:
                extend_span(of.pk, SOURCES[kind], at_ms=at_ms)


def observed(of: Cluster, *spans: tuple[int, int], now_ms: int | None = None) -> None:
    """Let all collectors have polled in these times, each from and until so long ago; without any: always."""
    now = factories.now_ms() if now_ms is None else now_ms
    for from_ago_ms, to_ago_ms in spans or [(500 * 24 * HOUR_MS, -HOUR_MS)]:
        for source in SOURCES.values():
            ObservedSpan.objects.create(
                cluster=of, source=source, from_ms=now - from_ago_ms, to_ms=now - to_ago_ms
            )


def hour(of: Cluster) -> None:
    """An hour in which a transaction blocked payments-0 for a quarter, and billing fell behind."""
    blocked = range(40 * MINUTE_MS, 25 * MINUTE_MS, -APART_MS)
    steps = range(58 * MINUTE_MS, -1, -APART_MS)
    polled(of, PARTITION, "payments-0", [(ago, _offsets(ago, blocked)) for ago in steps], span=True)
    groups = {
        "billing": [(ago, _lag(ago, blocked)) for ago in steps],
        "orders-view": [(ago, (3, 9 + ago // APART_MS % 4, 400, 0)) for ago in steps],
    }
    polled_together(of, GROUP, groups, span=True)
    opened = [(ago, _open(ago, blocked)) for ago in steps]
    polled_together(of, APPLICATION, {"": opened, "payments": opened}, span=True)


def forget(of: Cluster) -> None:
    """Let nothing have been polled."""
    of.series_set.all().delete()
    of.observedspan_set.all().delete()


def _offsets(ago_ms: int, blocked: range) -> Values:
    written = (HOUR_MS - ago_ms) // 1_000 * 12
    if ago_ms in blocked:
        stuck = (HOUR_MS - blocked[0]) // 1_000 * 12
        return 48_211 + stuck, written - stuck
    return 48_211 + written, 0


def _lag(ago_ms: int, blocked: range) -> Values:
    behind = _offsets(ago_ms, blocked)[1] or 0
    return 0, behind + 4, blocked[0] - ago_ms if ago_ms in blocked else 300, int(ago_ms in blocked)


def _open(ago_ms: int, blocked: range) -> Values:
    stuck = ago_ms in blocked
    return 1 + stuck, blocked[0] - ago_ms + 1 if stuck else 40, _offsets(ago_ms, blocked)[1]
