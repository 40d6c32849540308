"""Rules about Flink jobs: a checkpoint's decided commits, and losses that no restore brings back."""

from collections.abc import Iterator, Sequence

from fenceline.engines.flink.restore import CommitFate, DecidedTransaction, FlinkJobFacts
from fenceline.facts import Finding, Severity
from fenceline.findings import before_loss
from fenceline.formatting import count_noun, format_clock, is_are
from fenceline.limits import Limits
from fenceline.rules.rule import REPORTED_MS, affected_ids, claim
from fenceline.snapshot import Snapshot


def flink_commit_pending(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield jobs with a checkpoint's decided commits still open after `limits.flink_commit_pending_s`.

    A running job commits within moments. A warning, critical from `limits.loss_critical_s` before the first
    abort by a coordinator.
    """
    for job in snapshot.flink_jobs:
        pending = job.of_fate(CommitFate.PENDING)
        is_late = job.completed_ms is None or (
            now_ms - job.completed_ms > limits.flink_commit_pending_s * 1_000
        )
        if pending and is_late:
            yield _pending(job, pending, now_ms, limits)


def flink_commit_lost(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield jobs with a decided commit that was aborted within a day, unless a later run continued."""
    for job in snapshot.flink_jobs:
        lost = [
            transaction
            for transaction in job.of_fate(CommitFate.LOST)
            if transaction.aborted_ms is None or now_ms - transaction.aborted_ms <= REPORTED_MS
        ]
        if lost and not job.newer_job:
            yield _lost(job, lost)


def _pending(
    job: FlinkJobFacts, pending: Sequence[DecidedTransaction], now_ms: int, limits: Limits
) -> Finding:
    number, verb = count_noun(len(pending), "transaction"), is_are(len(pending))
    ends_ms = min(
        (transaction.expires_ms for transaction in pending if transaction.expires_ms is not None),
        default=None,
    )
    severity = Severity.WARNING
    if ends_ms is not None:
        severity = before_loss(ends_ms, now_ms=now_ms, limits=limits)
    return claim(
        subject=job.subject,
        affected=affected_ids([transaction.transactional_id for transaction in pending]),
        instance=job.checkpoint,
        severity=severity,
        since_ms=job.completed_ms,
        summary=f"{job.name}: {number} of {job.checkpoint} {verb} decided and not committed",
        evidence=f"{_completed(job)}; {_end(ends_ms)}",
        next_step=(
            f"Commit what the checkpoint decided, or restore the job from {job.checkpoint}"
            + ("." if ends_ms is None else f" before {format_clock(ends_ms)}.")
            + " Do not fence its ids: that loses the records."
        ),
        deadline_ms=ends_ms,
    )


def _lost(job: FlinkJobFacts, lost: Sequence[DecidedTransaction]) -> Finding:
    number, verb = count_noun(len(lost), "transaction"), "was" if len(lost) == 1 else "were"
    first_ms = min(
        (transaction.aborted_ms for transaction in lost if transaction.aborted_ms is not None), default=None
    )
    return claim(
        subject=job.subject,
        affected=affected_ids([transaction.transactional_id for transaction in lost]),
        instance=job.checkpoint,
        severity=Severity.CRITICAL,
        since_ms=first_ms,
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
