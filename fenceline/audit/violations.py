"""Read missing and duplicated records of a pipeline from an audit's manifest, for a rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from fenceline.audit.manifest import AuditedRange, AuditManifest, AuditMode, AuditVerdict

#: Maximum batches and ranges of each kind to keep.
_MOST = 20


@dataclass(frozen=True, slots=True)
class AuditViolation:
    """A pipeline whose output has missing or duplicated records."""

    pipeline: str
    mode: AuditMode
    #: The instant of the oldest violated batch's decision, else of the audit.
    since_ms: int
    missing: int
    duplicated: int
    #: The streaming query's own id, "" for a pipeline without a Spark query.
    query_id: str = ""
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    #: By counts: the first violated batches that the manifest still lists.
    batches: tuple[int, ...] = ()
    #: The first missing input ranges, and the first duplicated output ranges.
    losses: tuple[AuditedRange, ...] = ()
    duplicates: tuple[AuditedRange, ...] = ()
    #: Subjects of the known streaming queries with this id.
    queries: tuple[str, ...] = ()


def find_violation(pipeline: str, audit: AuditManifest) -> AuditViolation | None:
    """Return a pipeline's missing and duplicated records, by the name of its folder; None without any."""
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
