"""Transactional ids: the list, and each id's own page."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from django.http import HttpRequest

from dashboard.engines.flink_jobs import decision_of
from dashboard.engines.queries import producer_connector
from dashboard.evaluation import blocking, finding_queries
from dashboard.flow.preflight import id_bounds
from dashboard.history import queries as history_queries
from dashboard.models import Action, FindingRecord, Transaction, TransitionRecord
from dashboard.models.transactions import NAME
from dashboard.recoveries import queries as recovery_queries
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import TRANSACTIONS
from dashboard.runtime.criteria import parameter_choices
from dashboard.streaming import batches as streaming_batches
from dashboard.system import owners
from dashboard.transactions import attributions
from dashboard.transactions import queries as transaction_queries
from dashboard.transactions.producers import observed_application, producer_identity, transaction_offsets
from dashboard.web import action_buttons, addresses, page_context, transaction_steps, transaction_timeline
from dashboard.web.charts import figures as charts
from dashboard.web.charts.series_figures import events_url
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.lists import Filters, marked_labels
from dashboard.web.headlines.detail import DetailHeadline
from dashboard.web.headlines.transaction import expired_headline, transaction_headline
from dashboard.web.pages.recoveries import row_of
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import (
    CLUSTER,
    OWNER,
    clock_steps,
    list_view,
    of_known_cluster,
    page_view,
    unknown_row,
)
from dashboard.web.routes import MOST_HITS, Hit, PageRoute
from fenceline.decode import text
from fenceline.engines.status import topics_of_heartbeat
from fenceline.facts import Severity, TransactionState, Transition, TransitionReason
from fenceline.history.reports import ReportFigures
from fenceline.kafka.commits import TOPIC as OFFSETS
from fenceline.plans.plan import Act
from fenceline.text import explain_transition

_ABOVE = "\U0010ffff"
#: A page checks this often whether a timeout has passed.
_PASSING_MS = 15_000
#: Maximum recoveries on the page of an id.
_EPISODES = 10
#: The period for an application's usual durations.
_DAY_MS = 86_400_000
#: Maximum partitions on the page of a transaction.
_MOST_PLACES = 50
#: Maximum notable transitions that are read for the page of an id, and rows of equal ones.
_NOTABLE_SHOWN, _ROWS = 20, 6
#: Maximum ids with a finding that are sorted first.
_MOST_FIRST = 200
_WAITING = "Waiting"
#: Label, sort key, class, and the first direction of sorting.
_COLUMNS = (
    ("State", "state", "col-state", "asc"),
    ("Transactional id", "id", "col-name", "asc"),
    ("Finding", "attention", "col-finding", "asc"),
    (CLUSTER, "", "col-cluster", ""),
    ("Open for", "started", "col-age number", "asc"),
    ("Application", "", "col-application", ""),
    (OWNER, "", "col-owner", ""),
    ("Producer id", "producer", "col-producer number", "asc"),
    ("Epoch", "epoch", "col-epoch number", "desc"),
    (_WAITING, "", "col-waiting number", ""),
    ("Timeout", "timeout", "col-timeout number", "desc"),
    ("Partitions", "partitions", "col-partitions number", "desc"),
    ("Last update", "updated", "col-updated number", "desc"),
)


class TransactionListQuery(list_forms.NumberedList, transaction_queries.SortedTransactions):
    """The query string of the list."""


def _ageing(request: HttpRequest, wanted: TransactionListQuery) -> int:
    """Return the clock if a filter by age admits rows as time passes, else 0."""
    return now_ms(request) if wanted.min_age_s is not None else 0


@list_view("transactions/list", TransactionListQuery, _COLUMNS, _ageing)
def transaction_list(request: HttpRequest, wanted: TransactionListQuery) -> Mapping[str, Any]:
    # Waiting readers are read only for open transactions, because they need three SQL queries for a page.
    waiting = wanted.only_open
    findings = page_context.chrome_of(request).worst_findings("transaction")
    page = transaction_queries.transaction_page(
        wanted, now_ms=now_ms(request), page=wanted.page, size=wanted.size, first=list(findings)[:_MOST_FIRST]
    )
    select = action_buttons.row_selection(request, Act.FENCE, "Fence producers…")
    lines = [_line(row, findings, can_select=select is not None) for row in page.items]
    states = parameter_choices(TransactionListQuery, "state")
    marks = marked_labels(state for state in states if state != "open")
    return {
        "page": page,
        "rows": lines,
        "select": select if any(line["can_select"] for line in lines) else None,
        "unsorted": "" if page.sorted else wanted.sort,
        "without": () if waiting else (_WAITING,),
        "filters": [Filters(request.GET, wanted).row("state", states, marks)],
        "waiting": waiting,
        "waits": blocking.waits_of(page.items) if waiting else {},
    }


def _line(
    row: Transaction, findings: Mapping[tuple[int, str], FindingRecord], *, can_select: bool
) -> Mapping[str, Any]:
    return {
        "of": row,
        "finding": findings.get((row.cluster_id, row.transactional_id)),
        "owner": owners.of_transaction(row.transactional_id),
        "can_select": can_select and row.state == TransactionState.ONGOING,
    }


# A timeout passes without a new revision.
@page_view("transactions/detail", clock_steps(_PASSING_MS))
@of_known_cluster
def transaction_detail(request: HttpRequest, cluster: str, transactional_id: str) -> Mapping[str, Any]:
    row = transaction_queries.find_transaction(cluster, transactional_id)
    if row is not None:
        key = bytes(row.key)
        recent = history_queries.recent_transitions(row.cluster_id, key, row.log_partition)
        kept = history_queries.TransactionHistory(key, row.transactional_id, row.application, *recent)
        known, lived = _known(request, row), _lived(request, cluster, kept, row)
        bounds = id_bounds(row, kept.recent, known["written_for"], known["flink"])
        headline = _headline(request, row, known, lived)
        return {"row": row, "kept": kept, "headline": headline, "bounds": bounds, **known, **lived}
    gone = history_queries.forgotten_transaction(cluster, transactional_id)
    if gone is not None:
        headline = expired_headline(gone.expired_ms)
        return {"row": None, "kept": gone, "headline": headline, **_lived(request, cluster, gone, None)}
    return unknown_row(cluster, transactional_id)


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
        recent=[line["transition"] for line in lived["recent"]],
        now_ms=now_ms(request),
    )


def _known(request: HttpRequest, row: Transaction) -> Mapping[str, Any]:
    """Return the contents of the newest record of an id."""
    partitions = transaction_queries.partitions_of(row)
    findings = finding_queries.open_findings(row.cluster.name, f"transaction:{row.transactional_id}")
    waits = blocking.waits_of([row])[row.pk]
    owner = owners.of_transaction(row.transactional_id)
    behind = {**_producer(row), "flink": decision_of(row, now_ms=now_ms(request))}
    is_plain = not behind["producer"] and not behind["flink"]
    places = blocking.transaction_partitions(row, waits, most=_MOST_PLACES + 1)
    return {
        "waits": waits,
        "places": places[:_MOST_PLACES],
        "more_places": len(places) > _MOST_PLACES,
        "candidates": blocking.candidate_groups(row, waits),
        "offsets_wait": [offsets for offsets in waits.waiting if offsets.pending],
        "owner": owner,
        "named": observed_application(row, owner) if is_plain else None,
        "written_for": streaming_batches.written_for(row.cluster_id, row.transactional_id),
        **behind,
        "findings": findings,
        "offers": action_buttons.of_transaction(request, row, waits.pins),
        "tone": next((finding.severity for finding in findings if finding.severity != Severity.INFO), ""),
        "machine": transaction_timeline.draw_diagrams(row.state),
        "partitions": [part for part in partitions if part.topic != OFFSETS],
        "offsets": [part for part in partitions if part.topic == OFFSETS],
        "raw": json.dumps(_raw(row, partitions), indent=2, ensure_ascii=False),
    }


def _producer(row: Transaction) -> Mapping[str, Any]:
    """Return the producer of an id, and for a Connect task a worker's report about its connector."""
    producer = producer_identity(row.cluster_id, row.transactional_id)
    if producer is None or "connector" not in dict(producer.parts):
        return {"producer": producer}
    connector = producer_connector(row.cluster_id, producer)
    topics = connector.debezium if connector else None
    topics = topics or topics_of_heartbeat(part.topic for part in transaction_queries.partitions_of(row))
    return {"producer": producer, "connector": connector, "debezium": topics}


