"""Consumer groups: what they committed, how far they are behind, and what that is in Burrow's words.

The rules take Burrow's vocabulary and order, not its errors. Burrow evaluates by lag
to the high watermark, which a transactional topic never lets fall to 0. It reports a dead consumer as OK
if that had read all at its last commits, as STOP one that had nothing to read, and as WARN one whose lag
is constant. Here a group is evaluated by what it could read: up to the last stable offset, without markers
and aborted records, and since when. tests/unit/test_groups.py is the table of cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from fenceline.compat import StrEnum, pairwise
from fenceline.facts import Isolation
from fenceline.kafka.partitions import Offsets


class GroupStatus(StrEnum):
    """How a group does in a partition, in Burrow's vocabulary; a group has the worst of its partitions'."""

    OK = "OK"
    #: It commits and advances, but falls behind.
    WARN = "WARN"
    #: It commits the same offset again and again while there is more to read.
    STALL = "STALL"
    #: It has not committed for longer than it took for all the commits that we remember.
    STOP = "STOP"
    #: Its offset went back.
    REWIND = "REWIND"
    #: It has consumed everything below the last stable offset, which an open transaction keeps from moving.
    BLOCKED = "BLOCKED"
    #: Too little is known yet, or it cannot be seen.
    UNKNOWN = "UNKNOWN"
    #: Not assigned: it has members, and none of them subscribes to the topic any more.
    LEFT = "LEFT"


#: From harmless to worst.
STATUSES = (
    GroupStatus.LEFT,
    GroupStatus.OK,
    GroupStatus.UNKNOWN,
    GroupStatus.WARN,
    GroupStatus.REWIND,
    GroupStatus.STALL,
    GroupStatus.STOP,
    GroupStatus.BLOCKED,
)
WORST_STATUSES = STATUSES[::-1]


class Waiting(StrEnum):
    """Where a group is, seen from an LSO below the high watermark; its isolation level is not visible."""

    #: It is at the LSO, as a read_committed consumer is that an open transaction blocks.
    PROBABLY = "probably"
    #: It committed past the LSO: read_uncommitted, certainly.
    READS_PAST = "reads_past"
    #: It is still on its way to the LSO.
    NOT_YET = "not_yet"


class LagTrend(StrEnum):
    """Where a lag goes."""

    GROWING = "growing"
    STEADY = "steady"
    SHRINKING = "shrinking"


class Committed(NamedTuple):
    """A group's committed offset for one partition (OffsetFetch); metadata as escaped text."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


class Commit(NamedTuple):
    """One commit at its instant, by the coordinator's clock."""

    at_ms: int
    offset: int


class Point(NamedTuple):
    """What one poll found: the committed offset, and the lag to the LSO; by our clock."""

    at_ms: int
    offset: int
    lag: int


#: Nobody is called stopped, or stuck, sooner: commits come every 5 s by default, Kafka Streams' every 30 s.
STOP_AFTER_MS = 60_000
STALL_AFTER_MS = 30_000
#: A group at an LSO that has not moved for so long is blocked. Shorter transactions are a healthy topic's
#: everyday work: without this, its groups would flicker through BLOCKED with each of them.
BLOCKED_AFTER_MS = 10_000
#: Commits at one offset that are no coincidence.
_STALLED_COMMITS = 3
#: Where one pause outlasts all the rest, the usual one counts so many times.
_USUAL_PAUSES = 20
#: A trend needs so many points, and so much time.
_TREND_POINTS, _TREND_MS = 6, 60_000
#: Points are at least so far apart, and so many: ten minutes.
POINTS_APART_MS, MOST_POINTS = 20_000, 30


#: The kind of groups that have a start offset in the place of committed ones (KIP-932).
SHARE = "Share"
STREAMS = "Streams"


class ShareProgress(NamedTuple):
    """How far a share group has come in a partition: every record before `start_offset` is done.

    The start offset follows acknowledgements with a delay; `lag`, the records up to the high watermark that
    are not done, does not. It is None before Kafka 4.2 (KIP-1226).
    """

    start_offset: int
    lag: int | None

    def position(self, offsets: Offsets | None, isolation: Isolation) -> int:
        """Return the offset that a consumer would have committed that has read as much.

        Where records are done in another order, those that are not count as the last ones.
        """
        if self.lag is None or offsets is None:
            return self.start_offset
        # The high watermark may have moved since the lag was reported.
        end = offsets.lso if isolation is Isolation.READ_COMMITTED else offsets.high_watermark
        return max(self.start_offset, min(offsets.high_watermark - self.lag, end))


def note_of(kind: str, partitions: int) -> str:
    """Return why a group has no status: it has committed nothing; "" where it has one."""
    if partitions:
        return ""
    if kind == SHARE:
        return "It is a share group that has read nothing yet"
    return "It has committed nothing"


def is_beyond_end(offset: int | None, high_watermark: int | None) -> bool:
    """Whether an offset is no position of this log: its topic was made again, or its log truncated.

    Ask for the offset before the end: else it may only be newer.
    """
    return offset is not None and high_watermark is not None and offset > high_watermark


def to_read(offset: int | None, offsets: Offsets | None, only_markers: bool) -> int | None:
    """Return how many offsets a read_committed consumer has before it; None where that is unknown."""
    if offsets is None:
        return None
    ends = offsets.log_start, offsets.lso, offsets.high_watermark
    return lag_to_lso(offset, *ends, only_markers=only_markers)


