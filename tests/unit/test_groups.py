"""Proves the status of groups by a table of cases, blocking, and trends.

The table is the proof of the rules (Burrow's, without what Burrow gets wrong): each case describes what
happens to the group, and why the status is right.
"""

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.kafka.groups import (
    MOST_POINTS,
    Commit,
    GroupStatus,
    LagTrend,
    Point,
    Waiting,
    add_point,
    committed_in,
    note_of,
    status_of,
    to_read,
    trend_of,
    waiting_state,
    worst_status,
)
from fenceline.kafka.partitions import Offsets
from tests.cases import cases

NOW = 1_795_000_000_000
OK, WARN, STALL, STOP = GroupStatus.OK, GroupStatus.WARN, GroupStatus.STALL, GroupStatus.STOP
REWIND, BLOCKED, UNKNOWN = GroupStatus.REWIND, GroupStatus.BLOCKED, GroupStatus.UNKNOWN


def commits_every(seconds: float, *offsets: int, last_s: float = 0) -> tuple[Commit, ...]:
    """Commits of these offsets so many seconds apart, the last of them `last_s` ago."""
    first = NOW - int(1000 * (last_s + seconds * (len(offsets) - 1)))
    return tuple(Commit(first + int(1000 * seconds * n), offset) for n, offset in enumerate(offsets))


def polls_every(seconds: float, *lags: int) -> tuple[Point, ...]:
    """Polls so many seconds apart, the last of them now, that found these lags."""
    first = NOW - int(1000 * seconds * (len(lags) - 1))
    return tuple(Point(first + int(1000 * seconds * n), n, lag) for n, lag in enumerate(lags))


STEADY = tuple(range(100, 300, 10))


def steady(last_s: float) -> tuple[Commit, ...]:
    """Commits that advance every 5 s, the last of them `last_s` ago."""
    return commits_every(5, *STEADY, last_s=last_s)


#: Commits of one offset again and again; polls whose lag grows.
REPEATED, RISING = commits_every(5, *[100] * 20), polls_every(20, *range(100, 1_000, 100))
DAY_S = 86_400


class Case(NamedTuple):
    """What is known of a group in a partition, and what it is called."""

    status: GroupStatus
    unread: int | None = 10
    commits: tuple[Commit, ...] = commits_every(5, *STEADY)
    points: tuple[Point, ...] = ()
    #: For how many seconds the first unread record has been there; None where that is not known.
    unread_s: float | None = 1
    #: For how many seconds it has been at an LSO that an open transaction blocks; None where it is not.
    at_lso_s: float | None = None


