"""Finish and roll back: end the batch that a dead driver of our sink left, as its ledger requires.

One rule makes it exactly-once, here as in the driver: no transaction of a batch ends before the ledger has a
decision about it, created exclusively (docs/design/spark.md §3.5, docs/sink.md). Finishing carries out a
prepared decision. Rolling back first decides against the batch, and a faster driver wins.
"""

from collections.abc import Sequence
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
from dashboard.actions.store import (
    RequestResult,
    Result,
    done_result,
    failed_result,
    plan_facts,
    stale_result,
    unknown_result,
)
from dashboard.runtime import loop
from fenceline.decode.ledger import Round
from fenceline.decode.typed import record_of
from fenceline.formatting import count_noun, list_names
from fenceline.plans.plan import SubjectPlan
from fenceline.spark.records import Decided, Decision, DecisionOutcome, Done, Ledger, SinkTransaction
from spark_pipeline.sink.ledger import LedgerFolder

OPERATOR = "operator"
LEDGER, END_TXN = "ledger", "EndTxn"


class BatchPlanFacts(NamedTuple):
    """The plan's facts about a batch."""

    query: str
    checkpoint: str
    root: str
    ledger_id: str
    query_id: str
    batch_id: int
    #: The decision to carry out, or the one to make.
    round: int
    #: The newest generation in the ledger: a driver that starts claims the next one.
    generation: int
    #: [[transactional id, producer id, producer epoch, started_ms], …]
    transactions: Sequence[Sequence[Any]]

    @property
    def decision_round(self) -> Round:
        return Round(self.batch_id, self.round)

    @property
    def open_transactions(self) -> tuple[Opened, ...]:
        return tuple(Opened(*transaction) for transaction in self.transactions)


class BatchPlanStale(Exception):
    """The batch changed since the plan; the text is the difference."""


def _opened_ledger(
    subject: SubjectPlan, connections: ClusterConnections
) -> tuple[BatchPlanFacts, LedgerFolder]:
    facts = plan_facts(BatchPlanFacts, subject)
    return facts, connections.open_ledger(facts.root, facts.checkpoint)


