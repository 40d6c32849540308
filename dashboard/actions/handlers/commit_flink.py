"""Commit what a Flink checkpoint decided to commit: EndTxn with the recorded producer id and epoch.

Right before the request the newest checkpoint must still contain the transaction, and it must be the id's
open one. As in every commit that Fenceline requests, EndTxn version 4 keeps the epoch.
"""

from typing import NamedTuple

from dashboard.actions.connections import ClusterConnections
from dashboard.actions.handlers.sink_transactions import (
    CurrentTransaction,
    Opened,
    SinkTransactionState,
    confirmed_decisions,
    current_states,
    end_transactions,
    not_ended,
)
from dashboard.actions.results import Result, SubjectOutcome, failed_result, stale_result
from dashboard.actions.store import plan_facts
from dashboard.engines.flink_jobs import holds_of
from dashboard.runtime import loop
from fenceline.plans.plan import SubjectPlan

REQUEST = "EndTxn"


class FlinkCommitFacts(NamedTuple):
    """The plan's facts about a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    started_ms: int
    job: str
    checkpoint: str
    newer_job: str

    @property
    def opened(self) -> Opened:
        """Return the fields that identify the transaction."""
        return Opened(*self[:4])


def commit_transaction(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Commit the transaction if it is still decided and open as in the plan. Raises `AdminUnavailable`."""
    facts = plan_facts(FlinkCommitFacts, subject)
    if why := _undecided(facts, connections):
        return stale_result(why)
    wanted = [facts.opened]
    before = current_states(wanted, connections)[facts.opened]
    if before.standing is SinkTransactionState.UNSEEN:
        return failed_result(before.words)
    if before.standing is not SinkTransactionState.OPEN:
        return stale_result(before.words)
    connections.before_write(REQUEST)
    connections.asked = REQUEST
    parts = end_transactions(wanted, connections, commit=True)
    after = current_states(wanted, connections)
    now = after[facts.opened]
    if now.standing is SinkTransactionState.COMMITTED:
        words = f"the transaction that {facts.checkpoint} decided to commit is committed: {now.words}"
        records = confirmed_decisions(wanted, parts, commit=True)
        return Result(SubjectOutcome.DONE, words, parts, records)
    if now.standing is SinkTransactionState.GONE:
        return _gone_on(now, parts[0].code == 0, Result(SubjectOutcome.UNKNOWN, now.words, parts))
    return not_ended(wanted, after, parts, connections, f"{facts.checkpoint} still decides to commit it")


def read_outcome(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Return the outcome of a commit whose worker died, by reads only. Raises `AdminUnavailable`."""
    facts = plan_facts(FlinkCommitFacts, subject)
    now = current_states([facts.opened], connections)[facts.opened]
    if now.standing is SinkTransactionState.COMMITTED:
        return Result(SubjectOutcome.DONE, f"it is committed: {now.words}; by whom is unknown")
    if now.standing is SinkTransactionState.OPEN:
        return failed_result("it is still open as it was seen: nothing was done")
    return Result(SubjectOutcome.UNKNOWN, f"whether this action has committed it is unknown: {now.words}")


def _undecided(facts: FlinkCommitFacts, connections: ClusterConnections) -> str:
    """Return why the newest checkpoint no longer decides on the transaction, "" if it does."""
    name = facts.transactional_id
    hold = holds_of(connections.inspector.cluster_id, [name], now_ms=loop.now_ms()).get(name)
    if hold is None or hold.job != facts.job:
        return f"no checkpoint of {facts.job} holds it any more"
    if hold.trouble:
        return f"what {hold.name} decided is not known any more: {hold.trouble}"
    held = hold.committable
    if held is None or (held.producer_id, held.producer_epoch) != (facts.producer_id, facts.producer_epoch):
        return f"the newest checkpoint, {hold.checkpoint}, does not hold it any more"
    if hold.newer_job != facts.newer_job:
        return f"{hold.newer_job} has the same prefix and has completed a checkpoint since"
    return ""


def _gone_on(now: CurrentTransaction, confirmed: bool, unknown: Result) -> Result:
    """Return DONE if the coordinator confirmed the commit, although the id was used again; else `unknown`."""
    if not confirmed:
        return unknown
    return Result(SubjectOutcome.DONE, f"it is committed, and its id has gone on: {now.words}", unknown.parts)
