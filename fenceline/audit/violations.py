"""What an audit found missing or duplicated in a pipeline: a manifest -> what a rule needs of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from fenceline.audit.manifest import AuditedRange, AuditManifest, AuditMode, AuditVerdict

#: Batches and ranges of each kind that are kept.
_MOST = 20


@dataclass(frozen=True, slots=True)
class AuditViolation:
    """A pipeline in whose output records are missing or duplicated."""

    pipeline: str
    mode: AuditMode
    #: When the oldest violated batch was decided, else when the audit ran.
    since_ms: int
    missing: int
    duplicated: int
    #: The streaming query's own id, "" for a pipeline that is no Spark query.
    query_id: str = ""
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    #: By counts: the first batches in which it was found, of those that the manifest still lists.
    batches: tuple[int, ...] = ()
    #: The first input ranges that are missing, and the first output ranges that are there again.
    losses: tuple[AuditedRange, ...] = ()
    duplicates: tuple[AuditedRange, ...] = ()
    #: Subjects of the known streaming queries with this id.
    queries: tuple[str, ...] = ()


def find_violation(pipeline: str, audit: AuditManifest) -> AuditViolation | None:
    """Return what is missing or duplicated in a pipeline, by the name of its folder; None if nothing is."""
    if audit.verdict is not AuditVerdict.VIOLATED:
        return None
    # Manifests begin with their newest batch.
    batches = [batch for batch in reversed(audit.batches) if batch.verdict is AuditVerdict.VIOLATED]
    since = [batch.at_ms for batch in batches if batch.at_ms is not None]
    return AuditViolation(
        pipeline,
        audit.mode,
        min(since, default=audit.at_ms),
        audit.missing,
        audit.duplicated,
        audit.query_id,
        audit.sources,
        audit.targets,
        tuple(batch.batch_id for batch in batches[:_MOST]),
        _first(audit.losses, *(batch.losses for batch in batches)),
        _first(audit.duplicates, *(batch.duplicates for batch in batches)),
    )


def _first(*ranges: Iterable[AuditedRange]) -> tuple[AuditedRange, ...]:
    return tuple(islice((range_ for of_batch in ranges for range_ in of_batch), _MOST))
