"""Poll the offsets of a cluster's partitions, and the transactions that block their LSO, at a limited rate.

It uses neither the database nor Celery. Its driver asks for `wait_s`, calls `poll` and saves the result
(`dashboard.partitions.store`). Partitions with a present or likely open transaction are polled every second.
All others are polled every two seconds, including Kafka's own: a hanging transaction's partition need not be
named by any known id.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from collectors.kafka.producer_owners import ProducerOwnerLookup
from collectors.polling import RecentDuration
from fenceline.facts import TopicPartition
from fenceline.kafka import offset_histories as ends
from fenceline.kafka.partitions import (
    DEFAULT_CLEANUP_MS,
    KnownPartition,
    ObservedPartitions,
    Offsets,
    PartitionPlace,
    PartitionVerdict,
    Pin,
    PinKey,
    ProducerOwners,
    ProducerState,
    VerdictReason,
    evaluate_pin,
    grace_ms,
    open_in_both,
    still_accused,
    update_partition,
    worst_verdict,
)
from transaction_admin.api import Cost, Leader, Topology, Unseen
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

#: Polls of all partitions: the minimum pause, and a small share of the time.
_FULL_S, _FULL_SHARE = 2.0, 20
#: Blocked partitions get a larger share.
_HELD_SHARE = 5
CLEANUP = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
#: More unreadable partitions of one leader are one gap, the broker's.
_MOST_GAPS = 100
_ENDING = "its last transaction has ended, and the end is still to be replicated"
_NO_COORDINATOR = "what its coordinators report of the transactions in it could not be observed: {}"


class PreviousPartitionState(Protocol):
    """Our rows of one cluster, read on demand (`dashboard.partitions.store.PartitionRows`)."""

    def known_partitions(self) -> Mapping[TopicPartition, KnownPartition]:
        """Return every partition's row."""

    def end_histories(self) -> Mapping[TopicPartition, str]:
        """Return every partition's packed history of ends."""

    def open_pins(self) -> Iterable[Pin]:
        """Return the transactions that were open in partitions."""

    def named_partitions(self) -> Collection[TopicPartition]:
        """Return the partitions that open transactions name."""

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """Return the escaped ids of the rows with these producer ids."""

    def sees_all(self) -> bool:
        """Whether no transactional id can be hidden from us: our tails or the operator vouch for that."""


