"""Rules about Flink jobs: what a checkpoint decided to commit, and what no restore brings back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fenceline.facts import Finding, Severity
from fenceline.flink.commits import DecidedTransaction, FlinkJobFacts
from fenceline.flink.restore import CommitFate
from fenceline.formatting import count_noun, format_clock
from fenceline.limits import Limits
from fenceline.severity import before_loss
from fenceline.snapshot import Snapshot

#: A loss is reported for so long.
_REPORTED_MS = 86_400_000
#: More ids than these of one job are not named one by one.
_MOST_AFFECTED = 100


def flink_commit_pending(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield jobs whose checkpoint decided commits that are open after `limits.flink_commit_pending_s`.

    A running job commits within moments. A warning, critical from `limits.loss_critical_s` before the first
    coordinator aborts one.
    """
    for job in snapshot.flink_jobs:
        pending = job.of_fate(CommitFate.PENDING)
        is_late = job.completed_ms is None or (
            now_ms - job.completed_ms > limits.flink_commit_pending_s * 1_000
        )
        if pending and is_late:
            yield _pending(snapshot, job, pending, now_ms, limits)


def flink_commit_lost(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield jobs of which a decided commit was aborted within a day, unless another run has gone on."""
    for job in snapshot.flink_jobs:
        lost = [
            each
            for each in job.of_fate(CommitFate.LOST)
            if each.aborted_ms is None or now_ms - each.aborted_ms <= _REPORTED_MS
        ]
        if lost and not job.newer_job:
            yield _lost(snapshot, job, lost)


def _pending(
    snapshot: Snapshot,
    job: FlinkJobFacts,
    pending: Sequence[DecidedTransaction],
    now_ms: int,
    limits: Limits,
) -> Finding:
    number, verb = count_noun(len(pending), "transaction"), "is" if len(pending) == 1 else "are"
    ends_ms = min((each.expires_ms for each in pending if each.expires_ms is not None), default=None)
    severity = Severity.WARNING
    if ends_ms is not None:
        severity = before_loss(ends_ms, now_ms=now_ms, limits=limits)
    return _about(
        "flink_commit_pending",
        snapshot,
        job,
        pending,
        severity,
        job.completed_ms,
        summary=f"{job.name}: {number} of {job.checkpoint} {verb} decided and not committed",
        evidence=f"{_completed(job)}; {_end(ends_ms)}",
        next_step=(
            f"Commit what the checkpoint decided, or restore the job from {job.checkpoint}"
            + ("." if ends_ms is None else f" before {format_clock(ends_ms)}.")
            + " Do not fence its ids: that loses the records."
        ),
        deadline_ms=ends_ms,
    )


def _lost(snapshot: Snapshot, job: FlinkJobFacts, lost: Sequence[DecidedTransaction]) -> Finding:
    number, verb = count_noun(len(lost), "transaction"), "was" if len(lost) == 1 else "were"
    first_ms = min((each.aborted_ms for each in lost if each.aborted_ms is not None), default=None)
    return _about(
        "flink_commit_lost",
        snapshot,
        job,
        lost,
        Severity.CRITICAL,
        first_ms,
        summary=f"{job.name} has lost records: {number} of {job.checkpoint} {verb} aborted",
        evidence=(
            f"{_completed(job)}; the first was aborted"
            + (f" at {format_clock(first_ms)}" if first_ms is not None else "")
            + ": a restore goes on behind its records and does not write them again"
        ),
        next_step=(
            f"Decide before a restore from {job.checkpoint}: an older checkpoint writes them again, "
            "and with them what was committed since; else copy the missing records from its source."
        ),
    )


def _about(
    rule: str,
    snapshot: Snapshot,
    job: FlinkJobFacts,
    named: Sequence[DecidedTransaction],
    severity: Severity,
    since_ms: int | None,
    *,
    summary: str,
    evidence: str,
    next_step: str,
    deadline_ms: int | None = None,
) -> Finding:
    return Finding(
        rule=rule,
        cluster=snapshot.cluster,
        subject=job.subject,
        severity=severity,
        since_ms=since_ms,
        summary=summary,
        evidence=evidence,
        next_step=next_step,
        affected=tuple(f"transaction:{each.transactional_id}" for each in named[:_MOST_AFFECTED]),
        deadline_ms=deadline_ms,
    )


def _completed(job: FlinkJobFacts) -> str:
    if job.completed_ms is None:
        return f"{job.checkpoint} is complete"
    return f"{job.checkpoint} was completed at {format_clock(job.completed_ms)}"


def _end(ends_ms: int | None) -> str:
    if ends_ms is None:
        return "no coordinator aborts them"
    return (
        f"the first is aborted by its coordinator at {format_clock(ends_ms)}, and its records are lost then: "
        "no restore writes them again"
    )
