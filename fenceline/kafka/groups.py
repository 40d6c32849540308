"""Consumer groups: their commits, their lag, their status in Burrow's vocabulary, and their families.

The rules take Burrow's vocabulary and order, without its errors. Burrow evaluates the lag to the high
watermark, which never falls to 0 on a transactional topic. It reports OK for a dead consumer that had read
everything at its last commits, STOP for a consumer without anything to read, and WARN for a constant lag.
Here a group is evaluated by the records it could read, and since when: up to the last stable offset, without
markers and aborted records. tests/unit/test_groups.py is the table of cases.

Groups with random ids are folded under one name, with an explanation. Spark creates a group per start of a
query, the console consumer one per run, and many clients append a UUID. Hundreds of such groups are no news.
Every other group is its own family.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from statistics import median
from typing import NamedTuple

from fenceline.compat import StrEnum, pairwise
from fenceline.facts import Isolation
from fenceline.formatting import fit_name
from fenceline.kafka.partitions import Offsets

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
#: `KafkaSourceProvider` of Spark's connector, without `kafka.group.id` and with any `groupIdPrefix`. The
#: number is a hash, and may be negative; the driver counts its consumers.
_SPARK = re.compile(rf"(.+)-{_UUID}(?:-(-?\d+))?-(?:driver-\d+|executor)\Z", re.DOTALL)
_SPARK_BATCH = "spark-kafka-relation"
_CONSOLE = re.compile(r"console-consumer-\d+\Z")
_CONSOLE_SHARE = re.compile(r"console-share-consumer-\d+\Z")
_RANDOM = re.compile(rf"(?<![0-9A-Za-z])(?:{_UUID}|[0-9a-f]{{32}})(?![0-9A-Za-z])")


class GroupStatus(StrEnum):
    """A group's status in a partition, in Burrow's vocabulary; a group has its worst partition's status."""

    OK = "OK"
    #: It commits and advances, but falls behind.
    WARN = "WARN"
    #: It commits the same offset repeatedly although there is more to read.
    STALL = "STALL"
    #: It has not committed for longer than all its remembered commits took.
    STOP = "STOP"
    #: Its offset went back.
    REWIND = "REWIND"
    #: It has consumed everything below the last stable offset, which an open transaction keeps from moving.
    BLOCKED = "BLOCKED"
    #: Too little is known yet, or the group cannot be read.
    UNKNOWN = "UNKNOWN"
    #: Not assigned: it has members, and no member subscribes to the topic any more.
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
    """A group's position relative to an LSO below the high watermark; its isolation level is not visible."""

    #: It is at the LSO, like a read_committed consumer blocked by an open transaction.
    PROBABLY = "probably"
    #: It committed past the LSO: read_uncommitted, certainly.
    READS_PAST = "reads_past"
    #: It has not reached the LSO yet.
    NOT_YET = "not_yet"


class LagTrend(StrEnum):
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
    """One poll: the committed offset, and the lag to the LSO; by our clock."""

    at_ms: int
    offset: int
    lag: int


#: Minimum age of STOP, and of STALL: clients commit every 5 s by default, Kafka Streams every 30 s.
STOP_AFTER_MS = 60_000
STALL_AFTER_MS = 30_000
#: A group at an LSO that has not moved for this long is BLOCKED. Shorter transactions are normal in a healthy
#: topic: without this minimum, groups would flicker through BLOCKED with every transaction.
BLOCKED_AFTER_MS = 10_000
#: Commits at one offset that are no coincidence.
_STALLED_COMMITS = 3
#: If one pause exceeds the sum of the others, the median pause times this limits the usual time.
_USUAL_PAUSES = 20
#: Minimum points, and minimum time, for a trend.
_TREND_POINTS, _TREND_MS = 6, 60_000
#: Minimum distance of points, and their maximum number: ten minutes.
POINTS_APART_MS, MOST_POINTS = 20_000, 30


#: Kinds of groups. A share group has a start offset instead of committed offsets (KIP-932).
SHARE = "Share"
STREAMS = "Streams"


class ShareProgress(NamedTuple):
    """A share group's progress in a partition: every record before `start_offset` is done.

    The start offset follows acknowledgements with a delay; `lag` does not. `lag` is the number of records up
    to the high watermark that are not done, and None before Kafka 4.2 (KIP-1226).
    """

    start_offset: int
    lag: int | None

    def position(self, offsets: Offsets | None, isolation: Isolation) -> int:
        """Return the offset that a consumer with the same progress would have committed.

        If records are done out of order, the remaining records count as the last ones.
        """
        if self.lag is None or offsets is None:
            return self.start_offset
        # The high watermark may have moved since the lag was reported.
        end = offsets.lso if isolation is Isolation.READ_COMMITTED else offsets.high_watermark
        return max(self.start_offset, min(offsets.high_watermark - self.lag, end))


def note_of(kind: str, partitions: int) -> str:
    """Return why a group has no status: it has committed nothing. "" if it has a status."""
    if partitions:
        return ""
    if kind == SHARE:
        return "It is a share group that has read nothing yet"
    return "It has committed nothing"


