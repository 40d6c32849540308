"""The rule about audited pipelines: records that are missing or duplicated in the output."""

from collections.abc import Iterator, Sequence

from fenceline.audit.manifest import (
    DUPLICATE_KEYS,
    LOSS_KEYS,
    AuditedRange,
    AuditMode,
    AuditViolation,
    is_table,
)
from fenceline.facts import Finding, Severity
from fenceline.formatting import count_noun, is_are, list_names
from fenceline.limits import Limits
from fenceline.rules.rule import claim
from fenceline.snapshot import Snapshot

_KEYS_FIRST = "Run the audit with --mode keys: it finds the missing records by offset."
_REPLAY = (
    "Fix the cause first; spark_pipeline/replay.py then writes the missing records once (docs/audit.md). "
    "Without --execute it only reports what it would write."
)
_PROCESS_AGAIN = (
    "Fix the cause first; then process the missing records again, into a sink that keeps one row per key."
)
_KEYS = "The keys are in the output of the audit job, as {} (docs/audit.md)."
_DELETE_ROWS = (
    "Fix the sink first: a batch that it writes again must replace its rows. "
    "Copy the table first, then delete the extra rows."
)


def audit_violated(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield pipelines whose newest audit found missing or duplicated records in the output."""
    for violation in snapshot.audits:
        sources = list_names(violation.sources) or "its input"
        yield claim(
            subject=f"pipeline:{violation.pipeline}",
            severity=Severity.CRITICAL,
            since_ms=violation.since_ms,
            summary=f"{_figures(violation)} in {_targets(violation)}, compared with {sources}",
            evidence=_evidence(violation),
            next_step=" ".join(_steps(violation)),
            affected=(*violation.queries, *_partitions(violation)),
        )


def _figures(violation: AuditViolation) -> str:
    counts = ((violation.missing, "missing"), (violation.duplicated, "duplicated"))
    return " and ".join(
        f"{count_noun(number, 'record')} {is_are(number)} {word}" for number, word in counts if number
    )


def _evidence(violation: AuditViolation) -> str:
    numbers = list_names([f"{batch_id:,}" for batch_id in violation.batches])
    in_batches = f" in {'batch' if len(violation.batches) == 1 else 'batches'} {numbers}" if numbers else ""
    how = "by key" if violation.mode is AuditMode.KEYS else "by counts"
    groups = ((violation.losses, "missing"), (violation.duplicates, "duplicated"))
    places = (f"; {word}: {list_names([*map(_offsets, ranges)])}" for ranges, word in groups if ranges)
    return f"the audit of {violation.pipeline} found it {how}{in_batches}{''.join(places)}"


def _steps(violation: AuditViolation) -> Iterator[str]:
    into_table = any(map(is_table, violation.targets))
    if violation.missing and not violation.losses:
        yield _KEYS_FIRST if violation.mode is AuditMode.COUNTS else _KEYS.format(LOSS_KEYS)
    if violation.missing:
        yield _PROCESS_AGAIN if into_table else _REPLAY
    if violation.duplicated and into_table:
        yield f"{_KEYS.format(DUPLICATE_KEYS)} {_DELETE_ROWS}"
    elif violation.duplicated:
        yield (
            f"See which producers write to {_targets(violation)}: one outside of the transactions of this "
            "pipeline, or a second one of it, writes records again."
        )


def _targets(violation: AuditViolation) -> str:
    return list_names(violation.targets) or "its output"


def _offsets(audited: AuditedRange) -> str:
    last = audited.to_offset - 1
    through = f" to {last:,}" if last > audited.from_offset else ""
    return f"{audited.topic}-{audited.partition} at {audited.from_offset:,}{through}"


def _partitions(violation: AuditViolation) -> Sequence[str]:
    ranges = (*violation.losses, *violation.duplicates)
    return list(dict.fromkeys(f"partition:{audited.topic}-{audited.partition}" for audited in ranges))
