"""Reasons for the holes of a range, from collectors' records of that time."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dashboard.models import GapRecord
from dashboard.series.queries import SubjectReading
from dashboard.series.store import SOURCES
from fenceline.findings.visibility import EVERYWHERE
from fenceline.series.reading import HoleReason, SeriesHole

#: Maximum holes of a range that are explained, the newest ones, and maximum recorded gaps for them.
MOST_HOLES, _MOST_GAPS = 50, 500
_WORDS: Mapping[HoleReason, str] = {
    HoleReason.NOT_RECORDED: "Nothing was recorded before.",
    HoleReason.NOT_KEPT: "History was not kept that long: see retention in fenceline.toml.",
    HoleReason.NOT_OBSERVED: "The collector did not run.",
    HoleReason.DAMAGED: "What was stored of it is damaged.",
    HoleReason.UNAVAILABLE: "It could not be read.",
}


class ExplainedHole(NamedTuple):
    """A period without figures, its collector, and the reason."""

    from_ms: int
    to_ms: int
    why: HoleReason
    source: str
    scope: str
    reason: str


def explained_holes(cluster_id: int, subject: SubjectReading) -> Sequence[ExplainedHole]:
    """Return the newest holes of a range, up to the maximum, with their reasons, oldest first."""
    holes = subject.reading.holes[-MOST_HOLES:]
    gaps = _gaps(cluster_id, subject, holes)
    source = SOURCES[subject.kind]
    scope = f"{subject.kind.name}:{subject.name}" if subject.name else EVERYWHERE
    return [ExplainedHole(*hole, source, scope, _reason(hole, scope, gaps)) for hole in holes]


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
