"""Labels of actions, their states and outcomes, and their limits. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.labels.status import StatusLabel
from fenceline.plans.plan import Act, Bound, Effect


@dataclass(frozen=True, slots=True)
class ActStyle:
    #: The verb before the subject on the button: "Fence" payments-7.
    verb: str
    #: The text of the confirming button: "Fence producer".
    button: str
    #: Its name in lists, and in a sentence about it.
    noun: str
    #: Its effect, as a sentence.
    means: str
    #: Its limits, as sentences.
    never: tuple[str, ...]


ACTS: Mapping[str, ActStyle] = {
    Act.FENCE: ActStyle(
        "Fence",
        "Fence producer",
        "fence",
        "InitProducerId on the same transactional id: its coordinator aborts what is open, and the "
        "producer that holds the id is fenced.",
        (
            "Records that are already committed stay.",
            "No application is stopped or started: one that initialises the id again continues.",
            "No other transactional id is touched.",
        ),
    ),
    Act.ABORT_MARKER: ActStyle(
        "Abort hanging transaction in",
        "Write abort marker",
        "abort marker",
        "WriteTxnMarkers(ABORT) to the leader of the partition: it ends a transaction that "
        "no coordinator will complete.",
        (
            "Records that are already committed stay.",
            "No producer is fenced, and no transactional id changes its state.",
            "No other partition is written to.",
        ),
    ),
    Act.FINISH_BATCH: ActStyle(
        "Finish",
        "Finish batch",
        "finish batch",
        "EndTxn(commit) for every transaction of the prepared batch that is still open, then the mark in "
        "the ledger: what the driver does first after a restart.",
        (
            "No record is written again, and none is lost.",
            "The query is not started: after a restart it finds the batch finished.",
            "Spark's own checkpoint is not written to.",
        ),
    ),
    Act.ROLL_BACK_BATCH: ActStyle(
        "Roll back",
        "Roll back batch",
        "roll back batch",
        "The decision “aborted” in the ledger, then EndTxn(abort) for each open transaction of it: "
        "after a restart the driver writes it again from the same input.",
        (
            "No batch that was prepared or committed is undone.",
            "No input is skipped: the next run reads the same offsets.",
            "Spark's own checkpoint is not written to.",
        ),
    ),
    Act.COMMIT_FLINK: ActStyle(
        "Commit",
        "Commit transaction",
        "Flink commit",
        "EndTxn(commit) under the producer id and epoch that a completed Flink checkpoint recorded: what "
        "a restore from that checkpoint does first.",
        (
            "No record is written again, and none is lost.",
            "No producer is fenced, and the job is neither started nor stopped.",
            "The checkpoint is not written to.",
        ),
    ),
}

#: The values of `Action.State`, and two more: an expired plan, and one with nothing to do.
STATES: Mapping[str, StatusLabel] = {
    "planned": StatusLabel("pending confirmation", "info", "nothing has been sent"),
    "refused": StatusLabel("refused", "unknown", "not permitted; nothing was sent"),
    "expired": StatusLabel("expired", "unknown", "not confirmed in time; nothing was sent"),
    "executing": StatusLabel("executing", "info", "a worker is sending it"),
    "done": StatusLabel("done", "ok", "everything was done"),
    "partly": StatusLabel("partly done", "warning", "some was done, some was outdated or failed"),
    "stale": StatusLabel("outdated", "warning", "every subject had changed; nothing was sent"),
    "failed": StatusLabel("failed", "critical", "the cluster refused, or could not be reached"),
    "unknown": StatusLabel("unknown", "critical", "its worker stopped; the result is not known"),
}
#: The results of one subject.
OUTCOMES: Mapping[str, StatusLabel] = {
    "done": StatusLabel("done", "ok", "it was done"),
    "stale": StatusLabel("outdated", "warning", "it had changed and was skipped"),
    "failed": StatusLabel("failed", "critical", "the cluster refused, or could not be reached"),
    "unknown": StatusLabel("unknown", "critical", "the result cannot be observed"),
    "skipped": StatusLabel("skipped", "unknown", "it was refused in the plan and skipped"),
}
_SIGNS = {Bound.EXACT: "", Bound.AT_LEAST: "≥ ", Bound.AT_MOST: "≤ "}


def bound_sign(effect: Effect) -> str:
    """Return the sign before a bound: "≥ ", "≤ ", or nothing; at least 0 needs no sign."""
    return _SIGNS[effect.bound] if effect.amount else ""
