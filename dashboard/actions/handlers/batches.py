"""Finish and roll back: what a dead driver left of a batch of our sink is ended as its ledger says.

One rule makes it exactly-once, here as in the driver: nobody ends a transaction of a batch before a decision
about it is in the ledger, created exclusively (docs/design/spark.md §3.5, docs/sink.md). To finish carries a
prepared decision out; to roll back decides against the batch first, and a driver that was faster wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dashboard.actions.connections import Hands
from dashboard.actions.handlers.sink_transactions import (
    Found,
    Opened,
    SinkTransactionState,
    confirmed_decisions,
    end,
    not_ended,
    standings,
    those,
)
from dashboard.actions.results import RequestResult, Result, SubjectOutcome, failed, stale
from dashboard.runtime import loop
from fenceline.decode.ledger import Round
from fenceline.formatting import count, some
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
    def which(self) -> Round:
        """The decision."""
        return Round(self.batch_id, self.round)

    @property
    def opened(self) -> tuple[Opened, ...]:
        """Its transactions."""
        return tuple(Opened(*each) for each in self.transactions)


class BatchPlanStale(Exception):
    """It is not as it was seen; the text says what differs."""


def seen_of(subject: SubjectPlan) -> BatchPlanFacts:
    """Return what a plan saw; raises KeyError for one that is none of these acts."""
    said: Mapping[str, Any] = subject.seen
    return BatchPlanFacts(*(said[name] for name in BatchPlanFacts._fields))


def finish(subject: SubjectPlan, hands: Hands) -> Result:
    """Commit what is left of a prepared batch. Raises `CannotAdminister`, `SinkError`, `OSError`."""
    seen = seen_of(subject)
    ledger = hands.ledger(seen.root, seen.checkpoint)
    try:
        decision = _still_prepared(seen, ledger)
    except BatchPlanStale as what:
        return stale(str(what))
    every = [_opened(each) for each in decision.transactions]
    parts = _end_open(every, hands, commit=True)
    result = _committed(subject, decision, ledger, hands, parts)
    return replace(result, records=confirmed_decisions(every, parts, commit=True))


def roll_back(subject: SubjectPlan, hands: Hands) -> Result:
    """Decide against a batch, then abort its transactions. Raises as `finish` does."""
    seen = seen_of(subject)
    ledger = hands.ledger(seen.root, seen.checkpoint)
    try:
        identity = _still_undecided(seen, ledger)
    except BatchPlanStale as what:
        return stale(str(what))
    found = standings(seen.opened, hands)
    for each in those(found, SinkTransactionState.UNSEEN):
        return failed(f"{each.transactional_id}: {found[each].words}")
    is_open = those(found, SinkTransactionState.OPEN)
    if not is_open:
        return stale("nothing of it is open any more as it was seen")
    ledger.refuse_weak()
    hands.before_write(LEDGER)
    hands.asked = LEDGER
    decision = _decision(seen, identity, found)
    held = ledger.decide(decision)
    if held != decision:
        words = f"{held.by} has decided in the meantime: the batch is {held.decided.value}"
        return stale(words)
    parts: tuple[RequestResult, ...] = (
        RequestResult(f"{ledger.path}/{seen.batch_id}.{seen.round}.decision", 0, "decided: aborted"),
    )
    parts += _end_open(is_open, hands, commit=False)
    result = _aborted(seen, is_open, ledger, hands, parts)
    return replace(result, records=confirmed_decisions(is_open, parts, commit=False))


def look_finished(subject: SubjectPlan, hands: Hands) -> Result:
    """Return what came of finishing a batch whose worker died, by looking alone."""
    seen = seen_of(subject)
    ledger = hands.ledger(seen.root, seen.checkpoint)
    done = ledger.outcome(seen.which)
    if done is not None:
        return Result(SubjectOutcome.DONE, f"the ledger says that it is {done.outcome.value}, by {done.by}")
    left = _counted(standings(seen.opened, hands), SinkTransactionState.COMMITTED)
    return failed(f"it stays prepared, {left}: start the query, which finishes it first, or make a new plan")


def look_rolled_back(subject: SubjectPlan, hands: Hands) -> Result:
    """Return what came of rolling a batch back whose worker died, by looking alone."""
    seen = seen_of(subject)
    ledger = hands.ledger(seen.root, seen.checkpoint)
    if seen.which not in ledger.names().decisions:
        return failed("nothing was decided about it, and so nothing was ended")
    held = ledger.decision(seen.which)
    if held.by != OPERATOR:
        return stale(f"{held.by} has decided in the meantime: the batch is {held.decided.value}")
    if ledger.outcome(seen.which) is not None:
        return Result(SubjectOutcome.DONE, "the ledger says that it is rolled back")
    found = standings(seen.opened, hands)
    if len(those(found, SinkTransactionState.GONE)) == len(found):
        return Result(SubjectOutcome.DONE, "it is decided against, and nothing of it is open any more")
    return Result(
        SubjectOutcome.UNKNOWN,
        f"it is decided against, {_counted(found, SinkTransactionState.GONE)}: "
        "the rest ends when the query starts, or at its timeout",
    )


def _still_prepared(seen: BatchPlanFacts, ledger: LedgerFolder) -> Decision:
    """Return the decision to carry out; raise `BatchPlanStale` where it is carried out, or is another one."""
    names = ledger.names()
    _same_ledger(seen, ledger.identity())
    if seen.which not in names.decisions:
        raise BatchPlanStale(f"the ledger has no decision {seen.batch_id}.{seen.round} any more")
    done = ledger.outcome(seen.which)
    if done is not None:
        raise BatchPlanStale(f"batch {seen.batch_id} is {done.outcome.value} already, by {done.by}")
    decision = ledger.decision(seen.which)
    if decision.decided is not Decided.PREPARED:
        raise BatchPlanStale(f"batch {seen.batch_id} is {decision.decided.value}, not prepared")
    _same_generation(seen, names.generation)
    others = set(seen.opened) - {_opened(each) for each in decision.transactions}
    if others:
        raise BatchPlanStale(
            f"the decision does not name {some(sorted(each.transactional_id for each in others))}"
        )
    return decision


def _still_undecided(seen: BatchPlanFacts, ledger: LedgerFolder) -> Ledger:
    """Return whose ledger it is; raise `BatchPlanStale` where a decision is there, or another driver."""
    identity = _same_ledger(seen, ledger.identity())
    names = ledger.names()
    if seen.which in names.decisions:
        held = ledger.decision(seen.which)
        raise BatchPlanStale(f"the decision is there already: {held.by} has it {held.decided.value}")
    last = ledger.last(names, seen.batch_id)
    if last is not None and last.decided is Decided.PREPARED:
        raise BatchPlanStale(
            f"batch {seen.batch_id} is prepared in round {last.round}: it can only be finished"
        )
    rounds = names.rounds(seen.batch_id)
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


def _end_open(wanted: Sequence[Opened], hands: Hands, *, commit: bool) -> tuple[RequestResult, ...]:
    """End those that are open as they were seen; nothing else is asked for."""
    found = standings(wanted, hands)
    is_open = those(found, SinkTransactionState.OPEN)
    if not is_open:
        return ()
    hands.before_write(END_TXN)
    hands.asked = END_TXN
    return end(is_open, hands, commit=commit)


def _committed(
    subject: SubjectPlan,
    decision: Decision,
    ledger: LedgerFolder,
    hands: Hands,
    parts: tuple[RequestResult, ...],
) -> Result:
    """Note in the ledger that all is committed; where something is open or cannot be told, say so instead."""
    seen = seen_of(subject)
    found = standings([_opened(each) for each in decision.transactions], hands)
    done = ledger.outcome(seen.which)
    if done is not None:
        # A driver was faster; it may have the ids in use again.
        return Result(
            SubjectOutcome.DONE, f"the ledger says that it is {done.outcome.value}, by {done.by}", parts
        )
    waiting = those(found, SinkTransactionState.OPEN, SinkTransactionState.UNSEEN)
    if waiting:
        return not_ended(waiting, found, parts, hands, f"batch {seen.batch_id} stays prepared")
    lost = [
        each for each in decision.transactions if found[_opened(each)].standing is SinkTransactionState.GONE
    ]
    if lost and not _is_accepted(subject, lost):
        return _lost(seen, decision, lost, found, parts)
    outcome = DecisionOutcome.LOST if lost else DecisionOutcome.COMMITTED
    ids = tuple(each.transactional_id for each in lost)
    hands.before_write(LEDGER)
    hands.asked = LEDGER
    ledger.finish(Done(seen.batch_id, seen.round, outcome, loop.now_ms(), OPERATOR, ids))
    parts += (RequestResult(f"{ledger.path}/{seen.batch_id}.{seen.round}.done", 0, outcome.value),)
    words = f"batch {seen.batch_id} is committed: {count(len(decision.transactions), 'transaction')}"
    return Result(
        SubjectOutcome.DONE, f"{words}, but for the loss that was accepted" if lost else words, parts
    )


def _is_accepted(subject: SubjectPlan, lost: Sequence[SinkTransaction]) -> bool:
    """Whether the preview told just this loss, so that whoever typed the confirmation has accepted it."""
    told = next((each.amount for each in subject.effects if each.name == "records_lost"), None)
    was_open = any(_opened(each) in seen_of(subject).opened for each in lost)
    return told == sum(each.records for each in lost) and not was_open


def _aborted(
    seen: BatchPlanFacts,
    aborted: Sequence[Opened],
    ledger: LedgerFolder,
    hands: Hands,
    parts: tuple[RequestResult, ...],
) -> Result:
    found = standings(aborted, hands)
    waiting = those(found, SinkTransactionState.OPEN, SinkTransactionState.UNSEEN)
    if waiting:
        return not_ended(waiting, found, parts, hands, f"batch {seen.batch_id} is decided against")
    hands.before_write(LEDGER)
    hands.asked = LEDGER
    ledger.finish(Done(seen.batch_id, seen.round, DecisionOutcome.ABORTED, loop.now_ms(), OPERATOR))
    parts += (RequestResult(f"{ledger.path}/{seen.batch_id}.{seen.round}.done", 0, "aborted"),)
    number = count(len(aborted), "transaction")
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
    """Say what is lost; nothing in the ledger says so before somebody has accepted it."""
    records = sum(each.records for each in lost)
    of = count(len(decision.transactions), "transaction")
    told = tuple(RequestResult(each.transactional_id, None, found[_opened(each)].words) for each in lost)
    return Result(
        SubjectOutcome.FAILED,
        f"batch {seen.batch_id} has lost {count(records, 'record')}: {len(lost)} of its {of} had ended "
        "before they could be committed; the others are committed. It stays prepared until the loss is "
        "accepted: make a new plan, which tells it, or start the query with "
        f"accept_loss=[{seen.batch_id}]; then write its input again where it matters",
        parts + told,
    )


def _decision(seen: BatchPlanFacts, ledger: Ledger, found: Found) -> Decision:
    """Return the decision against a batch; what of a transaction only its task knew is left at nothing."""
    transactions = tuple(
        SinkTransaction(0, 0, *each[:3], (), 0, each.started_ms, found[each].timeout_ms)
        for each in those(found, SinkTransactionState.OPEN)
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
    return f"{len(those(found, wanted))} of {count(len(found), 'transaction')} {wanted.value}"
