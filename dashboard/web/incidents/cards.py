"""What pages show of an open incident: its cause in words, impact, effects, and the one action to take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from django.http import HttpRequest

from dashboard.actions import offers
from dashboard.incidents import queries as incident_queries
from dashboard.models import FindingRecord, Incident
from dashboard.system import owners
from dashboard.web import action_buttons, addresses
from dashboard.web.action_buttons import Button
from dashboard.web.incidents.facts import FactsReader, OpenProblem
from dashboard.web.per_request import now_ms
from fenceline.facts import Severity
from fenceline.incidents.primary_action import action_candidates
from fenceline.incidents.sentences import (
    DeadlineKind,
    IncidentFacts,
    incident_explanation,
    incident_title,
)
from fenceline.owners import Owner
from fenceline.plans.plan import Act
from fenceline.sentences import Sentence

#: Findings of an incident whose actions are looked up.
_ACTIONABLE = 10
#: Effects that a card names.
_EFFECTS = 20
_ORDER = [severity.value for severity in Severity]
_OF_BATCHES = ("batch_prepared", "batch_lost", "query_failed")


@dataclass(frozen=True, slots=True)
class PrimaryAction:
    """The one action of an incident: a button that makes a plan, or where none helps a link to the cause."""

    buttons: Sequence[Button]
    url: str
    words: str


@dataclass(frozen=True, slots=True)
class EffectLine:
    """An effect, and the numbers of the other incidents that it is in."""

    finding: FindingRecord
    others: Sequence[int]


@dataclass(frozen=True, slots=True)
class IncidentCard:
    """An open problem with what pages add to it."""

    incident: Incident | None
    finding: FindingRecord
    severity: str
    title: Sentence
    explanation: Sentence
    owner: Owner | None
    action: PrimaryAction
    effects: Sequence[EffectLine]
    effect_number: int
    #: Other incidents that share an effect: all of their causes must end.
    others: Sequence[int]
    #: Words and numbers of what it affects.
    figures: Sequence[tuple[str, int]]
    #: When time is up, and what happens then; None where no instant is known.
    deadline_ms: int | None
    deadline_kind: DeadlineKind | None


def open_problems(cluster: str, findings: Sequence[FindingRecord]) -> Sequence[OpenProblem]:
    """Return the open incidents and those of the open findings that are in none, by damage and deadline."""
    rows = incident_queries.open_incidents(cluster)
    members = incident_queries.open_findings_of(rows, findings)
    # Findings of one may end between the two queries.
    grouped = [OpenProblem(row, members[row.pk]) for row in rows if row.pk in members]
    known = {each.pk for found in members.values() for each in found}
    alone = [OpenProblem(None, [row]) for row in findings if row.pk not in known]
    return sorted([*grouped, *alone], key=_urgency)


def incident_cards(
    request: HttpRequest,
    problems: Sequence[OpenProblem],
    facts: Sequence[IncidentFacts],
    shared: Mapping[int, Sequence[int]],
) -> Sequence[IncidentCard]:
    """Return problems as cards, with owners and the actions to take; `shared` of `shared_effects`."""
    candidates = [row for each in problems for row in _actionable(each.findings)]
    action_buttons.prefetch_offers(request, candidates)
    whose = owners.of_findings([each.findings[0] for each in problems])
    return [
        _card(request, each, known, whose[each.findings[0].pk], shared)
        for each, known in zip(problems, facts, strict=True)
    ]


def read_facts(request: HttpRequest, problems: Sequence[OpenProblem]) -> Sequence[IncidentFacts]:
    """Return what the sentences about some problems are made of, in their order."""
    reader = FactsReader(problems, now_ms=now_ms(request))
    return [reader.facts_of(each) for each in problems]


def primary_action(request: HttpRequest, findings: Sequence[FindingRecord]) -> PrimaryAction:
    """Return the one action of an incident by its open findings, the cause first.

    What the planner refuses is not offered at all, nor what may lose records.
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
    """Return the numbers of the incidents that findings are in, by finding, where these are several."""
    found: dict[int, list[int]] = defaultdict(list)
    for each in problems:
        for row in each.findings if each.incident else ():
            found[row.pk].append(each.incident.pk if each.incident else 0)
    return {finding: sorted(numbers) for finding, numbers in found.items() if len(numbers) > 1}


def impact_words(row: Incident) -> Sequence[tuple[str, int]]:
    """Return the figures of an incident's impact that are known and not zero."""
    is_batch = row.rule in _OF_BATCHES
    # Records that are missing, or there again, block nobody.
    blocked = "" if row.rule == "audit_violated" else " blocked"
    words = {
        "transactions": "transactions prepared" if is_batch else "transactions",
        "partitions": f"partitions{blocked}",
        "backlog": "uncommitted backlog",
        "groups": "groups blocked",
        "queries": f"queries{blocked}",
        "records_lost": "records at risk",
    }
    # A query that is the cause is not blocked by itself.
    impact = row.impact | {"queries": row.impact.get("queries", 0) - row.subject.startswith("query:")}
    return [(text, impact[key]) for key, text in words.items() if impact.get(key)]


def _actionable(findings: Sequence[FindingRecord]) -> Sequence[FindingRecord]:
    return [row for row in action_candidates(findings) if row.rule in offers.ENDABLE][:_ACTIONABLE]


def _urgency(problem: OpenProblem) -> tuple[int, float, int, int]:
    """Order by severity; then by when records are lost, how many readers are blocked, and age."""
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
) -> IncidentCard:
    row, (shown, *effects) = problem.incident, problem.findings
    own = row.pk if row else 0
    lines = [EffectLine(each, [n for n in shared.get(each.pk, ()) if n != own]) for each in effects]
    return IncidentCard(
        incident=row,
        finding=shown,
        severity=problem.severity,
        title=incident_title(facts),
        explanation=incident_explanation(facts, now_ms=now_ms(request)),
        owner=owner,
        action=primary_action(request, problem.findings),
        effects=lines[:_EFFECTS],
        effect_number=len(lines),
        others=_other_numbers(lines),
        figures=impact_words(row) if row else (),
        deadline_ms=facts.deadline_ms,
        deadline_kind=facts.deadline_kind,
    )


def _other_numbers(lines: Collection[EffectLine]) -> Sequence[int]:
    return sorted({number for line in lines for number in line.others})
