"""`/api/v1/findings`: what the rules find now, and what they found."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema

from dashboard.actions import offers
from dashboard.actions.offers import Offer
from dashboard.api import cursors, schemas
from dashboard.api.common_schemas import OwnerOut
from dashboard.api.offer_schemas import OfferOut
from dashboard.evaluation import finding_queries
from dashboard.models import FindingRecord
from dashboard.runtime import loop, visibility
from dashboard.runtime.collector_names import EVERYTHING
from dashboard.system import owners
from fenceline.facts import Severity
from fenceline.owners import Owner

router = Router(tags=["findings"])


class FindingOut(Schema):
    """A rule's verdict about a subject, `kind:name`; not `complete`: not all that the rule needs was seen.

    `closed_at` is null while it holds. `deadline_at` is when a coordinator aborts the transaction, or
    records are lost, unless somebody acts; null where no instant is known. `/rules/{rule}` explains the
    rule. `offers` are the actions that the planner would not refuse now.
    """

    id: int
    rule: str
    cluster: str
    subject: str
    severity: Severity
    since: str | None
    seen_at: str | None
    closed_at: str | None
    deadline_at: str | None
    complete: bool
    summary: str
    evidence: str
    next_step: str
    affected: list[str]
    offers: list[OfferOut]
    owner: OwnerOut | None


class FindingList(schemas.Listing):
    items: list[FindingOut]


class FindingFilters(schemas.ListFilters, finding_queries.FindingCriteria):
    """The query string of the list."""


@router.get("", response=FindingList, summary="List findings")
def list_findings(request: HttpRequest, wanted: Query[FindingFilters]) -> dict[str, object]:
    """Findings, the newest first; the open ones unless `state` is given."""
    found = finding_queries.findings_before(
        cursors.read_number(wanted.cursor, "findings"), wanted, limit=wanted.limit + 1
    )
    page, following = cursors.cut_page("findings", found, wanted.limit, cursors.by_key)
    whose = owners.of_findings(page)
    may = offers.of_findings(page, now_ms=loop.now_ms())
    return {
        "items": [_out(row, whose[row.pk], may[row.pk]) for row in page],
        "next": following,
        **schemas.visibility_fields(visibility.noun_visibility(wanted.cluster, EVERYTHING)),
    }


@router.get("/{int:number}", response=FindingOut, summary="One finding")
def get_finding(request: HttpRequest, number: int) -> FindingOut:
    """One finding by its id, open or closed."""
    row = finding_queries.finding_by_number(number) if number < 2**63 else None
    if row is None:
        raise Http404(f"No finding {number} is known.")
    may = offers.of_findings([row], now_ms=loop.now_ms())
    return _out(row, owners.of_finding(row), may[row.pk])


def _out(row: FindingRecord, owner: Owner | None, may: Sequence[Offer]) -> FindingOut:
    return FindingOut(
        id=row.pk,
        rule=row.rule,
        cluster=row.cluster.name,
        subject=row.subject,
        severity=Severity(row.severity),
        since=schemas.format_iso(row.since_ms),
        seen_at=schemas.format_moment(row.seen_at),
        closed_at=schemas.format_moment(row.closed_at),
        deadline_at=schemas.format_iso(row.deadline_ms),
        complete=row.complete,
        summary=row.summary,
        evidence=row.evidence,
        next_step=row.next_step,
        affected=row.affected,
        offers=OfferOut.from_offers(may),
        owner=OwnerOut.from_owner(owner),
    )
