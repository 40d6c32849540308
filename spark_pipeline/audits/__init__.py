"""Parts of the audit job: its reads of Kafka and of a checkpoint, its output, and its error."""

from __future__ import annotations

from spark_pipeline.job import JobError


class AuditError(JobError):
    """The audit cannot continue; the text has the reason and the remedy."""
