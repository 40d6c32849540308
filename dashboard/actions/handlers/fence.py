"""Fence: InitProducerId with the id's own timeout, repeated until its transaction is aborted.

The first request begins the abort and is answered with CONCURRENT_TRANSACTIONS. A request after the abort
raises the epoch above every producer's (docs/design/kafka.md §0, §1.1). Each request names the producer
described right before it, so the coordinator refuses if another producer came in between.
"""

import time
from dataclasses import replace
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
from dashboard.runtime import loop
from dashboard.transactions.attributions import WrittenRecord
from fenceline.facts import ABORTED_STATES, COMMITTED_STATES, TransactionState
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from fenceline.plans.plan import SubjectPlan
from fenceline.plans.producers import fencing_timeout_ms
from transaction_admin.api import Ended, Fencing, grant_command

REQUEST = "InitProducerId"
#: Seconds during which the request is repeated (docs/acting.md), and the pauses between requests.
_PATIENCE_S, _PAUSE_S, _LONGEST_PAUSE_S = 30.0, 0.05, 0.5

_CONCURRENT, _TIMEOUT_TOO_LONG, _FORBIDDEN = 51, 50, 53
#: The coordinator moves or loads (14-16), or was too slow (7); another producer has the id (47, 90).
_FOR_NOW = (_CONCURRENT, 7, 14, 15, 16, 47, 90)


class FencePlanFacts(NamedTuple):
    """The plan's facts about an id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    started_ms: int | None
    timeout_ms: int


class _Asked:
    """The requests so far, and their answers."""

    def __init__(self) -> None:
        #: Whether a request may have begun the abort.
        self.began = False
        #: Whether a coordinator confirmed the begin of the abort while the id was as in the plan.
        self.confirmed = False
        self.unanswered = False
        self.parts: tuple[RequestResult, ...] = ()

    def record_answer(self, facts: FencePlanFacts, before: Described, ended: Ended) -> RequestResult:
        """Record an answer; return it as a part of the result, which has only the last answer.

        `before` is the coordinator's description of the id right before the request.
        """
        self.confirmed = self.confirmed or (_same(facts, before) and ended.code == _CONCURRENT)
        self.unanswered = self.unanswered or ended.code is None
        self.began = self.began or ended.code in (None, _CONCURRENT)
        part = RequestResult(facts.transactional_id, ended.code, ended.word or "initialised")
        self.parts = (part,)
        return part


def fence_producer(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Fence an id that is unchanged since the plan. Raises `AdminUnavailable`."""
    facts = plan_facts(FencePlanFacts, subject)
    described = connections.describe_id(facts.transactional_id)
    if isinstance(described, NotDescribed):
        is_unknown = described.obstacle is Obstacle.UNKNOWN
        return stale_result(described.text) if is_unknown else failed_result(described.text)
    if not _same(facts, described):
        return stale_result(describe_difference(facts, described))
    return _ask_until(facts, connections)


