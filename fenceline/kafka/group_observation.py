"""Derive each group's state in each partition from one poll of all consumer groups. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.engines.status import StreamsStore
from fenceline.facts import Isolation, TopicPartition
from fenceline.kafka import offset_histories as ends
from fenceline.kafka.added_offsets import AddedOffsets
from fenceline.kafka.coordinator import to_local_ms
from fenceline.kafka.groups import (
    BLOCKED_AFTER_MS,
    POINTS_APART_MS,
    Commit,
    Committed,
    GroupStatus,
    Point,
    Waiting,
    add_point,
    committed_in,
    is_beyond_end,
    lag_to_lso,
    status_of,
    to_read,
    waiting_state,
)
from fenceline.kafka.offset_histories import EndOffset
from fenceline.kafka.partitions import Offsets

_LAG_NEWS_MS = 1_000


class PendingCommit(NamedTuple):
    """An undecided transactional commit, read from the log: certain."""

    offset: int
    producer_id: int
    producer_epoch: int
    #: "" where no id with this producer id is known.
    transactional_id: str


class GroupBlocker(NamedTuple):
    """A transaction that a group waits for.

    `pending`: it contains the group's own commit (UNSTABLE_OFFSET_COMMIT), instead of blocking the LSO.
    """

    producer_id: int | None = None
    producer_epoch: int | None = None
    #: "" if unknown.
    transactional_id: str = ""
    #: Its first offset in the blocked partition.
    start_offset: int | None = None
    pending: bool = False
    #: The offset of the pending commit, where it could be read.
    offset: int | None = None
    #: False if it is one of several possible transactions.
    certain: bool = True


class LoggedCommit(NamedTuple):
    """The place in `__consumer_offsets` of a group's (escaped text) newest commit for a topic."""

    group: str
    topic: str
    log_partition: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """One group in a poll. If `error` is set, `committed` has the offsets that are known despite it."""

    #: Kafka's name of the state; "" if no coordinator lists the group to us.
    state: str = ""
    kind: str = ""
    coordinator: int | None = None
    log_partition: int | None = None
    #: None for partitions with only a pending commit.
    committed: Mapping[TopicPartition, Committed | None] = field(default_factory=dict)
    unstable: frozenset[TopicPartition] = frozenset()
    error: str = ""
    #: Whether the poll learned nothing new about its offsets: the known offsets stay.
    unseen: bool = False
    #: Kafka reports the isolation of share groups only (`share.isolation.level`).
    isolation: Isolation = Isolation.UNKNOWN
    #: The state stores of a Kafka Streams group; None if they were not queried.
    stores: Sequence[StreamsStore] | None = None


@dataclass(frozen=True, slots=True)
class ObservedGroups:
    """The result of one poll."""

    at_ms: int
    groups: Mapping[str, SeenGroup]
    offsets: Mapping[TopicPartition, Offsets]
    #: Committed offsets with only markers and aborted records up to the LSO.
    only_markers: frozenset[tuple[TopicPartition, int]] = frozenset()
    pending: Mapping[tuple[str, TopicPartition], tuple[PendingCommit, ...]] = field(default_factory=dict)
    #: Offsets added by transactions that were open for two polls, and once more after their end.
    added: Sequence[AddedOffsets] = ()
    #: By group and topic: the application whose transactions commit the offsets, "" for none, None if
    #: unknown. Only groups and topics that were queried.
    committers: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    #: Reasons by scope of everything that could not be read.
    gaps: Mapping[str, str] = field(default_factory=dict)
    #: Why groups may be missing from the poll, "" if none are: known groups then stay.
    partial: str = ""
    requests: int = 0
    broker_ms: float = 0.0