CASES = {
    # Nothing is called anything where it cannot be told.
    "the end of the partition cannot be seen": Case(UNKNOWN, unread=None),
    "no commit is known, and there is something to read": Case(UNKNOWN, commits=()),
    "one commit, a moment ago: too little is known": Case(UNKNOWN, commits=commits_every(5, 100)),
    "no commit is known, but there is nothing to read": Case(OK, unread=0, commits=()),
    # Who has read all is well, whatever was before. Lag 0 is to the LSO: a read_committed consumer
    # gets no further, and on a transactional topic the high watermark is never reached by records alone.
    "it has read all, and goes on committing": Case(OK, unread=0, unread_s=None),
    "it has read all and was last heard of yesterday: nothing came since": Case(OK, 0, steady(DAY_S)),
    "it has read all after a rewind": Case(OK, 0, commits_every(5, 900, 100, 500, 900)),
    # BLOCKED, the worst: it has read all that it may, and more lies behind an LSO that does not move.
    # This was once called OK.
    "it is at a pinned LSO and commits one offset: nothing is wrong with it, and it gets no record": Case(
        BLOCKED, 0, commits_every(5, *[7] * 20), at_lso_s=420
    ),
    "it came to the LSO 9.9 s ago: transactions last a while": Case(OK, 0, at_lso_s=9.9),
    "it came to the LSO 10 s ago": Case(BLOCKED, 0, at_lso_s=10),
    "a transaction of 200 ms is open as it is polled: that blocks nobody": Case(OK, 0, at_lso_s=0.2),
    "it is at the LSO and has not committed for a day: it could read nothing, and is blocked": Case(
        BLOCKED, 0, steady(DAY_S), at_lso_s=DAY_S
    ),
    "it is at the LSO, and no commit of it is known: its offset is": Case(BLOCKED, 0, (), at_lso_s=60),
    "it died before the LSO: what it could read lies there, so it is dead and not blocked": Case(
        STOP, 10, steady(420), unread_s=419
    ),
    # It works.
    "it advances, a little behind, as everybody is": Case(OK),
    "it advances through an old backlog of unknown age": Case(OK, 10**6, unread_s=None),
    "it catches up: its lag falls": Case(
        OK, 500, points=polls_every(20, 900, 850, 800, 750, 700, 650, 600, 550, 500), unread_s=300
    ),
    # STOP, Burrow's rule 3: silent for longer than the remembered commits took.
    "it committed every 5 s, and not for 2 minutes": Case(STOP, 10, steady(120), unread_s=119),
    "the same, but the first unread record came 3 s ago: there was nothing to commit": Case(
        OK, 10, steady(120), unread_s=3
    ),
    "a topic that was silent for a day gets a record: Burrow calls STOP until it commits": Case(
        OK, 1, steady(DAY_S), unread_s=0.2
    ),
    "it had read all at its last commits and died: Burrow calls it OK for ever": Case(
        STOP, 10, steady(300), polls_every(20, 0, 0, 0, 0, 4, 8, 10), 250
    ),
    "it commits once an hour, and did 50 minutes ago": Case(
        OK, 10, commits_every(3600, *STEADY, last_s=3000), unread_s=2900
    ),
    "it commits once an hour, and has not for a day": Case(
        STOP, 10, commits_every(3600, *STEADY, last_s=DAY_S), unread_s=DAY_S - 10
    ),
    "restarted after a day's pause, then dead for 10 minutes: the pause is no habit": Case(
        STOP, 10, (Commit(NOW - DAY_S * 1000, 1), *steady(600)), unread_s=599
    ),
    "two commits in quick succession, then 20 s of work: Burrow calls STOP": Case(
        OK, 10, commits_every(0.1, 100, 110, last_s=20), unread_s=19
    ),
    "a single commit long ago, and something to read since": Case(
        STOP, 10, commits_every(5, 100, last_s=600), unread_s=None
    ),
    # STALL, rule 4: the same offset again and again.
    "a Java consumer commits 100 every 5 s while there is more": Case(STALL, 10, REPEATED, unread_s=95),
    "the same after it had advanced": Case(STALL, 10, commits_every(5, 80, 90, *[100] * 10), unread_s=None),
    "the same offset three times within 10 s: one slow batch": Case(
        OK, 10, commits_every(5, 90, 100, 100, 100), unread_s=10
    ),
    "idle commits of one offset, and the first record after them came 2 s ago": Case(
        OK, 1, REPEATED, unread_s=2
    ),
    "twice the same offset, far apart: librdkafka does not repeat, this is a restart": Case(
        OK, 10, commits_every(40, 90, 100, 100), unread_s=None
    ),
    "it repeats one offset after a rewind: stuck is worse than back": Case(
        STALL, 10, commits_every(5, 900, *[100] * 10), unread_s=None
    ),
    # REWIND, rule 2: the offset went back.
    "it was reset and is on its way again": Case(REWIND, 10**4, commits_every(5, 900, 910, 100, 110, 120)),
    "it was reset and has passed the old place": Case(OK, 10, commits_every(5, 900, 910, 100, 500, 920)),
    "it goes back and forth between two owners of a partition": Case(
        REWIND, 10, commits_every(5, 100, 200, 100, 200, 100)
    ),
    "it was reset, then fell silent: silence is worse": Case(
        STOP, 10**4, commits_every(5, 900, 910, 100, last_s=200), unread_s=None
    ),
    # WARN, rule 5: it advances and falls behind.
    "its lag grows for three minutes": Case(WARN, 900, points=RISING),
    "its lag stands still above 0: Burrow warns": Case(OK, 500, points=polls_every(20, *[500] * 9)),
    "its lag goes up and down as batches come": Case(
        OK, 500, points=polls_every(20, 10, 500, 20, 500, 10, 500, 20, 400, 500)
    ),
    "its lag grew from nothing: it had read all within the time": Case(
        OK, 500, points=polls_every(20, 0, 0, 0, 100, 200, 300, 400, 450, 500)
    ),
    "its lag grows for 20 s only": Case(
        OK, 900, points=polls_every(2, 100, 200, 300, 400, 500, 600, 700, 800, 900)
    ),
    "its lag grows, and it repeats one offset: that is worse": Case(STALL, 900, REPEATED, RISING, None),
}


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_group_has_its_status(case: Case) -> None:
    """The same an hour later: no clock is read, and commits of another host's clock may lie in the future."""
    unread_ms, at_lso_ms = _ms(case.unread_s), _ms(case.at_lso_s)
    for later_ms in (0, 3_600_000):
        commits = [commit._replace(at_ms=commit.at_ms + later_ms) for commit in case.commits]
        points = [point._replace(at_ms=point.at_ms + later_ms) for point in case.points]
        found = status_of(
            case.unread, commits, points, unread_ms=unread_ms, now_ms=NOW + later_ms, at_lso_ms=at_lso_ms
        )
        assert found is case.status
    assert status_of(case.unread, commits, points, unread_ms=unread_ms, now_ms=NOW) in GroupStatus


