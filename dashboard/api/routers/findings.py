"""`/api/v1/findings`: the rules' open and closed findings."""

from collections.abc import Sequence

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.actions import offers
from dashboard.api import cursors, schemas
from dashboard.api.schemas import OfferOut, OwnerOut
from dashboard.evaluation import finding_queries
from dashboard.models import FindingRecord
from dashboard.runtime import loop
from dashboard.runtime.collector_names import EVERYTHING
from dashboard.system import owners
from fenceline.facts import Severity

router = Router(tags=["findings"])


class FindingOut(Schema):
    """A rule's verdict about a subject, `kind:name`; `complete` is false if data for the rule is missing.

    `closed_at` is null while the finding is open. At `deadline_at` a coordinator aborts the transaction, or
    records are lost, unless somebody acts; null if unknown. `/rules/{rule}` explains the rule. `offers` are
    the actions that the planner would not refuse now.
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
    """Findings, newest first; without `state` the open ones."""
    before = cursors.read_number(wanted.cursor, "findings")
    rows = finding_queries.findings_before(before, wanted, limit=wanted.limit + 1)
    page, following = cursors.cut_page("findings", rows, wanted.limit)
    return schemas.list_answer(_with_offers(page), following, wanted.cluster, EVERYTHING)


@router.get("/{int:number}", response=FindingOut, summary="One finding")
def get_finding(request: HttpRequest, number: int) -> FindingRecord:
    """Return a finding by its id, open or closed."""
    row = finding_queries.finding_by_number(number) if number < 2**63 else None
    return _with_offers([schemas.known(row, f"No finding {number} is known.")])[0]


def _with_offers(rows: Sequence[FindingRecord]) -> Sequence[FindingRecord]:
    """Return rows with their offers and owners, read for all rows at once."""
    may, whose = offers.of_findings(rows, now_ms=loop.now_ms()), owners.of_findings(rows)
    for row in rows:
        schemas.add_fields(row, offers=OfferOut.from_offers(may[row.pk]), owner=whose[row.pk])
    return rows
