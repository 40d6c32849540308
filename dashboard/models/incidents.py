"""The rules' findings, the incidents that group them, and pipelines whose audit found violations."""

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import Cluster, ManagerOfIncident, OfCluster, ScopedManager
from fenceline.facts import Severity
from fenceline.incidents.findings import IncidentEventKind


class FindingRecord(models.Model):
    """A rule's verdict about a subject over time, open while `closed_at` is None."""

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    rule = models.CharField(max_length=64)
    subject = models.TextField()
    #: The transaction, batch or start of its subject (`fenceline.facts.Finding.instance`).
    instance = models.TextField(blank=True, default="")
    #: SHA-256 of cluster, rule and subject: a subject may be longer than an index entry.
    fingerprint = models.BinaryField(max_length=32)
    severity = models.CharField(max_length=8, choices=[(s.value, s.value) for s in Severity])
    summary = models.TextField()
    evidence = models.TextField()
    next_step = models.TextField()
    affected = models.JSONField(default=list)
    #: When it ends by itself, or records are lost, unless somebody acts; None if unknown.
    deadline_ms = models.BigIntegerField(null=True)
    since_ms = models.BigIntegerField()
    seen_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    #: Whether the last tick had all the data that the rule needs.
    complete = models.BooleanField(default=True)
    #: The number of complete ticks that found it.
    ticks = models.IntegerField(default=0)
    #: Once closed: the number of complete ticks without it until alerts regard it as over; AGAIN if it was
    #: found again before that, in another row.
    to_miss = models.IntegerField(default=0)

    AGAIN = -1

    objects = ScopedManager()

    class Meta:
        verbose_name = "finding"
        constraints = [
            models.UniqueConstraint(
                fields=["fingerprint"], condition=Q(closed_at=None), name="finding_open_once"
            )
        ]
        indexes = [
            models.Index(fields=["cluster", "seen_at"], name="finding_seen"),
            models.Index(fields=["cluster"], condition=Q(closed_at=None), name="finding_open"),
            models.Index(fields=["cluster", "since_ms"], name="finding_since"),
            models.Index(fields=["cluster", "closed_at"], name="finding_closed"),
            models.Index(fields=["cluster"], condition=Q(to_miss__gt=0), name="finding_settling"),
        ]

    def __str__(self) -> str:
        return self.summary


_SEVERITIES = [(severity.value, severity.value) for severity in Severity]


class Incident(models.Model):
    """An incident, open while `closed_ms` is None. Its key is its number, unique across clusters for ever."""

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    #: The finding that is its cause, or was when it closed.
    rule = models.CharField(max_length=64)
    subject = models.TextField()
    #: The transaction, batch or start of its subject (`fenceline.facts.Finding.instance`).
    instance = models.TextField(blank=True, default="")
    #: The worst since it was opened.
    severity = models.CharField(max_length=8, choices=_SEVERITIES)
    #: When the damage began, as far as known: before the incident was opened.
    since_ms = models.BigIntegerField(default=0)
    opened_ms = models.BigIntegerField()
    #: When it was last reopened.
    reopened_ms = models.BigIntegerField(null=True)
    closed_ms = models.BigIntegerField(null=True)
    #: The time since which its cause is over while effects remain.
    cause_over_ms = models.BigIntegerField(null=True)
    #: The team of its cause, from the configuration's `[[owners]]`; "" without one.
    owner = models.CharField(max_length=200, blank=True)
    acknowledged_ms = models.BigIntegerField(null=True)
    acknowledged_by = models.CharField(max_length=200, blank=True)
    #: The earliest deadline of its findings (`FindingRecord.deadline_ms`); final once it is closed.
    deadline_ms = models.BigIntegerField(null=True)
    #: `fenceline.incidents.impact.IncidentImpact` by field: the current impact and the largest one.
    impact = models.JSONField(default=dict)
    peak = models.JSONField(default=dict)
    #: `fenceline.incidents.sentences.IncidentFacts` by field; final once it is closed.
    facts = models.JSONField(default=dict)
    #: A sentence about its end; "" while it is open, and if the end is unknown.
    outcome = models.TextField(blank=True, default="")

    objects = ScopedManager()

    class Meta:
        verbose_name = "incident"
        indexes = [
            models.Index(fields=["cluster"], condition=Q(closed_ms=None), name="incident_open"),
            models.Index(fields=["cluster", "closed_ms"], name="incident_closed"),
        ]

    def __str__(self) -> str:
        return f"#{self.pk} {self.rule} of {self.subject}"


