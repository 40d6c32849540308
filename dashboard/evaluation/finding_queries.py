"""Queries for findings, open and closed, for pages and API."""

from collections.abc import Sequence
from typing import Annotated, Literal

from django.db.models import QuerySet
from pydantic import AfterValidator

from dashboard.models import FindingRecord
from dashboard.runtime import visibility
from dashboard.runtime.criteria import Name, Ranged, given_conditions, overlaps_range
from dashboard.runtime.sql import prepared
from fenceline.facts import Severity
from fenceline.findings import known_name


@prepared
def open_in_cluster(cluster_id: int) -> QuerySet[FindingRecord]:
    return FindingRecord.objects.filter(cluster_id=cluster_id, closed_at=None)


@prepared
def lately_closed(cluster_id: int) -> QuerySet[FindingRecord]:
    """Return the closed findings whose ticks are still counted (`FindingRecord.to_miss`)."""
    return FindingRecord.objects.filter(cluster_id=cluster_id, to_miss__gt=0)


def open_findings(cluster: str = "", subject: str = "") -> Sequence[FindingRecord]:
    """Return the open findings, worst and oldest first."""
    rows = visibility.rows_in(FindingRecord, cluster).filter(closed_at=None).select_related("cluster")
    if subject:
        rows = rows.filter(subject=subject)
    order = [severity.value for severity in Severity]
    return sorted(rows, key=lambda row: (order.index(row.severity), row.since_ms))


class FindingCriteria(Ranged):
    """Criteria of a list of findings; in a range, those that were open in it."""

    cluster: Name = ""
    state: Literal["open", "closed", "all"] = "open"
    rule: Annotated[Name, AfterValidator(known_name)] = ""
    severity: Severity | Literal[""] = ""
    subject: Name = ""


def findings_before(place: int | None, wanted: FindingCriteria, *, limit: int) -> Sequence[FindingRecord]:
    """Return the next findings before a row's key, newest first."""
    rows = visibility.rows_in(FindingRecord, wanted.cluster).filter(
        overlaps_range(wanted, "since_ms", "closed_at"),
        **given_conditions(rule=wanted.rule, severity=wanted.severity, subject=wanted.subject),
    )
    if wanted.state != "all":
        rows = rows.filter(closed_at__isnull=wanted.state == "open")
    rows = rows if place is None else rows.filter(pk__lt=place)
    return list(rows.select_related("cluster").order_by("-pk")[:limit])


def finding_by_number(number: int) -> FindingRecord | None:
    """Return a finding of a configured cluster by its key, open or closed."""
    return FindingRecord.objects.filter(pk=number, cluster__configured=True).select_related("cluster").first()
