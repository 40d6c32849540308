"""Abort marker: WriteTxnMarkers(ABORT) for an open transaction that no coordinator owns.

The leader accepts any marker, also for a transaction that has ended (it appends a useless marker), or that
its coordinator may still commit (docs/design/kafka.md §0, §1.1). So everything is checked again before each
request.
"""

import time
from typing import NamedTuple

from dashboard.actions import inspect
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
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import PartitionVerdict, ProducerState
from fenceline.plans.markers import Marked
from fenceline.plans.plan import SubjectPlan
from fenceline.text import verdict_reason
from transaction_admin.api import AdminUnavailable, Ended, Marker, Unseen, grant_command

REQUEST = "WriteTxnMarkers"
_PATIENCE_S, _PAUSE_S = 30.0, 0.5
_FORBIDDEN = 31
#: The leader moves, or its replicas are not in sync: the request is repeated while nothing else has changed.
_FOR_NOW = (3, 5, 6, 9, 19, 56, 74, 75)
#: No answer, or replicas were too slow (REQUEST_TIMED_OUT) or too few (NOT_ENOUGH_REPLICAS_AFTER_APPEND):
#: the leader's log may have the marker, so the request is never repeated.
_MAY_BE_WRITTEN = (None, 7, 20)


class MarkerPlanFacts(NamedTuple):
    """The plan's facts about a transaction."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    leader: int
    leader_epoch: int | None
    #: The epoch of the producer's last marker in the partition; None without a marker.
    coordinator_epoch: int | None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class MarkerPlanStale(Exception):
    """The transaction changed since the plan; the text is the difference."""


def write_marker(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Write the marker if nothing has changed since the plan. Raises `AdminUnavailable`."""
    facts = plan_facts(MarkerPlanFacts, subject)
    until = time.monotonic() + _PATIENCE_S
    asked: tuple[RequestResult, ...] = ()
    so = "; nothing was asked for it"
    while True:
        try:
            verify_unchanged(facts, connections)
        except MarkerPlanStale as what:
            return stale_result(str(what), *asked, so=so)
        connections.before_write(REQUEST)
        if _find(facts, connections) is None:
            return stale_result("it has ended a moment ago", *asked, so=so)
        ended = _ask(facts, connections)
        part = RequestResult(str(facts.topic_partition), ended.code, ended.word or "abort marker written")
        if ended.code == 0:
            return done_result("the abort marker is written: its records are aborted there", part)
        if ended.code in _MAY_BE_WRITTEN:
            return _uncertain(facts, part, connections)
        if ended.code not in _FOR_NOW:
            return _refused(ended, part, connections)
        if time.monotonic() > until:
            return failed_result(f"after {_PATIENCE_S:g} s its leader still answers {ended.word}", part)
        # Every earlier request was refused.
        asked, so = (part,), "; its leader has taken no marker"
        time.sleep(_PAUSE_S)


def read_outcome(subject: SubjectPlan, connections: ClusterConnections) -> Result:
    """Return the outcome of a marker whose worker died, by reads only. Raises `AdminUnavailable`."""
    facts = plan_facts(MarkerPlanFacts, subject)
    if _find(facts, connections) is None:
        return done_result("it has ended there; whether by this action's marker or another one is unknown")
    return failed_result("it is still open as it was seen: no marker was written")


def verify_unchanged(facts: MarkerPlanFacts, connections: ClusterConnections) -> None:
    """Raise `MarkerPlanStale` unless the transaction is unchanged and still hangs; or `AdminUnavailable`."""
    marked = inspect.inspect_partitions(connections.inspector, [facts.topic_partition])[facts.topic_partition]
    _verify_leader(facts, marked)
    if marked.log.unseen:
        raise AdminUnavailable(f"{facts.topic_partition}: {marked.log.unseen}")
    pins = [pin for pin in marked.pins if pin.producer_id == facts.producer_id]
    if not pins:
        raise MarkerPlanStale(f"it has ended: nothing of producer id {facts.producer_id} is open there")
    pin = pins[0]
    if pin.producer_epoch != facts.producer_epoch:
        raise MarkerPlanStale(
            f"another producer took it over: epoch {facts.producer_epoch} → {pin.producer_epoch}"
        )
    if pin.start_offset != facts.start_offset:
        raise MarkerPlanStale(
            f"it has ended, and another one has begun: offset {facts.start_offset:,} → {pin.start_offset:,}"
        )
    if pin.verdict is not PartitionVerdict.HANGING:
        raise MarkerPlanStale(f"it is not hanging but {pin.verdict.value} now: {verdict_reason(pin.ground)}")


def _verify_leader(facts: MarkerPlanFacts, marked: Marked) -> None:
    if marked.leader is None:
        raise AdminUnavailable(
            f"{facts.topic_partition} has no leader, or cannot be seen: {marked.log.unseen}"
        )
    if marked.leader != facts.leader:
        raise MarkerPlanStale(f"its leader has moved: broker {facts.leader} → {marked.leader}")
    if marked.leader_epoch != facts.leader_epoch:
        raise MarkerPlanStale(
            f"its leader has moved: leader epoch {facts.leader_epoch} → {marked.leader_epoch}"
        )


def _find(facts: MarkerPlanFacts, connections: ClusterConnections) -> ProducerState | None:
    """Return the transaction if it is open as in the plan, else None."""
    producers = connections.reads.describe_producers([facts.topic_partition])[facts.topic_partition]
    if isinstance(producers, Unseen):
        raise AdminUnavailable(str(producers))
    same = facts.producer_id, facts.producer_epoch, facts.start_offset
    return next((producer for producer in producers if (*producer[:2], producer.start_offset) == same), None)


def _ask(facts: MarkerPlanFacts, connections: ClusterConnections) -> Ended:
    connections.asked = REQUEST
    marker = Marker(
        facts.topic_partition, facts.producer_id, facts.producer_epoch, facts.coordinator_epoch or 0
    )
    return connections.admin.write_abort_marker(marker, leader=facts.leader)


def _uncertain(facts: MarkerPlanFacts, part: RequestResult, connections: ClusterConnections) -> Result:
    """Return the outcome of a request after which the marker may be written or not."""
    unconfirmed = f"its leader did not confirm that it is written ({part.words})"
    if _find(facts, connections) is None:
        return done_result(f"{unconfirmed}, and it has ended there", part)
    return unknown_result(
        f"{unconfirmed}, and it is still open: the marker may be on its way; "
        "check again, and make a new plan",
        part,
    )


def _refused(ended: Ended, part: RequestResult, connections: ClusterConnections) -> Result:
    if ended.code == _FORBIDDEN:
        remedy = grant_command(connections.admin.principal, "ALTER", "--cluster")
        return failed_result(
            f"neither ALTER nor CLUSTER_ACTION on the cluster ({ended.word}); grant one: {remedy}", part
        )
    return failed_result(f"its leader refuses: {ended.word}", part)