class IncidentRevision(models.Model):
    """An incident's state from an instant until its next revision, for ranges in the past.

    It has the fields of `Incident` that the evaluation changes; rows are added, never changed.
    """

    incident = models.ForeignKey(Incident, models.CASCADE, related_name="revisions")
    at_ms = models.BigIntegerField()
    rule = models.CharField(max_length=64)
    subject = models.TextField()
    severity = models.CharField(max_length=8, choices=_SEVERITIES)
    owner = models.CharField(max_length=200, blank=True, default="")
    cause_over_ms = models.BigIntegerField(null=True)
    closed_ms = models.BigIntegerField(null=True)
    outcome = models.TextField(blank=True, default="")
    deadline_ms = models.BigIntegerField(null=True)
    impact = models.JSONField(default=dict)
    facts = models.JSONField(default=dict)

    objects = ManagerOfIncident()

    class Meta:
        verbose_name = "incident revision"
        indexes = [models.Index(fields=["incident", "at_ms"], name="incident_revision_at")]

    def __str__(self) -> str:
        return f"#{self.incident_id} at {self.at_ms}"


class IncidentFinding(models.Model):
    """A finding in one role in an incident for a time; it outlives the finding's own row."""

    class Role(models.TextChoices):
        CAUSE = "cause"
        EFFECT = "effect"

    incident = models.ForeignKey(Incident, models.CASCADE, related_name="findings")
    #: The key of its `FindingRecord`, which is deleted earlier.
    finding = models.BigIntegerField()
    rule = models.CharField(max_length=64)
    subject = models.TextField()
    role = models.CharField(max_length=6, choices=Role)
    #: The finding's severity and summary when it joined the incident.
    severity = models.CharField(max_length=8, choices=_SEVERITIES)
    summary = models.TextField()
    since_ms = models.BigIntegerField()
    until_ms = models.BigIntegerField(null=True)

    objects = ManagerOfIncident()

    class Meta:
        verbose_name = "incident finding"
        indexes = [
            models.Index(fields=["finding"], name="incident_of_finding"),
            models.Index(
                fields=["incident", "finding"], condition=Q(until_ms=None), name="incident_member_now"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role}: {self.summary}"


class IncidentEvent(models.Model):
    """A line of an incident's history; rows are added, never changed."""

    incident = models.ForeignKey(Incident, models.CASCADE, related_name="events")
    at_ms = models.BigIntegerField()
    kind = models.CharField(
        max_length=16, choices=[(choice.value, choice.value) for choice in IncidentEventKind]
    )
    #: The rule and subject of its finding; "" for an event without a finding.
    rule = models.CharField(max_length=64, blank=True)
    subject = models.TextField(blank=True)
    #: The user who acknowledged the incident, or wrote the note.
    actor = models.CharField(max_length=200, blank=True)
    text = models.TextField(blank=True)

    objects = ManagerOfIncident()

    class Meta:
        verbose_name = "incident event"
        indexes = [models.Index(fields=["at_ms"], name="incident_event_at")]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}".rstrip()


class AuditViolationRecord(OfCluster):
    """A pipeline whose newest audit is violated; the row exists only as long."""

    pipeline = models.TextField()
    #: The decision time of the oldest violated batch, else of the first audit with it; never in the future.
    since_ms = models.BigIntegerField()
    missing = models.BigIntegerField()
    duplicated = models.BigIntegerField()
    #: The other fields of `fenceline.audit.manifest.AuditViolation`, except its queries.
    detail = models.JSONField(default=dict)

    class Meta:
        verbose_name = "audit violation"
        constraints = [models.UniqueConstraint(fields=["cluster", "pipeline"], name="audit_violation_of")]

    def __str__(self) -> str:
        return self.pipeline
