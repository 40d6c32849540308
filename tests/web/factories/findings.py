"""Findings and incidents for pages to show."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.incidents.queries import facts_as_json
from dashboard.models import Cluster, FindingRecord, Incident, IncidentFinding
from fenceline.incidents.facts import FactsReader
from fenceline.incidents.findings import key_of
from fenceline.incidents.impact import ImpactFigures, first_deadline, impact_of
from fenceline.kafka import transactional_ids
from fenceline.limits import Limits
from tests.web.factories.clusters import now_ms


def finding(of: Cluster, subject: str, severity: str = "warning", **fields: object) -> FindingRecord:
    """Return an open finding."""
    defaults: dict[str, object] = {
        "rule": "open_too_long",
        "subject": subject,
        "fingerprint": transactional_ids.key_of(f"{of.name}{subject}".encode()),
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


def facts_of(found: Sequence[FindingRecord], **fields: Any) -> Mapping[str, Any]:
    """Return what the evaluation stores of an incident of these findings, the cause first."""
    snapshot = SnapshotReader(found[0].cluster.name).read(now_ms=now_ms(), limits=Limits())
    reader = FactsReader(snapshot, now_ms=now_ms(), limits=Limits())
    impact = impact_of(key_of(found[0]), found, ImpactFigures())
    facts = reader.facts_of(
        key_of(found[0]),
        found,
        impact,
        since_ms=found[0].since_ms,
        deadline_ms=fields.get("deadline_ms", first_deadline(found)),
    )
    if over_ms := fields.get("cause_over_ms"):
        facts = replace(facts, cause_over_ms=over_ms, left_summary=found[0].summary)
    return facts_as_json(facts)


def incident_of(
    of: Cluster, cause: FindingRecord | None, *effects: FindingRecord, **fields: object
) -> Incident:
    """Return an open incident of these findings."""
    found = [cause, *effects] if cause else list(effects)
    row = incident(of, **({"facts": facts_of(found, **fields)} | fields))
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