def finish_batch(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Commit the open transactions of a prepared batch. Raises `AdminUnavailable`, `SinkError`, `OSError`."""
    facts, ledger = _opened_ledger(subject, connections)
    try:
        decision = _still_prepared(facts, ledger)
    except BatchPlanStale as what:
        return stale_result(str(what))
    wanted = [_opened(transaction) for transaction in decision.transactions]
    parts = _end_open(wanted, connections, commit=True)
    result = _committed(subject, decision, ledger, connections, parts)
    return replace(result, records=confirmed_decisions(wanted, parts, commit=True))


def roll_back(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Decide against a batch, then abort its transactions. Raises as `finish_batch` does."""
    facts, ledger = _opened_ledger(subject, connections)
    try:
        identity = _still_undecided(facts, ledger)
    except BatchPlanStale as what:
        return stale_result(str(what))
    states = current_states(facts.open_transactions, connections)
    for transaction in as_planned(states, SinkTransactionState.UNSEEN):
        return failed_result(f"{transaction.transactional_id}: {states[transaction].words}")
    is_open = as_planned(states, SinkTransactionState.OPEN)
    if not is_open:
        return stale_result("nothing of it is open any more as it was seen")
    ledger.refuse_weak()
    connections.before_write(LEDGER)
    connections.asked = LEDGER
    decision = _decision(facts, identity, states)
    held = ledger.decide(decision)
    if held != decision:
        words = f"{held.by} has decided in the meantime: the batch is {held.decided.value}"
        return stale_result(words)
    parts: tuple[RequestResult, ...] = (
        RequestResult(f"{ledger.path}/{facts.batch_id}.{facts.round}.decision", 0, "decided: aborted"),
    )
    parts += _end_open(is_open, connections, commit=False)
    result = _aborted(facts, is_open, ledger, connections, parts)
    return replace(result, records=confirmed_decisions(is_open, parts, commit=False))


def read_finish_outcome(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Return the outcome of finishing a batch whose worker died, by reads only."""
    facts, ledger = _opened_ledger(subject, connections)
    done = ledger.read_outcome(facts.decision_round)
    if done is not None:
        return done_result(f"the ledger records it as {done.outcome.value}, by {done.by}")
    left = _counted(current_states(facts.open_transactions, connections), SinkTransactionState.COMMITTED)
    return failed_result(
        f"it stays prepared, {left}: start the query, which finishes it first, or make a new plan"
    )


def read_roll_back_outcome(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Return the outcome of rolling a batch back whose worker died, by reads only."""
    facts, ledger = _opened_ledger(subject, connections)
    if facts.decision_round not in ledger.read_names().decisions:
        return failed_result("nothing was decided about it, and so nothing was ended")
    held = ledger.read_decision(facts.decision_round)
    if held.by != OPERATOR:
        return stale_result(f"{held.by} has decided in the meantime: the batch is {held.decided.value}")
    if ledger.read_outcome(facts.decision_round) is not None:
        return done_result("the ledger records it as rolled back")
    states = current_states(facts.open_transactions, connections)
    if len(as_planned(states, SinkTransactionState.GONE)) == len(states):
        return done_result("it is decided against, and nothing of it is open any more")
    return unknown_result(
        f"it is decided against, {_counted(states, SinkTransactionState.GONE)}: "
        "the rest ends when the query starts, or at its timeout"
    )


def _still_prepared(facts: BatchPlanFacts, ledger: LedgerFolder) -> Decision:
    """Return the decision to carry out; raises `BatchPlanStale` if it is done or has changed."""
    names = ledger.read_names()
    _same_ledger(facts, ledger.read_identity())
    if facts.decision_round not in names.decisions:
        raise BatchPlanStale(f"the ledger has no decision {facts.batch_id}.{facts.round} any more")
    done = ledger.read_outcome(facts.decision_round)
    if done is not None:
        raise BatchPlanStale(f"batch {facts.batch_id} is {done.outcome.value} already, by {done.by}")
    decision = ledger.read_decision(facts.decision_round)
    if decision.decided is not Decided.PREPARED:
        raise BatchPlanStale(f"batch {facts.batch_id} is {decision.decided.value}, not prepared")
    _same_generation(facts, names.generation)
    others = set(facts.open_transactions) - {_opened(transaction) for transaction in decision.transactions}
    if others:
        unnamed = sorted(transaction.transactional_id for transaction in others)
        raise BatchPlanStale(f"the decision does not name {list_names(unnamed)}")
    return decision


def _still_undecided(facts: BatchPlanFacts, ledger: LedgerFolder) -> Ledger:
    """Return the ledger's identity; raises `BatchPlanStale` for a new decision or another driver."""
    identity = _same_ledger(facts, ledger.read_identity())
    names = ledger.read_names()
    if facts.decision_round in names.decisions:
        held = ledger.read_decision(facts.decision_round)
        raise BatchPlanStale(f"the decision is there already: {held.by} has it {held.decided.value}")
    last = ledger.last_decision(names, facts.batch_id)
    if last is not None and last.decided is Decided.PREPARED:
        raise BatchPlanStale(
            f"batch {facts.batch_id} is prepared in round {last.round}: it can only be finished"
        )
    rounds = names.rounds_of(facts.batch_id)
    if facts.round != (rounds[-1].round + 1 if rounds else 0):
        raise BatchPlanStale(
            f"batch {facts.batch_id} is in another round now: {len(rounds)}, not {facts.round}"
        )
    _same_generation(facts, names.generation)
    return identity


def _same_ledger(facts: BatchPlanFacts, ledger: Ledger | None) -> Ledger:
    if ledger is None or (ledger.ledger_id, ledger.query_id) != (facts.ledger_id, facts.query_id):
        raise BatchPlanStale("the checkpoint has another ledger now, or none: the query was started anew")
    return ledger


def _same_generation(facts: BatchPlanFacts, now: int) -> None:
    if now != facts.generation:
        raise BatchPlanStale(
            f"another driver has started: generation {facts.generation} → {now}; it ends what was left"
        )


def _end_open(
    wanted: Sequence[Opened], connections: ClusterConnections, *, commit: bool
) -> tuple[RequestResult, ...]:
    """End the transactions that are open as in the plan; without any, send no request."""
    states = current_states(wanted, connections)
    is_open = as_planned(states, SinkTransactionState.OPEN)
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
    """Record the commit in the ledger; if a transaction is open or unknown, return that outcome instead."""
    facts = plan_facts(BatchPlanFacts, subject)
    states = current_states([_opened(transaction) for transaction in decision.transactions], connections)
    done = ledger.read_outcome(facts.decision_round)
    if done is not None:
        # A driver was faster, and may already use the ids again.
        return done_result(f"the ledger records it as {done.outcome.value}, by {done.by}", *parts)
    waiting = as_planned(states, SinkTransactionState.OPEN, SinkTransactionState.UNSEEN)
    if waiting:
        return not_ended(waiting, states, parts, connections, f"batch {facts.batch_id} stays prepared")
    lost = [
        transaction
        for transaction in decision.transactions
        if states[_opened(transaction)].standing is SinkTransactionState.GONE
    ]
    if lost and not _is_accepted(subject, lost):
        return _lost(facts, decision, lost, states, parts)
    outcome = DecisionOutcome.LOST if lost else DecisionOutcome.COMMITTED
    ids = tuple(transaction.transactional_id for transaction in lost)
    connections.before_write(LEDGER)
    connections.asked = LEDGER
    ledger.mark_done(Done(facts.batch_id, facts.round, outcome, loop.now_ms(), OPERATOR, ids))
    parts += (RequestResult(f"{ledger.path}/{facts.batch_id}.{facts.round}.done", 0, outcome.value),)
    words = f"batch {facts.batch_id} is committed: {count_noun(len(decision.transactions), 'transaction')}"
    return done_result(f"{words}, but for the loss that was accepted" if lost else words, *parts)


def _is_accepted(subject: SubjectPlan, lost: Sequence[SinkTransaction]) -> bool:
    """Whether the preview showed exactly this loss, so that the typed confirmation accepted it."""
    shown = next((effect.amount for effect in subject.effects if effect.name == "records_lost"), None)
    planned = plan_facts(BatchPlanFacts, subject).open_transactions
    was_open = any(_opened(transaction) in planned for transaction in lost)
    return shown == sum(transaction.records for transaction in lost) and not was_open


def _aborted(
    facts: BatchPlanFacts,
    aborted: Sequence[Opened],
    ledger: LedgerFolder,
    connections: ClusterConnections,
    parts: tuple[RequestResult, ...],
) -> Result:
    states = current_states(aborted, connections)
    waiting = as_planned(states, SinkTransactionState.OPEN, SinkTransactionState.UNSEEN)
    if waiting:
        return not_ended(waiting, states, parts, connections, f"batch {facts.batch_id} is decided against")
    connections.before_write(LEDGER)
    connections.asked = LEDGER
    ledger.mark_done(Done(facts.batch_id, facts.round, DecisionOutcome.ABORTED, loop.now_ms(), OPERATOR))
    parts += (RequestResult(f"{ledger.path}/{facts.batch_id}.{facts.round}.done", 0, "aborted"),)
    number = count_noun(len(aborted), "transaction")
    words = f"batch {facts.batch_id} is rolled back: {number} aborted; it runs again when its query starts"
    return done_result(words, *parts)


def _lost(
    facts: BatchPlanFacts,
    decision: Decision,
    lost: Sequence[SinkTransaction],
    states: Found,
    parts: tuple[RequestResult, ...],
) -> Result:
    """Return the loss; the ledger records it only after a user has accepted it."""
    records = sum(transaction.records for transaction in lost)
    of = count_noun(len(decision.transactions), "transaction")
    return failed_result(
        f"batch {facts.batch_id} has lost {count_noun(records, 'record')}: {len(lost)} of its {of} had ended "
        "before they could be committed; the others are committed. It stays prepared until the loss is "
        "accepted: make a new plan, which shows it, or start the query with "
        f"accept_loss=[{facts.batch_id}]; then write its input again where it matters",
        *parts,
        *(
            RequestResult(transaction.transactional_id, None, states[_opened(transaction)].words)
            for transaction in lost
        ),
    )


def _decision(facts: BatchPlanFacts, ledger: Ledger, states: Found) -> Decision:
    """Return the decision against a batch; fields known only to the lost task are 0 or empty."""
    transactions = tuple(
        SinkTransaction(0, 0, *opened[:3], (), 0, opened.started_ms, states[opened].timeout_ms)
        for opened in as_planned(states, SinkTransactionState.OPEN)
    )
    return Decision(
        facts.batch_id, facts.round, Decided.ABORTED, OPERATOR, loop.now_ms(), ledger.ledger_id,
        ledger.query_id, "", facts.generation, transactions, reason="rolled back in Fenceline",
    )  # fmt: skip


def _opened(transaction: SinkTransaction) -> Opened:
    return record_of(Opened, transaction)


def _counted(states: Found, wanted: SinkTransactionState) -> str:
    return f"{len(as_planned(states, wanted))} of {count_noun(len(states), 'transaction')} {wanted.value}"
