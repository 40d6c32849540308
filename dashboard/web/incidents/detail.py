"""One incident: its cause, its impact, its outcome, and the actions taken."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.http import HttpRequest

from dashboard.actions.planning import preview_plan
from dashboard.alerts import queries as alert_queries
from dashboard.engines.queries import producer_connector
from dashboard.evaluation import finding_queries
from dashboard.flow.queries import flow_around
from dashboard.incidents import operators
from dashboard.incidents import queries as incident_queries
from dashboard.models import (
    Delivery,
    FindingRecord,
    Incident,
    IncidentEvent,
    IncidentFinding,
    Query,
    Transaction,
)
from dashboard.streaming import batches as streaming_batches
from dashboard.streaming.batch_state import chain_of
from dashboard.streaming.registry import driver_of
from dashboard.system import access, cluster_limits
from dashboard.system.access import actor_of
from dashboard.transactions import queries as transaction_queries
from dashboard.transactions.producers import producer_identity
from dashboard.web import addresses
from dashboard.web.charts.figures import Figure
from dashboard.web.charts.incident_figure import incident_figure
from dashboard.web.flow.picture import flow_picture
from dashboard.web.forms.lists import chosen_tab, detail_tabs
from dashboard.web.incidents import cards, timeline
from dashboard.web.incidents.cards import headline_of, newest_cause
from dashboard.web.incidents.timeline import IncidentHistory
from dashboard.web.per_request import now_ms
from fenceline.alerts.labels import matchers_text
from fenceline.flow.view import fold_flow
from fenceline.formatting import format_duration
from fenceline.incidents.facts import (
    EvidenceLine,
    batch_evidence,
    connector_evidence,
    driver_evidence,
    evidence_in_order,
    finding_evidence,
    producer_evidence,
)
from fenceline.incidents.findings import FindingKey, IncidentEventKind
from fenceline.incidents.impact import affected_things
from fenceline.incidents.outcomes import OutcomeRow, acted_words, nothing_words, outcome_rows
from fenceline.incidents.sentences import IncidentFacts, incident_consequence
from fenceline.text import Sentence

#: Maximum findings and events of an incident in one read, and maximum listed deliveries.
MOST, _DELIVERIES = 200, 50
#: Events before an incident was opened, and after it was closed, are shown within this time.
_AROUND_MS = 300_000
#: The message about a closed incident is made within this time.
_RESOLVED_MS = 900_000
#: Maximum queries of an incident whose batches are drawn.
_QUERIES = 3


@dataclass(frozen=True, slots=True)
class FindingLine:
    """A finding of an incident; `kept` is None once only its summary is stored."""

    of: IncidentFinding
    kept: FindingRecord | None
    url: str
    #: Numbers of the other open incidents that it belongs to.
    others: Sequence[int]

    @property
    def summary(self) -> str:
        """Return its newest summary."""
        return (self.kept or self.of).summary


@dataclass(frozen=True, slots=True)
class IncidentStory:
    """One incident for its page and its files."""

    history: IncidentHistory
    #: Title and consequence of an open incident; title, length and outcome of a closed one.
    headline: Sentence
    facts: IncidentFacts | None
    #: Its open findings, the cause first.
    findings: Sequence[FindingRecord]
    evidence: Sequence[EvidenceLine]

    @property
    def cause(self) -> IncidentFinding | None:
        """Return the present cause, else the last one."""
        return newest_cause(self.history.members)


def read_story(row: Incident, *, now_ms: int) -> IncidentStory:
    """Return an incident, open or closed, with all content of its page."""
    members = incident_queries.incident_findings(row, MOST)
    kept = incident_queries.finding_rows({member.finding for member in members})
    open_findings = finding_queries.open_findings(row.cluster.name) if row.closed_ms is None else ()
    findings = incident_queries.open_findings_of([row], open_findings).get(row.pk, ())
    history = IncidentHistory(
        row,
        members,
        kept,
        incident_queries.incident_events(row, MOST),
        _deliveries(row, kept),
        _queries(row, members, now_ms),
    )
    facts = cards.OpenProblem(row, findings).facts if findings else None
    headline = headline_of(row)
    if facts is not None:
        headline = (*headline, ". ", *incident_consequence(facts, now_ms=now_ms))
    return IncidentStory(history, headline, facts, findings, _evidence(history, now_ms))


def story_figure(story: IncidentStory, *, now_ms: int) -> tuple[Figure, str]:
    """Return the timeline of an incident, and its description as text."""
    span, lanes = timeline.lanes_of(story.history, now_ms=now_ms)
    return incident_figure(lanes, from_ms=span.from_ms, to_ms=span.to_ms), timeline.timeline_words(lanes)


def incident_context(request: HttpRequest, row: Incident, note: str) -> Mapping[str, Any]:
    """Return the context of an incident's page; `note` is the refusal of the last request."""
    at_ms = now_ms(request)
    story = read_story(row, now_ms=at_ms)
    history = story.history
    lines = _finding_lines(history)
    now = [line for line in lines if line.of.until_ms is None]
    figure, words = story_figure(story, now_ms=at_ms)
    tabs, cause = _tabs(history), story.cause
    tab = chosen_tab(request.GET, tabs)
    return {
        "row": row,
        "cluster": row.cluster.name,
        "story": story,
        "cause": next((line for line in lines if line.of is cause), None),
        "effects": [line for line in now if line.of.role == IncidentFinding.Role.EFFECT],
        "past": [line for line in lines if line.of.until_ms is not None],
        "others": sorted({number for line in now for number in line.others}),
        "figures": cards.impact_words(row),
        "recurrence": incident_queries.recurrences([row]).get(row.pk),
        "times": _times(row),
        "picture": _flow(story, at_ms) if tab == "affected" else None,
        "chart": figure,
        "chart_words": words,
        "events": fold_events(history.events)[::-1],
        "notes": _notes(history),
        "deliveries": history.deliveries,
        # The channels that took a message about it.
        "notified": len(
            {row.channel_id for row in history.deliveries if row.state == Delivery.State.DELIVERED}
        ),
        "longest_note": operators.LONGEST_NOTE,
        "note": note,
        "tabs": detail_tabs(request.GET, tabs),
        "tab_template": f"incidents/_{tab}.html",
        **_links(request, row),
        **_actions(request, story, at_ms),
    }


