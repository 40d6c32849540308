"""Findings, open and closed, as pages and the API read them."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.models import FindingRecord
from dashboard.runtime import visibility
from fenceline.facts import Severity
from fenceline.rule_names import current_name


def open_findings(cluster: str = "", subject: str = "") -> Sequence[FindingRecord]:
    """Return the open findings, worst and oldest first."""
    rows = FindingRecord.objects.filter(closed_at=None, cluster__configured=True).select_related("cluster")
    rows = visibility.rows_of_cluster(rows, cluster)
    if subject:
        rows = rows.filter(subject=subject)
    order = [severity.value for severity in Severity]
    return sorted(rows, key=lambda row: (order.index(row.severity), row.since_ms))


def findings_before(
    place: int | None,
    *,
    cluster: str = "",
    state: str = "open",
    rule: str = "",
    severity: str = "",
    subject: str = "",
    limit: int,
) -> Sequence[FindingRecord]:
    """Return findings behind a row's key, the newest first: "open", "closed" or "all"."""
    rows = visibility.rows_of_cluster(
        FindingRecord.objects.filter(cluster__configured=True).select_related("cluster"), cluster
    )
    if state != "all":
        rows = rows.filter(closed_at__isnull=state == "open")
    for name, value in {"rule": current_name(rule), "severity": severity, "subject": subject}.items():
        rows = rows.filter(**{name: value}) if value else rows
    rows = rows if place is None else rows.filter(pk__lt=place)
    return list(rows.order_by("-pk")[:limit])


def finding_by_number(number: int) -> FindingRecord | None:
    """Return one finding of a configured cluster by its key, open or closed."""
    return FindingRecord.objects.filter(pk=number, cluster__configured=True).select_related("cluster").first()
