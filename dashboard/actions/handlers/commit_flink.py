"""Commit what a Flink checkpoint decided: EndTxn under the producer id and epoch that it recorded.

Right before the request the newest checkpoint must hold the transaction still, and the coordinator must have
just this one open. As with any commit that Fenceline asks for, EndTxn version 4 keeps the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

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
from dashboard.runtime import loop
from dashboard.streaming.flink_jobs import holds_of
from fenceline.plans.plan import SubjectPlan

REQUEST = "EndTxn"


class FlinkCommitFacts(NamedTuple):
    """What the plan saw."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    started_ms: int
    job: str
    checkpoint: str
    newer_job: str

    @property
    def opened(self) -> Opened:
        """Return the transaction by what makes it this one."""
        return Opened(*self[:4])


def plan_facts(subject: SubjectPlan) -> FlinkCommitFacts:
    """Return what a plan saw; raises KeyError for one that is none of this act."""
    values: Mapping[str, Any] = subject.seen
    return FlinkCommitFacts(*(values[name] for name in FlinkCommitFacts._fields))


def commit_transaction(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Commit what is still decided, and open as it was seen. Raises `AdminUnavailable`."""
    seen = plan_facts(subject)
    if why := _undecided(seen, connections):
        return stale_result(why)
    wanted = [seen.opened]
    before = current_states(wanted, connections)[seen.opened]
    if before.standing is SinkTransactionState.UNSEEN:
        return failed_result(before.words)
    if before.standing is not SinkTransactionState.OPEN:
        return stale_result(before.words)
    connections.before_write(REQUEST)
    connections.asked = REQUEST
    parts = end_transactions(wanted, connections, commit=True)
    after = current_states(wanted, connections)
    now = after[seen.opened]
    if now.standing is SinkTransactionState.COMMITTED:
        words = f"the transaction that {seen.checkpoint} decided to commit is committed: {now.words}"
        records = confirmed_decisions(wanted, parts, commit=True)
        return Result(SubjectOutcome.DONE, words, parts, records)
    if now.standing is SinkTransactionState.GONE:
        return _gone_on(now, parts[0].code == 0, Result(SubjectOutcome.UNKNOWN, now.words, parts))
    return not_ended(wanted, after, parts, connections, f"{seen.checkpoint} still decides to commit it")


def read_outcome(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Return the outcome of a commit whose worker died; only reads. Raises `AdminUnavailable`."""
    seen = plan_facts(subject)
    now = current_states([seen.opened], connections)[seen.opened]
    if now.standing is SinkTransactionState.COMMITTED:
        return Result(SubjectOutcome.DONE, f"it is committed: {now.words}; by whom is unknown")
    if now.standing is SinkTransactionState.OPEN:
        return failed_result("it is still open as it was seen: nothing was done")
    return Result(SubjectOutcome.UNKNOWN, f"whether this action has committed it is unknown: {now.words}")


def _undecided(seen: FlinkCommitFacts, connections: ClusterConnections) -> str:
    """Return why the newest checkpoint decides nothing about the transaction any more, "" where it does."""
    name = seen.transactional_id
    hold = holds_of(connections.inspector.cluster_id, [name], now_ms=loop.now_ms()).get(name)
    if hold is None or hold.job != seen.job:
        return f"no checkpoint of {seen.job} holds it any more"
    if hold.trouble:
        return f"what {hold.name} decided is not known any more: {hold.trouble}"
    held = hold.committable
    if held is None or (held.producer_id, held.producer_epoch) != (seen.producer_id, seen.producer_epoch):
        return f"the newest checkpoint, {hold.checkpoint}, does not hold it any more"
    if hold.newer_job != seen.newer_job:
        return f"{hold.newer_job} has the same prefix and has completed a checkpoint since"
    return ""


def _gone_on(now: CurrentTransaction, confirmed: bool, unknown: Result) -> Result:
    """Return that it is committed where its coordinator confirmed that, though the id has gone on since."""
    if not confirmed:
        return unknown
    return Result(SubjectOutcome.DONE, f"it is committed, and its id has gone on: {now.words}", unknown.parts)