def is_beyond_end(offset: int | None, high_watermark: int | None) -> bool:
    """Whether an offset is outside this log, because the topic was recreated or the log truncated.

    Query the offset before the log's end; otherwise the offset may only be newer than the end.
    """
    return offset is not None and high_watermark is not None and offset > high_watermark


def to_read(offset: int | None, offsets: Offsets | None, only_markers: bool) -> int | None:
    """Return the number of offsets ahead of a read_committed consumer; None if unknown."""
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
    """Return the lag to the LSO in readable offsets; None if unknown.

    Deleted offsets do not count. It is 0 if only markers and aborted records are left (`only_markers`).
    """
    if offset is None or lso is None or is_beyond_end(offset, high_watermark):
        return None
    return 0 if only_markers else max(0, lso - max(offset, log_start or 0))


def waiting_state(offset: int | None, offsets: Offsets | None, only_markers: bool) -> Waiting | None:
    """Return a group's position relative to an LSO below the high watermark; None without such an LSO.

    Query the offset before the log's end: then an offset beyond the LSO proves that the group reads
    uncommitted.
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
    """Return the worst status that applies to a group in one partition.

    `unread` is `to_read`; `unread_ms` is the age of its first record, None if unknown. `commits` are the last
    commits and `points` the last polls, both oldest first and by our clock. `at_lso_ms` is how long the group
    has been at an unmoved LSO below the high watermark. It is None elsewhere: a group that died before the
    LSO has records to read, and is STOP.
    """
    if unread is None:
        return GroupStatus.UNKNOWN
    if unread == 0:
        return (
            GroupStatus.BLOCKED if at_lso_ms is not None and at_lso_ms >= blocked_after_ms else GroupStatus.OK
        )
    if not commits:
        return GroupStatus.UNKNOWN
    # For this long the group could have read, and has not committed.
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
    """Return the duration of the remembered commits; a single long pause is limited by the median pause."""
    pauses = [later.at_ms - sooner.at_ms for sooner, later in pairwise(commits)]
    return int(min(sum(pauses), _USUAL_PAUSES * median(pauses))) if pauses else 0


def _stalls(commits: Sequence[Commit], unread_ms: int | None, now_ms: int) -> bool:
    """Whether the last commits have one offset although there were records to read all the time."""
    run = 1
    while run < len(commits) and commits[-1 - run].offset == commits[-1].offset:
        run += 1
    if run < _STALLED_COMMITS:
        return False
    first_ms = commits[-run].at_ms
    there_ms = first_ms if unread_ms is None else max(first_ms, now_ms - unread_ms)
    return commits[-1].at_ms - there_ms >= STALL_AFTER_MS


def trend_of(lags: Sequence[tuple[int, int]]) -> LagTrend | None:
    """Return the direction of a lag, from (instant, lag) pairs oldest first; None if too little is known.

    It grows if its last third lies entirely above its first third; a lag that goes up and down is steady.
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
    """Append a point and return the last points, spaced to cover ten minutes; the newest is always kept."""
    spaced = len(points) > 1 and points[-1].at_ms - points[-2].at_ms < POINTS_APART_MS
    kept = points[:-1] if spaced else points
    return (*kept, new)[-MOST_POINTS:]


def committed_in(points: Sequence[Point]) -> tuple[Commit, ...]:
    """Return the commits that polls observed: each new offset, with the instant of the first poll."""
    commits: list[Commit] = []
    for point in points:
        if not commits or commits[-1].offset != point.offset:
            commits.append(Commit(point.at_ms, point.offset))
    return tuple(commits)


def worst_status(statuses: Sequence[GroupStatus]) -> GroupStatus:
    """Return the worst of the statuses; UNKNOWN for an empty list."""
    return max(statuses, key=STATUSES.index, default=GroupStatus.UNKNOWN)


class Family(NamedTuple):
    """The name under which a group is listed, and why groups are folded under it; "" if they are not."""

    name: str
    explanation: str


_SPARK_STREAM_WORDS = (
    "Spark makes a group id of its own for every start of a query and commits nothing to it: where the query "
    "stands is in its checkpoint."
)
_SPARK_BATCH_WORDS = "Spark makes a group id of its own for every batch read, and commits nothing to it."
_CONSOLE_WORDS = "The console consumer makes a group for every run that names none."
_RANDOM_WORDS = "Ids with a random part: a new one for every start of the client."


@lru_cache(maxsize=8_192)
def family_of(group_id: str) -> Family:
    """Return the family of a group, given as escaped text, with a fitting name. Never raises."""
    spark = _SPARK.match(group_id)
    if spark:
        words = _SPARK_BATCH_WORDS if spark[1] == _SPARK_BATCH or spark[2] is None else _SPARK_STREAM_WORDS
        return Family(fit_name(f"{spark[1]}-*"), words)
    if _CONSOLE.match(group_id):
        return Family("console-consumer-*", _CONSOLE_WORDS)
    if _CONSOLE_SHARE.match(group_id):
        return Family("console-share-consumer-*", _CONSOLE_WORDS)
    folded = _RANDOM.sub("*", group_id)
    if folded != group_id:
        return Family(fit_name(folded), _RANDOM_WORDS)
    return Family(fit_name(group_id), "")