def read_outcome(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Return the outcome of a fencing whose worker died, by reads only. Raises `AdminUnavailable`."""
    facts = plan_facts(FencePlanFacts, subject)
    described = connections.describe_id(facts.transactional_id)
    if isinstance(described, NotDescribed):
        return unknown_result(described.text)
    if _same(facts, described):
        return failed_result("it is still open as it was seen: nothing was done")
    raised = described.producer_epoch - facts.producer_epoch
    is_initialised = (
        described.state is TransactionState.EMPTY
        and raised == 2
        and described.producer_id == facts.producer_id
    )
    if is_initialised or _is_our_abort(facts, described):
        return done_result(
            f"it is aborted: {_epochs(facts, described)}, {described.state.value}; whether by this action, "
            "by its timeout or by another producer is unknown"
        )
    if described.state in COMMITTED_STATES or (described.producer_id == facts.producer_id and raised < 2):
        return stale_result(describe_difference(facts, described), so="")
    difference = describe_difference(facts, described)
    return unknown_result(f"whether this action has ended it is unknown: {difference}")


def describe_difference(facts: FencePlanFacts, described: Described) -> str:
    if described.producer_id != facts.producer_id:
        return f"another producer took it over: {_epochs(facts, described)}"
    raised = described.producer_epoch - facts.producer_epoch
    if described.state in COMMITTED_STATES and raised in (0, 1):
        return f"its producer has committed, it is {described.state.value} now"
    if described.state in ABORTED_STATES and not raised:
        return f"its producer has aborted it, it is {described.state.value} now"
    if described.state in ABORTED_STATES and raised == 1:
        if facts.started_ms is not None and loop.now_ms() >= facts.started_ms + facts.timeout_ms:
            return "its transaction timed out: its coordinator has aborted it"
        return "it was aborted, by its producer or by another one that takes it over"
    if described.state is TransactionState.ONGOING and raised in (0, 1):
        return "it was ended, and another transaction has begun since"
    if raised:
        return f"another producer took it over: {_epochs(facts, described)}"
    return f"it is {described.state.value}, not open"


def _ask_until(facts: FencePlanFacts, connections: ClusterConnections) -> Result:
    until, pause = time.monotonic() + _PATIENCE_S, _PAUSE_S
    asked = _Asked()
    while True:
        connections.before_write(REQUEST)
        now = connections.describe_id(facts.transactional_id)
        if isinstance(now, NotDescribed):
            part = RequestResult(facts.transactional_id, None, now.text)
        elif not (_same(facts, now) or (asked.began and _is_our_abort(facts, now))):
            return _settled(facts, now, asked)
        else:
            ended = _ask(facts, now, connections)
            part = asked.record_answer(facts, now, ended)
            if ended.code == 0:
                return _fenced(facts, now, ended, asked, connections)
            if ended.code is not None and ended.code not in _FOR_NOW:
                return _refused(facts, ended, part, connections)
        if time.monotonic() > until:
            return _given_up(facts, connections.describe_id(facts.transactional_id), part)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _ask(facts: FencePlanFacts, described: Described, connections: ClusterConnections) -> Ended:
    """Send one request that names the id's current producer, which the coordinator compares."""
    name = facts.transactional_id
    connections.asked = REQUEST
    fencing = Fencing(
        name, fencing_timeout_ms(facts.timeout_ms), described.producer_id, described.producer_epoch
    )
    return connections.admin.fence_producers([fencing], timeout_s=0)[name]


def _fenced(
    facts: FencePlanFacts, before: Described, ended: Ended, asked: _Asked, connections: ClusterConnections
) -> Result:
    described = connections.describe_id(facts.transactional_id)
    now = (
        f": {_epochs(facts, described)}, {described.state.value}" if isinstance(described, Described) else ""
    )
    if before.state is TransactionState.ONGOING and not asked.began:
        result = stale_result(f"it ended between the last check and the request{now}", *asked.parts, so="")
    else:
        result = done_result(f"what was open is aborted and its producer fenced{now}", *asked.parts)
    return replace(result, records=_written(facts, ended, asked))


def _written(facts: FencePlanFacts, ended: Ended, asked: _Asked) -> tuple[WrittenRecord, ...]:
    """Return the records of the fence: the answered initialisation, and the abort before it."""
    if ended.producer_id is None or ended.producer_epoch is None:
        return ()
    name = facts.transactional_id
    initialised = WrittenRecord(
        name, ended.producer_id, ended.producer_epoch, TransactionState.EMPTY.value, True
    )
    if not asked.confirmed:
        return (initialised,)
    aborted = name, facts.producer_id, facts.producer_epoch + 1, TransactionState.PREPARE_ABORT.value, True
    return WrittenRecord(*aborted), initialised


def _settled(facts: FencePlanFacts, described: Described, asked: _Asked) -> Result:
    """Return the outcome of requests if the id matches neither the plan nor our abort."""
    difference = describe_difference(facts, described)
    if not asked.began:
        return stale_result(difference)
    raised = described.producer_epoch - facts.producer_epoch
    if described.producer_id == facts.producer_id and (described.state in COMMITTED_STATES or raised < 2):
        return stale_result(difference, *asked.parts, so="; it was not fenced")
    if described.state is TransactionState.EMPTY and asked.unanswered:
        words = f"what was open is aborted and its producer fenced: {_epochs(facts, described)}"
    else:
        words = f"what was open has ended and its producer is fenced; {difference}, which is left alone"
    return done_result(words, *asked.parts)


def _refused(
    facts: FencePlanFacts, ended: Ended, part: RequestResult, connections: ClusterConnections
) -> Result:
    name = facts.transactional_id
    if ended.code == _FORBIDDEN:
        remedy = grant_command(connections.admin.principal, "WRITE", f"--transactional-id '{name}'")
        return failed_result(f"no WRITE on this transactional id; grant it: {remedy}", part)
    if ended.code == _TIMEOUT_TOO_LONG:
        return failed_result(
            f"its own timeout of {facts.timeout_ms:,} ms is above the broker's transaction.max.timeout.ms, "
            "and is not to be changed here; Kafka's own tool sets another one: kafka-transactions.sh "
            f"forceTerminateTransaction --transactionalId '{name}'",
            part,
        )
    return failed_result(f"its coordinator refuses: {ended.word}", part)


def _given_up(facts: FencePlanFacts, described: Described | NotDescribed, part: RequestResult) -> Result:
    after = f"after {_PATIENCE_S:g} s"
    if isinstance(described, NotDescribed):
        return unknown_result(f"{after} its coordinator gives no description: {described.text}", part)
    if _same(facts, described):
        return failed_result(f"{after} it is still open as it was seen: {part.words}", part)
    return unknown_result(
        f"{after} it is {described.state.value} with {_epochs(facts, described)}: its markers are being "
        "written, and its producer is not fenced for certain; see to the leaders of its partitions",
        part,
    )


def _same(facts: FencePlanFacts, described: Described) -> bool:
    now = described.producer_id, described.producer_epoch, described.started_ms
    return described.state is TransactionState.ONGOING and now == (
        facts.producer_id,
        facts.producer_epoch,
        facts.started_ms,
    )


def _is_our_abort(facts: FencePlanFacts, described: Described) -> bool:
    """Whether the id is in the state after our first request: aborted with the next epoch."""
    raised = described.producer_epoch - facts.producer_epoch
    return described.producer_id == facts.producer_id and described.state in ABORTED_STATES and raised == 1


def _epochs(facts: FencePlanFacts, described: Described) -> str:
    epochs = f"epoch {facts.producer_epoch} → {described.producer_epoch}"
    if described.producer_id == facts.producer_id:
        return epochs
    return f"producer id {facts.producer_id} → {described.producer_id}, {epochs}"
