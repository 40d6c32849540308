"""Which incident an event of the timeline is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dashboard.models import Alert, Delivery, IncidentFinding
from fenceline.history.timeline import EventPlace, EventSource, TimelineEvent


def incidents_of(events: Sequence[TimelineEvent]) -> Mapping[EventPlace, int]:
    """Return the number of the incident of each event that is about one; of several, the newest."""
    findings = {event.place: event.place.row for event in events if event.source is EventSource.FINDING}
    findings |= _findings_of_alerts(events) | _findings_of_deliveries(events)
    incidents = _incidents_by_finding(findings.values())
    of_findings = {
        place: incident
        for place, pk in findings.items()
        for since_ms, incident in [incidents.get(pk, (0, 0))]
        # An alert that fired before follows another finding by now.
        if incident and since_ms <= place.at_us // 1_000
    }
    return of_findings | {
        event.place: event.number for event in events if event.source is EventSource.INCIDENT
    }


def _incidents_by_finding(findings: Iterable[int]) -> Mapping[int, tuple[int, int]]:
    """Return the start of each finding in ms since 1970, and the incident that it belongs to."""
    members = IncidentFinding.objects.filter(finding__in=set(findings)).order_by("pk")
    rows = members.values_list("finding", "since_ms", "incident_id")
    return {finding: (since_ms, incident) for finding, since_ms, incident in rows}


def _findings_of_alerts(events: Sequence[TimelineEvent]) -> dict[EventPlace, int]:
    alerts = {event.place: event.number for event in events if event.source is EventSource.ALERT}
    findings = dict(Alert.objects.filter(pk__in=set(alerts.values())).values_list("pk", "finding"))
    return {place: findings[pk] for place, pk in alerts.items() if pk in findings}


def _findings_of_deliveries(events: Sequence[TimelineEvent]) -> dict[EventPlace, int]:
    """Return the finding of the first alert that each delivery reported."""
    rows = {event.number: event.place for event in events if event.source is EventSource.DELIVERY}
    first = {
        rows[pk]: bytes.fromhex(held[0])
        for pk, firing, resolved in Delivery.objects.filter(pk__in=rows).values_list(
            "pk", "held__firing", "held__resolved"
        )
        if (held := [*(firing or ()), *(resolved or ())])
    }
    alerts = Alert.objects.filter(fingerprint__in=set(first.values())).order_by("pk")
    findings = {
        bytes(fingerprint): finding for fingerprint, finding in alerts.values_list("fingerprint", "finding")
    }
    return {place: findings[fingerprint] for place, fingerprint in first.items() if fingerprint in findings}
