"""What pages show of an incident: its cause, its impact in figures, what follows from it, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.http import HttpRequest

from dashboard.actions import offers
from dashboard.incidents import queries as incident_queries
from dashboard.models import FindingRecord, Incident
from dashboard.system import owners
from dashboard.web import action_buttons, page_context
from dashboard.web.action_buttons import Button, FindingCard
from dashboard.web.request_time import now_ms
from fenceline.facts import Severity
from fenceline.owners import Owner

#: Findings of an incident whose actions are looked up, the cause first.
_ACTIONABLE = 10
#: Effects that a card names.
_EFFECTS = 20
_FIGURES = {
    "transactions": "transactions",
    "partitions": "partitions",
    "backlog": "uncommitted backlog",
    "groups": "groups",
    "queries": "queries",
    "records_lost": "records at risk",
}


@dataclass(frozen=True, slots=True)
class IncidentCard:
    """An open incident; `finding` is its cause, or once that is over the worst effect that is left."""

    incident: Incident
    finding: FindingRecord
    owner: Owner | None
    #: One at most: the action to take first.
    offers: Sequence[Button]
    effects: Sequence[FindingRecord]
    effect_number: int
    #: Words and numbers of what it affects.
    figures: Sequence[tuple[str, int]]


def open_cards(request: HttpRequest) -> Sequence[IncidentCard | FindingCard]:
    """Return the open incidents as cards, and findings that are in none, worst and oldest first."""
    cluster = page_context.chrome_of(request).cluster
    cards: list[IncidentCard | FindingCard] = [
        *incident_cards(request, incident_queries.open_incidents(cluster)),
        *action_buttons.finding_cards(request, incident_queries.ungrouped_findings(cluster), linked=True),
    ]
    return sorted(cards, key=_urgency)


def incident_cards(request: HttpRequest, rows: Sequence[Incident]) -> Sequence[IncidentCard]:
    """Return the cards of open incidents; none for one whose findings have all ended by now."""
    findings = incident_queries.open_findings_of(rows)
    whose = owners.of_findings([found[0] for found in findings.values()])
    buttons = primary_buttons(request, findings)
    return [_card(row, findings[row.pk], whose, buttons[row.pk]) for row in rows if row.pk in findings]


def primary_buttons(
    request: HttpRequest, findings: Mapping[int, Sequence[FindingRecord]]
) -> Mapping[int, Sequence[Button]]:
    """Return the action to take first by incident, of its cause or else of an effect, if one is safe."""
    rows = [row for found in findings.values() for row in found[:_ACTIONABLE]]
    offered = offers.of_findings(rows, now_ms=now_ms(request))
    return {
        number: _primary(request, [each for row in found[:_ACTIONABLE] for each in offered[row.pk]])
        for number, found in findings.items()
    }


def impact_words(row: Incident) -> Sequence[tuple[str, int]]:
    """Return the figures of an incident's impact that are known and not zero."""
    return [(words, number) for key, words in _FIGURES.items() if (number := row.impact.get(key))]


def _primary(request: HttpRequest, found: Iterable[offers.Offer]) -> Sequence[Button]:
    offer = offers.primary_offer(found)
    return action_buttons.action_buttons(request, [offer] if offer else [])


def _card(
    row: Incident,
    found: Sequence[FindingRecord],
    whose: Mapping[int, Owner | None],
    buttons: Sequence[Button],
) -> IncidentCard:
    shown, *effects = found
    return IncidentCard(
        row, shown, whose[shown.pk], buttons, effects[:_EFFECTS], len(effects), impact_words(row)
    )


def _urgency(card: IncidentCard | FindingCard) -> tuple[int, int]:
    order = [severity.value for severity in Severity]
    if isinstance(card, IncidentCard):
        return order.index(card.incident.severity), card.incident.opened_ms
    return order.index(card.finding.severity), card.finding.since_ms