def _tabs(history: IncidentHistory) -> Mapping[str, str]:
    """Return the tabs of a page, with the number of notes and messages."""
    notes, messages = len(_notes(history)), len(history.deliveries)
    return {
        "affected": "Affected" if history.row.closed_ms is None else "Was affected",
        "history": "History",
        "notes": f"Notes ({notes})" if notes else "Notes",
        "notifications": f"Notifications ({messages})" if messages else "Notifications",
    }


def _notes(history: IncidentHistory) -> Sequence[IncidentEvent]:
    return [event for event in reversed(history.events) if event.kind == IncidentEventKind.NOTE]


def _times(row: Incident) -> Sequence[str]:
    """Return the durations of noticing, acknowledging and ending, as far as they are over."""
    spans = {
        "noticed after": (row.since_ms, row.opened_ms),
        "acknowledged after": (row.opened_ms, row.acknowledged_ms),
        "ended after": (row.since_ms, row.closed_ms),
    }
    return [
        f"{words} {format_duration(max(0, end_ms - start_ms) // 1_000 * 1_000)}"
        for words, (start_ms, end_ms) in spans.items()
        if end_ms is not None
    ]


def _flow(story: IncidentStory, at_ms: int) -> Mapping[str, Any] | None:
    """Return the flow of the last hour around an open incident's effects, None without a known flow."""
    if not story.findings:
        return None
    row = story.history.row
    subjects = {row.subject, *affected_things(FindingKey(row.rule, row.subject), story.findings)}
    flow = fold_flow(flow_around(row.cluster.name, subjects, now_ms=at_ms))
    return flow_picture(row.cluster.name, flow, "incident-flow") if flow.nodes else None


def _links(request: HttpRequest, row: Incident) -> Mapping[str, Any]:
    until_ms = None if row.closed_ms is None else row.closed_ms + _AROUND_MS
    return {
        "subject_url": addresses.subject_url(row.cluster.name, row.subject),
        "subject_label": addresses.subject_label(row.subject),
        "events_url": addresses.events_url(row.cluster.name, row.opened_ms - _AROUND_MS, until_ms),
        "silence_matchers": matchers_text([("incident", "=", str(row.pk))]),
        "cannot_write": access.permission_refusal(
            actor_of(request, "page"), access.INCIDENTS, row.cluster.name
        ),
        "cannot_silence": access.permission_refusal(actor_of(request, "page"), access.SILENCE)
        or cluster_limits.why_closed("silences"),
    }


def _actions(request: HttpRequest, story: IncidentStory, at_ms: int) -> Mapping[str, Any]:
    facts = story.facts
    if facts is None:
        return {"action": None, "outcomes": ()}
    action = cards.primary_action(request, story.findings)
    plans = [
        preview_plan(button.act, button.cluster, button.subjects[0], now_ms=at_ms)
        for button in action.buttons
    ]
    plan = next(iter(plans), None)
    outcomes: Sequence[OutcomeRow] = outcome_rows(facts, plan, now_ms=at_ms)
    return {
        "action": action,
        "outcomes": outcomes,
        "acted_words": acted_words(facts, action.buttons[0].words if plan else "", now_ms=at_ms),
        "nothing_words": nothing_words(facts, now_ms=at_ms),
        "deadline_ms": facts.deadline_ms,
        "deadline_kind": facts.deadline_kind,
    }


