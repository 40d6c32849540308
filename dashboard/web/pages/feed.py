"""Every abort and fence of the cluster as it happens, whoever caused it; ours with the action behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from django.http import HttpRequest, HttpResponse

from dashboard.actions import audit as action_audit
from dashboard.history import queries as history_queries
from dashboard.labels.transition import Cause
from dashboard.models import Action, Recovery, TransitionRecord
from dashboard.recoveries import queries as recovery_queries
from dashboard.runtime.criteria import Name
from dashboard.web import page_context
from dashboard.web.empty_state import why_empty
from dashboard.web.forms import lists as list_forms
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.request_time import now_ms
from fenceline.facts import TransitionKind
from fenceline.formatting import count_noun

_ROWS = 50
_MINUTES = 10
#: What ends a transaction against its producer's wish, or may have, worst first.
_KINDS = tuple(TransitionKind(kind) for kind in get_args(Cause))


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """One line: a transition with its evidence, or abort markers that we wrote; newest first by `at_ms`."""

    at_ms: int
    told: TransitionRecord | None
    evidence: str
    #: Our action that caused it, None where somebody else did.
    action: Action | None
    shown: action_audit.Shown | None
    episode: Recovery | None


class FeedQuery(list_forms.ListByInstant):
    """The query string of the feed."""

    cluster: Name = ""
    kind: Literal["", Cause] = ""
    application: Name = ""
    q: Name = ""

    @property
    def criteria(self) -> history_queries.HistoryCriteria:
        return history_queries.HistoryCriteria(
            cluster=self.cluster,
            kinds=(TransitionKind(self.kind),) if self.kind else _KINDS,
            application=self.application,
            q=self.q,
        )


@signed_in
def feed_page(request: HttpRequest) -> HttpResponse:
    """Show the newest aborts and fences that the query string asks for."""
    wanted = list_forms.read(request, FeedQuery)
    # The headline's "last 10 min" moves with the clock.
    return render_page(
        request, "feed/list", lambda: _read(request, wanted), depends_on=now_ms(request) // 15_000
    )


def _read(request: HttpRequest, wanted: FeedQuery) -> Mapping[str, Any]:
    frame, at_ms = page_context.chrome_of(request), now_ms(request)
    found = history_queries.newest_transitions(wanted.criteria, limit=_ROWS, before=wanted.before)
    events = _events(found.items, at_ms)
    if not wanted.narrowed:
        events = _with_markers(events, frame.cluster, wanted, whole=found.next is None, at_ms=at_ms)
    empty = "past" if wanted.before else why_empty(frame, narrowed=wanted.narrowed)
    return {
        "wanted": wanted,
        "events": events,
        "next": list_forms.place(found.next),
        "searched_to_ms": found.searched_to_ms,
        "kinds": _KINDS,
        "headline": _headline(frame, at_ms),
        "several": len(frame.clusters) > 1 and not frame.cluster,
        "empty": "" if events else empty,
    }


def _events(found: Sequence[TransitionRecord], at_ms: int) -> Sequence[FeedEvent]:
    opened = recovery_queries.opened_by(found)
    return [_event(row, opened.get(row.pk), at_ms) for row in found]


def _event(row: TransitionRecord, episode: Recovery | None, at_ms: int) -> FeedEvent:
    shown = None if row.action is None else action_audit.action_status(row.action, now_ms=at_ms)
    return FeedEvent(row.at_ms, row, history_queries.verdict_evidence(row), row.action, shown, episode)


def _with_markers(
    events: Sequence[FeedEvent], cluster: str, wanted: FeedQuery, *, whole: bool, at_ms: int
) -> Sequence[FeedEvent]:
    """Return events with the abort markers that were written between the first and the last of them."""
    since = None if whole or not events else events[-1].at_ms
    until = None if wanted.before is None else wanted.before[0]
    ours = action_audit.recent_markers(cluster, since_ms=since, until_ms=until, limit=_ROWS)
    marked = [
        FeedEvent(
            action_audit.confirmed_ms(each) or 0,
            None,
            each.reason,
            each,
            action_audit.action_status(each, now_ms=at_ms),
            None,
        )
        for each in ours
    ]
    return sorted((*events, *marked), key=lambda event: event.at_ms, reverse=True)


def _headline(frame: page_context.Chrome, at_ms: int) -> str:
    if not frame.clusters:
        return "No cluster is configured."
    if frame.freshness.unseen:
        return "Not everything has been seen yet."
    since_ms = at_ms - _MINUTES * 60_000
    number, whole = history_queries.count_transitions(
        history_queries.HistoryCriteria(cluster=frame.cluster, kinds=_KINDS, since_ms=since_ms)
    )
    if not number:
        return f"Nothing was aborted or fenced in the last {_MINUTES} min."
    more = "" if whole else "+"
    return (
        f"{count_noun(number, 'transaction')}{more} ended otherwise than by a commit in the last "
        f"{_MINUTES} min."
    )
