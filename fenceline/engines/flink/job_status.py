"""Parse a Flink job from its JobManager's REST API (`/v1`, Flink 1.20 to 2.1). Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: Flink's names of states of a job (`JobStatus`).
JOB_STATES = (
    "INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED", "FINISHED",
    "RESTARTING", "SUSPENDED", "RECONCILING",
)  # fmt: skip
#: Maximum characters of a failure's message.
_LONGEST_REASON = 300


class FlinkOperator(NamedTuple):
    """A vertex of a job's graph: chained operators."""

    name: str
    parallelism: int
    #: Flink's state: RUNNING, FAILED …
    status: str


class ReportedCheckpoint(NamedTuple):
    """A checkpoint that a JobManager reports as completed, failed or restored."""

    checkpoint_id: int
    #: The instant of its completion, failure or restore, by the JobManager's clock.
    at_ms: int
    #: From its trigger to its end; None if not reported.
    duration_ms: int | None = None
    #: The reason of its failure.
    reason: str = ""


class FlinkRun(NamedTuple):
    """One run of a job from its JobManager."""

    job_id: str
    name: str
    #: Flink's state: RUNNING, RESTARTING, FAILED …
    state: str
    started_ms: int
    #: None while it runs.
    ended_ms: int | None
    operators: tuple[FlinkOperator, ...] = ()
    #: Checkpoints since its start, by Flink's name: completed, failed, in_progress, restored.
    counts: Mapping[str, int] = {}
    completed: ReportedCheckpoint | None = None
    failed: ReportedCheckpoint | None = None
    restored: ReportedCheckpoint | None = None


def job_ids(overview: Any) -> Sequence[str]:
    """Return the ids of `/v1/jobs/overview`, the newest start first. Raises the errors of `flink_run`."""
    jobs = sorted(overview["jobs"], key=lambda job: int(job["start-time"]), reverse=True)
    return [str(job["jid"]) for job in jobs]


def flink_run(detail: Any, checkpoints: Any) -> FlinkRun:
    """Read a run from `/v1/jobs/ID` and `/v1/jobs/ID/checkpoints`. Raises ValueError, KeyError, TypeError."""
    latest = checkpoints["latest"]
    return FlinkRun(
        str(detail["jid"]),
        str(detail["name"]),
        str(detail["state"]),
        int(detail["start-time"]),
        ended if (ended := int(detail["end-time"])) >= 0 else None,
        tuple(
            FlinkOperator(str(vertex["name"]), int(vertex["parallelism"]), str(vertex["status"]))
            for vertex in detail["vertices"]
        ),
        {str(name): int(number) for name, number in checkpoints["counts"].items()},
        _completed(latest["completed"]),
        _failed(latest["failed"]),
        _restored(latest["restored"]),
    )


def _completed(checkpoint: Any) -> ReportedCheckpoint | None:
    if checkpoint is None:
        return None
    duration_ms = int(checkpoint["end_to_end_duration"])
    return ReportedCheckpoint(int(checkpoint["id"]), int(checkpoint["latest_ack_timestamp"]), duration_ms)


def _failed(checkpoint: Any) -> ReportedCheckpoint | None:
    if checkpoint is None:
        return None
    reason = str(checkpoint["failure_message"] or "").strip().partition("\n")[0][:_LONGEST_REASON]
    return ReportedCheckpoint(int(checkpoint["id"]), int(checkpoint["failure_timestamp"]), reason=reason)


def _restored(checkpoint: Any) -> ReportedCheckpoint | None:
    return (
        None
        if checkpoint is None
        else ReportedCheckpoint(int(checkpoint["id"]), int(checkpoint["restore_timestamp"]))
    )