def _lived(
    request: HttpRequest, cluster: str, kept: history_queries.TransactionHistory, row: Transaction | None
) -> Mapping[str, Any]:
    now, recent = now_ms(request), kept.recent
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
    mine = figures.get(kept.application, ReportFigures())
    usual = transaction_timeline.usual_durations(recent, kept.application, mine.open_times, mine.marker_times)
    bars, marks = (
        transaction_timeline.timeline_bars(recent, row, now),
        transaction_timeline.timeline_marks(recent),
    )
    broker = None if row is None else blocking.coordinator_brokers([row]).get(row.pk)
    newest = transaction_timeline.newest_transaction(
        recent, [history_queries.transition_of(record) for record in notable]
    )
    actions = attributions.of_transitions(cluster, kept.key, recent)
    caused = [
        (transition, attributions.action_words(action))
        for transition, action in zip(recent, actions, strict=True)
    ]
    words = {transition.offset: words for transition, words in caused}
    return {
        "broker": broker,
        "steps": _steps(row, newest, broker, words) if row is not None else (),
        "fence": _last_fence(row, recent, actions),
        "chart": charts.timeline_figure(bars, marks, now_ms=now, shown=shown) if bars or marks else None,
        "chart_words": transaction_timeline.timeline_summary(bars, marks),
        "recent": [
            {"transition": transition, "evidence": explain_transition(transition, words)}
            for transition, words in caused
        ],
        "usual": usual,
        "own": next((durations for durations in usual if durations.whose == transaction_timeline.THIS), None),
        "notable": _folded(events)[:_ROWS],
        "ranged": shown is not None,
        "events_url": events_url(cluster, kept.transactional_id),
        "episodes": [
            row_of(recovery)
            for recovery in recovery_queries.of_id(cluster, kept.key, limit=_EPISODES, time_range=shown)
        ],
    }


