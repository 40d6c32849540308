"""Pipelines in which the audit job found missing or duplicated records."""

from django.db import models

from dashboard.models.collecting import OfCluster


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
        verbose_name_plural = "audit violations"
        constraints = [models.UniqueConstraint(fields=["cluster", "pipeline"], name="audit_violation_of")]

    def __str__(self) -> str:
        return self.pipeline
