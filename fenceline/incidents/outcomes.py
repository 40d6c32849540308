"""Choose an incident's action, predict the outcome for its subjects with it and without, and tell how it
ended. Pure.

An outcome with an action comes from the effects of the planner's plan, one without from the deadline. The end
of an incident is one sentence by its cause, "" if nothing shows it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from fenceline.facts import ACTION_REASONS, Confidence, Transition, TransitionKind
from fenceline.formatting import count_noun, format_clock
from fenceline.incidents.findings import OpenFinding
from fenceline.incidents.sentences import IncidentFacts, StuckBatches
from fenceline.losses.aborted_commits import end_of
from fenceline.plans.plan import Bound, Effect, SubjectPlan

_SIGNS = {Bound.AT_LEAST: "at least ", Bound.AT_MOST: "at most "}
_RELEASED = ("records_released", "offsets_released")
#: Causes that the end of an effect does not end: a broker or a part of the cluster must return.
_OUT_OF_REACH = ("collector_gap", "coordinator_loading", "stuck_in_prepare")
Found = TypeVar("Found", bound=OpenFinding)
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


class Outcome(NamedTuple):
    """The outcome for a subject, and its tone: "ok", "warning", "critical" or "" for neither."""

    words: str
    tone: str = ""


class OutcomeRow(NamedTuple):
    """An affected subject: its outcome after an action, None if no action helps."""

    what: str
    acted: Outcome | None
    nothing: Outcome


def action_candidates(findings: Sequence[Found]) -> Sequence[Found]:
    """Return the findings whose actions end an incident: the cause, others of its subject, then the rest.

    `findings` begin with the cause, or after its end with the worst remaining effect.
    """
    first, *effects = findings
    if first.rule in _OUT_OF_REACH:
        return [first]
    return [first, *sorted(effects, key=lambda effect: effect.subject != first.subject)]


def outcome_rows(facts: IncidentFacts, plan: SubjectPlan | None, *, now_ms: int) -> Sequence[OutcomeRow]:
    """Return the outcomes for the records, the readers and the producer of an open incident."""
    effects = {effect.name: effect for effect in plan.effects} if plan else None
    if facts.cause_over_ms is not None:
        rows = []
    elif facts.batches is None:
        rows = [*_own_rows(facts, effects, now_ms)]
    else:
        rows = [*_batch_rows(facts, facts.batches, effects, now_ms)]
    return [*rows, *_reader_rows(facts, effects, now_ms)]


def acted_words(facts: IncidentFacts, button: str, *, now_ms: int) -> str:
    """Return the heading of the outcome after an action, "" if no action helps.

    `button` is the label of a plan's button, "" without one.
    """
    act = button.rstrip("…")
    if _completes_on_restart(facts, now_ms):
        return f"restart, or {act[:1].lower()}{act[1:]}" if act else "restart"
    return act


def nothing_words(facts: IncidentFacts, *, now_ms: int) -> str:
    """Return the heading of the outcome without an action."""
    if facts.deadline_ms is None or facts.deadline_ms <= now_ms:
        return "if nothing is done"
    return f"nothing until {format_clock(facts.deadline_ms)}"


def _completes_on_restart(facts: IncidentFacts, now_ms: int) -> bool:
    """Whether a restart commits the query's prepared batches: true until their transactions time out."""
    is_over = facts.batches is None or facts.cause_over_ms is not None
    return not is_over and (facts.deadline_ms is None or facts.deadline_ms > now_ms)


def _batch_rows(
    facts: IncidentFacts, batches: StuckBatches, effects: Mapping[str, Effect] | None, now_ms: int
) -> Iterator[OutcomeRow]:
    rows = count_noun(batches.rows, "row")
    can_act = effects is not None or _completes_on_restart(facts, now_ms)
    committed = (effects or {}).get("records_committed")
    number = batches.rows if committed is None or committed.amount is None else committed.amount
    acted = Outcome(f"{number:,} committed", "ok") if can_act else None
    if facts.deadline_ms is None:
        nothing = Outcome(f"{rows} are not committed", "warning")
    else:
        at = "may be aborted by now" if facts.deadline_ms <= now_ms else f"{rows} aborted"
        nothing = Outcome(f"{at}, to be replayed", "critical")
    yield OutcomeRow(f"rows of {batches}", acted, nothing)
    following = Outcome(f"batch {batches.numbers[-1] + 1:,}") if can_act else None
    refuses = "refuses to start: reports the loss" if facts.deadline_ms else "does not go on"
    yield OutcomeRow(f"next batch of {facts.name}", following, Outcome(refuses))


