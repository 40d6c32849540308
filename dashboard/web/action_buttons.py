"""Buttons that make a plan: the offers of `dashboard.actions.offers`, and why the user may not take one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from dashboard.actions import offers
from dashboard.actions.offers import Offer
from dashboard.models import FindingRecord, PinRecord, Query, Transaction
from dashboard.system import access, owners
from dashboard.system.access import Actor
from dashboard.web import page_context
from dashboard.web.per_request import derive_once, now_ms
from fenceline.plans.plan import MOST_SUBJECTS, Act

#: Maximum cards of a page whose offers are read together.
_CARDS = 50


@dataclass(frozen=True, slots=True)
class Button:
    """A button that makes a plan; disabled if it has a `why_not`."""

    act: Act
    cluster: str
    #: In the form for `dashboard.actions.planning.make_plan`.
    subjects: Sequence[str]
    words: str
    why_not: str = ""
    force: bool = False
    #: Whether it may lose records that should be committed: such an offer is never the first of several.
    may_lose: bool = False


def row_selection(request: HttpRequest, act: Act, words: str) -> Mapping[str, Any] | None:
    """Return the plan for chosen rows; None for several clusters, and for users who may not plan it."""
    cluster = page_context.chrome_of(request).only_cluster
    refused = access.act_refusal(request_actor(request), act, cluster)
    return (
        None
        if refused or not cluster
        else {"act": act, "cluster": cluster, "words": words, "most": MOST_SUBJECTS}
    )


def request_actor(request: HttpRequest) -> Actor:
    """Return the user of a page; looked up once per request."""
    return derive_once(request, "acting_actor", lambda: access.actor_of(request, "page"))


def of_transaction(request: HttpRequest, row: Transaction, pins: Sequence[PinRecord]) -> Sequence[Button]:
    """Return the buttons of a transactional id, none without an open transaction."""
    offered = offers.of_transactions([row], {row.pk: pins}, now_ms=now_ms(request))[row.pk]
    return _explained(request, offered)


def of_pin(request: HttpRequest, cluster: str, pin: PinRecord) -> Sequence[Button]:
    return _explained(request, offers.of_pins(cluster, [pin], now_ms=now_ms(request)))


def of_batch(request: HttpRequest, query: Query, batch_id: int) -> Sequence[Button]:
    return action_buttons(request, _possible(offers.of_batch(query, batch_id, now_ms=now_ms(request))))


def of_finding(request: HttpRequest, row: FindingRecord) -> Sequence[Button]:
    """Return the buttons of a finding; most rules have no buttons."""
    if row.pk not in _known_offers(request):
        prefetch_offers(request, [*page_context.chrome_of(request).all_findings[:_CARDS], row])
    return action_buttons(request, _known_offers(request)[row.pk])


def prefetch_offers(request: HttpRequest, rows: Iterable[FindingRecord]) -> None:
    """Read the offers of findings that this request has not read yet, in one query."""
    known = _known_offers(request)
    missing = {row.pk: row for row in rows if row.pk not in known}
    if missing:
        known |= offers.of_findings(list(missing.values()), now_ms=now_ms(request))


def _known_offers(request: HttpRequest) -> dict[int, Sequence[Offer]]:
    return derive_once(request, "offers_of_findings", dict[int, Sequence[Offer]])


def finding_cards(request: HttpRequest, rows: Sequence[FindingRecord]) -> Sequence[Mapping[str, Any]]:
    whose = owners.of_findings(rows)
    return [
        {"finding": finding, "owner": whose[finding.pk], "offers": of_finding(request, finding)}
        for finding in rows
    ]


def action_buttons(request: HttpRequest, offered: Iterable[Offer]) -> Sequence[Button]:
    return [
        Button(
            offer.act,
            offer.cluster,
            offer.subjects,
            offer.words,
            _why_not(request_actor(request), offer),
            may_lose=offer.may_lose,
        )
        for offer in offered
    ]


def plan_button(
    request: HttpRequest,
    act: Act,
    cluster: str,
    subjects: Sequence[str],
    words: str,
    *,
    force: bool = False,
    why_not: str = "",
) -> Button:
    """Return a button for chosen subjects, disabled if the user may not plan the action there."""
    refused = access.act_refusal(request_actor(request), act, cluster, force=force)
    return Button(act, cluster, subjects, words, refused or why_not, force)


def _explained(request: HttpRequest, offered: Sequence[Offer]) -> Sequence[Button]:
    """Return the buttons of a subject's own page; if none is available, one with the reason."""
    return action_buttons(request, _possible(offered) or offered[:1])


def _possible(offered: Sequence[Offer]) -> Sequence[Offer]:
    return [offer for offer in offered if not offer.refusals or offer.forceable]


def _why_not(who: Actor, offer: Offer) -> str:
    """Return why a user may not plan an offer, "" if they may; admins may plan forceable offers."""
    why_not = access.act_refusal(who, offer.act, offer.cluster)
    if why_not or not offer.refusals:
        return why_not
    if offer.forceable and not access.act_refusal(who, offer.act, offer.cluster, force=True):
        return ""
    return f"Not available: {offer.refusals[0].words}"
