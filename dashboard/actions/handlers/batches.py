"""Finish and roll back: end what a dead driver left of a batch of our sink, as its ledger requires.

One rule makes it exactly-once, here as in the driver: nobody ends a transaction of a batch before a decision
about it is in the ledger, created exclusively (docs/design/spark.md §3.5, docs/sink.md). To finish carries a
prepared decision out; to roll back decides against the batch first, and a driver that was faster wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dashboard.actions.connections import ClusterConnections
from dashboard.actions.handlers.sink_transactions import (
    Found,
    Opened,
    SinkTransactionState,
    as_planned,
    confirmed_decisions,
    current_states,
    end_transactions,
    not_ended,
)
from dashboard.actions.results import RequestResult, Result, SubjectOutcome, failed_result, stale_result
from dashboard.runtime import loop
from fenceline.decode.ledger import Round
from fenceline.formatting import count_noun, list_names
from fenceline.plans.plan import SubjectPlan
from fenceline.spark.records import Decided, Decision, DecisionOutcome, Done, Ledger, SinkTransaction
from spark_pipeline.sink.ledger import LedgerFolder

OPERATOR = "operator"
LEDGER, END_TXN = "ledger", "EndTxn"


class BatchPlanFacts(NamedTuple):
    """What the plan saw of the batch."""

    query: str
    checkpoint: str
    root: str
    ledger_id: str
    query_id: str
    batch_id: int
    #: The decision to carry out, or the one to make.
    round: int
    #: The newest one of the ledger: a driver that starts claims the next.
    generation: int
    #: [[transactional id, producer id, producer epoch, started_ms], …]
    transactions: Sequence[Sequence[Any]]

    @property
    def decision_round(self) -> Round:
        """The decision."""
        return Round(self.batch_id, self.round)

    @property
    def open_transactions(self) -> tuple[Opened, ...]:
        """Its transactions."""
        return tuple(Opened(*each) for each in self.transactions)


class BatchPlanStale(Exception):
    """It is not as it was seen; the text is the difference."""


def plan_facts(subject: SubjectPlan) -> BatchPlanFacts:
    """Return what a plan saw; raises KeyError for one that is none of these acts."""
    values: Mapping[str, Any] = subject.seen
    return BatchPlanFacts(*(values[name] for name in BatchPlanFacts._fields))


def finish_batch(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Commit what is left of a prepared batch. Raises `AdminUnavailable`, `SinkError`, `OSError`."""
    seen = plan_facts(subject)
    ledger = connections.open_ledger(seen.root, seen.checkpoint)
    try:
        decision = _still_prepared(seen, ledger)
    except BatchPlanStale as what:
        return stale_result(str(what))
    every = [_opened(each) for each in decision.transactions]
    parts = _end_open(every, connections, commit=True)
    result = _committed(subject, decision, ledger, connections, parts)
    return replace(result, records=confirmed_decisions(every, parts, commit=True))


