"""What the audit job found missing or duplicated."""

from __future__ import annotations

from django.db import models

from dashboard.models.collecting import OfCluster


class AuditViolationRecord(OfCluster):
    """A pipeline whose newest audit is violated; there is a row only while it is."""

    pipeline = models.TextField()
    #: When the oldest violated batch was decided, else when an audit found it first; never in the future.
    since_ms = models.BigIntegerField()
    missing = models.BigIntegerField()
    duplicated = models.BigIntegerField()
    #: The rest of `fenceline.audit.violations.AuditViolation`, but for its queries.
    detail = models.JSONField(default=dict)

    class Meta:
        verbose_name = "audit violation"
        verbose_name_plural = "audit violations"
        constraints = [models.UniqueConstraint(fields=["cluster", "pipeline"], name="audit_violation_of")]

    def __str__(self) -> str:
        return self.pipeline
