"""The rules' findings, the incidents that group them, and pipelines whose audit found violations; recoveries:
from a transaction's end that its producer did not request until work resumes.
"""

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import (
    Cluster,
    ManagerOfIncident,
    Observed,
    OfCluster,
    ScopedManager,
    choices_of,
)
from fenceline.facts import Confidence, Severity, TransitionKind
from fenceline.incidents.findings import IncidentEventKind
from fenceline.losses.recoveries import RecoveryOutcome


class FindingRecord(models.Model):
    """A rule's verdict about a subject over time, open while `closed_at` is None."""

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    rule = models.CharField(max_length=64)
    subject = models.TextField()
    #: The transaction, batch or start of its subject (`fenceline.facts.Finding.instance`).
    instance = models.TextField(blank=True, default="")
    #: SHA-256 of cluster, rule and subject: a subject may be longer than an index entry.
    fingerprint = models.BinaryField(max_length=32)
    severity = models.CharField(max_length=8, choices=choices_of(Severity))
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


class Incident(models.Model):
    """An incident, open while `closed_ms` is None. Its key is its number, unique across clusters for ever."""

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    #: The finding that is its cause, or was when it closed.
    rule = models.CharField(max_length=64)
    subject = models.TextField()
    #: The transaction, batch or start of its subject (`fenceline.facts.Finding.instance`).
    instance = models.TextField(blank=True, default="")
    #: The worst since it was opened.
    severity = models.CharField(max_length=8, choices=choices_of(Severity))
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
    severity = models.CharField(max_length=8, choices=choices_of(Severity))
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
    severity = models.CharField(max_length=8, choices=choices_of(Severity))
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
    kind = models.CharField(max_length=16, choices=choices_of(IncidentEventKind))
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


class Recovery(Observed):
    """An episode of a transactional id (`fenceline.losses.recoveries`)."""

    #: As in Transaction.
    key = models.BinaryField(max_length=32)
    transactional_id = models.TextField()
    application = models.CharField(max_length=200)
    cause = models.CharField(max_length=16, choices=choices_of(TransitionKind))
    confidence = models.CharField(max_length=9, choices=choices_of(Confidence))
    producer_id = models.BigIntegerField()
    producer_epoch = models.IntegerField()
    #: The transition that began the episode.
    topic_id = models.CharField(max_length=64)
    log_partition = models.IntegerField()
    log_offset = models.BigIntegerField()
    #: The correction from the coordinator's clock to Fenceline's, the same for all instants of the row.
    clock_ms = models.BigIntegerField(default=0)
    #: When the abort was decided; when the transaction began, if known.
    opened_ms = models.BigIntegerField()
    begun_ms = models.BigIntegerField(null=True)
    #: The timestamp of CompleteAbort: when the end was decided, and its markers began to be written.
    completed_ms = models.BigIntegerField(null=True)
    #: When the LSO had passed in every partition; when the id or its application committed again; the end.
    released_ms = models.BigIntegerField(null=True)
    #: Whether `released_ms` is the time at which the release was noticed, an upper bound; else it is from
    #: records.
    release_noticed = models.BooleanField(default=False)
    resumed_ms = models.BigIntegerField(null=True)
    #: The transactional id that committed again, as escaped text.
    resumed_by = models.TextField(blank=True)
    closed_ms = models.BigIntegerField(null=True)
    outcome = models.CharField(max_length=16, choices=choices_of(RecoveryOutcome))
    #: Records held behind the LSO at the release; None if not observed.
    records_released = models.BigIntegerField(null=True)
    #: The partitions that the transaction wrote to: [["topic", [0, 2]], …]
    partitions = models.JSONField(default=list)
    #: The topics among them, as `fenceline.losses.recoveries.WrittenTopic`: [["topic", "topic id", true], …]
    topics = models.JSONField(default=list)
    #: The observed LSOs that it held: [["topic", 0, offset, "topic id"], …]
    pins = models.JSONField(default=list)
    #: The waiting groups, as `fenceline.losses.recoveries.Wait`:
    #: [["group", "topic", 0, offset, since_ms, resumed_ms], …]
    waited = models.JSONField(default=list)
    #: The lost records, as `fenceline.losses.recoveries.LostRecords`:
    #: [["topic", 0, first, last, records, sure, note, …], …]
    lost = models.JSONField(default=list)
    #: Whether the search of every partition's range is done.
    lost_complete = models.BooleanField(default=False)

    class Meta:
        verbose_name = "recovery"
        verbose_name_plural = "recoveries"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "topic_id", "log_partition", "log_offset"], name="recovery_transition"
            )
        ]
        indexes = [
            models.Index(fields=["cluster", "opened_ms"], name="recovery_opened"),
            models.Index(fields=["cluster", "key", "opened_ms"], name="recovery_key"),
            models.Index(fields=["cluster"], condition=Q(closed_ms=None), name="recovery_open"),
        ]

    def __str__(self) -> str:
        return f"{self.transactional_id}: {self.cause}"


class AbortedCommit(OfCluster):
    """A committed transaction that lost records before its commit (`fenceline.losses.aborted_commits`)."""

    #: As in Transaction.
    key = models.BinaryField(max_length=32)
    transactional_id = models.TextField()
    application = models.CharField(max_length=200, blank=True)
    producer_id = models.BigIntegerField()
    #: When it began, by the coordinator's timestamp: identifies the transaction together with the producer
    #: id.
    started_ms = models.BigIntegerField()
    #: When its commit was decided, by Fenceline's clock.
    committed_ms = models.BigIntegerField()
    #: The lost records, as `fenceline.losses.recoveries.LostRecords`:
    #: [["topic", 0, first, last, records, sure, note, …], …]
    lost = models.JSONField(default=list)

    class Meta:
        verbose_name = "lossy commit"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "key", "producer_id", "started_ms"], name="aborted_commit_transaction"
            )
        ]
        indexes = [models.Index(fields=["cluster", "committed_ms"], name="aborted_commit_at")]

    def __str__(self) -> str:
        return f"{self.transactional_id}@{self.started_ms}"
