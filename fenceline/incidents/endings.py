"""The outcome of an incident in one sentence, by its cause. Pure; "" if nothing shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fenceline.facts import ACTION_REASONS, Confidence, Transition, TransitionKind
from fenceline.formatting import count_noun, format_clock
from fenceline.losses.aborted_commits import end_of


class ActionTaken(NamedTuple):
    """An action of ours with an effect."""

    number: int
    by: str
    reason: str

    def __str__(self) -> str:
        return f"{self.by}, action {self.number}" + (f", reason {self.reason}" if self.reason else "")


class BatchEnd(NamedTuple):
    """The end of a prepared batch, from the ledger of its sink."""

    batch_id: int
    #: `DecisionOutcome`, and its instant by the driver's clock.
    outcome: str
    done_ms: int
    rows: int
    #: Rows of its aborted transactions.
    lost_rows: int
    #: The begin of the run that recorded it, if that was after the batch was stuck.
    restarted_ms: int | None = None


_ENDED_BY = {
    TransitionKind.COMMIT: "Its producer committed it",
    TransitionKind.CLIENT_ABORT: "Its producer aborted it",
    TransitionKind.TIMEOUT: "Its coordinator aborted it at its timeout",
    TransitionKind.TAKEOVER: "Another producer with the same id fenced it",
    TransitionKind.ADMIN_FENCE: "An administrator fenced it from outside",
    TransitionKind.SELF_RECOVERY: "Its own producer aborted it after an error",
    TransitionKind.ADMIN_ABORT: "An administrator aborted it",
    TransitionKind.ABORT: "It was aborted",
}
_BY_ACTION = {
    TransitionKind.COMMIT: "Committed by",
    TransitionKind.ADMIN_FENCE: "Fenced by",
    TransitionKind.ADMIN_ABORT: "Aborted by",
}


def transaction_ending(end: Transition, action: ActionTaken | None, lost: str = "") -> str:
    """Return the end of a transaction, from its transition.

    An ambiguous verdict names nobody: the records do not show who aborted. `lost`: the number of a committed
    transaction's records that were lost before its commit, in words; "" for none.
    """
    at = f" at {format_clock(end.at_ms)}"
    if end.reason in ACTION_REASONS and action is not None and end.kind in _BY_ACTION:
        return f"{_BY_ACTION[end.kind]} {action}{at}."
    if end.kind is TransitionKind.COMMIT:
        return f"{_ENDED_BY[end.kind]}{at}; {f'{lost} had been lost before' if lost else 'nothing was lost'}."
    if end.confidence is Confidence.AMBIGUOUS:
        return f"It was aborted{at}; records cannot decide by whom."
    sure = "" if end.confidence is Confidence.CERTAIN else f" ({end.confidence})"
    return f"{_ENDED_BY[end.kind]}{at}{sure}."


def end_of_transaction(ring: Iterable[Transition], instance: str) -> Transition | None:
    """Return the end of a transaction, by its instance (`PRODUCER_ID@START`) among its id's transitions."""
    start = instance.partition("@")[2]
    return end_of(ring, int(start)) if start else None


def batch_ending(end: BatchEnd, action: ActionTaken | None) -> str:
    """Return the end of a prepared batch: the committer, and any loss."""
    rows, at = count_noun(end.rows, "row"), f"at {format_clock(end.done_ms)}"
    if end.lost_rows or end.outcome == "lost":
        lost = count_noun(end.lost_rows, "row")
        return f"Batch {end.batch_id:,} was lost in part: {lost} of {end.rows:,} aborted, recorded {at}."
    if end.outcome == "aborted":
        return f"Batch {end.batch_id:,} was aborted {at}; the next run reads its input again."
    if action is not None:
        return f"Finished by {action} {at}: all {rows} committed, nothing was lost."
    if end.restarted_ms is not None:
        came_back = f"The driver came back at {format_clock(end.restarted_ms)}"
        return f"{came_back} and committed all {rows}; nothing was lost."
    return f"Its driver committed all {rows} {at}; nothing was lost."
