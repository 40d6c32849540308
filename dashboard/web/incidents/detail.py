"""One incident: its cause, its impact, its outcome, and the actions taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from dashboard.actions.preview import preview_plan
from dashboard.alerts import queries as alert_queries
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
from dashboard.streaming.engines import producer_connector
from dashboard.streaming.registry import driver_of
from dashboard.system import access
from dashboard.system.access import actor_of
from dashboard.transactions import queries as transaction_queries
from dashboard.transactions.producers import producer_identity
from dashboard.web import addresses
from dashboard.web.charts.figures import Figure
from dashboard.web.charts.incident_figure import incident_figure
from dashboard.web.flow.picture import FlowPicture, flow_picture
from dashboard.web.incidents import cards, timeline
from dashboard.web.incidents.facts import FactsReader, OpenProblem
from dashboard.web.incidents.lines import newest_cause, summary_of
from dashboard.web.incidents.timeline import IncidentHistory
from dashboard.web.per_request import now_ms
from fenceline.alerts.matchers import matchers_text
from fenceline.flow.view import fold_flow
from fenceline.formatting import format_duration
from fenceline.incidents.evidence import (
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
from fenceline.incidents.sentences import IncidentFacts, incident_consequence, incident_title
from fenceline.sentences import Sentence

#: Findings and events of an incident that are read at once, and deliveries that are listed.
MOST, _DELIVERIES = 200, 50
#: Events before an incident was opened, and after it was closed, are shown with it.
_AROUND_MS = 300_000
#: A message that all is over is made so long after it, at most.
_RESOLVED_MS = 900_000
#: Queries of an incident whose batches are drawn.
_QUERIES = 3


@dataclass(frozen=True, slots=True)
class FindingLine:
    """A finding of an incident; `kept` is None once only its summary is kept."""

    of: IncidentFinding
    kept: FindingRecord | None
    url: str
    #: Numbers of the other incidents that it is in now.
    others: Sequence[int]

    @property
    def summary(self) -> str:
        """Return its newest summary."""
        return (self.kept or self.of).summary


@dataclass(frozen=True, slots=True)
class IncidentStory:
    """What there is to show of one incident, for its page and for files."""

    history: IncidentHistory
    #: Title and consequence of an open one, summary and length of a closed one.
    headline: Sentence
    facts: IncidentFacts | None
    #: Its open findings, the cause first.
    findings: Sequence[FindingRecord]
    evidence: Sequence[EvidenceLine]

    @property
    def cause(self) -> IncidentFinding | None:
        """Return the newest cause: that of now, else the last one."""
        return newest_cause(self.history.members)


def read_story(row: Incident, *, now_ms: int) -> IncidentStory:
    """Return what there is to show of an incident, open or closed."""
    members = incident_queries.incident_findings(row, MOST)
    kept = incident_queries.finding_rows({each.finding for each in members})
    found = finding_queries.open_findings(row.cluster.name) if row.closed_ms is None else ()
    findings = incident_queries.open_findings_of([row], found).get(row.pk, ())
    history = IncidentHistory(
        row,
        members,
        kept,
        incident_queries.incident_events(row, MOST),
        _deliveries(row, kept),
        _queries(row, members, now_ms),
    )
    facts = None
    if findings:
        problem = OpenProblem(row, findings)
        facts = FactsReader([problem], now_ms=now_ms).facts_of(problem)
    headline = _headline(row, facts, members, kept, now_ms)
    return IncidentStory(history, headline, facts, findings, _evidence(history, now_ms))


def story_figure(story: IncidentStory, *, now_ms: int) -> tuple[Figure, str]:
    """Return the timeline of an incident, and what it shows in words."""
    span, lanes = timeline.lanes_of(story.history, now_ms=now_ms)
    return incident_figure(lanes, from_ms=span.from_ms, to_ms=span.to_ms), timeline.timeline_words(lanes)


def incident_context(request: HttpRequest, row: Incident, note: str) -> Mapping[str, Any]:
    """Return what the page of an incident shows; `note` is what could not be done a moment ago."""
    at_ms = now_ms(request)
    story = read_story(row, now_ms=at_ms)
    history = story.history
    lines = _finding_lines(history)
    now = [line for line in lines if line.of.until_ms is None]
    figure, words = story_figure(story, now_ms=at_ms)
    cause = story.cause
    return {
        "row": row,
        "cluster": row.cluster.name,
        "story": story,
        "cause": next((line for line in lines if line.of is cause), None),
        "effects": [line for line in now if line.of.role == IncidentFinding.Role.EFFECT],
        "past": [line for line in lines if line.of.until_ms is not None],
        "others": sorted({number for line in now for number in line.others}),
        "figures": cards.impact_words(row),
        "picture": _flow(story, at_ms),
        "chart": figure,
        "chart_words": words,
        "events": list(reversed(history.events)),
        "notes": [each for each in reversed(history.events) if each.kind == IncidentEventKind.NOTE],
        "deliveries": history.deliveries,
        "notified": _notified(history.deliveries),
        "longest_note": operators.LONGEST_NOTE,
        "note": note,
        **_links(request, row),
        **_actions(request, story, at_ms),
    }


def _headline(
    row: Incident,
    facts: IncidentFacts | None,
    members: Sequence[IncidentFinding],
    kept: Mapping[int, FindingRecord],
    now_ms: int,
) -> Sentence:
    if facts is not None:
        return (*incident_title(facts), ". ", *incident_consequence(facts, now_ms=now_ms))
    summary = summary_of(row, newest_cause(members), kept).rstrip(".")
    if row.closed_ms is None:
        return (f"{summary}.",)
    lasted_ms = row.closed_ms - (row.opened_ms if row.reopened_ms is None else row.reopened_ms)
    return (f"{summary}. It lasted {format_duration(lasted_ms // 1_000 * 1_000)}.",)


def _flow(story: IncidentStory, at_ms: int) -> FlowPicture | None:
    """Return the flow of the last hour around what an open incident affects, None where none is known."""
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
        "cannot_write": access.permission_refusal(actor_of(request, "page"), access.INCIDENTS),
        "cannot_silence": access.permission_refusal(actor_of(request, "page"), access.SILENCE),
    }


def _actions(request: HttpRequest, story: IncidentStory, at_ms: int) -> Mapping[str, Any]:
    """Return the one action of an open incident, and what becomes of it with and without."""
    facts = story.facts
    if facts is None:
        return {"action": None, "outcomes": ()}
    action = cards.primary_action(request, story.findings)
    plans = [preview_plan(each.act, each.cluster, each.subject, now_ms=at_ms) for each in action.buttons]
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
            each,
            history.kept.get(each.finding),
            addresses.subject_url(history.row.cluster.name, each.subject),
            others.get(each.finding, ()),
        )
        for each in history.members
    ]


def _deliveries(row: Incident, kept: Mapping[int, FindingRecord]) -> Sequence[Delivery]:
    until_ms = None if row.closed_ms is None else row.closed_ms + _RESOLVED_MS
    marks = {bytes(each.fingerprint) for each in kept.values()}
    return alert_queries.deliveries_of_findings(
        row.cluster_id, marks, from_ms=row.opened_ms, to_ms=until_ms, limit=_DELIVERIES
    )


def _notified(deliveries: Sequence[Delivery]) -> int:
    """Return how many channels took a message about an incident."""
    return len({row.channel_id for row in deliveries if row.state == Delivery.State.DELIVERED})


def _queries(row: Incident, members: Sequence[IncidentFinding], now_ms: int) -> Sequence[tuple[Query, Any]]:
    """Return the streaming queries that are its cause, or in it, with their drivers."""
    subjects = [row.subject, *(each.subject for each in members)]
    idents = dict.fromkeys(each.removeprefix("query:") for each in subjects if each.startswith("query:"))
    found = {
        each.ident: each for each in Query.objects.filter(cluster=row.cluster_id, ident__in=list(idents))
    }
    shown = [found[ident] for ident in idents if ident in found][:_QUERIES]
    return [(query, driver_of(query, now_ms)) for query in shown]


def _evidence(history: IncidentHistory, now_ms: int) -> Sequence[EvidenceLine]:
    """Return the facts in time order: each finding, and what a batch or a transaction went through before."""
    row = history.row
    lines = [
        finding_evidence(
            each.rule,
            (history.kept.get(each.finding) or each).summary,
            history.since_ms(each),
            is_cause=each.role == IncidentFinding.Role.CAUSE and each.until_ms is None,
        )
        for each in history.members
    ]
    for query, driver in history.queries:
        if f"query:{query.ident}" == row.subject:
            lines += _batch_lines(query, now_ms)
            lines += driver_evidence(str(query), driver)
    return evidence_in_order([*lines, *_transaction_lines(row)])


def _batch_lines(query: Query, now_ms: int) -> Sequence[EvidenceLine]:
    """Return the steps of the oldest batch that is prepared and not committed."""
    found: list[EvidenceLine] = []
    for decision in streaming_batches.open_decisions([query])[:1]:
        entry = streaming_batches.find_entry(query, decision.batch_id)
        links = chain_of(query, entry.batch, now_ms=now_ms) if entry else ()
        found += batch_evidence(decision.batch_id, decision.round, links)
    return found


def _transaction_lines(row: Incident) -> Iterator[EvidenceLine]:
    """Yield who uses the transactional id that is the cause, and of an open incident when it began."""
    kind, _, name = row.subject.partition(":")
    found = transaction_queries.find_transaction(row.cluster.name, name) if kind == "transaction" else None
    if found is None:
        return
    yield from _producer_lines(found, row.opened_ms)
    if found.started_ms is not None and row.closed_ms is None:
        words = f"{name} began its transaction: producer id {found.producer_id}, epoch {found.producer_epoch}"
        yield EvidenceLine(found.started_ms, words, f"__transaction_state-{found.log_partition}")


def _producer_lines(row: Transaction, at_ms: int) -> Iterator[EvidenceLine]:
    producer = producer_identity(row.cluster_id, row.transactional_id)
    if producer is None:
        return
    yield producer_evidence(row.transactional_id, producer, at_ms)
    if connector := producer_connector(row.cluster_id, producer):
        of = connector.row
        yield connector_evidence(of.name, of.state, connector.task, of.seen_ms, of.url)


def event_words(each: IncidentEvent) -> str:
    """Return a line of an incident's history."""
    about = f"{each.rule.replace('_', ' ')} of {each.subject}" if each.rule else ""
    by = f"by {each.actor}" if each.actor else ""
    parts = (f"{each.kind.replace('_', ' ')} {by}".strip(), about, each.text)
    return ": ".join(part for part in parts if part)