def roll_back(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Decide against a batch, then abort its transactions. Raises as `finish_batch` does."""
    seen = plan_facts(subject)
    ledger = connections.open_ledger(seen.root, seen.checkpoint)
    try:
        identity = _still_undecided(seen, ledger)
    except BatchPlanStale as what:
        return stale_result(str(what))
    found = current_states(seen.open_transactions, connections)
    for each in as_planned(found, SinkTransactionState.UNSEEN):
        return failed_result(f"{each.transactional_id}: {found[each].words}")
    is_open = as_planned(found, SinkTransactionState.OPEN)
    if not is_open:
        return stale_result("nothing of it is open any more as it was seen")
    ledger.refuse_weak()
    connections.before_write(LEDGER)
    connections.asked = LEDGER
    decision = _decision(seen, identity, found)
    held = ledger.decide(decision)
    if held != decision:
        words = f"{held.by} has decided in the meantime: the batch is {held.decided.value}"
        return stale_result(words)
    parts: tuple[RequestResult, ...] = (
        RequestResult(f"{ledger.path}/{seen.batch_id}.{seen.round}.decision", 0, "decided: aborted"),
    )
    parts += _end_open(is_open, connections, commit=False)
    result = _aborted(seen, is_open, ledger, connections, parts)
    return replace(result, records=confirmed_decisions(is_open, parts, commit=False))


def read_finish_outcome(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Return the outcome of finishing a batch whose worker died; only reads."""
    seen = plan_facts(subject)
    ledger = connections.open_ledger(seen.root, seen.checkpoint)
    done = ledger.read_outcome(seen.decision_round)
    if done is not None:
        return Result(SubjectOutcome.DONE, f"the ledger records it as {done.outcome.value}, by {done.by}")
    left = _counted(current_states(seen.open_transactions, connections), SinkTransactionState.COMMITTED)
    return failed_result(
        f"it stays prepared, {left}: start the query, which finishes it first, or make a new plan"
    )


def read_roll_back_outcome(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Return the outcome of rolling a batch back whose worker died; only reads."""
    seen = plan_facts(subject)
    ledger = connections.open_ledger(seen.root, seen.checkpoint)
    if seen.decision_round not in ledger.read_names().decisions:
        return failed_result("nothing was decided about it, and so nothing was ended")
    held = ledger.read_decision(seen.decision_round)
    if held.by != OPERATOR:
        return stale_result(f"{held.by} has decided in the meantime: the batch is {held.decided.value}")
    if ledger.read_outcome(seen.decision_round) is not None:
        return Result(SubjectOutcome.DONE, "the ledger records it as rolled back")
    found = current_states(seen.open_transactions, connections)
    if len(as_planned(found, SinkTransactionState.GONE)) == len(found):
        return Result(SubjectOutcome.DONE, "it is decided against, and nothing of it is open any more")
    return Result(
        SubjectOutcome.UNKNOWN,
        f"it is decided against, {_counted(found, SinkTransactionState.GONE)}: "
        "the rest ends when the query starts, or at its timeout",
    )


def _still_prepared(seen: BatchPlanFacts, ledger: LedgerFolder) -> Decision:
    """Return the decision to carry out; raise `BatchPlanStale` where it is carried out, or is another one."""
    names = ledger.read_names()
    _same_ledger(seen, ledger.read_identity())
    if seen.decision_round not in names.decisions:
        raise BatchPlanStale(f"the ledger has no decision {seen.batch_id}.{seen.round} any more")
    done = ledger.read_outcome(seen.decision_round)
    if done is not None:
        raise BatchPlanStale(f"batch {seen.batch_id} is {done.outcome.value} already, by {done.by}")
    decision = ledger.read_decision(seen.decision_round)
    if decision.decided is not Decided.PREPARED:
        raise BatchPlanStale(f"batch {seen.batch_id} is {decision.decided.value}, not prepared")
    _same_generation(seen, names.generation)
    others = set(seen.open_transactions) - {_opened(each) for each in decision.transactions}
    if others:
        raise BatchPlanStale(
            f"the decision does not name {list_names(sorted(each.transactional_id for each in others))}"
        )
    return decision


def _still_undecided(seen: BatchPlanFacts, ledger: LedgerFolder) -> Ledger:
    """Return whose ledger it is; raise `BatchPlanStale` where a decision is there, or another driver."""
    identity = _same_ledger(seen, ledger.read_identity())
    names = ledger.read_names()
    if seen.decision_round in names.decisions:
        held = ledger.read_decision(seen.decision_round)
        raise BatchPlanStale(f"the decision is there already: {held.by} has it {held.decided.value}")
    last = ledger.last_decision(names, seen.batch_id)
    if last is not None and last.decided is Decided.PREPARED:
        raise BatchPlanStale(
            f"batch {seen.batch_id} is prepared in round {last.round}: it can only be finished"
        )
    rounds = names.rounds_of(seen.batch_id)
    if seen.round != (rounds[-1].round + 1 if rounds else 0):
        raise BatchPlanStale(
            f"batch {seen.batch_id} is in another round now: {len(rounds)}, not {seen.round}"
        )
    _same_generation(seen, names.generation)
    return identity


def _same_ledger(seen: BatchPlanFacts, found: Ledger | None) -> Ledger:
    if found is None or (found.ledger_id, found.query_id) != (seen.ledger_id, seen.query_id):
        raise BatchPlanStale("the checkpoint has another ledger now, or none: the query was started anew")
    return found


def _same_generation(seen: BatchPlanFacts, now: int) -> None:
    if now != seen.generation:
        raise BatchPlanStale(
            f"another driver has started: generation {seen.generation} → {now}; it ends what was left"
        )


def _end_open(
    wanted: Sequence[Opened], connections: ClusterConnections, *, commit: bool
) -> tuple[RequestResult, ...]:
    """End those that are open as they were seen; nothing else is asked for."""
    found = current_states(wanted, connections)
    is_open = as_planned(found, SinkTransactionState.OPEN)
    if not is_open:
        return ()
    connections.before_write(END_TXN)
    connections.asked = END_TXN
    return end_transactions(is_open, connections, commit=commit)


def _committed(
    subject: SubjectPlan,
    decision: Decision,
    ledger: LedgerFolder,
    connections: ClusterConnections,
    parts: tuple[RequestResult, ...],
) -> Result:
    """Record in the ledger that all is committed; if something is open or unknown, return that instead."""
    seen = plan_facts(subject)
    found = current_states([_opened(each) for each in decision.transactions], connections)
    done = ledger.read_outcome(seen.decision_round)
    if done is not None:
        # A driver was faster; it may have the ids in use again.
        return Result(
            SubjectOutcome.DONE, f"the ledger records it as {done.outcome.value}, by {done.by}", parts
        )
    waiting = as_planned(found, SinkTransactionState.OPEN, SinkTransactionState.UNSEEN)
    if waiting:
        return not_ended(waiting, found, parts, connections, f"batch {seen.batch_id} stays prepared")
    lost = [
        each for each in decision.transactions if found[_opened(each)].standing is SinkTransactionState.GONE
    ]
    if lost and not _is_accepted(subject, lost):
        return _lost(seen, decision, lost, found, parts)
    outcome = DecisionOutcome.LOST if lost else DecisionOutcome.COMMITTED
    ids = tuple(each.transactional_id for each in lost)
    connections.before_write(LEDGER)
    connections.asked = LEDGER
    ledger.mark_done(Done(seen.batch_id, seen.round, outcome, loop.now_ms(), OPERATOR, ids))
    parts += (RequestResult(f"{ledger.path}/{seen.batch_id}.{seen.round}.done", 0, outcome.value),)
    words = f"batch {seen.batch_id} is committed: {count_noun(len(decision.transactions), 'transaction')}"
    return Result(
        SubjectOutcome.DONE, f"{words}, but for the loss that was accepted" if lost else words, parts
    )


def _is_accepted(subject: SubjectPlan, lost: Sequence[SinkTransaction]) -> bool:
    """Whether the preview showed just this loss, so that whoever typed the confirmation has accepted it."""
    shown = next((each.amount for each in subject.effects if each.name == "records_lost"), None)
    was_open = any(_opened(each) in plan_facts(subject).open_transactions for each in lost)
    return shown == sum(each.records for each in lost) and not was_open


def _aborted(
    seen: BatchPlanFacts,
    aborted: Sequence[Opened],
    ledger: LedgerFolder,
    connections: ClusterConnections,
    parts: tuple[RequestResult, ...],
) -> Result:
    found = current_states(aborted, connections)
    waiting = as_planned(found, SinkTransactionState.OPEN, SinkTransactionState.UNSEEN)
    if waiting:
        return not_ended(waiting, found, parts, connections, f"batch {seen.batch_id} is decided against")
    connections.before_write(LEDGER)
    connections.asked = LEDGER
    ledger.mark_done(Done(seen.batch_id, seen.round, DecisionOutcome.ABORTED, loop.now_ms(), OPERATOR))
    parts += (RequestResult(f"{ledger.path}/{seen.batch_id}.{seen.round}.done", 0, "aborted"),)
    number = count_noun(len(aborted), "transaction")
    return Result(
        SubjectOutcome.DONE,
        f"batch {seen.batch_id} is rolled back: {number} aborted; it runs again when its query starts",
        parts,
    )


def _lost(
    seen: BatchPlanFacts,
    decision: Decision,
    lost: Sequence[SinkTransaction],
    found: Found,
    parts: tuple[RequestResult, ...],
) -> Result:
    """Return what is lost; nothing is recorded in the ledger before somebody has accepted it."""
    records = sum(each.records for each in lost)
    of = count_noun(len(decision.transactions), "transaction")
    gone = tuple(RequestResult(each.transactional_id, None, found[_opened(each)].words) for each in lost)
    return Result(
        SubjectOutcome.FAILED,
        f"batch {seen.batch_id} has lost {count_noun(records, 'record')}: {len(lost)} of its {of} had ended "
        "before they could be committed; the others are committed. It stays prepared until the loss is "
        "accepted: make a new plan, which shows it, or start the query with "
        f"accept_loss=[{seen.batch_id}]; then write its input again where it matters",
        parts + gone,
    )


def _decision(seen: BatchPlanFacts, ledger: Ledger, found: Found) -> Decision:
    """Return the decision against a batch; what of a transaction only its task knew is left at nothing."""
    transactions = tuple(
        SinkTransaction(0, 0, *each[:3], (), 0, each.started_ms, found[each].timeout_ms)
        for each in as_planned(found, SinkTransactionState.OPEN)
    )
    return Decision(
        seen.batch_id, seen.round, Decided.ABORTED, OPERATOR, loop.now_ms(), ledger.ledger_id,
        ledger.query_id, "", seen.generation, transactions, reason="rolled back in Fenceline",
    )  # fmt: skip


def _opened(transaction: SinkTransaction) -> Opened:
    return Opened(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.started_ms,
    )


def _counted(found: Found, wanted: SinkTransactionState) -> str:
    return f"{len(as_planned(found, wanted))} of {count_noun(len(found), 'transaction')} {wanted.value}"
