"""The error of an audit that cannot continue."""

from __future__ import annotations

from spark_pipeline.job import JobError


class AuditError(JobError):
    """The audit cannot continue; the text has the reason and the remedy."""