def test_a_group_has_the_worst_status_of_its_partitions() -> None:
    assert worst_status([OK, UNKNOWN, WARN, REWIND, STALL, STOP]) is STOP
    assert worst_status([BLOCKED, OK, UNKNOWN, WARN, REWIND, STALL, STOP]) is BLOCKED
    assert worst_status([BLOCKED, BLOCKED]) is BLOCKED
    assert worst_status([OK, WARN, UNKNOWN]) is WARN
    assert worst_status([OK, OK]) is OK
    assert worst_status([]) is UNKNOWN


@cases(
    (10, 20, 20, False, None, 10),
    (20, 20, 20, False, None, 0),
    (5, 10, 20, False, Waiting.NOT_YET, 5),
    (10, 10, 20, False, Waiting.PROBABLY, 0),
    (9, 10, 20, True, Waiting.PROBABLY, 0),  # before the marker of the transaction before
    (11, 10, 20, False, Waiting.READS_PAST, 0),
    (20, 10, 20, False, Waiting.READS_PAST, 0),
    (0, 10, 20, False, Waiting.NOT_YET, 7),  # retention took the first three
    (None, 10, 20, False, None, None),
    (21, 10, 20, False, None, None),  # beyond the end: that of another log
    (21, 20, 20, True, None, None),
)
def test_a_group_is_blocked_by_its_offset_against_the_lso(
    offset: int | None,
    lso: int,
    high_watermark: int,
    only_markers: bool,
    expected: Waiting | None,
    unread: int | None,
) -> None:
    offsets = Offsets(3, lso, high_watermark, 1)
    assert waiting_state(offset, offsets, only_markers) is expected
    assert to_read(offset, offsets, only_markers) == unread
    assert waiting_state(offset, None, only_markers) is None


@cases(
    ((1, 2, 3), None),
    ((100, 200, 300, 400, 500, 600), LagTrend.GROWING),
    ((600, 500, 400, 300, 200, 100), LagTrend.SHRINKING),
    ((5, 5, 5, 5, 5, 5), LagTrend.STEADY),
    ((0, 900, 0, 900, 0, 900), LagTrend.STEADY),
)
def test_the_trend_of_a_lag_follows_its_polls(lags: tuple[int, ...], expected: LagTrend | None) -> None:
    assert trend_of([(point.at_ms, point.lag) for point in polls_every(20, *lags)]) is expected
    assert trend_of([(point.at_ms, point.lag) for point in polls_every(1, *lags)]) is None


@given(st.lists(st.tuples(st.integers(1, 30_000), st.integers(0, 100)), max_size=200))
def test_polls_are_kept_far_apart_and_the_newest_always(steps: list[tuple[int, int]]) -> None:
    points: tuple[Point, ...] = ()
    at_ms = NOW
    for step_ms, offset in steps:
        at_ms += step_ms
        points = add_point(points, Point(at_ms, offset, 1))
        assert points[-1] == Point(at_ms, offset, 1)
    assert len(points) <= MOST_POINTS
    apart = [later.at_ms - sooner.at_ms for sooner, later in pairwise(points[:-1])]
    assert all(each >= 20_000 for each in apart)
    if steps and at_ms - NOW > 60_000:
        assert points[-1].at_ms - points[0].at_ms >= min(at_ms - NOW - 60_000, 400_000) - 60_000


def test_commits_are_derived_from_polls_without_a_log() -> None:
    points = (Point(1, 5, 0), Point(2, 5, 1), Point(3, 8, 0), Point(4, 2, 9))
    assert committed_in(points) == (Commit(1, 5), Commit(3, 8), Commit(4, 2))


def test_a_group_without_a_status_has_a_reason() -> None:
    assert "share group" in note_of("Share", 0)
    assert note_of("Classic", 0) == "It has committed nothing"
    assert note_of("Classic", 3) == ""
