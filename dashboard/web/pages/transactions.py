"""Every transactional id: the list, and each one's own page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse

from dashboard.evaluation import blocking, finding_queries
from dashboard.history import queries as history_queries
from dashboard.models import Action, FindingRecord, Transaction, TransitionRecord
from dashboard.recoveries import queries as recovery_queries
from dashboard.runtime import visibility
from dashboard.runtime.criteria import parameter_choices
from dashboard.streaming import batches as streaming_batches
from dashboard.streaming.engines import producer_connector
from dashboard.streaming.flink_jobs import decision_of
from dashboard.system import owners
from dashboard.transactions import attributions
from dashboard.transactions import queries as transaction_queries
from dashboard.transactions.added_offsets import transaction_offsets
from dashboard.transactions.producers import observed_application, producer_identity
from dashboard.web import action_buttons, page_context, state_diagram, transaction_steps, transaction_timeline
from dashboard.web.charts import figures as charts
from dashboard.web.empty_state import why_empty
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.columns import table_columns
from dashboard.web.headlines.detail import DetailHeadline
from dashboard.web.headlines.transaction import expired_headline, transaction_headline
from dashboard.web.pages.recoveries import row_of
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.subject_history import events_url
from fenceline.connect.debezium import topics_of_heartbeat
from fenceline.decode import text
from fenceline.explanations import explain_transition
from fenceline.facts import Severity, TransactionState, Transition, TransitionReason
from fenceline.kafka.commits import TOPIC as OFFSETS
from fenceline.owners import Owner
from fenceline.plans.plan import Act

#: How often a page checks whether a timeout has passed meanwhile.
_PASSING_MS = 15_000
_LONGEST_ASKED = 200
#: How many episodes of an id its page shows.
_EPISODES = 10
#: Over which time an application's usual durations are taken.
_DAY_MS = 86_400_000
#: How many partitions of a transaction its page shows one by one.
_MOST_PLACES = 50
#: How many notable transitions of an id its page shows.
_NOTABLE_SHOWN = 20
#: How many of the ids that have a finding come first.
_MOST_FIRST = 200
_CLUSTER, _OWNER, _WAITING = "Cluster", "Owner", "Waiting"
#: Words, sort key, class, and the direction that puts the interesting end first.
_COLUMNS = (
    ("State", "state", "col-state", "asc"),
    ("Transactional id", "id", "col-name", "asc"),
    ("Finding", "attention", "col-finding", "asc"),
    (_CLUSTER, "", "col-cluster", ""),
    ("Open for", "started", "col-age number", "asc"),
    ("Application", "", "col-application", ""),
    (_OWNER, "", "col-owner", ""),
    ("Producer id", "producer", "col-producer number", "asc"),
    ("Epoch", "epoch", "col-epoch number", "desc"),
    (_WAITING, "", "col-waiting number", ""),
    ("Timeout", "timeout", "col-timeout number", "desc"),
    ("Partitions", "partitions", "col-partitions number", "desc"),
    ("Last update", "updated", "col-updated number", "desc"),
)


@dataclass(frozen=True, slots=True)
class TransactionLine:
    """One id of the list: its worst finding, its owner, and whether a fence of it may be planned."""

    of: Transaction
    finding: FindingRecord | None
    owner: Owner | None
    can_select: bool


@dataclass(frozen=True, slots=True)
class RecentTransition:
    """One of the last transitions of an id, and the evidence for it."""

    transition: Transition
    evidence: str
    #: Our action that caused it, None for every other.
    action: Action | None


@dataclass(frozen=True, slots=True)
class TransitionRow:
    """One notable transition of an id, and the evidence for it."""

    transition: TransitionRecord
    evidence: str


class TransactionListQuery(list_forms.NumberedList, transaction_queries.SortedTransactions):
    """The query string of the list."""


@signed_in
def transaction_list(request: HttpRequest) -> HttpResponse:
    """Show one page of the transactional ids that the query string asks for."""
    wanted = list_forms.read_request(request, TransactionListQuery)
    # A filter by age lets rows in as time passes, without any change.
    ageing = now_ms(request) if wanted.min_age_s is not None else 0
    return render_page(request, "transactions/list", lambda: _list(request, wanted), depends_on=ageing)


@signed_in
def transaction_detail(request: HttpRequest, cluster: str, transactional_id: str) -> HttpResponse:
    """Show what is known of one transactional id, or that it is not known."""
    if not any(row.name == cluster for row in page_context.chrome_of(request).clusters):
        raise Http404(f"No cluster “{cluster}” is configured.")
    # A timeout passes without any change.
    passing = now_ms(request) // _PASSING_MS
    return render_page(
        request,
        "transactions/detail",
        lambda: _detail(request, cluster, transactional_id),
        depends_on=passing,
    )


def _list(request: HttpRequest, wanted: TransactionListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    several = len(frame.clusters) > 1 and not frame.cluster
    # Who waits is asked for open transactions alone: of a page of them in three queries.
    waiting = wanted.only_open
    shown = {_CLUSTER: several, _OWNER: frame.has_owners, _WAITING: waiting}
    headings = [each for each in _COLUMNS if shown.get(each[0], True)]
    found = frame.worst_findings("transaction")
    page = transaction_queries.transaction_page(
        wanted, now_ms=now_ms(request), page=wanted.page, size=wanted.size, first=list(found)[:_MOST_FIRST]
    )
    select = action_buttons.row_selection(request, Act.FENCE, "Fence producers…")
    lines = [_line(row, found, can_select=select is not None) for row in page.items]
    last = (page.number - 1) * page.size + len(page.items)
    return {
        "wanted": wanted,
        "page": page,
        "lines": lines,
        "select": select if any(line.can_select for line in lines) else None,
        "ends_early": page.number == page.pages and last < page.total,
        "unsorted": "" if page.sorted else wanted.sort,
        "first": (page.number - 1) * page.size + 1,
        "last": last,
        "columns": table_columns(headings, wanted.sort, descending=wanted.descending),
        "states": parameter_choices(TransactionListQuery, "state"),
        "sizes": list_forms.SIZES,
        "several": several,
        "waiting": waiting,
        "waits": blocking.waits_of(page.items) if waiting else {},
        "empty": "" if page.items else why_empty(frame, narrowed=wanted.narrowed),
    }


def _line(
    row: Transaction, found: Mapping[tuple[int, str], FindingRecord], *, can_select: bool
) -> TransactionLine:
    return TransactionLine(
        row,
        found.get((row.cluster_id, row.transactional_id)),
        owners.of_transaction(row.transactional_id),
        can_select and row.state == TransactionState.ONGOING,
    )


def _detail(request: HttpRequest, cluster: str, transactional_id: str) -> Mapping[str, Any]:
    row = transaction_queries.find_transaction(cluster, transactional_id)
    if row is not None:
        life = history_queries.recent_transitions(cluster, bytes(row.key), row.log_partition)
        kept = history_queries.TransactionHistory(bytes(row.key), row.transactional_id, row.application, life)
        known, lived = _known(request, row), _lived(request, cluster, kept, row)
        return {"row": row, "kept": kept, "headline": _headline(request, row, known, lived), **known, **lived}
    gone = history_queries.forgotten_transaction(cluster, transactional_id)
    if gone is not None:
        headline = expired_headline(gone.life.expired_ms)
        return {"row": None, "kept": gone, "headline": headline, **_lived(request, cluster, gone, None)}
    # No name longer than a line belongs into a sentence.
    shown = transactional_id
    if len(shown) > _LONGEST_ASKED:
        shown = f"{shown[:_LONGEST_ASKED]}…"
    return {"cluster": cluster, "asked": text.escape_bytes(shown.encode()), "status": 404}


def _headline(
    request: HttpRequest, row: Transaction, known: Mapping[str, Any], lived: Mapping[str, Any]
) -> DetailHeadline:
    own, fence = lived["own"], lived["fence"]
    return transaction_headline(
        row,
        known["waits"],
        known["places"],
        median_ms=own.p50 if own else None,
        fenced_by=fence.executed_by if fence else "",
        now_ms=now_ms(request),
    )


def _known(request: HttpRequest, row: Transaction) -> Mapping[str, Any]:
    """Return the contents of the newest record of an id."""
    partitions = transaction_queries.partitions_of(row)
    findings = finding_queries.open_findings(row.cluster.name, f"transaction:{row.transactional_id}")
    found = blocking.waits_of([row])[row.pk]
    owner = owners.of_transaction(row.transactional_id)
    behind = {**_producer(row), "flink": decision_of(row, now_ms=now_ms(request))}
    is_plain = not behind["producer"] and not behind["flink"]
    places = blocking.transaction_partitions(row, found, most=_MOST_PLACES + 1)
    return {
        "waits": found,
        "places": places[:_MOST_PLACES],
        "more_places": len(places) > _MOST_PLACES,
        "candidates": blocking.candidate_groups(row, found),
        "offsets_wait": [each for each in found.waiting if each.pending],
        "owner": owner,
        "named": observed_application(row, owner) if is_plain else None,
        "written_for": streaming_batches.written_for(row.cluster_id, row.transactional_id),
        **behind,
        "findings": action_buttons.finding_cards(request, findings),
        "offers": action_buttons.of_transaction(request, row, found.pins),
        "tone": next((found.severity for found in findings if found.severity != Severity.INFO), ""),
        "machine": state_diagram.draw_diagrams(row.state),
        "partitions": [part for part in partitions if part.topic != OFFSETS],
        "offsets": [part for part in partitions if part.topic == OFFSETS],
        "raw": json.dumps(_raw(row, partitions), indent=2, ensure_ascii=False),
    }


def _producer(row: Transaction) -> Mapping[str, Any]:
    """Return who is behind an id, and of a Connect task what a worker reports of its connector."""
    producer = producer_identity(row.cluster_id, row.transactional_id)
    if producer is None or "connector" not in dict(producer.parts):
        return {"producer": producer}
    found = producer_connector(row.cluster_id, producer)
    topics = found.debezium if found else None
    topics = topics or topics_of_heartbeat(part.topic for part in transaction_queries.partitions_of(row))
    return {"producer": producer, "connector": found, "debezium": topics}


def _lived(
    request: HttpRequest, cluster: str, kept: history_queries.TransactionHistory, row: Transaction | None
) -> Mapping[str, Any]:
    """Return what happened to an id so far, and how long that usually takes."""
    now, recent = now_ms(request), kept.life.recent
    asked = page_context.chrome_of(request).time_range
    shown = None if asked.is_live else asked.window()
    notable = history_queries.of_id(cluster, kept.key, limit=_NOTABLE_SHOWN)
    events = (
        notable
        if shown is None
        else history_queries.of_id(cluster, kept.key, limit=_NOTABLE_SHOWN, time_range=shown)
    )
    names = [kept.application]
    figures = history_queries.application_figures(
        cluster, since_ms=now - _DAY_MS, until_ms=now, applications=names
    )
    mine = figures.get(kept.application, history_queries.ApplicationHistory())
    usual = transaction_timeline.usual_durations(recent, kept.application, mine.open_times, mine.marker_times)
    bars, marks = (
        transaction_timeline.timeline_bars(recent, row, now),
        transaction_timeline.timeline_marks(recent),
    )
    broker = None if row is None else blocking.coordinator_brokers([row]).get(row.pk)
    newest = transaction_timeline.newest_transaction(
        recent, [history_queries.transition_of(each) for each in notable]
    )
    lines = _recent(cluster, kept)
    actions = {each.transition.offset: attributions.action_words(each.action) for each in lines}
    return {
        "broker": broker,
        "steps": _steps(row, newest, broker, actions) if row is not None else (),
        "fence": _last_fence(row, lines),
        "chart": charts.timeline_figure(bars, marks, now_ms=now, shown=shown) if bars or marks else None,
        "chart_words": transaction_timeline.timeline_summary(bars, marks),
        "recent": lines,
        "usual": usual,
        "own": next((each for each in usual if each.whose == transaction_timeline.THIS), None),
        "notable": [TransitionRow(each, history_queries.verdict_evidence(each)) for each in events],
        "ranged": shown is not None,
        "events_url": events_url(cluster, kept.transactional_id),
        "episodes": [
            row_of(each)
            for each in recovery_queries.of_id(cluster, kept.key, limit=_EPISODES, time_range=shown)
        ],
    }


def _recent(cluster: str, kept: history_queries.TransactionHistory) -> Sequence[RecentTransition]:
    recent = kept.life.recent
    actions = attributions.of_transitions(cluster, kept.key, recent)
    pairs = zip(recent, actions, strict=True)
    return [
        RecentTransition(each, explain_transition(each, attributions.action_words(action)), action)
        for each, action in pairs
    ]


def _last_fence(row: Transaction | None, recent: Sequence[RecentTransition]) -> Action | None:
    """The fence of ours after which no producer has come back, None where that is not so."""
    last = recent[0] if recent else None
    if row is None or row.state != TransactionState.EMPTY or last is None:
        return None
    return last.action if last.transition.reason is TransitionReason.FENCED_BY_ACTION else None


def _steps(
    row: Transaction,
    newest: transaction_timeline.NewestTransaction,
    broker: int | None,
    names: Mapping[int, str],
) -> Sequence[transaction_steps.TransactionStep]:
    log_partitions = visibility.state_log_partitions(row.cluster.name)
    return transaction_steps.lifecycle_steps(
        row,
        transaction_queries.partitions_of(row),
        log_partitions,
        newest,
        broker,
        names,
        transaction_offsets(row),
    )


def _raw(row: Transaction, partitions: Sequence[Any]) -> dict[str, Any]:
    names = (
        "transactional_id",
        "state",
        "producer_id",
        "producer_epoch",
        "timeout_ms",
        "started_ms",
        "updated_ms",
        "client_version",
        "log_partition",
        "log_offset",
        "rev",
    )
    facts: dict[str, Any] = {"cluster": row.cluster.name} | {name: getattr(row, name) for name in names}
    facts["partitions"] = {part.topic: list(part.partitions) for part in partitions}
    facts["transactional_id_bytes"] = len(text.unescape_text(row.transactional_id))
    return facts