def _finding_lines(history: IncidentHistory) -> Sequence[FindingLine]:
    others = incident_queries.also_blocked_by(history.row, history.members)
    return [
        FindingLine(
            member,
            history.kept.get(member.finding),
            addresses.subject_url(history.row.cluster.name, member.subject),
            others.get(member.finding, ()),
        )
        for member in history.members
    ]


def _deliveries(row: Incident, kept: Mapping[int, FindingRecord]) -> Sequence[Delivery]:
    until_ms = None if row.closed_ms is None else row.closed_ms + _RESOLVED_MS
    marks = {bytes(finding.fingerprint) for finding in kept.values()}
    return alert_queries.deliveries_of_findings(
        row.cluster_id, marks, from_ms=row.opened_ms, to_ms=until_ms, limit=_DELIVERIES
    )


def _queries(row: Incident, members: Sequence[IncidentFinding], now_ms: int) -> Sequence[tuple[Query, Any]]:
    """Return the streaming queries among an incident's subjects, with their drivers."""
    subjects = [row.subject, *(member.subject for member in members)]
    idents = dict.fromkeys(
        subject.removeprefix("query:") for subject in subjects if subject.startswith("query:")
    )
    queries = {
        query.ident: query for query in Query.objects.filter(cluster=row.cluster_id, ident__in=list(idents))
    }
    shown = [queries[ident] for ident in idents if ident in queries][:_QUERIES]
    return [(query, driver_of(query, now_ms)) for query in shown]


def _evidence(history: IncidentHistory, now_ms: int) -> Sequence[EvidenceLine]:
    """Return the cause, then facts by time: findings, and earlier steps of a batch or a transaction."""
    row = history.row
    cause = newest_cause(history.members)
    lines = [
        finding_evidence(
            member.rule,
            (history.kept.get(member.finding) or member).summary,
            history.since_ms(member),
            is_cause=member is cause,
        )
        for member in history.members
    ]
    for query, driver in history.queries:
        if f"query:{query.ident}" == row.subject:
            lines += _batch_lines(query, now_ms)
            lines += driver_evidence(str(query), driver)
    return evidence_in_order([*lines, *_transaction_lines(row)])


def _batch_lines(query: Query, now_ms: int) -> Sequence[EvidenceLine]:
    """Return the steps of the oldest batch that is prepared and not committed."""
    lines: list[EvidenceLine] = []
    for decision in streaming_batches.open_decisions([query])[:1]:
        entry = streaming_batches.find_entry(query, decision.batch_id)
        links = chain_of(query, entry.batch, now_ms=now_ms) if entry else ()
        lines += batch_evidence(decision.batch_id, decision.round, links)
    return lines


def _transaction_lines(row: Incident) -> Iterator[EvidenceLine]:
    """Yield the producer of the causing transactional id, and when an open incident's transaction began."""
    kind, _, name = row.subject.partition(":")
    transaction = (
        transaction_queries.find_transaction(row.cluster.name, name) if kind == "transaction" else None
    )
    if transaction is None:
        return
    yield from _producer_lines(transaction, row.opened_ms)
    if transaction.started_ms is not None and row.closed_ms is None:
        producer = f"producer id {transaction.producer_id}, epoch {transaction.producer_epoch}"
        words = f"{name} began its transaction: {producer}"
        yield EvidenceLine(transaction.started_ms, words, f"__transaction_state-{transaction.log_partition}")


def _producer_lines(row: Transaction, at_ms: int) -> Iterator[EvidenceLine]:
    producer = producer_identity(row.cluster_id, row.transactional_id)
    if producer is None:
        return
    yield producer_evidence(row.transactional_id, producer, at_ms)
    if connector := producer_connector(row.cluster_id, producer):
        of = connector.row
        yield connector_evidence(of.name, of.state, connector.task, of.seen_ms, of.url)


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """A line of an incident's history; `times` consecutive events of one kind and rule are one line."""

    of: IncidentEvent
    times: int

    @property
    def text(self) -> str:
        about = f"{self.of.rule.replace('_', ' ')} of {self.of.subject}" if self.of.rule else ""
        about += f" and {self.times - 1:,} more" if self.times > 1 else ""
        by = f"by {self.of.actor}" if self.of.actor else ""
        parts = (f"{self.of.kind.replace('_', ' ')} {by}".strip(), about, self.of.text)
        return ": ".join(part for part in parts if part)


def fold_events(events: Sequence[IncidentEvent]) -> Sequence[HistoryLine]:
    """Return the events of a history as lines, in their order."""
    runs = [list(run) for _, run in groupby(events, key=lambda event: (event.kind, event.rule, event.text))]
    return [HistoryLine(run[0], len(run)) for run in runs]
