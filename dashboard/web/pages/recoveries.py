"""Recoveries: aborted transactions with the waiting readers, the lost records, and the return to work."""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

from django.http import HttpRequest, HttpResponse

from dashboard.actions import audit as action_audit
from dashboard.labels.status import OUTCOME_LABELS
from dashboard.labels.transition import KIND_LABELS, TRANSITION_STYLES
from dashboard.models import Recovery
from dashboard.recoveries import queries as recovery_queries
from dashboard.recoveries.evidence import written_records
from dashboard.runtime.collector_names import RECOVERIES
from dashboard.runtime.criteria import parameter_choices
from dashboard.runtime.csv_text import csv_text
from dashboard.system import owners
from dashboard.web import page_context
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.forms.lists import Filters
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import clock_steps, list_view, of_known_cluster, or_404, render_page, signed_in
from dashboard.web.routes import PageRoute
from dashboard.web.transaction_steps import TransactionStep
from fenceline.facts import TransitionKind
from fenceline.formatting import count_noun, format_duration
from fenceline.losses.recoveries import RecoveryOutcome

_ROWS = 50
_DAY_MS = 86_400_000
#: Maximum waiting groups that a row of the list names.
_NAMED = 2
_COLUMNS = ("topic", "partition", "first_offset", "last_offset", "records", "sure", "note")
_FIELDS = attrgetter("topic", "partition", "first", "last", "records", "sure", "note")


class RecoveryListQuery(list_forms.ListByInstant, recovery_queries.RecoveryCriteria):
    """The query string of the list."""


@signed_in
@of_known_cluster
def recovery_detail(request: HttpRequest, cluster: str, number: int) -> HttpResponse:
    """Show one recovery, or its lost records as CSV (`?format=csv`)."""
    recovery = or_404(recovery_queries.find_recovery(cluster, number), "Unknown recovery.")
    if request.GET.get("format") == "csv":
        rows = map(_FIELDS, written_records(recovery))
        response = HttpResponse(csv_text([_COLUMNS, *rows]), content_type="text/csv; charset=utf-8")
        response.headers["Content-Disposition"] = f'attachment; filename="lost-{recovery.pk}.csv"'
        response.headers["Cache-Control"] = "no-store"
        return response
    return render_page(request, "recoveries/detail", lambda: _detail(recovery))


def row_of(recovery: Recovery) -> Mapping[str, Any]:
    """Return one recovery with the time until readers were released and until a producer committed again."""
    lost, bound = recovery_queries.lost_records(recovery)
    unknown = "not known: see its page" if recovery.lost_complete else "the log is still being read"
    waited = list(dict.fromkeys(wait.group for wait in recovery_queries.recovery_waits(recovery)))
    return {
        "of": recovery,
        "release_ms": _since_opened_ms(recovery, recovery.released_ms),
        "resume_ms": _since_opened_ms(recovery, recovery.resumed_ms),
        "listed_names": waited[:_NAMED],
        "more_names": len(waited[_NAMED:]),
        # Aborted records, None if unknown, and "at least", "at most" or "".
        "lost": lost,
        "lost_bound": bound,
        "lost_unknown": unknown,
    }


def _since_opened_ms(recovery: Recovery, at_ms: int | None) -> int | None:
    return None if at_ms is None else max(0, at_ms - recovery.opened_ms)


# The range "in 24 h" moves with the clock.
@list_view("recoveries/list", RecoveryListQuery, depends_on=clock_steps(60_000))
def recovery_list(request: HttpRequest, wanted: RecoveryListQuery) -> Mapping[str, Any]:
    frame, filters = page_context.chrome_of(request), Filters(request.GET, wanted)
    recoveries, more = recovery_queries.newest_recoveries(wanted, before=wanted.before, limit=_ROWS)
    summary = recovery_queries.recovery_summary(frame.cluster, since_ms=now_ms(request) - _DAY_MS)
    return {
        "rows": [row_of(recovery) for recovery in recoveries],
        "next": list_forms.encode_place(more),
        "filters": [
            filters.row(
                "outcome",
                parameter_choices(RecoveryListQuery, "outcome"),
                OUTCOME_LABELS,
                every="any outcome",
            ),
            filters.row(
                "cause", parameter_choices(RecoveryListQuery, "cause"), KIND_LABELS, every="any cause"
            ),
        ],
        "headline": _headline(frame, summary, len(recoveries), more=more is not None),
        "summary": summary,
    }


