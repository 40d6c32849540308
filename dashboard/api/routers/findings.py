"""`/api/v1/findings`: what the rules find now, and what they found."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.actions import offers
from dashboard.api import cursors, schemas
from dashboard.api.common_schemas import OwnerOut
from dashboard.api.offer_schemas import OfferOut
from dashboard.evaluation import finding_queries
from dashboard.models import FindingRecord
from dashboard.runtime import loop
from dashboard.runtime.collector_names import EVERYTHING
from dashboard.system import owners
from fenceline.facts import Severity

router = Router(tags=["findings"])


class FindingOut(Schema):
    """A rule's verdict about a subject, `kind:name`; not `complete`: not all that the rule needs was seen.

    `closed_at` is null while it holds. `deadline_at` is when a coordinator aborts the transaction, or
    records are lost, unless somebody acts; null where no instant is known. `/rules/{rule}` explains the
    rule. `offers` are the actions that the planner would not refuse now.
    """

    id: int
    rule: str
    cluster: str = Field(validation_alias="cluster.name")
    subject: str
    severity: Severity
    since: schemas.Instant | None = Field(validation_alias="since_ms")
    seen_at: schemas.Instant | None
    closed_at: schemas.Instant | None
    deadline_at: schemas.Instant | None = Field(validation_alias="deadline_ms")
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
    before = cursors.read_number(wanted.cursor, "findings")
    rows = finding_queries.findings_before(before, wanted, limit=wanted.limit + 1)
    page, following = cursors.cut_page("findings", rows, wanted.limit)
    return schemas.list_answer(_with_offers(page), following, wanted.cluster, EVERYTHING)


@router.get("/{int:number}", response=FindingOut, summary="One finding")
def get_finding(request: HttpRequest, number: int) -> FindingRecord:
    """One finding by its id, open or closed."""
    row = finding_queries.finding_by_number(number) if number < 2**63 else None
    if row is None:
        raise Http404(f"No finding {number} is known.")
    return _with_offers([row])[0]


def _with_offers(rows: Sequence[FindingRecord]) -> Sequence[FindingRecord]:
    """Return rows with what may be done about them, and whose they are, read for all of them at once."""
    may, whose = offers.of_findings(rows, now_ms=loop.now_ms()), owners.of_findings(rows)
    for row in rows:
        schemas.add_fields(row, offers=OfferOut.from_offers(may[row.pk]), owner=whose[row.pk])
    return rows
