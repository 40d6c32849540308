"""Cards of open incidents: the cause in words, impact, effects, and the one action to take."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from django.http import HttpRequest

from dashboard.actions import offers
from dashboard.incidents import queries as incident_queries
from dashboard.incidents.queries import Recurrence, incidents_as_of, stored_facts
from dashboard.models import FindingRecord, Incident, IncidentFinding
from dashboard.system import owners
from dashboard.system.scenes import SceneBoard, read_board
from dashboard.web import action_buttons, addresses
from dashboard.web.action_buttons import Button
from dashboard.web.per_request import now_ms
from fenceline.facts import Severity
from fenceline.grouping import grouped
from fenceline.incidents.facts import facts_of_finding
from fenceline.incidents.outcomes import action_candidates
from fenceline.incidents.sentences import (
    IncidentFacts,
    closed_headline,
    incident_explanation,
    incident_title,
)
from fenceline.owners import Owner
from fenceline.plans.plan import Act
from fenceline.text import Sentence, as_of

#: Maximum findings of an incident whose actions are looked up.
_ACTIONABLE = 10
#: Maximum effects on a card.
_EFFECTS = 20
_ORDER = [severity.value for severity in Severity]
_OF_BATCHES = ("batch_prepared", "batch_lost", "query_failed")


@dataclass(frozen=True, slots=True)
class OpenProblem:
    """An open incident with its open findings, or a finding without an incident. The first of `findings` is
    the cause, or the worst remaining effect after the cause's end.
    """

    incident: Incident | None
    findings: Sequence[FindingRecord]

    @property
    def severity(self) -> str:
        return (self.incident or self.findings[0]).severity

    @property
    def facts(self) -> IncidentFacts:
        known = stored_facts(self.incident) if self.incident else None
        return known or facts_of_finding(self.findings[0], self.findings[0].since_ms)


@dataclass(frozen=True, slots=True)
class PrimaryAction:
    """The one action of an incident: a button that makes a plan, else a link to the cause."""

    buttons: Sequence[Button]
    url: str
    words: str


def open_problems(cluster: str, findings: Sequence[FindingRecord]) -> Sequence[OpenProblem]:
    """Return the open incidents and the open findings without one, by damage and deadline."""
    rows = incident_queries.open_incidents(cluster)
    members = incident_queries.open_findings_of(rows, findings)
    # Findings of an incident may end between the two queries.
    grouped = [OpenProblem(row, members[row.pk]) for row in rows if row.pk in members]
    known = {finding.pk for findings_of_row in members.values() for finding in findings_of_row}
    alone = [OpenProblem(None, [row]) for row in findings if row.pk not in known]
    return sorted([*grouped, *alone], key=_urgency)


def incident_cards(
    request: HttpRequest,
    problems: Sequence[OpenProblem],
    facts: Sequence[IncidentFacts],
    shared: Mapping[int, Sequence[int]],
) -> Sequence[Mapping[str, Any]]:
    """Return problems as cards, with owners and actions; `shared` comes from `shared_effects`."""
    candidates = [row for problem in problems for row in _actionable(problem.findings)]
    action_buttons.prefetch_offers(request, candidates)
    whose = owners.of_findings([problem.findings[0] for problem in problems])
    again = incident_queries.recurrences([problem.incident for problem in problems if problem.incident])
    board = read_board()
    return [
        _card(
            request,
            problem,
            known,
            whose[problem.findings[0].pk],
            shared,
            again.get(problem.incident.pk) if problem.incident else None,
            board,
        )
        for problem, known in zip(problems, facts, strict=True)
    ]


def primary_action(request: HttpRequest, findings: Sequence[FindingRecord]) -> PrimaryAction:
    """Return the one action of an incident by its open findings, the cause first.

    Actions that the planner refuses, or that may lose records, are not offered.
    """
    rows = _actionable(findings)
    action_buttons.prefetch_offers(request, rows)
    safe = [
        button for row in rows for button in action_buttons.of_finding(request, row) if not button.may_lose
    ]
    first = findings[0]
    best = sorted(safe, key=lambda button: button.act is not Act.FINISH_BATCH)[:1]
    return PrimaryAction(best, addresses.finding_url(first), addresses.finding_label(first))


def shared_effects(problems: Iterable[OpenProblem]) -> Mapping[int, Sequence[int]]:
    """Return the numbers of the incidents of each finding that belongs to several."""
    numbers_by_finding = grouped(
        (row.pk, problem.incident.pk) for problem in problems if problem.incident for row in problem.findings
    )
    return {finding: sorted(numbers) for finding, numbers in numbers_by_finding.items() if len(numbers) > 1}


def impact_words(row: Incident) -> Sequence[tuple[str, int]]:
    """Return the figures of an incident's impact that are not zero: for a closed one the largest."""
    is_batch = row.rule in _OF_BATCHES
    # Missing or recovered records block no reader.
    blocked = "" if row.rule == "audit_violated" else " blocked"
    words = {
        "transactions": "transactions prepared" if is_batch else "transactions",
        "partitions": f"partitions{blocked}",
        "backlog": "uncommitted backlog",
        "groups": "groups blocked",
        "queries": f"queries{blocked}",
        "records_lost": "records at risk",
    }
    impact = row.impact if row.closed_ms is None else row.peak
    return [(text, impact[key]) for key, text in words.items() if impact.get(key)]