class Stood(NamedTuple):
    """A group's state in one partition: a row of GroupOffset."""

    offset: int | None
    leader_epoch: int | None
    metadata: str
    #: By the coordinator's clock if the log has the commit, else when we first observed it.
    commit_ms: int | None
    unstable: bool
    log_start: int | None
    lso: int | None
    high_watermark: int | None
    lag_ms: int | None
    only_markers: bool
    status: GroupStatus
    waiting: Waiting | None
    waiting_ms: int | None
    blockers: tuple[GroupBlocker, ...]
    points: tuple[Point, ...]

    @property
    def lag_lso(self) -> int | None:
        """Return the lag to the last stable offset: 0 beyond it, and if nothing is left to read."""
        ends = self.log_start, self.lso, self.high_watermark
        return lag_to_lso(self.offset, *ends, only_markers=self.only_markers)

    @property
    def lag_hw(self) -> int | None:
        """Return the lag to the high watermark; None beyond it, where Kafka's own tool reports < 0."""
        if self.offset is None or self.high_watermark is None:
            return None
        return None if is_beyond_end(self.offset, self.high_watermark) else self.high_watermark - self.offset


class Logged(NamedTuple):
    """A group's commits in the tail of `__consumer_offsets`: the newest, and the last ones by its clock."""

    committed: Committed
    commit_ms: int
    commits: tuple[Commit, ...]
    log_partition: int
    #: How far our clock is ahead of the coordinator's; None if unknown.
    ahead_ms: int | None


@dataclass(frozen=True, slots=True)
class Around:
    """Other facts about a partition for evaluating a group's status in it."""

    offsets: Offsets | None
    only_markers: bool = False
    #: Oldest first, without the end offset of this poll.
    ends: Sequence[EndOffset] = ()
    #: The open transactions of the partition, oldest first.
    holders: Sequence[GroupBlocker] = ()
    #: The group's own pending commits.
    pending: Sequence[GroupBlocker] = ()
    isolation: Isolation = Isolation.UNKNOWN
    #: False if the group has members and no member subscribes to the topic.
    is_assigned: bool = True

    @property
    def readable(self) -> Offsets | None:
        """Return the offsets as the group reads them: for read_uncommitted, the LSO is the high watermark."""
        if self.offsets is None or self.isolation is not Isolation.READ_UNCOMMITTED:
            return self.offsets
        return self.offsets._replace(lso=self.offsets.high_watermark)


def observe_partition(
    before: Stood | None,
    committed: Committed | None,
    unstable: bool,
    logged: Logged | None,
    around: Around,
    *,
    now_ms: int,
    blocked_after_ms: int = BLOCKED_AFTER_MS,
) -> Stood:
    """Return a group's state in a partition now; `logged` is None if the log has no commit of it."""
    offset = committed.offset if committed else None
    known = logged if logged is not None and committed is not None and logged.committed[0] == offset else None
    offsets = around.offsets
    unread = to_read(offset, around.readable, around.only_markers)
    points = _points(before, offset, unread, now_ms)
    assigned = around.is_assigned
    waits = waiting_state(offset, around.readable, around.only_markers) if assigned else None
    waiting_ms = _waiting_ms(before, waits, offsets, unstable, now_ms)
    return Stood(
        offset=offset,
        leader_epoch=committed.leader_epoch if committed else None,
        metadata=committed.metadata if committed else "",
        commit_ms=_commit_ms(before, offset, known, now_ms),
        unstable=unstable,
        log_start=offsets.log_start if offsets else None,
        lso=offsets.lso if offsets else None,
        high_watermark=offsets.high_watermark if offsets else None,
        lag_ms=_lag_ms(offset, around, points, now_ms),
        only_markers=around.only_markers,
        status=status_of(
            unread,
            _commits(before, offset, known, points, now_ms),
            points,
            unread_ms=_unread_ms(offset, around, points, now_ms),
            now_ms=now_ms,
            at_lso_ms=now_ms - waiting_ms if waits is Waiting.PROBABLY and waiting_ms is not None else None,
            blocked_after_ms=blocked_after_ms,
        )
        if assigned
        else GroupStatus.LEFT,
        waiting=waits,
        waiting_ms=waiting_ms,
        blockers=_blockers(waits, unstable, around),
        points=points,
    )


def _blockers(waits: Waiting | None, unstable: bool, around: Around) -> tuple[GroupBlocker, ...]:
    holders = around.holders if waits is Waiting.PROBABLY else ()
    return (*holders, *(around.pending if unstable else ()))


