"""Poll every consumer group of a cluster: the groups, their committed offsets, and the partitions' ends.

It uses neither the database nor Celery. Its driver asks for `wait_s`, calls `poll` with the state from the
tail of `__consumer_offsets` (`PreviousGroupState`), and saves the result. Coordinators are authoritative;
without the right to ask them, the commits in the log replace their answers. A share group (KIP-932)
commits no offsets: it gets the positions that its progress stands for.
"""

import math
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from collectors.kafka.markers import Markers
from collectors.kafka.transactional_commits import CommitterReader, CommitterRows, PendingReader, Undecided
from collectors.polling import PollTimer
from fenceline.decode import text
from fenceline.engines.status import StreamsStore
from fenceline.facts import Isolation, TopicPartition
from fenceline.kafka.added_offsets import AddedOffsets
from fenceline.kafka.coordinator import partition_for
from fenceline.kafka.group_observation import ObservedGroups, PendingCommit, SeenGroup
from fenceline.kafka.groups import SHARE, STREAMS, Committed, ShareProgress
from fenceline.kafka.partitions import Offsets
from transaction_admin.api import (
    CONSUMER_OFFSETS,
    AdminUnavailable,
    Commits,
    GroupListed,
    GroupListing,
    ShareProgresses,
    Unseen,
    Unstable,
)
from transaction_admin.kafka_reads import ClusterReads

#: How long the absence of a producer id's owner stays valid, and the state stores of Streams groups.
_FORGET_S = _STORES_S = 60.0
_NOT_LISTED = GroupListed("", "", -1)

Ends = Mapping[TopicPartition, Offsets]
#: The configuration with a share group's isolation level, and how long an answer is valid.
_SETTING, _GOOD_S = "share.isolation.level", 60.0


class PreviousGroupState(CommitterRows, Protocol):
    """The database's state of one cluster, read on demand (`dashboard.groups.store.GroupRows`)."""

    def logged_groups(self) -> Collection[str]:
        """Return the groups whose commits the tail has read."""

    def logged_commits(self, groups: Collection[str]) -> Mapping[str, Mapping[TopicPartition, Committed]]:
        """Return the newest commits of groups that the tail reads completely; omit other groups."""