def lag_to_lso(
    offset: int | None,
    log_start: int | None,
    lso: int | None,
    high_watermark: int | None,
    *,
    only_markers: bool,
) -> int | None:
    """Return the lag to the LSO of what can be read; None where that is unknown.

    Deleted offsets do not count. It is 0 where only markers and aborted records are left (`only_markers`).
    """
    if offset is None or lso is None or is_beyond_end(offset, high_watermark):
        return None
    return 0 if only_markers else max(0, lso - max(offset, log_start or 0))


def waiting_state(offset: int | None, offsets: Offsets | None, only_markers: bool) -> Waiting | None:
    """Return a group's position at an LSO that is below the high watermark; None where none is.

    Ask for the offset before the end: then an offset beyond the LSO proves that the group reads uncommitted.
    """
    if offset is None or offsets is None or offsets.lso >= offsets.high_watermark:
        return None
    if is_beyond_end(offset, offsets.high_watermark):
        return None
    if offset > offsets.lso:
        return Waiting.READS_PAST
    return Waiting.PROBABLY if only_markers or offset == offsets.lso else Waiting.NOT_YET


def status_of(
    unread: int | None,
    commits: Sequence[Commit],
    points: Sequence[Point],
    *,
    unread_ms: int | None,
    now_ms: int,
    at_lso_ms: int | None = None,
    blocked_after_ms: int = BLOCKED_AFTER_MS,
) -> GroupStatus:
    """Evaluate a group in one partition: return the worst status that applies.

    `unread` is `to_read`; `unread_ms` for how long the first of it has been there, None where that is not
    known. `commits` are the last ones and `points` the last polls, both oldest first and by our clock.
    `at_lso_ms` is for how long the group has been at an LSO that has not moved and is below the high
    watermark, None where it is not: a group that died before the LSO has something to read, and is STOP.
    """
    if unread is None:
        return GroupStatus.UNKNOWN
    if unread == 0:
        return (
            GroupStatus.BLOCKED if at_lso_ms is not None and at_lso_ms >= blocked_after_ms else GroupStatus.OK
        )
    if not commits:
        return GroupStatus.UNKNOWN
    # For so long it could have read, and has not committed.
    idle_ms = now_ms - commits[-1].at_ms
    idle_ms = idle_ms if unread_ms is None else min(idle_ms, unread_ms)
    if idle_ms > max(STOP_AFTER_MS, _usual_ms(commits)):
        return GroupStatus.STOP
    if _stalls(commits, unread_ms, now_ms):
        return GroupStatus.STALL
    if commits[-1].offset < max(commit.offset for commit in commits):
        return GroupStatus.REWIND
    trend = trend_of([(point.at_ms, point.lag) for point in points])
    if trend is LagTrend.GROWING and all(point.lag > 0 for point in points):
        return GroupStatus.WARN
    return GroupStatus.OK if len(commits) > 1 else GroupStatus.UNKNOWN


def _usual_ms(commits: Sequence[Commit]) -> int:
    """Return how long the remembered commits took, without one pause longer than the rest together."""
    pauses = [later.at_ms - sooner.at_ms for sooner, later in pairwise(commits)]
    return int(min(sum(pauses), _USUAL_PAUSES * median(pauses))) if pauses else 0


def _stalls(commits: Sequence[Commit], unread_ms: int | None, now_ms: int) -> bool:
    """Whether the last commits have one offset while there was something to read all the time."""
    run = 1
    while run < len(commits) and commits[-1 - run].offset == commits[-1].offset:
        run += 1
    if run < _STALLED_COMMITS:
        return False
    first_ms = commits[-run].at_ms
    there_ms = first_ms if unread_ms is None else max(first_ms, now_ms - unread_ms)
    return commits[-1].at_ms - there_ms >= STALL_AFTER_MS


def trend_of(lags: Sequence[tuple[int, int]]) -> LagTrend | None:
    """Return where a lag goes, from its (instant, lag) oldest first; None while too little is known.

    It grows where all of its last third lies above all of its first: what goes up and down goes nowhere.
    """
    if len(lags) < _TREND_POINTS or lags[-1][0] - lags[0][0] < _TREND_MS:
        return None
    third = len(lags) // 3
    first = [lag for _, lag in lags[:third]]
    last = [lag for _, lag in lags[-third:]]
    if min(last) > max(first):
        return LagTrend.GROWING
    return LagTrend.SHRINKING if max(last) < min(first) else LagTrend.STEADY


def add_point(points: Sequence[Point], new: Point) -> tuple[Point, ...]:
    """Return the last points with a new one: spaced so that they cover ten minutes, the newest always."""
    spaced = len(points) > 1 and points[-1].at_ms - points[-2].at_ms < POINTS_APART_MS
    kept = points[:-1] if spaced else points
    return (*kept, new)[-MOST_POINTS:]


def committed_in(points: Sequence[Point]) -> tuple[Commit, ...]:
    """Return the commits that polls have observed: each new offset, with the instant of the first poll."""
    commits: list[Commit] = []
    for point in points:
        if not commits or commits[-1].offset != point.offset:
            commits.append(Commit(point.at_ms, point.offset))
    return tuple(commits)


def worst_status(statuses: Sequence[GroupStatus]) -> GroupStatus:
    """Return the worst of some statuses; of none nothing is known."""
    return max(statuses, key=STATUSES.index, default=GroupStatus.UNKNOWN)
