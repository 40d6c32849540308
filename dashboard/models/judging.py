"""The rules' findings."""

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import Cluster
from dashboard.models.scope import ScopedManager
from fenceline.facts import Severity


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
        verbose_name_plural = "findings"
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