def has_changed(before: Stood | None, now: Stood) -> bool:
    """Return whether a row has changed, or has points to keep."""
    if before is None:
        return True
    # The age of unread records grows all the time. Alone it is no change until it has grown by a tenth.
    if before._replace(lag_ms=now.lag_ms, points=()) != now._replace(points=()):
        return True
    if (before.lag_ms is None) != (now.lag_ms is None):
        return True
    if abs((now.lag_ms or 0) - (before.lag_ms or 0)) > max(_LAG_NEWS_MS, (before.lag_ms or 0) // 10):
        return True
    if not now.points or not before.points:
        return before.points != now.points
    return now.points[-1].at_ms - before.points[-1].at_ms >= POINTS_APART_MS


def _points(
    before: Stood | None, offset: int | None, unread: int | None, now_ms: int
) -> tuple[Point, ...]:  # fmt: skip
    points = before.points if before else ()
    return points if offset is None or unread is None else add_point(points, Point(now_ms, offset, unread))


def _commit_ms(before: Stood | None, offset: int | None, known: Logged | None, now_ms: int) -> int | None:
    if offset is None:
        return None
    if known is not None:
        return known.commit_ms
    # Observed for the first time: the instant of the commit is unknown.
    return before.commit_ms if before is not None and before.offset == offset else now_ms


def _commits(
    before: Stood | None, offset: int | None, known: Logged | None, points: Sequence[Point], now_ms: int
) -> Sequence[Commit]:
    """Return the last commits by our clock: from the log if known, else from our polls."""
    if known is not None:
        ahead_ms = known.ahead_ms
        return [Commit(to_local_ms(at, now_ms=now_ms, ahead_ms=ahead_ms), row) for at, row in known.commits]
    if offset is None:
        return ()
    commits = committed_in(points)
    first_ms = before.commit_ms if before is not None and before.offset == offset else None
    if commits and first_ms is not None and first_ms <= now_ms:
        return (*commits[:-1], Commit(min(first_ms, commits[-1].at_ms), offset))
    return commits or (Commit(now_ms, offset),)


def _unread_ms(
    offset: int | None, around: Around, points: Sequence[Point], now_ms: int, *, committed: bool = True
) -> int | None:
    """Return the age of the record at `offset`; None if it does not exist or is older than the history."""
    if offset is None or around.offsets is None:
        return None
    # The partition's history, else what this group's polls show of it.
    known = around.ends or [
        EndOffset(point.at_ms, point.offset + point.lag, point.offset + point.lag) for point in points[:-1]
    ]
    newest = EndOffset(now_ms, around.offsets.lso, around.offsets.high_watermark)
    passed = ends.passed_ms([*known, newest], offset, committed=committed)
    return None if passed is None else max(0, now_ms - passed)


def _lag_ms(offset: int | None, around: Around, points: Sequence[Point], now_ms: int) -> int | None:
    """Return the age of the oldest record the group has not read, readable or not."""
    if offset is None or around.offsets is None or is_beyond_end(offset, around.offsets.high_watermark):
        return None
    # Markers and aborted records do not count: the first record to read is at or after the LSO.
    first = around.offsets.lso if around.only_markers else max(offset, around.offsets.log_start)
    if first >= around.offsets.high_watermark:
        return 0
    return _unread_ms(first, around, points, now_ms, committed=False)


def _waiting_ms(
    before: Stood | None, waits: Waiting | None, offsets: Offsets | None, unstable: bool, now_ms: int
) -> int | None:
    """Return since when the group is at this LSO, or since when its commit is pending.

    An LSO never returns to an old offset, so an equal LSO has not moved.
    """
    at_lso = waits is Waiting.PROBABLY and offsets is not None
    if not at_lso and not unstable:
        return None
    if before is None or before.waiting_ms is None:
        return now_ms
    at_the_same = before.waiting is waits and offsets is not None and before.lso == offsets.lso
    same = at_the_same if at_lso else before.unstable
    return before.waiting_ms if same else now_ms
