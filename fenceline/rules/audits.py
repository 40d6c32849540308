"""The rule about audited pipelines: records that are missing in the output, or there more than once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fenceline.audit.manifest import AuditedRange, AuditMode
from fenceline.audit.violations import AuditViolation
from fenceline.facts import Finding, Severity
from fenceline.formatting import count_noun, list_names
from fenceline.limits import Limits
from fenceline.snapshot import Snapshot

_KEYS_FIRST = "Run the audit with --mode keys: it finds the missing records by offset."
_REPLAY = (
    "Fix the cause first; spark_pipeline/replay.py then writes the missing records once (docs/audit.md). "
    "Without --execute it only reports what it would write."
)


def audit_violated(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield pipelines in whose output the newest audit found records missing or duplicated."""
    for found in snapshot.audits:
        sources = _names(found.sources, "its input")
        yield Finding(
            rule="audit_violated",
            cluster=snapshot.cluster,
            subject=f"pipeline:{found.pipeline}",
            severity=Severity.CRITICAL,
            since_ms=found.since_ms,
            summary=f"{_figures(found)} in {_targets(found)}, compared with {sources}",
            evidence=_evidence(found),
            next_step=" ".join(_steps(found)),
            affected=(*found.queries, *_partitions(found)),
        )


def _figures(found: AuditViolation) -> str:
    counts = ((found.missing, "missing"), (found.duplicated, "duplicated"))
    return " and ".join(
        f"{count_noun(number, 'record')} {'is' if number == 1 else 'are'} {word}"
        for number, word in counts
        if number
    )


def _evidence(found: AuditViolation) -> str:
    numbers = list_names([f"{each:,}" for each in found.batches])
    in_batches = f" in {'batch' if len(found.batches) == 1 else 'batches'} {numbers}" if numbers else ""
    how = "by key" if found.mode is AuditMode.KEYS else "by counts"
    ranges = ((found.losses, "missing"), (found.duplicates, "duplicated"))
    places = (f"; {word}: {list_names([*map(_offsets, some)])}" for some, word in ranges if some)
    return f"the audit of {found.pipeline} found it {how}{in_batches}{''.join(places)}"


def _steps(found: AuditViolation) -> Iterator[str]:
    if found.missing and not found.losses:
        yield _KEYS_FIRST
    if found.missing:
        yield _REPLAY
    if found.duplicated:
        yield (
            f"See which producers write to {_targets(found)}: one outside of the transactions of this "
            "pipeline, or a second one of it, writes records again."
        )


def _targets(found: AuditViolation) -> str:
    return _names(found.targets, "its output")


def _names(topics: Sequence[str], otherwise: str) -> str:
    return list_names(topics) or otherwise


def _offsets(each: AuditedRange) -> str:
    last = each.to_offset - 1
    through = f" to {last:,}" if last > each.from_offset else ""
    return f"{each.topic}-{each.partition} at {each.from_offset:,}{through}"


def _partitions(found: AuditViolation) -> Sequence[str]:
    ranges = (*found.losses, *found.duplicates)
    return list(dict.fromkeys(f"partition:{each.topic}-{each.partition}" for each in ranges))
