"""The incident of an event of the timeline."""

from collections.abc import Iterable, Mapping, Sequence

from dashboard.models import Alert, Delivery, FindingRecord, IncidentFinding
from fenceline.history.timeline import EventPlace, EventSource, TimelineEvent


def incidents_of(events: Sequence[TimelineEvent]) -> Mapping[EventPlace, int]:
    """Return the number of the incident of each event that has one; of several, the newest."""
    findings = {event.place: event.place.row for event in events if event.source is EventSource.FINDING}
    findings |= _begun(_findings_of_alerts(events) | _findings_of_deliveries(events))
    incidents = _incidents_by_finding(findings.values())
    of_findings = {place: incidents[pk] for place, pk in findings.items() if pk in incidents}
    return of_findings | {
        event.place: event.number for event in events if event.source is EventSource.INCIDENT
    }


def _incidents_by_finding(findings: Iterable[int]) -> Mapping[int, int]:
    members = IncidentFinding.objects.filter(finding__in=set(findings)).order_by("pk")
    return dict(members.values_list("finding", "incident_id"))


def _begun(findings: Mapping[EventPlace, int]) -> dict[EventPlace, int]:
    """Return the findings that had begun at their events: an older alert may follow another one by now."""
    rows = FindingRecord.objects.filter(pk__in=set(findings.values())).values_list("pk", "since_ms")
    since_ms = dict(rows)
    return {
        place: pk for place, pk in findings.items() if pk in since_ms and since_ms[pk] <= place.at_us // 1_000
    }


def _findings_of_alerts(events: Sequence[TimelineEvent]) -> dict[EventPlace, int]:
    alerts = {event.place: event.number for event in events if event.source is EventSource.ALERT}
    findings = dict(Alert.objects.filter(pk__in=set(alerts.values())).values_list("pk", "finding"))
    return {place: findings[pk] for place, pk in alerts.items() if pk in findings}


def _findings_of_deliveries(events: Sequence[TimelineEvent]) -> dict[EventPlace, int]:
    """Return the finding of the first alert that each delivery reported."""
    places = {event.number: event.place for event in events if event.source is EventSource.DELIVERY}
    rows = Delivery.objects.filter(pk__in=places).values_list("pk", "held__firing", "held__resolved")
    first = {
        places[pk]: bytes.fromhex(held[0])
        for pk, firing, resolved in rows
        if (held := [*(firing or ()), *(resolved or ())])
    }
    alerts = Alert.objects.filter(fingerprint__in=set(first.values())).order_by("pk")
    findings = {bytes(alert.fingerprint): alert.finding for alert in alerts.only("fingerprint", "finding")}
    return {place: findings[mark] for place, mark in first.items() if mark in findings}
