"""One subject over time, for its page: the chart of its figures with table and holes, and its findings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from dashboard.evaluation import finding_queries
from dashboard.evaluation.finding_queries import FindingCriteria
from dashboard.runtime.criteria import LONGEST_SEARCH
from dashboard.series import queries as series_queries
from dashboard.series.queries import SubjectReading, explained_holes
from dashboard.web import page_context
from dashboard.web.charts import series_figures
from dashboard.web.charts.figures import Figure
from dashboard.web.per_request import now_ms
from fenceline.formatting import format_duration
from fenceline.series.points import GROUP, PARTITION, Extent, SeriesBucket, SeriesKind
from fenceline.series.reading import HoleReason, SeriesReading

#: Maximum rows of a chart's table, and maximum named holes.
_ROWS, _HOLES = 60, 5
#: Gaps that the page itself explains; the list of gaps omits them.
_BEGINS = (HoleReason.NOT_RECORDED, HoleReason.NOT_KEPT)


@dataclass(frozen=True, slots=True)
class _Look:
    figure: Callable[[SeriesReading], Figure]
    headings: Sequence[str]
    cells: Callable[[SeriesBucket], Sequence[str]]
    words: Callable[[SeriesReading], str]


def series_context(request: HttpRequest, cluster_id: int, kind: SeriesKind, name: str) -> Mapping[str, Any]:
    """Return the context of a subject's figures over the page's range."""
    shown = page_context.chrome_of(request).time_range.window()
    subject = series_queries.read_series(cluster_id, kind, name, shown, now_ms=now_ms(request))
    return {"series": _view(cluster_id, subject), "shown": shown}


def _view(cluster_id: int, subject: SubjectReading) -> Mapping[str, Any]:
    reading, look = subject.reading, _LOOKS[subject.kind]
    steps = reading.steps
    rows = [(step.at_ms, look.cells(step)) for step in reversed(reading.rows(_ROWS))]
    holes = [hole for hole in explained_holes(cluster_id, subject) if hole.why not in _BEGINS]
    begins = [hole for hole in reading.holes if hole.reason in _BEGINS]
    return {
        "figure": look.figure(reading) if steps else None,
        "words": look.words(reading) if steps else "",
        "headings": look.headings,
        "rows": rows,
        "step": format_duration(reading.plan.step_ms),
        "kept_since_ms": begins[-1].to_ms if begins and subject.kept_since_ms is not None else None,
        "holes": holes[-_HOLES:],
        "more_holes": max(0, len(holes) - _HOLES),
    }


def _partition_cells(step: SeriesBucket) -> Sequence[str]:
    lso, uncommitted = step.extents
    known = lso.last is not None and uncommitted.last is not None
    high = f"{(lso.last or 0) + (uncommitted.last or 0):,}" if known else "—"
    return _last(lso), high, series_figures.extent_words(uncommitted)


def _partition_words(reading: SeriesReading) -> str:
    highs = [step.extents[1].high or 0 for step in reading.steps]
    return f"LSO, high watermark and uncommitted backlog, which is at most {max(highs):,} offsets."


def _group_cells(step: SeriesBucket) -> Sequence[str]:
    lag_lso, lag_hw, lag_ms, blocked = step.extents
    behind = "—" if lag_ms.high is None else format_duration(lag_ms.high)
    return (
        *map(series_figures.extent_words, (lag_lso, lag_hw)),
        behind,
        series_figures.extent_words(blocked),
    )


def _group_words(reading: SeriesReading) -> str:
    highs = [step.extents[1].high or 0 for step in reading.steps]
    return f"Lag to the LSO and to the end, which is at most {max(highs):,} records, and how far behind."


def _last(extent: Extent) -> str:
    return "—" if extent.last is None else f"{extent.last:,}"


_LOOKS: Mapping[SeriesKind, _Look] = {
    PARTITION: _Look(
        series_figures.partition_figure,
        ("LSO", "High watermark", "Uncommitted"),
        _partition_cells,
        _partition_words,
    ),
    GROUP: _Look(
        series_figures.group_figure,
        ("Lag to LSO", "Lag to end", "Behind", "BLOCKED partitions"),
        _group_cells,
        _group_words,
    ),
}


#: Maximum findings on a page.
_SHOWN = 10


def subject_history(request: HttpRequest, cluster: str, subject: str) -> Mapping[str, Any]:
    """Return the findings about `kind:name` in the range of the page; on a Live page, the newest ones."""
    asked = page_context.chrome_of(request).time_range
    wanted = FindingCriteria.between(
        asked.start_ms, asked.end_ms, cluster=cluster, state="all", subject=subject
    )
    findings = finding_queries.findings_before(None, wanted, limit=_SHOWN + 1)
    return {
        "findings": findings[:_SHOWN],
        "has_more": len(findings) > _SHOWN,
        "events_url": events_url(cluster, subject.partition(":")[2]),
    }


def events_url(cluster: str, name: str) -> str:
    """Return the address of the events whose subject contains a name."""
    return f"{reverse('events')}?{urlencode({'cluster': cluster, 'q': name[:LONGEST_SEARCH]})}"
