"""Findings and incidents for pages to show."""

from __future__ import annotations

from datetime import UTC, datetime

from dashboard.models import Cluster, FindingRecord, Incident, IncidentFinding
from fenceline.kafka.transactional_ids import key_of
from tests.web.factories.clusters import now_ms


def finding(of: Cluster, subject: str, severity: str = "warning", **fields: object) -> FindingRecord:
    """Return an open finding."""
    defaults: dict[str, object] = {
        "rule": "open_too_long",
        "subject": subject,
        "fingerprint": key_of(f"{of.name}{subject}".encode()),
        "severity": severity,
        "summary": f"{subject.partition(':')[2]} has been open since 10:21:14",
        "evidence": "read_committed consumers of stock-1, stock-4 are blocked at its first record; "
        "its coordinator aborts it at 12:17:31 UTC, after 15 min",
        "next_step": "Find its producer; if that is gone, only the timeout or a fence ends it.",
        "since_ms": now_ms() - 842_000,
        "seen_at": datetime.now(UTC),
    }
    return FindingRecord.objects.create(cluster=of, **(defaults | fields))


def incident(of: Cluster, **fields: object) -> Incident:
    """Return an open incident without findings."""
    defaults: dict[str, object] = {
        "rule": "open_too_long",
        "subject": "transaction:payments-7",
        "severity": "warning",
        "opened_ms": now_ms() - 842_000,
        "impact": dict.fromkeys(("transactions", "partitions", "groups", "queries"), 1)
        | {"backlog": None, "records_lost": None},
    }
    return Incident.objects.create(cluster=of, **(defaults | fields))


def incident_of(
    of: Cluster, cause: FindingRecord | None, *effects: FindingRecord, **fields: object
) -> Incident:
    """Return an open incident of these findings."""
    row = incident(of, **fields)
    roles = [(effect, IncidentFinding.Role.EFFECT) for effect in effects]
    for found, role in [(cause, IncidentFinding.Role.CAUSE), *roles] if cause else roles:
        IncidentFinding.objects.create(
            incident=row,
            finding=found.pk,
            rule=found.rule,
            subject=found.subject,
            role=role,
            severity=found.severity,
            summary=found.summary,
            since_ms=found.since_ms,
        )
    return row