def _headline(
    frame: page_context.Chrome, summary: recovery_queries.RecoverySummary, number: int, *, more: bool
) -> str:
    """Return a sentence on open recoveries and the result of others; for a past range, their number."""
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


def _detail(recovery: Recovery) -> Mapping[str, Any]:
    lost = written_records(recovery)
    return {
        "row": row_of(recovery),
        "cluster": recovery.cluster.name,
        "steps": list(_steps(recovery)),
        "waited": recovery_queries.recovery_waits(recovery),
        "lost": [(records, recovery_queries.at_most(records)) for records in lost],
        # The ranges to read again.
        "text": "\n".join(
            f"{records.topic} {records.partition} {records.first} {records.last}"
            for records in lost
            if records.last is not None and not records.deleted
        ),
        "owner": owners.of_transaction(recovery.transactional_id),
        "action": action_audit.cause_of(recovery),
    }


def _steps(recovery: Recovery) -> Iterator[TransactionStep]:
    style = TRANSITION_STYLES[TransitionKind(recovery.cause)]
    if recovery.begun_ms is not None:
        yield TransactionStep("done", "Begun", f"producer id {recovery.producer_id}", at_ms=recovery.begun_ms)
    cause = f"{style.means}; the verdict is {recovery.confidence}"
    yield TransactionStep("done", f"Aborted: {style.words}", cause, at_ms=recovery.opened_ms)
    if recovery.completed_ms is not None:
        yield TransactionStep("done", "Abort markers sent", at_ms=recovery.completed_ms)
    yield _released(recovery)
    yield _resumed(recovery)


def _released(recovery: Recovery) -> TransactionStep:
    if recovery.released_ms is None:
        if recovery.outcome == RecoveryOutcome.UNSEEN:
            return TransactionStep("ahead", "Whether consumers were unblocked was not seen")
        if recovery.outcome == RecoveryOutcome.TOPIC_DELETED:
            return TransactionStep("done", "Topic deleted", "its records are gone", at_ms=recovery.closed_ms)
        return TransactionStep(
            "waiting", "Waiting for the LSO to pass everywhere", since_ms=recovery.opened_ms
        )
    took = format_duration(max(0, recovery.released_ms - recovery.opened_ms))
    records = recovery.records_released
    which = f", {count_noun(records, 'offset')} became readable" if records is not None else ""
    if recovery.release_noticed:
        noticed = f"noticed {took} after the abort{which}"
        return TransactionStep("done", "Consumers unblocked by", noticed, at_ms=recovery.released_ms)
    return TransactionStep(
        "done", "Consumers unblocked", f"{took} after the abort{which}", at_ms=recovery.released_ms
    )


def _resumed(recovery: Recovery) -> TransactionStep:
    if recovery.resumed_ms is not None:
        by = recovery.resumed_by if len(recovery.resumed_by) <= 80 else f"{recovery.resumed_by[:80]}…"
        took = format_duration(max(0, recovery.resumed_ms - recovery.opened_ms))
        return TransactionStep(
            "done", "Committed again", f"{took} after the abort, by {by}", at_ms=recovery.resumed_ms
        )
    if recovery.outcome == RecoveryOutcome.OPEN:
        return TransactionStep(
            "waiting", "Waiting for the id, or its application, to commit again", "for at most 10 min"
        )
    if recovery.outcome == RecoveryOutcome.TOPIC_DELETED:
        return TransactionStep("ahead", "Not followed: the topic was deleted")
    return TransactionStep("ahead", "No commit observed")


ROUTES = (
    PageRoute(
        "recoveries",
        "recoveries",
        recovery_list,
        parent="events",
        shows=RECOVERIES,
        searched="transactional ids",
        has_files=True,
        is_ranged=True,
    ),
    PageRoute("recovery", "recoveries/<str:cluster>/<int:number>", recovery_detail, parent="recoveries"),
)
