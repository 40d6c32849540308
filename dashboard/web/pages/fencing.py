"""Who was fenced, and what else ended transactions without their records: told apart, with the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse

from dashboard.history import queries as history_queries
from dashboard.history.buckets import Bucket
from dashboard.labels.transition import LOOKS, NOTABLE, TELLING, Cause
from dashboard.models import Tally, TransitionRecord
from dashboard.runtime.criteria import Name
from dashboard.web import page_context
from dashboard.web.charts import figures
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.lists import clip
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.request_time import now_ms
from fenceline.facts import ABORTS, Confidence, TransitionKind

_ROWS = 50
#: How far back the page looks, and the step of its chart, in seconds: minutes up to a few hours, then hours.
_RANGES = {
    "15m": (900, 60),
    "1h": (3_600, 60),
    "6h": (21_600, 300),
    "24h": (86_400, 3_600),
    "7d": (604_800, 7_200),
    "30d": (2_592_000, 43_200),
}
_RANGE_WORDS = {"15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h", "7d": "7 d", "30d": "30 d"}
#: What is done to a producer, worst first: the page's headline.
_DONE_TO = (
    TransitionKind.TAKEOVER,
    TransitionKind.TIMEOUT,
    TransitionKind.ADMIN_FENCE,
    TransitionKind.ADMIN_ABORT,
    TransitionKind.ABORT,
)
#: The longest step of a range whose commits are added up by application.
_LONGEST_ADDED_S = 7_200
#: How many applications the page lists, those with the most first.
_APPLICATIONS = 10


@dataclass(frozen=True, slots=True)
class TransitionRow:
    """One transition and the evidence for it."""

    told: TransitionRecord
    evidence: str


@dataclass(frozen=True, slots=True)
class ApplicationLine:
    """What happened to an application: how often each notable kind, the worst first, and its commits."""

    name: str
    counts: Sequence[tuple[TransitionKind, int]]
    commits: int
    #: How many of its transactions ended without their records, in percent; None where none ended.
    aborted: float | None
    #: How many notable transitions in each step.
    steps: Sequence[int]


class FencingQuery(list_forms.ListByInstant):
    """The query string of the page; a kind of "" is all but re-initialisations, which are routine."""

    cluster: Name = ""
    since: Literal["15m", "1h", "6h", "24h", "7d", "30d"] = "24h"
    kind: Literal["", Cause, "empty_abort", "reinit", "rotation", "expiry", "all"] = ""
    confidence: Confidence | Literal[""] = ""
    application: Name = ""
    q: Name = ""

    @property
    def range_words(self) -> str:
        """How far back the page looks."""
        return _RANGE_WORDS[self.since]

    @property
    def step_s(self) -> int:
        """The step of the chart."""
        return _RANGES[self.since][1]

    @property
    def kinds(self) -> Sequence[TransitionKind]:
        """The kinds that are listed; empty for all."""
        if not self.kind:
            return TELLING
        return () if self.kind == "all" else (TransitionKind(self.kind),)

    def criteria(self, now_ms: int) -> history_queries.HistoryCriteria:
        """What is read from the history."""
        return history_queries.HistoryCriteria(
            cluster=self.cluster,
            kinds=self.kinds,
            confidence=self.confidence,
            application=self.application,
            q=self.q,
            since_ms=now_ms - _RANGES[self.since][0] * 1_000,
        )


@signed_in
def fencing_page(request: HttpRequest) -> HttpResponse:
    """Show what happened to producers, over time, by application, and one by one."""
    wanted = list_forms.read(request, FencingQuery)
    # The range moves with the clock.
    moved = now_ms(request) // (wanted.step_s * 1_000)
    return render_page(request, "fencing/list", lambda: _read(request, wanted), depends_on=moved)


def transition_rows(found: Sequence[TransitionRecord]) -> Sequence[TransitionRow]:
    """Return transitions with the evidence for each."""
    return [TransitionRow(row, history_queries.verdict_evidence(row)) for row in found]


def _read(request: HttpRequest, wanted: FencingQuery) -> Mapping[str, Any]:
    frame, criteria = page_context.chrome_of(request), wanted.criteria(now_ms(request))
    found = history_queries.newest_transitions(criteria, limit=_ROWS, before=wanted.before)
    number, whole = history_queries.count_transitions(criteria)
    steps = history_queries.transition_buckets(
        frame.cluster,
        since_ms=criteria.since_ms or 0,
        until_ms=now_ms(request),
        step_s=wanted.step_s,
        application=wanted.application or Tally.EVERY,
    )
    shown = wanted.kinds or NOTABLE
    return {
        "headline": _headline(steps, wanted, frame),
        "wanted": wanted,
        "kind_words": LOOKS[TransitionKind(wanted.kind)].words if wanted.kind in LOOKS else "transition",
        "rows": transition_rows(found.items),
        "searched_to_ms": found.searched_to_ms,
        "next": list_forms.place(found.next),
        "number": number,
        "whole": whole,
        "ranges": _RANGE_WORDS.items(),
        "kinds": [(kind, sum(step.counts.get(kind, 0) for step in steps)) for kind in NOTABLE],
        "confidences": tuple(Confidence),
        "chart": figures.over_time(steps, shown) if _any(steps, shown) else None,
        "chart_words": _said(steps, shown),
        "table": _table(steps, shown),
        "step_words": figures.span_words(wanted.step_s * 1_000),
        **_applications(request, wanted),
        "commits": sum(step.counts.get(TransitionKind.COMMIT, 0) for step in steps),
        "several": len(frame.clusters) > 1 and not frame.cluster,
        "empty": "" if found.items else _why_empty(frame, wanted),
    }


def _headline(steps: Sequence[Bucket], wanted: FencingQuery, frame: page_context.Chrome) -> str:
    """Say what an operator came to know: what was done to producers, and not what they did themselves."""
    if not frame.clusters:
        return "No cluster is configured."
    if frame.freshness.unseen:
        return "The first read is still in progress."
    where = f"the last {wanted.range_words}"
    where += f" of {clip(wanted.application)}" if wanted.application else ""
    sums = [(LOOKS[kind], sum(step.counts.get(kind, 0) for step in steps)) for kind in _DONE_TO]
    parts = [f"{n:,} {look.words if n == 1 else look.plural}" for look, n in sums if n > 0]
    if not parts:
        return f"No producer was fenced and none timed out in {where}."
    said = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{said} in {where}."


def _any(steps: Sequence[Bucket], kinds: Sequence[TransitionKind]) -> bool:
    return any(step.count_of(kinds) > 0 for step in steps)


def _said(steps: Sequence[Bucket], kinds: Sequence[TransitionKind]) -> str:
    """Return what the chart shows in one sentence, for those who cannot see it."""
    sums = [(LOOKS[kind], sum(step.counts.get(kind, 0) for step in steps)) for kind in kinds]
    parts = [f"{n:,} {look.words if n == 1 else look.plural}" for look, n in sums if n > 0]
    return f"Over time: {', '.join(parts) or 'nothing'}."


def _table(steps: Sequence[Bucket], kinds: Sequence[TransitionKind]) -> Mapping[str, Any]:
    """Return the chart as a table: the kinds that came, and each step in which any did, newest first."""
    came = [kind for kind in kinds if any(step.counts.get(kind) for step in steps)]
    lines = [(step.start_ms, [step.counts.get(kind, 0) for kind in came]) for step in reversed(steps)]
    return {"kinds": came, "lines": [line for line in lines if any(line[1])]}


def _applications(request: HttpRequest, wanted: FencingQuery) -> Mapping[str, Any]:
    """Return the applications to which most happened, each with what, and with its commits for scale."""
    now, step_s = now_ms(request), wanted.step_s
    criteria = wanted.criteria(now)
    found = history_queries.by_application(criteria, until_ms=now, step_s=step_s, most=_APPLICATIONS)
    # Adding up a month of hours for each takes longer than the rest of the page.
    names = list(found.each) if step_s <= _LONGEST_ADDED_S else []
    committed = history_queries.transition_counts(
        wanted.cluster, since_ms=criteria.since_ms or 0, until_ms=now, applications=names
    )
    return {
        "applications": [
            _application(name, steps, committed.get(name, {})) for name, steps in found.each.items()
        ],
        "more_applications": found.number - len(found.each),
        "shares": bool(names),
        "applications_since_ms": found.searched_to_ms,
    }


def _application(
    name: str, steps: Sequence[Bucket], counted: Mapping[TransitionKind, int]
) -> ApplicationLine:
    sums = [(kind, sum(step.counts.get(kind, 0) for step in steps)) for kind in NOTABLE]
    commits = counted.get(TransitionKind.COMMIT, 0)
    aborts = sum(counted.get(kind, 0) for kind in ABORTS)
    ended = commits + aborts
    return ApplicationLine(
        name,
        [(kind, n) for kind, n in sums if n > 0],
        commits,
        100 * aborts / ended if ended > 0 else None,
        [step.count_of(NOTABLE) for step in steps],
    )


def _why_empty(frame: page_context.Chrome, wanted: FencingQuery) -> str:
    """Return which of five reasons leaves the list empty; each reads differently to an operator."""
    if frame.freshness.blind and frame.freshness.unseen:
        return "unreachable"
    if frame.freshness.unseen or not frame.clusters:
        return "unseen"
    if wanted.before is not None:
        return "past"
    return "unmatched" if wanted.narrowed else "none"