class GroupsCollector(PollTimer):
    """Polls one cluster. `poll` raises `AdminUnavailable` if no request at all is answered."""

    def __init__(self, reads: ClusterReads) -> None:
        super().__init__()
        self._reads = reads
        self._pending = PendingReader(reads)
        self._committers = CommitterReader(reads)
        self._markers = Markers(reads)
        self._shares = ShareGroupReader(reads)
        #: The Streams groups (KIP-1071) whose stores were read, and when.
        self._streams, self._streams_read_s = frozenset[str](), -math.inf
        self._log_partitions: list[TopicPartition] = []
        #: Producer id -> transactional id ("" without an owner), and the instant of the request.
        self._owners: dict[int, tuple[str, float]] = {}
        #: The offsets at which partitions of `__consumer_offsets` were blocked in the last poll.
        self._held: dict[int, int] = {}
        #: The groups' committed offsets in the last poll.
        self._before: set[tuple[TopicPartition, int]] = set()

    def close(self) -> None:
        self._reads.close()

    def poll(self, now_ms: int, ours: PreviousGroupState, *, every_s: float) -> ObservedGroups:
        """Read all groups; the next poll is due after `every_s`, later if brokers are slow."""
        before, began = self._reads.cost, time.monotonic()
        try:
            observed = self._observe(now_ms, ours)
        finally:
            cost = self._reads.cost
            broker_ms = cost.broker_ms - before.broker_ms
            self.set_due(began, every_s, broker_ms / 1_000)
        return replace(observed, requests=cost.requests - before.requests, broker_ms=broker_ms)

    def _observe(self, now_ms: int, ours: PreviousGroupState) -> ObservedGroups:
        listing = self._reads.list_groups()
        groups = self._committed(listing, ours)
        gaps = dict(_gaps(groups))
        for unseen in listing.unseen:
            scope = unseen.what if unseen.broker is None else f"broker:{unseen.broker}"
            gaps[scope] = unseen.reason
        # Read ends after offsets, so that no offset is beyond an end by a race.
        ends = self._ends(groups)
        for name, group in groups.items():
            if group.kind == SHARE:
                groups[name] = self._shares.at_positions(name, group, ends)
        streams = [name for name, group in groups.items() if group.kind == STREAMS]
        for name, stores in self._stores(streams).items():
            groups[name] = replace(groups[name], stores=stores)
        pending, added = self._undecided(groups, ends, ours, now_ms)
        return ObservedGroups(
            at_ms=now_ms,
            groups=groups,
            offsets=ends,
            only_markers=self._only_markers(groups, ends),
            pending=pending,
            added=added,
            committers=self._committers.read_committers(ours),
            gaps=gaps,
            partial="; ".join(map(str, listing.unseen)),
        )

    def _stores(self, names: Collection[str]) -> Mapping[str, Sequence[StreamsStore]]:
        """Return the state stores of due Streams groups, without groups whose coordinator does not answer."""
        now = time.monotonic()
        if not names or (now - self._streams_read_s < _STORES_S and self._streams >= set(names)):
            return {}
        self._streams, self._streams_read_s = frozenset(names), now
        answers = self._reads.streams_stores(names)
        return {name: stores for name, stores in answers.items() if not isinstance(stores, Unseen)}

    def _committed(self, listing: GroupListing, ours: PreviousGroupState) -> dict[str, SeenGroup]:
        """Return committed offsets: stable ones, and the earlier ones behind pending commits."""
        listed = listing.groups
        names = listed.keys() | set(ours.logged_groups())
        asked = [name for name in names if listed.get(name, _NOT_LISTED).kind != SHARE]
        shares = [name for name in names if listed.get(name, _NOT_LISTED).kind == SHARE]
        stable = {
            **self._reads.committed_offsets(asked, require_stable=True),
            **self._shares.start_offsets(shares),
        }
        shaky = [name for name, answer in stable.items() if _unstable(answer)]
        before = self._reads.committed_offsets(shaky, require_stable=False) if shaky else {}
        hidden = [name for name, answer in stable.items() if isinstance(answer, Unseen)]
        logged = ours.logged_commits(hidden) if hidden else {}
        groups: dict[str, SeenGroup] = {}
        for name in names:
            answer = stable.get(name, {})
            if name not in listed and not answer and not isinstance(answer, Unseen):
                continue  # the group was deleted, and the tail has not read that yet
            groups[name] = self._group(
                name, listed.get(name, _NOT_LISTED), answer, before.get(name), logged.get(name)
            )
        return groups

    def _group(
        self,
        name: str,
        listed: GroupListed,
        answer: Commits | Unseen,
        before: Commits | Unseen | None,
        logged: Mapping[TopicPartition, Committed] | None,
    ) -> SeenGroup:
        group = SeenGroup(
            state=listed.state,
            kind=listed.kind,
            coordinator=listed.coordinator if listed.coordinator >= 0 else None,
            log_partition=self._log_partition(name),
        )
        if isinstance(answer, Unseen):
            known = dict(logged) if logged is not None else {}
            return replace(group, committed=known, error=answer.reason, unseen=logged is None)
        committed: dict[TopicPartition, Committed | None] = {}
        reasons = []
        for where, commit in answer.items():
            if isinstance(commit, Unseen):
                reasons.append(str(commit))
            elif isinstance(commit, Unstable):
                stable = before.get(where) if isinstance(before, Mapping) else None
                committed[where] = stable if isinstance(stable, Committed) else None
            else:
                committed[where] = commit
        return replace(
            group, committed=committed, unstable=frozenset(_unstable(answer)), error="; ".join(reasons[:3])
        )

    def _log_partition(self, name: str) -> int | None:
        if not self._log_partitions:
            known = self._reads.describe_topology([CONSUMER_OFFSETS]).partitions
            self._log_partitions = [where for where in known if where.topic == CONSUMER_OFFSETS]
        amount = len(self._log_partitions)
        return partition_for(text.unescape_text(name), amount) if amount else None

    def _ends(self, groups: Mapping[str, SeenGroup]) -> dict[TopicPartition, Offsets]:
        wanted = {where for group in groups.values() for where in group.committed}
        wanted |= {*self._log_partitions}
        answers = self._reads.list_offsets(wanted) if wanted else {}
        return {where: offsets for where, offsets in answers.items() if isinstance(offsets, Offsets)}

    def _undecided(
        self, groups: dict[str, SeenGroup], ends: Ends, ours: PreviousGroupState, now_ms: int
    ) -> tuple[Mapping[tuple[str, TopicPartition], tuple[PendingCommit, ...]], Sequence[AddedOffsets]]:
        """Return the pending commits in blocked partitions of `__consumer_offsets`.

        Also return the offsets that transactions added there, up to their end. There is no other source for
        pending commits of a group without a decided commit.
        """
        offsets = {where.partition: ends[where] for where in self._log_partitions if where in ends}
        lagging = {number: end for number, end in offsets.items() if end.lso < end.high_watermark}
        held = {number: end for number, end in lagging.items() if self._held.get(number) == end.lso}
        self._held = {number: end.lso for number, end in lagging.items()}
        commits, added = self._pending.read_pending(held, offsets, now_ms)
        owners = self._owners_of({undecided.producer_id for undecided in commits}, ours)
        pending: dict[tuple[str, TopicPartition], tuple[PendingCommit, ...]] = {}
        for undecided in commits:
            owner = owners.get(undecided.producer_id, "")
            commit = PendingCommit(
                undecided.added.offset, undecided.producer_id, undecided.producer_epoch, owner
            )
            key = undecided.added.group, undecided.where
            pending[key] = (*(c for c in pending.get(key, ()) if c[1:] != commit[1:]), commit)
            self._add_unstable(groups, undecided)
        return pending, added

    def _add_unstable(self, groups: dict[str, SeenGroup], undecided: Undecided) -> None:
        name = undecided.added.group
        group = groups.get(name) or SeenGroup(log_partition=self._log_partition(name))
        if undecided.where not in group.committed:
            groups[name] = replace(
                group,
                committed={**group.committed, undecided.where: None},
                unstable=group.unstable | {undecided.where},
            )

    def _owners_of(self, producer_ids: Collection[int], ours: PreviousGroupState) -> Mapping[int, str]:
        """Return the owners of producer ids: from the tail's rows, else from coordinators, which is slow."""
        now = time.monotonic()
        known = {
            number: (name, at)
            for number, (name, at) in self._owners.items()
            if number in producer_ids and (name or now - at < _FORGET_S)
        }
        missing = set(producer_ids) - known.keys()
        if missing:
            known |= {number: (name, now) for number, name in self._ask_owners(missing, ours).items()}
        self._owners = known
        return {number: name for number, (name, _) in known.items()}

    def _ask_owners(self, producer_ids: set[int], ours: PreviousGroupState) -> Mapping[int, str]:
        """Return the owners, "" for none; without a list omit unknown ones."""
        names = dict(ours.transactional_ids(producer_ids))
        unknown = producer_ids - names.keys()
        if not unknown:
            return names
        try:
            return {**dict.fromkeys(unknown, ""), **names, **self._reads.transactional_ids(unknown)}
        except AdminUnavailable:
            # Without the right to list ids, groups are still shown.
            return names

    def _only_markers(
        self, groups: Mapping[str, SeenGroup], ends: Ends
    ) -> frozenset[tuple[TopicPartition, int]]:
        """Check whether groups that do not move have records left to read."""
        places = {
            (where, commit.offset)
            for group in groups.values()
            for where, commit in group.committed.items()
            if commit is not None and where in ends
        }
        still = sorted(places & self._before)
        self._before = places
        return self._markers.find_only_markers(still, ends)


