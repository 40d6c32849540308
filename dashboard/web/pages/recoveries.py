"""Episodes: what was ended against its producer's wish, who waited, what was lost, when work went on."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse

from dashboard.actions import audit as action_audit
from dashboard.labels.transition import TRANSITION_STYLES
from dashboard.models import Recovery
from dashboard.recoveries import queries as recovery_queries
from dashboard.runtime.criteria import parameter_choices
from dashboard.system import owners
from dashboard.web import page_context
from dashboard.web.empty_state import why_empty
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.transaction_steps import TransactionStep
from fenceline.facts import TransitionKind
from fenceline.formatting import count_noun, format_duration
from fenceline.recoveries import LostRecords, RecoveryOutcome

_ROWS = 50
_DAY_MS = 86_400_000
#: How many of those who waited a line of the list names.
_NAMED = 2
_COLUMNS = ("topic", "partition", "first_offset", "last_offset", "records", "sure", "note")


@dataclass(frozen=True, slots=True)
class RecoveryRow:
    """One episode; how long until readers were released and until somebody committed again."""

    of: Recovery
    release_ms: int | None
    resume_ms: int | None
    #: Each group that waited, once.
    waited: Sequence[str]
    #: Aborted records; None where that is not known, and then why.
    lost: int | None
    #: "at least", "at most" or "".
    lost_bound: str
    lost_unknown: str

    @property
    def listed_names(self) -> Sequence[str]:
        """Return the names that fit a line."""
        return self.waited[:_NAMED]

    @property
    def more_names(self) -> int:
        """Return how many more there are."""
        return len(self.waited) - len(self.listed_names)


class RecoveryListQuery(list_forms.ListByInstant, recovery_queries.RecoveryCriteria):
    """The query string of the list."""


@signed_in
def recovery_list(request: HttpRequest) -> HttpResponse:
    """Show the newest episodes that the query string asks for."""
    wanted = list_forms.read_request(request, RecoveryListQuery)
    # What "in 24 h" means moves with the clock.
    return render_page(
        request, "recoveries/list", lambda: _list(request, wanted), depends_on=now_ms(request) // 60_000
    )


@signed_in
def recovery_detail(request: HttpRequest, cluster: str, number: int) -> HttpResponse:
    """Show one episode, or what it lost as CSV (`?format=csv`)."""
    frame = page_context.chrome_of(request)
    found = recovery_queries.find_recovery(cluster, number) if number < 2**63 else None
    if found is None or not any(row.name == cluster for row in frame.clusters):
        raise Http404("Unknown recovery.")
    if request.GET.get("format") == "csv":
        return _csv(found)
    return render_page(request, "recoveries/detail", lambda: _detail(found))


def row_of(found: Recovery) -> RecoveryRow:
    """Return an episode as a line of a list."""
    lost, bound = recovery_queries.lost_records(found)
    return RecoveryRow(
        found,
        None if found.released_ms is None else max(0, found.released_ms - found.opened_ms),
        None if found.resumed_ms is None else max(0, found.resumed_ms - found.opened_ms),
        list(dict.fromkeys(wait.group for wait in recovery_queries.recovery_waits(found))),
        lost,
        bound,
        "not known: see its page" if found.lost_complete else "the log is still being read",
    )


def _list(request: HttpRequest, wanted: RecoveryListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    found, more = recovery_queries.newest_recoveries(wanted, before=wanted.before, limit=_ROWS)
    summary = recovery_queries.recovery_summary(frame.cluster, since_ms=now_ms(request) - _DAY_MS)
    empty = "past" if wanted.before else why_empty(frame, narrowed=wanted.narrowed)
    return {
        "wanted": wanted,
        "narrowed": wanted.narrowed,
        "rows": [row_of(each) for each in found],
        "next": list_forms.encode_place(more),
        "outcomes": parameter_choices(RecoveryListQuery, "outcome"),
        "causes": parameter_choices(RecoveryListQuery, "cause"),
        "headline": _headline(frame, summary, len(found), more=more is not None),
        "summary": summary,
        "several": len(frame.clusters) > 1 and not frame.cluster,
        "empty": "" if found else empty,
    }


def _headline(
    frame: page_context.Chrome, summary: recovery_queries.RecoverySummary, number: int, *, more: bool
) -> str:
    """Return what is still to be recovered, and how the rest went; of a range how much it has."""
    if not frame.clusters:
        return "No cluster is configured."
    if frame.freshness.unseen:
        return "The first read is still in progress."
    if not frame.time_range.is_live:
        asked = frame.time_range
        return time_ranges.range_headline(number, "recovery", asked, more=more, plural="recoveries")
    if summary.open:
        return f"{summary.open:,} open {'recovery' if summary.open == 1 else 'recoveries'}."
    if summary.not_resumed:
        producers = count_noun(summary.not_resumed, "producer")
        return f"No consumer is blocked; {producers} did not come back in the last 24 h."
    if summary.number:
        return "Every producer aborted in the last 24 h has committed again."
    return "No recoveries in the last 24 h."


def _detail(found: Recovery) -> Mapping[str, Any]:
    lost = recovery_queries.written_records(found)
    return {
        "row": row_of(found),
        "cluster": found.cluster.name,
        "steps": list(_steps(found)),
        "waited": recovery_queries.recovery_waits(found),
        "lost": [(each, recovery_queries.at_most(each)) for each in lost],
        "text": _text(lost),
        "owner": owners.of_transaction(found.transactional_id),
        "action": action_audit.cause_of(found),
        "closed_after_ms": None if found.closed_ms is None else found.closed_ms - found.opened_ms,
    }


def _steps(found: Recovery) -> Iterator[TransactionStep]:
    """Yield the way of an episode: what was done, and what is still waited for."""
    style = TRANSITION_STYLES[TransitionKind(found.cause)]
    if found.begun_ms is not None:
        yield TransactionStep("done", "Begun", f"producer id {found.producer_id}", at_ms=found.begun_ms)
    cause = f"{style.means}; the verdict is {found.confidence}"
    yield TransactionStep("done", f"Aborted: {style.words}", cause, at_ms=found.opened_ms)
    if found.completed_ms is not None:
        yield TransactionStep("done", "Abort markers sent", at_ms=found.completed_ms)
    yield _released(found)
    yield _resumed(found)


def _released(found: Recovery) -> TransactionStep:
    if found.released_ms is None:
        if found.outcome == RecoveryOutcome.UNSEEN:
            return TransactionStep("ahead", "Whether consumers were unblocked was not seen")
        if found.outcome == RecoveryOutcome.TOPIC_DELETED:
            return TransactionStep("done", "Topic deleted", "its records are gone", at_ms=found.closed_ms)
        return TransactionStep("waiting", "Waiting for the LSO to pass everywhere", since_ms=found.opened_ms)
    took = format_duration(max(0, found.released_ms - found.opened_ms))
    records = found.records_released
    which = f", {count_noun(records, 'offset')} became readable" if records is not None else ""
    if found.release_noticed:
        noticed = f"noticed {took} after the abort{which}"
        return TransactionStep("done", "Consumers unblocked by", noticed, at_ms=found.released_ms)
    return TransactionStep(
        "done", "Consumers unblocked", f"{took} after the abort{which}", at_ms=found.released_ms
    )


def _resumed(found: Recovery) -> TransactionStep:
    if found.resumed_ms is not None:
        by = found.resumed_by if len(found.resumed_by) <= 80 else f"{found.resumed_by[:80]}…"
        took = format_duration(max(0, found.resumed_ms - found.opened_ms))
        return TransactionStep(
            "done", "Committed again", f"{took} after the abort, by {by}", at_ms=found.resumed_ms
        )
    if found.outcome == RecoveryOutcome.OPEN:
        return TransactionStep(
            "waiting", "Waiting for the id, or its application, to commit again", "for at most 10 min"
        )
    if found.outcome == RecoveryOutcome.TOPIC_DELETED:
        return TransactionStep("ahead", "Not followed: the topic was deleted")
    return TransactionStep("ahead", "No commit observed")


def _text(lost: Sequence[LostRecords]) -> str:
    """Ranges that can be read again, as lines to copy: `topic partition first last`."""
    return "\n".join(
        f"{each.topic} {each.partition} {each.first} {each.last}"
        for each in lost
        if each.last is not None and not each.deleted
    )


def _csv(found: Recovery) -> HttpResponse:
    """Return what was lost for a program: no topic holds what a spreadsheet would calculate with."""
    out = StringIO()
    lines = csv.writer(out, lineterminator="\r\n")
    lines.writerow(_COLUMNS)
    for each in recovery_queries.written_records(found):
        sure = "true" if each.sure else "false"
        lines.writerow([each.topic, each.partition, each.first, each.last, each.records, sure, each.note])
    response = HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="lost-{found.pk}.csv"'
    response.headers["Cache-Control"] = "no-store"
    return response
