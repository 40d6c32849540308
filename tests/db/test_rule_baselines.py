"""Proves what the evaluation reads of minutes and hours: shares, usual times and series."""

import pytest

from dashboard.evaluation.baselines import PACE_MS, ClusterBaselines, RecentActivity
from dashboard.models import Tally
from fenceline.facts import TransitionKind
from fenceline.limits import Limits
from fenceline.snapshot import Repeated, UsualCommit
from tests.db import factories
from tests.db.conftest import NOW_MS
from tests.db.factories import HOUR_MS, MINUTE_MS

LIMITS = Limits()
#: Twenty minutes into an hour, so that two thirds of the hour before count.
AT_MS = NOW_MS - NOW_MS % HOUR_MS + 20 * MINUTE_MS


@pytest.fixture
def figures() -> ClusterBaselines:
    return ClusterBaselines(factories.prod().pk)


def recent_activity(
    figures: ClusterBaselines, *, now_ms: int = NOW_MS, ahead_ms: int | None = 0
) -> RecentActivity:
    return figures.recent_activity(now_ms=now_ms, limits=LIMITS, clocks={3: ahead_ms})


def test_the_window_adds_up_minutes_and_shards(figures: ClusterBaselines) -> None:
    factories.counters(commit=10, timeout=1)
    factories.counters(commit=5, shard=1)
    factories.counters(commit=7, at_ms=NOW_MS - 9 * MINUTE_MS)
    factories.counters(commit=100, at_ms=NOW_MS - 12 * MINUTE_MS)
    factories.counters(Tally.EVERY, commit=22, timeout=1)
    (found,) = recent_activity(figures).applications
    assert found.application == "payments"
    assert found.window == {TransitionKind.COMMIT: 22, TransitionKind.TIMEOUT: 1}


def test_the_window_is_read_again_each_half_minute_and_keeps_past_minutes(figures: ClusterBaselines) -> None:
    factories.counters(commit=10, at_ms=NOW_MS - 5 * MINUTE_MS)
    factories.counters(commit=1)
    assert recent_activity(figures).applications[0].window == {TransitionKind.COMMIT: 11}
    Tally.objects.update(counts='{"commit": 50}')
    assert recent_activity(figures).applications[0].window == {TransitionKind.COMMIT: 11}
    later = recent_activity(figures, now_ms=NOW_MS + PACE_MS).applications[0].window
    assert later == {TransitionKind.COMMIT: 60}, (
        "a minute that is long over is not read again, the last one is"
    )


def test_the_last_hour_is_this_one_and_its_share_of_the_one_before(figures: ClusterBaselines) -> None:
    factories.counters(span_s=3_600, at_ms=AT_MS, init=10)
    factories.counters(span_s=3_600, at_ms=AT_MS - HOUR_MS, init=90)
    (found,) = recent_activity(figures, now_ms=AT_MS).applications
    assert found.hour == pytest.approx({TransitionKind.INIT: 10 + 60})


@pytest.mark.parametrize(("made", "sample"), [(601, "payments-0a1b2c3d-p1-g1-s0"), (600, "")])
def test_one_id_is_read_of_an_application_that_makes_many(
    figures: ClusterBaselines, made: int, sample: str
) -> None:
    factories.transaction("payments-0a1b2c3d-p1-g1-s0")
    factories.counters(span_s=3_600, init=made)
    assert [each.sample_id for each in recent_activity(figures).applications] == [sample]


def test_the_usual_commit_time_is_that_of_the_last_day(figures: ClusterBaselines) -> None:
    factories.counters(span_s=3_600, at_ms=NOW_MS - HOUR_MS, commit=80, open_ms=100)
    factories.counters(span_s=3_600, at_ms=NOW_MS - 30 * HOUR_MS, commit=80, open_ms=90_000)
    factories.counters("idle", span_s=3_600, at_ms=NOW_MS - HOUR_MS, timeout=3)
    usual = figures.usual_commits({"payments", "idle", "unknown"}, NOW_MS)
    assert set(usual) == {"payments"}
    assert usual["payments"].commits == 80
    assert usual["payments"].p99_ms == pytest.approx(100, abs=8)


