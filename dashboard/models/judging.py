"""What the rules found."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import Cluster
from fenceline.facts import Severity


class FindingRecord(models.Model):
    """A rule's verdict about a subject over time: open while `closed_at` is empty."""

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    rule = models.CharField(max_length=64)
    subject = models.TextField()
    #: SHA-256 of cluster, rule and subject: a subject may be longer than an index entry.
    fingerprint = models.BinaryField(max_length=32)
    severity = models.CharField(max_length=8, choices=[(s.value, s.value) for s in Severity])
    summary = models.TextField()
    evidence = models.TextField()
    next_step = models.TextField()
    affected = models.JSONField(default=list)
    since_ms = models.BigIntegerField()
    seen_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    #: Whether the last tick could see everything the rule needs.
    complete = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["fingerprint"], condition=Q(closed_at=None), name="finding_open_once"
            )
        ]
        indexes = [
            models.Index(fields=["cluster", "seen_at"], name="finding_seen"),
            models.Index(fields=["cluster"], condition=Q(closed_at=None), name="finding_open"),
        ]

    def __str__(self) -> str:
        return self.summary
