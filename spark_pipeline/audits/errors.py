"""Why the audit cannot go on."""

from __future__ import annotations

from spark_pipeline.job import JobError


class AuditError(JobError):
    """The audit cannot go on; the text is the reason and the remedy."""