class PartitionCollector:
    """Polls the partitions of one cluster. `poll` raises `AdminUnavailable`.

    It remembers its results, so a driver that could not save them must make a new collector.
    """

    def __init__(
        self,
        reads: ClusterReads,
        admin: TransactionAdmin,
        ours: PreviousPartitionState,
        *,
        every_s: float,
        grace_s: float,
    ) -> None:
        """`grace_s`: seconds after its timeout before a transaction counts as late."""
        self._reads, self._admin = reads, admin
        self._every_s, self._least_grace_ms = every_s, round(grace_s * 1_000)
        self._asker = ProducerOwnerLookup(reads, admin)
        self._known = dict(ours.known_partitions())
        self._ends = dict(ours.end_histories())
        self._pins: dict[TopicPartition, dict[PinKey, Pin]] = {}
        for pin in ours.open_pins():
            self._pins.setdefault(TopicPartition(pin.topic, pin.partition), {})[pin.key] = pin
        self._accused = still_accused((p for pins in self._pins.values() for p in pins.values()), ())
        #: Reasons for gaps, by scope.
        self._unseen: dict[TopicPartition, tuple[str, str]] = {}
        self._topics_unseen: dict[str, str] = {}
        self._gaps: Mapping[str, str] | None = None
        #: Topics that the last full poll no longer found.
        self._missing: frozenset[str] = frozenset()
        #: Whether the next poll must be a full one.
        self._hurry = False
        self._full_lately, self._held_lately = RecentDuration(), RecentDuration()
        self._grace: int | None = None
        self._held_at = self._full_at = time.monotonic()

    def wait_s(self) -> float:
        """Return the seconds until the next poll, 0 when it is due."""
        return max(0.0, min(self._held_at, self._full_at) - time.monotonic())

    def close(self) -> None:
        self._reads.close()
        self._admin.close()

    def poll(self, now_ms: int, ours: PreviousPartitionState) -> ObservedPartitions:
        """Poll the due partitions; return the changes."""
        begun, before = time.monotonic(), self._cost()
        full = begun >= self._full_at
        self._hurry = False
        wanted = None if full else self._held(ours.named_partitions())
        poll = _Poll(now_ms)
        if wanted is None or wanted:
            self._read(poll, wanted, ours)
        gaps = self._all_gaps()
        changed, self._gaps = gaps != self._gaps, gaps
        took_s = time.monotonic() - begun
        self._pace(full, took_s)
        after = self._cost()
        return ObservedPartitions(
            now_ms,
            full,
            poll.rows,
            poll.ends,
            frozenset(poll.gone),
            tuple(poll.pins.values()),
            tuple(key for key in poll.ended if key not in poll.pins),
            gaps if changed else None,
            Counter(known.verdict for known in self._known.values()),
            round(took_s * 1_000),
            after.requests - before.requests,
            after.broker_ms - before.broker_ms,
        )

    def _pace(self, full: bool, took_s: float) -> None:
        now = time.monotonic()
        if full:
            self._full_at = now + max(_FULL_S, self._every_s, _FULL_SHARE * self._full_lately.add(took_s))
            self._held_at = now + self._every_s
        else:
            self._held_at = now + max(self._every_s, _HELD_SHARE * self._held_lately.add(took_s))
        if self._hurry:
            self._full_at = min(self._full_at, self._held_at)

    def _cost(self) -> Cost:
        ours, theirs = self._reads.cost, self._admin.cost
        return Cost(ours.requests + theirs.requests, ours.broker_ms + theirs.broker_ms)

    def _held(self, named: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that are blocked, may be blocked soon, or could not be read."""
        held = {where for where, known in self._known.items() if known.is_lso_behind}
        named = [where for where in named if where in self._known]
        return held.union(self._pins, self._unseen, named)

    def _read(
        self, poll: _Poll, wanted: Collection[TopicPartition] | None, ours: PreviousPartitionState
    ) -> None:
        topology = self._topology(wanted, ours)
        partitions: dict[TopicPartition, KnownPartition] = {}
        if wanted is None:
            wanted = topology.partitions
            self._drop_missing(poll, topology)
            partitions |= self._refused(poll, topology)
        existing = {where: topology.partitions[where] for where in wanted if where in topology.partitions}
        # A deleted topic needs a full poll.
        self._hurry = self._hurry or len(existing) < len(wanted)
        self._drop_replaced(poll, existing, topology)
        for where, offsets in self._reads.list_offsets(existing).items():
            partitions[where] = self._follow(poll, where, existing[where], offsets, topology)
        pinned = [at for at, known in partitions.items() if known.pinned_ms is not None and not known.error]
        partitions |= self._evaluate(poll, {where: partitions[where] for where in pinned}, ours)
        for where, known in partitions.items():
            if known.pinned_ms is None and not known.error:
                self._settle(poll, where, ())
            self._keep(poll, where, known)

    def _topology(self, wanted: Collection[TopicPartition] | None, ours: PreviousPartitionState) -> Topology:
        """Return the topics of these partitions, all visible ones if None.

        A broker's list of all topics omits those that we may not DESCRIBE. So missing known topics, and those
        that transactions name, are requested by name: then the broker refuses them.
        """
        if wanted is not None:
            return self._reads.describe_topology({where.topic for where in wanted})
        known = {where.topic for where in {*self._known, *ours.named_partitions()}}
        topology = self._reads.describe_topology(None)
        unlisted = known - topology.topic_ids.keys() - {unseen.what for unseen in topology.unseen}
        if not unlisted:
            return topology
        named = self._reads.describe_topology(unlisted)
        refused = tuple(unseen for unseen in named.unseen if unseen.what not in named.missing)
        return replace(topology, unseen=(*topology.unseen, *refused))

    def _follow(
        self,
        poll: _Poll,
        where: TopicPartition,
        leader: Leader,
        offsets: Offsets | Unseen,
        topology: Topology,
    ) -> KnownPartition:
        """Return the facts about a partition; record the reason if it cannot be read."""
        place = PartitionPlace(
            topology.topic_ids[where.topic], leader.leader, leader.leader_epoch, leader.replicas
        )
        if isinstance(offsets, Unseen):
            return self._blind(poll, where, place, _scope(where, offsets, leader, topology), offsets.reason)
        self._unseen.pop(where, None)
        return update_partition(
            self._known.get(where), where, place, offsets, poll.now_ms, held=where in self._pins
        )

    def _blind(
        self, poll: _Poll, where: TopicPartition, place: PartitionPlace, scope: str, reason: str
    ) -> KnownPartition:
        """Record that a partition cannot be read: its known transactions may have ended."""
        self._unseen[where] = scope, reason
        before = self._pins.get(where, {}).values()
        self._settle(
            poll,
            where,
            [replace(p, verdict=PartitionVerdict.UNKNOWN, ground=VerdictReason.UNSEEN) for p in before],
        )
        return update_partition(self._known.get(where), where, place, reason, poll.now_ms, held=bool(before))

    def _refused(self, poll: _Poll, topology: Topology) -> Iterator[tuple[TopicPartition, KnownPartition]]:
        """Yield the partitions of topics that brokers refuse; record those that were never read."""
        refused = {unseen.what: unseen.reason for unseen in topology.unseen}
        for where in [where for where in self._known if where.topic in refused]:
            reason = refused[where.topic]
            place = self._known[where].place
            yield where, self._blind(poll, where, place, f"partition:{where}", reason)
        topics = {where.topic for where in self._known}
        self._topics_unseen = {name: reason for name, reason in refused.items() if name not in topics}

    def _evaluate(
        self, poll: _Poll, pinned: Mapping[TopicPartition, KnownPartition], ours: PreviousPartitionState
    ) -> Iterator[tuple[TopicPartition, KnownPartition]]:
        """Yield pinned partitions with the verdict on their open transactions."""
        if not pinned:
            return
        before = self._reads.describe_producers(pinned)
        seen = {at: answer for at, answer in before.items() if not isinstance(answer, Unseen)}
        opened = {at: [p for p in answer if p.start_offset is not None] for at, answer in seen.items()}
        producer_ids = {state.producer_id for states in opened.values() for state in states}
        owners = self._asker.find_owners(producer_ids, ours.transactional_ids, may_hide=not ours.sees_all())
        after = self._reads.describe_producers([where for where, states in opened.items() if states])
        for where, known in pinned.items():
            polls = before[where], after.get(where, ())
            blind = next((answer for answer in polls if isinstance(answer, Unseen)), None)
            if blind is not None:
                self._blind(poll, where, known.place, _scope_of(where, blind), blind.reason)
                # The stuck LSO itself was observed.
                yield where, known._replace(verdict=PartitionVerdict.UNKNOWN, error=blind.reason)
                continue
            both = list(open_in_both(*(states for states in polls if not isinstance(states, Unseen))))
            pins = [self._pin(poll, where, known, state, owners) for state in both]
            if any(pin.ground is VerdictReason.UNSEEN for pin in pins):
                self._unseen[where] = f"partition:{where}", _NO_COORDINATOR.format(self._asker.trouble)
            self._settle(poll, where, pins)
            if opened[where] and not pins:
                # The transaction ended during this poll: the next poll reads the new LSO.
                yield where, known._replace(pinned_ms=None)
            else:
                yield where, known._replace(verdict=worst_verdict(pins), error="" if pins else _ENDING)

    def _pin(
        self,
        poll: _Poll,
        where: TopicPartition,
        known: KnownPartition,
        producer: ProducerState,
        owners: ProducerOwners,
    ) -> Pin:
        if self._grace is None:
            cleanup_ms = int(self._reads.broker_setting(CLEANUP) or DEFAULT_CLEANUP_MS)
            self._grace = grace_ms(cleanup_ms, self._least_grace_ms)
        key = PinKey(*where, producer.producer_id, producer.producer_epoch, producer.start_offset or 0)
        # The LSO is at the oldest transaction's first record: it is open for as long as the LSO is stuck.
        pinned_ms = known.pinned_ms if producer.start_offset == known.lso else None
        return evaluate_pin(
            where,
            producer,
            owners,
            known=self._pins.get(where, {}).get(key),
            since_ms=poll.now_ms if pinned_ms is None else pinned_ms,
            accused=key in self._accused,
            now_ms=poll.now_ms,
            grace=self._grace,
        )

    def _settle(self, poll: _Poll, where: TopicPartition, pins: Iterable[Pin]) -> None:
        before = self._pins.pop(where, {})
        now = {pin.key: pin for pin in pins}
        accused = still_accused(now.values(), self._accused)
        self._accused = self._accused - before.keys() | accused
        poll.ended += before.keys() - now.keys()
        poll.pins.update((key, pin) for key, pin in now.items() if pin != before.get(key))
        if now:
            self._pins[where] = now

    def _keep(self, poll: _Poll, where: TopicPartition, known: KnownPartition) -> None:
        prior, history = self._known.get(where), self._ends.get(where, "")
        self._known[where] = known
        if known.has_changed(prior):
            poll.rows[where] = known
        if known.seen_ms != poll.now_ms or known.lso is None or known.high_watermark is None:
            return
        end = ends.EndOffset(poll.now_ms, known.lso, known.high_watermark)
        longer = ends.add_end(history, end, prior.seen_ms if prior else None)
        if longer != history:
            self._ends[where] = poll.ends[where] = longer
            poll.rows[where] = known

    def _drop_missing(self, poll: _Poll, topology: Topology) -> None:
        """Forget topics missing in two full polls, and partitions that a re-created topic lacks."""
        refused = {unseen.what for unseen in topology.unseen}
        missing = {where.topic for where in self._known} - topology.topic_ids.keys() - refused
        gone = missing & self._missing
        self._missing = frozenset(missing - gone)
        self._hurry = bool(self._missing)
        for where in list(self._known):
            listed = where.topic in topology.topic_ids
            if where.topic in gone or (listed and where not in topology.partitions):
                self._drop(poll, where)
                poll.gone.add(where)

    def _drop_replaced(self, poll: _Poll, existing: Iterable[TopicPartition], topology: Topology) -> None:
        """Forget topics that were deleted and created again."""
        for where in existing:
            prior = self._known.get(where)
            if prior is not None and prior.place.topic_id not in ("", topology.topic_ids[where.topic]):
                self._drop(poll, where)
                poll.ends[where] = ""

    def _drop(self, poll: _Poll, where: TopicPartition) -> None:
        self._settle(poll, where, ())
        self._unseen.pop(where, None)
        self._ends.pop(where, None)
        del self._known[where]

    def _all_gaps(self) -> Mapping[str, str]:
        crowds = Counter(self._known[where].place.leader for where in self._unseen)
        gaps = {f"topic:{name}": reason for name, reason in self._topics_unseen.items()}
        for where, (scope, reason) in self._unseen.items():
            leader = self._known[where].place.leader
            crowded = leader is not None and crowds[leader] > _MOST_GAPS
            gaps.setdefault(f"broker:{leader}" if crowded else scope, reason)
        return gaps


@dataclass(slots=True)
class _Poll:
    """The results of one poll so far."""

    now_ms: int
    rows: dict[TopicPartition, KnownPartition] = field(default_factory=dict)
    ends: dict[TopicPartition, str] = field(default_factory=dict)
    gone: set[TopicPartition] = field(default_factory=set)
    pins: dict[PinKey, Pin] = field(default_factory=dict)
    ended: list[PinKey] = field(default_factory=list)


def _scope(where: TopicPartition, unseen: Unseen, leader: Leader, topology: Topology) -> str:
    """Return the scope of a gap: one partition, or a broker with all of its partitions."""
    down = [broker for broker in leader.replicas if broker not in topology.brokers]
    if leader.leader is None and down:
        return f"broker:{down[0]}"
    return _scope_of(where, unseen)


def _scope_of(where: TopicPartition, unseen: Unseen) -> str:
    return f"partition:{where}" if unseen.broker is None else f"broker:{unseen.broker}"
