"""Read the state of a sink's transactions and end them: those of a batch of our sink, as its decision says,
and those that a Flink checkpoint decided to commit.

A Flink commit is EndTxn with the recorded producer id and epoch. Right before the request the newest
checkpoint must still contain the transaction, and it must be the id's open one. As in every commit that
Fenceline requests, EndTxn version 4 keeps the epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from dashboard.actions.connections import ClusterConnections
from dashboard.actions.store import (
    RequestResult,
    Result,
    done_result,
    failed_result,
    plan_facts,
    stale_result,
    unknown_result,
)
from dashboard.engines.flink_jobs import holds_of
from dashboard.runtime import loop
from dashboard.transactions.attributions import WrittenRecord
from fenceline.facts import COMMITTED_STATES, TransactionState
from fenceline.formatting import list_names
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from fenceline.plans.plan import SubjectPlan
from transaction_admin.api import Ending, grant_command

#: Seconds during which requests are repeated after temporary errors; less than a worker's lease.
_PATIENCE_S = 8.0
_FORBIDDEN = 53


class SinkTransactionState(StrEnum):
    OPEN = "open"
    COMMITTED = "committed"
    #: It no longer exists: aborted, timed out, or replaced by another transaction of its id.
    GONE = "gone"
    #: Its coordinator did not answer.
    UNSEEN = "not to be seen"


class Opened(NamedTuple):
    """The fields that identify a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    started_ms: int


class CurrentTransaction(NamedTuple):
    """The current state of a transaction, its coordinator's answer as text, and its timeout if reported."""

    standing: SinkTransactionState
    words: str
    timeout_ms: int = 0


Found = Mapping[Opened, CurrentTransaction]


def current_states(wanted: Sequence[Opened], connections: ClusterConnections) -> Found:
    """Return the current state of each transaction. Raises `AdminUnavailable`."""
    ids = [opened.transactional_id for opened in wanted]
    described = connections.admin.describe_transactions(ids, listed=True) if ids else {}
    return {opened: _now(opened, described[opened.transactional_id]) for opened in wanted}


def as_planned(states: Found, *standing: SinkTransactionState) -> list[Opened]:
    return [opened for opened, now in states.items() if now.standing in standing]


def _now(wanted: Opened, described: Described | NotDescribed) -> CurrentTransaction:
    if isinstance(described, NotDescribed):
        is_unknown = described.obstacle is Obstacle.UNKNOWN
        standing = SinkTransactionState.GONE if is_unknown else SinkTransactionState.UNSEEN
        return CurrentTransaction(standing, described.text)
    words = f"it is {described.state.value}, epoch {wanted.producer_epoch} → {described.producer_epoch}"
    same = described.producer_id == wanted.producer_id
    now = described.state, described.producer_epoch, described.started_ms
    standing = SinkTransactionState.GONE
    # Transaction protocol 2 raises the epoch with each end (KIP-890).
    raised = described.producer_epoch - wanted.producer_epoch
    if same and described.state in COMMITTED_STATES and raised in (0, 1):
        standing = SinkTransactionState.COMMITTED
    elif same and now == (TransactionState.ONGOING, wanted.producer_epoch, wanted.started_ms):
        standing = SinkTransactionState.OPEN
    return CurrentTransaction(standing, words, described.timeout_ms)


def end_transactions(
    wanted: Sequence[Opened], connections: ClusterConnections, *, commit: bool
) -> tuple[RequestResult, ...]:
    """End all transactions as decided; return their coordinators' answers."""
    endings = [Ending(*opened[:3], commit=commit) for opened in wanted]
    answers = connections.admin.end_transactions(endings, timeout_s=_PATIENCE_S)
    word = "committed" if commit else "aborted"
    return tuple(RequestResult(name, ended.code, ended.word or word) for name, ended in answers.items())


def confirmed_decisions(
    ended: Sequence[Opened], parts: Sequence[RequestResult], *, commit: bool
) -> tuple[WrittenRecord, ...]:
    """Return the decisions that coordinators confirmed, for transactions that were open right before."""
    confirmed = {part.where for part in parts if part.code == 0}
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    # EndTxn before version 5 keeps the epoch (KIP-890).
    return tuple(
        WrittenRecord(
            opened.transactional_id, opened.producer_id, opened.producer_epoch, state.value, fence=False
        )
        for opened in ended
        if opened.transactional_id in confirmed
    )


def not_ended(
    waiting: Sequence[Opened],
    states: Found,
    parts: tuple[RequestResult, ...],
    connections: ClusterConnections,
    so: str,
) -> Result:
    """Return the outcome for transactions that are still open or cannot be read, with the reason."""
    names = [opened.transactional_id for opened in waiting]
    answered = {part.where: part for part in parts}
    forbidden = next((name for name in names if name in answered and answered[name].code == _FORBIDDEN), None)
    if forbidden is not None:
        remedy = grant_command(connections.admin.principal, "WRITE", f"--transactional-id '{forbidden}'")
        return failed_result(
            f"no WRITE on {list_names(names)}; grant it: {remedy}. {so.capitalize()}", *parts
        )
    unseen = [opened for opened in waiting if states[opened].standing is SinkTransactionState.UNSEEN]
    if unseen:
        words = f"{unseen[0].transactional_id}: {states[unseen[0]].words}. {so.capitalize()}"
        return unknown_result(words, *parts)
    return failed_result(
        f"still open: {list_names(names)}. {so.capitalize()}; check again, and make a new plan", *parts
    )


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
        return replace(done_result(words, *parts), records=confirmed_decisions(wanted, parts, commit=True))
    if now.standing is SinkTransactionState.GONE:
        if parts[0].code == 0:
            return done_result(f"it is committed, and its id has gone on: {now.words}", *parts)
        return unknown_result(now.words, *parts)
    return not_ended(wanted, after, parts, connections, f"{facts.checkpoint} still decides to commit it")


def read_outcome(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Return the outcome of a commit whose worker died, by reads only. Raises `AdminUnavailable`."""
    facts = plan_facts(FlinkCommitFacts, subject)
    now = current_states([facts.opened], connections)[facts.opened]
    if now.standing is SinkTransactionState.COMMITTED:
        return done_result(f"it is committed: {now.words}; by whom is unknown")
    if now.standing is SinkTransactionState.OPEN:
        return failed_result("it is still open as it was seen: nothing was done")
    return unknown_result(f"whether this action has committed it is unknown: {now.words}")


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