def test_the_usual_commit_time_is_learned_again_in_the_next_hour(figures: ClusterBaselines) -> None:
    assert figures.usual_commits({"payments"}, NOW_MS) == {}
    factories.counters(span_s=3_600, at_ms=NOW_MS, commit=80, open_ms=10)
    assert figures.usual_commits({"payments"}, NOW_MS) == {}
    assert figures.usual_commits({"payments"}, NOW_MS + HOUR_MS) == {"payments": UsualCommit(80, 10)}


def test_takeovers_are_counted_within_the_window_and_followed_back(figures: ClusterBaselines) -> None:
    for offset, ago_s in enumerate((9_000, 1_500, 1_000, 500, 100, 5)):
        factories.transition(TransitionKind.TAKEOVER, "payments-7", ago_s, offset=offset)
    factories.transition(TransitionKind.TAKEOVER, "orders-1", 2_000, offset=10)
    (found,) = recent_activity(figures).takeovers
    assert found == Repeated("transaction:payments-7", 3, 3, NOW_MS - 1_500_000, NOW_MS - 5_000)


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
def test_takeovers_are_counted_by_the_local_clock(figures: ClusterBaselines, ahead_ms: int) -> None:
    for offset, ago_s in enumerate((500, 100, 5)):
        factories.transition(TransitionKind.TAKEOVER, "payments-7", ago_s + ahead_ms / 1_000, offset=offset)
    (found,) = recent_activity(figures, ahead_ms=ahead_ms).takeovers
    assert found == Repeated("transaction:payments-7", 3, 3, NOW_MS - 500_000, NOW_MS - 5_000)


def test_timeouts_of_one_id_are_in_a_row_until_it_commits(figures: ClusterBaselines) -> None:
    for offset in range(4):
        factories.transition(TransitionKind.TIMEOUT, "payments-7", 400 - 100 * offset, offset=offset)
        factories.transition(
            TransitionKind.TIMEOUT, "orders-1", 400 - 100 * offset, offset=10 + offset, application="orders"
        )
    timeouts = [(TransitionKind.TIMEOUT, offset) for offset in range(4)]
    factories.recent_transitions("payments-7", (TransitionKind.COMMIT, 99), *timeouts)
    factories.recent_transitions(
        "orders-1", *((kind, 10 + at) for kind, at in timeouts[:2]), (TransitionKind.COMMIT, 20)
    )
    (found,) = recent_activity(figures).timeouts
    assert found == Repeated("transaction:payments-7", 4, 4, NOW_MS - 400_000, NOW_MS - 100_000, 60_000)


def test_timeouts_of_single_use_ids_count_for_their_application(figures: ClusterBaselines) -> None:
    for offset in range(4):
        factories.transition(TransitionKind.TIMEOUT, f"payments-{offset}", 400 - 100 * offset, offset=offset)
    (found,) = recent_activity(figures).timeouts
    assert found == Repeated("application:payments", 4, 4, NOW_MS - 400_000, NOW_MS - 100_000, 60_000)


@pytest.mark.parametrize(
    ("number", "committed_s_ago", "times", "why"),
    [
        (1, 3_000, 4, "before the first"),
        (2, 350, 3, "between the first and the second"),
        (3, 30, 0, "after the last"),
    ],
)
def test_a_commit_of_its_application_ends_the_row(
    number: int, committed_s_ago: int, times: int, why: str, figures: ClusterBaselines
) -> None:
    factories.counters(commit=1, at_ms=NOW_MS - committed_s_ago * 1_000)
    for offset in range(4):
        factories.transition(TransitionKind.TIMEOUT, f"payments-{offset}", 400 - 100 * offset, offset=offset)
    assert [each.times for each in recent_activity(figures).timeouts] == ([times] if times else []), (
        f"{number}: {why}"
    )


def test_a_commit_beyond_the_window_of_minutes_is_found_too(figures: ClusterBaselines) -> None:
    factories.counters(commit=1, at_ms=NOW_MS - 1_500_000)
    for offset, ago_s in enumerate((3_000, 2_500, 2_000, 1_200, 1_100, 1_000)):
        factories.transition(TransitionKind.TIMEOUT, f"payments-{offset}", ago_s, offset=offset)
    assert [each.times for each in recent_activity(figures).timeouts] == [3]