def _unstable(answer: Commits | Unseen) -> Collection[TopicPartition]:
    if isinstance(answer, Unseen):
        return ()
    return [where for where, commit in answer.items() if isinstance(commit, Unstable)]


def _gaps(groups: Mapping[str, SeenGroup]) -> Iterator[tuple[str, str]]:
    """Yield a gap for each group with unknown offsets; one gap for a broker that has no other group."""
    hidden = {name: group for name, group in groups.items() if group.unseen}
    here = Counter(group.coordinator for group in groups.values())
    hidden_at = Counter(group.coordinator for group in hidden.values())
    for name, group in hidden.items():
        broker = group.coordinator
        is_whole = broker is not None and hidden_at[broker] == here[broker] > 1
        yield (f"broker:{broker}" if is_whole else f"group:{name}"), group.error


class ShareGroupReader:
    """Reads share groups as if they committed offsets."""

    def __init__(self, reads: ClusterReads) -> None:
        self._reads = reads
        self._progress: Mapping[str, ShareProgresses | Unseen] = {}
        self._isolations: dict[str, tuple[float, Isolation]] = {}

    def start_offsets(self, names: Collection[str]) -> Mapping[str, Commits | Unseen]:
        """Ask for the groups' progress; return their start offsets. `at_positions` follows with the ends."""
        self._progress = self._reads.share_progress(names) if names else {}
        self._isolations = {
            name: isolation for name, isolation in self._isolations.items() if name in self._progress
        }
        return {name: _starts(progresses) for name, progresses in self._progress.items()}

    def at_positions(self, name: str, group: SeenGroup, ends: Mapping[TopicPartition, Offsets]) -> SeenGroup:
        """Return a group with the offsets that a consumer with the same progress would have committed."""
        progresses = self._progress.get(name, {})
        if isinstance(progresses, Unseen):
            return group
        isolation = self._isolation(name)
        committed = {
            where: Committed(progress.position(ends.get(where), isolation), None, "")
            for where, progress in progresses.items()
            if isinstance(progress, ShareProgress)
        }
        return replace(group, committed=committed, isolation=isolation)

    def _isolation(self, name: str) -> Isolation:
        read_s, known = self._isolations.get(name, (-math.inf, Isolation.UNKNOWN))
        if time.monotonic() - read_s >= _GOOD_S:
            setting = self._reads.group_setting(name, _SETTING)
            known = Isolation(setting) if setting in tuple(Isolation) else Isolation.UNKNOWN
            self._isolations[name] = time.monotonic(), known
        return known


def _starts(progresses: ShareProgresses | Unseen) -> Commits | Unseen:
    if isinstance(progresses, Unseen):
        return progresses
    return {
        where: progress if isinstance(progress, Unseen) else Committed(progress.start_offset, None, "")
        for where, progress in progresses.items()
    }