def _own_rows(
    facts: IncidentFacts, effects: Mapping[str, Effect] | None, now_ms: int
) -> Iterator[OutcomeRow]:
    """Yield the outcome for an open transaction's own records, and for its producer."""
    if facts.rule not in ("open_too_long", "coordinator_overdue", "hanging"):
        return
    what = "its transaction" if facts.rule == "hanging" else f"transaction of {facts.name}"
    acted = None
    if effects is not None:
        lost = effects.get("records_lost")
        acted = Outcome(f"aborted{_amount(lost, ': {} record')}", "warning")
    yield OutcomeRow(what, acted, _own_end(facts, now_ms))
    if effects is not None and "producer_fenced" in effects:
        yield OutcomeRow(
            "its producer", Outcome("is fenced; start it again"), Outcome(_producer_end(facts, now_ms))
        )


def _own_end(facts: IncidentFacts, now_ms: int) -> Outcome:
    if facts.rule == "hanging":
        return Outcome("never ends", "critical")
    if facts.rule == "coordinator_overdue":
        return Outcome("ends when its coordinator goes on", "critical")
    if facts.deadline_ms is None:
        return Outcome("ends when its own system decides it", "warning")
    if facts.deadline_ms <= now_ms:
        return Outcome("is aborted with the coordinator's next scan", "warning")
    return Outcome(f"aborted at {format_clock(facts.deadline_ms)}", "warning")


def _producer_end(facts: IncidentFacts, now_ms: int) -> str:
    if facts.deadline_ms is not None and facts.deadline_ms > now_ms:
        return "may still commit until then"
    return "may still commit"


def _reader_rows(
    facts: IncidentFacts, effects: Mapping[str, Effect] | None, now_ms: int
) -> Iterator[OutcomeRow]:
    # Missing or duplicated records block no reader.
    if facts.rule == "audit_violated" or not (facts.groups or facts.queries or facts.partitions):
        return
    acted = Outcome("resume once it is committed", "ok") if _completes_on_restart(facts, now_ms) else None
    if effects is not None and "lso_stays" in effects and not any(name in effects for name in _RELEASED):
        acted = Outcome("stays blocked by another transaction", "warning")
    elif effects is not None:
        released = next((effects[name] for name in _RELEASED if name in effects), None)
        noun = ": {} offset" if released and released.name == "offsets_released" else ": {} record"
        acted = Outcome(f"resume at once{_amount(released, noun)}", "ok")
    yield OutcomeRow(facts.readers or "readers of its partitions", acted, _readers_end(facts, now_ms))


def _readers_end(facts: IncidentFacts, now_ms: int) -> Outcome:
    if facts.rule in ("hanging", "coordinator_overdue") or facts.deadline_ms is None:
        return Outcome("stay blocked", "critical")
    if facts.deadline_ms <= now_ms:
        return Outcome("stay blocked until it is aborted", "critical")
    return Outcome(f"resume at {format_clock(facts.deadline_ms)}", "warning")


def _amount(effect: Effect | None, template: str) -> str:
    """Return `: at least 300 records`; "" if the number is unknown or 0."""
    if effect is None or not effect.amount:
        return ""
    plural = "" if effect.amount == 1 else "s"
    return template.format(f"{_SIGNS.get(effect.bound, '')}{effect.amount:,}") + plural


class ActionTaken(NamedTuple):
    """An action of ours with an effect."""

    number: int
    by: str
    reason: str

    def __str__(self) -> str:
        return f"{self.by}, action {self.number}" + (f", reason {self.reason}" if self.reason else "")


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


def batch_ending(
    batch_id: int,
    outcome: str,
    action: ActionTaken | None,
    *,
    done_ms: int,
    rows: int,
    lost_rows: int,
    restarted_ms: int | None,
) -> str:
    """Return the end of a prepared batch by its sink's ledger: the committer, and any loss.

    `outcome`: `DecisionOutcome`; `done_ms`: its instant by the driver's clock. `lost_rows`: of its aborted
    transactions. `restarted_ms`: the begin of the recording run, if that was after the batch was stuck.
    """
    all_rows, at = f"all {count_noun(rows, 'row')}", f"at {format_clock(done_ms)}"
    if lost_rows or outcome == "lost":
        lost = count_noun(lost_rows, "row")
        return f"Batch {batch_id:,} was lost in part: {lost} of {rows:,} aborted, recorded {at}."
    if outcome == "aborted":
        return f"Batch {batch_id:,} was aborted {at}; the next run reads its input again."
    if action is not None:
        return f"Finished by {action} {at}: {all_rows} committed, nothing was lost."
    if restarted_ms is not None:
        came_back = f"The driver came back at {format_clock(restarted_ms)}"
        return f"{came_back} and committed {all_rows}; nothing was lost."
    return f"Its driver committed {all_rows} {at}; nothing was lost."