def _folded(events: Sequence[TransitionRecord]) -> Sequence[Mapping[str, Any]]:
    runs = groupby(events, key=lambda event: (event.kind, event.confidence, event.reason, event.revised_from))
    return [
        {
            "transition": run[0],
            "evidence": history_queries.verdict_evidence(run[0]),
            "times": len(run),
            "first_ms": run[-1].at_ms,
        }
        for run in (list(events) for _, events in runs)
    ]


def _last_fence(
    row: Transaction | None, recent: Sequence[Transition], actions: Sequence[Action | None]
) -> Action | None:
    """Return our fence if no producer has returned after it, else None."""
    if row is None or row.state != TransactionState.EMPTY or not recent:
        return None
    return actions[0] if recent[0].reason is TransitionReason.FENCED_BY_ACTION else None


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


def _search(cluster: str, asked: str) -> Iterable[Hit]:
    for of in visibility.clusters_named(cluster):
        rows = Transaction.objects.filter(cluster=of).alias(name=NAME)
        rows = rows.filter(name__gte=asked, name__lt=asked + _ABOVE).order_by("name")
        for name, state in rows.values_list("transactional_id", "state")[:MOST_HITS]:
            yield Hit(name, addresses.transaction_url(of.name, name), f"{state} · {of.name}")


ROUTES = (
    PageRoute(
        "transactions",
        "transactions",
        transaction_list,
        search=_search,
        key="t",
        heading="Monitor",
        shows=TRANSACTIONS,
        searched="transactional ids",
        has_files=True,
        as_of_now="The history of transactional ids' states is not kept.",
    ),
    PageRoute(
        "transaction",
        "transactions/<str:cluster>/<text:transactional_id>",
        transaction_detail,
        parent="transactions",
        as_of_now="Its event history is of the range that you chose.",
    ),
)