def _actionable(findings: Sequence[FindingRecord]) -> Sequence[FindingRecord]:
    return [row for row in action_candidates(findings) if row.rule in offers.ENDABLE][:_ACTIONABLE]


def _urgency(problem: OpenProblem) -> tuple[int, float, int, int]:
    """Order by severity; then by deadline of a loss, number of blocked readers, and age."""
    row, rank = problem.incident, _ORDER.index(problem.severity)
    if row is None:
        return rank, inf, 0, problem.findings[0].since_ms
    is_loss = bool(row.impact.get("records_lost")) or row.rule == "flink_commit_pending"
    loses = row.deadline_ms is not None and is_loss
    readers = row.impact.get("groups", 0) + row.impact.get("queries", 0)
    return rank, row.deadline_ms if loses and row.deadline_ms else inf, -readers, row.opened_ms


def _card(
    request: HttpRequest,
    problem: OpenProblem,
    facts: IncidentFacts,
    owner: Owner | None,
    shared: Mapping[int, Sequence[int]],
    recurrence: Recurrence | None,
    board: SceneBoard | None,
) -> Mapping[str, Any]:
    row, (shown, *effects) = problem.incident, problem.findings
    own = row.pk if row else 0
    others = {effect.pk: [n for n in shared.get(effect.pk, ()) if n != own] for effect in effects}
    return {
        "incident": row,
        "finding": shown,
        "severity": problem.severity,
        "title": incident_title(facts),
        "explanation": incident_explanation(facts, now_ms=now_ms(request)),
        "owner": owner,
        "action": primary_action(request, problem.findings),
        "effects": [{"finding": effect, "others": others[effect.pk]} for effect in effects[:_EFFECTS]],
        "effect_number": len(effects),
        # Other incidents that share an effect: all of their causes must end.
        "others": sorted({number for numbers in others.values() for number in numbers}),
        "figures": impact_words(row) if row else (),
        # The deadline and its consequence; None without a known instant.
        "deadline_ms": facts.deadline_ms,
        "deadline_kind": facts.deadline_kind,
        "since_ms": facts.since_ms,
        "recurrence": recurrence,
        # The sandbox's scene that caused it; None for other incidents.
        "scene": board.played_about(facts.name, facts.since_ms) if board else None,
    }


def incident_lines(rows: Sequence[Incident], at_ms: int | None = None) -> Sequence[Mapping[str, Any]]:
    """Return incidents as lines, in their order: as they are now, or as they were at an instant."""
    again = incident_queries.recurrences(rows)
    shown = rows if at_ms is None else incidents_as_of(rows, at_ms)
    return [
        {
            "row": row,
            "title": headline_of(row) if at_ms is None else as_of(headline_of(row), at_ms),
            "figures": impact_words(row),
            "recurrence": again.get(row.pk),
        }
        for row in shown
    ]


def newest_cause(members: Sequence[IncidentFinding]) -> IncidentFinding | None:
    """Return the current cause among an incident's findings, else the last one."""
    causes = [member for member in members if member.role == IncidentFinding.Role.CAUSE]
    return max(causes, key=lambda member: (member.until_ms is None, member.pk), default=None)


def headline_of(row: Incident) -> Sentence:
    """Return the title of an open incident; for a closed one, its title and its outcome."""
    facts = stored_facts(row)
    if facts is None:
        return (f"{row.rule} of {row.subject}",)
    if row.closed_ms is None:
        return incident_title(facts)
    return (closed_headline(facts, row.outcome, lasted_ms=row.closed_ms - row.since_ms),)
