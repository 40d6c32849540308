"""What pages show of an incident: its cause, its impact in figures, what follows from it, what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.http import HttpRequest

from dashboard.incidents import queries as incident_queries
from dashboard.models import FindingRecord, Incident
from dashboard.system import owners
from dashboard.web import action_buttons
from dashboard.web.action_buttons import Button
from fenceline.facts import Severity
from fenceline.owners import Owner
from fenceline.plans.plan import Act

#: Findings of an incident whose actions are looked up, the cause first.
_ACTIONABLE = 10
#: Effects that a card names.
_EFFECTS = 20
_ORDER = [severity.value for severity in Severity]
_FIGURES = {
    "transactions": "transactions",
    "partitions": "partitions",
    "backlog": "uncommitted backlog",
    "groups": "groups",
    "queries": "queries",
    "records_lost": "records at risk",
}


@dataclass(frozen=True, slots=True)
class OpenProblem:
    """An open incident with its open findings, or a finding that is in none.

    The first of `findings` is the cause, or once that is over the worst effect that is left.
    """

    incident: Incident | None
    findings: Sequence[FindingRecord]

    @property
    def urgency(self) -> tuple[int, int]:
        """Return the order of a list: worst and oldest first."""
        if self.incident is not None:
            return _ORDER.index(self.incident.severity), self.incident.opened_ms
        return _ORDER.index(self.findings[0].severity), self.findings[0].since_ms


@dataclass(frozen=True, slots=True)
class IncidentCard:
    """An open problem with what pages add to it."""

    incident: Incident | None
    finding: FindingRecord
    owner: Owner | None
    #: Of an incident one at most: the action to take first.
    offers: Sequence[Button]
    effects: Sequence[FindingRecord]
    effect_number: int
    #: Words and numbers of what it affects.
    figures: Sequence[tuple[str, int]]
    #: When its first open transaction times out; None where none is known.
    deadline_ms: int | None


def open_problems(cluster: str, findings: Sequence[FindingRecord]) -> Sequence[OpenProblem]:
    """Return the open incidents and those of the open findings that are in none, worst and oldest first."""
    rows = incident_queries.open_incidents(cluster)
    members = incident_queries.open_findings_of(rows, findings)
    # Findings of one may end between the two queries.
    grouped = [OpenProblem(row, members[row.pk]) for row in rows if row.pk in members]
    known = {each.pk for found in members.values() for each in found}
    alone = [OpenProblem(None, [row]) for row in findings if row.pk not in known]
    return sorted([*grouped, *alone], key=lambda each: each.urgency)


def incident_cards(request: HttpRequest, problems: Sequence[OpenProblem]) -> Sequence[IncidentCard]:
    """Return problems as cards, with owners and the actions to take."""
    action_buttons.prefetch_offers(request, [row for each in problems for row in each.findings[:_ACTIONABLE]])
    whose = owners.of_findings([each.findings[0] for each in problems])
    return [_card(request, each, whose) for each in problems]


def primary_button(request: HttpRequest, findings: Sequence[FindingRecord]) -> Sequence[Button]:
    """Return the action to take first, of the cause or else of an effect; none where none is safe.

    What the planner refuses is not offered at all; to roll a batch back loses what is prepared.
    """
    action_buttons.prefetch_offers(request, findings[:_ACTIONABLE])
    offered = [each for row in findings[:_ACTIONABLE] for each in action_buttons.of_finding(request, row)]
    safe = [each for each in offered if each.act is not Act.ROLL_BACK_BATCH]
    return sorted(safe, key=lambda each: each.act is not Act.FINISH_BATCH)[:1]


def impact_words(row: Incident) -> Sequence[tuple[str, int]]:
    """Return the figures of an incident's impact that are known and not zero."""
    return [(words, number) for key, words in _FIGURES.items() if (number := row.impact.get(key))]


def _card(request: HttpRequest, problem: OpenProblem, whose: Mapping[int, Owner | None]) -> IncidentCard:
    row, (shown, *effects) = problem.incident, problem.findings
    if row is None:
        buttons = action_buttons.of_finding(request, shown)
        return IncidentCard(None, shown, whose[shown.pk], buttons, (), 0, (), None)
    buttons = primary_button(request, problem.findings)
    return IncidentCard(
        row,
        shown,
        whose[shown.pk],
        buttons,
        effects[:_EFFECTS],
        len(effects),
        impact_words(row),
        row.deadline_ms,
    )
