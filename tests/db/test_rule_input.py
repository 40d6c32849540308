"""Proves what the evaluation reads of minutes and hours: shares, usual times and series; that no finding
becomes critical from one poll of its sources, and that none waits for ever."""

from typing import Any

import pytest

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.baselines import PACE_MS, ClusterBaselines, RecentActivity
from dashboard.evaluation.second_polls import SecondPolls
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.models import FindingRecord, Query, Tally
from dashboard.runtime.leases import Lease
from fenceline.facts import TransitionKind
from fenceline.limits import Limits
from fenceline.rules import RULES, source_collectors
from fenceline.snapshot import Repeated, UsualCommit
from tests.cases import cases
from tests.db import factories
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import HOUR_MS, MINUTE_MS, query

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


def timeouts_of(*names: str) -> None:
    """Make a timeout of each id, 400, 300, 200 and 100 s ago."""
    for offset, name in enumerate(names):
        factories.transition(TransitionKind.TIMEOUT, name, 400 - 100 * offset, offset=offset)


SINGLE_USE = [f"payments-{number}" for number in range(4)]


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
    assert later == {TransitionKind.COMMIT: 60}, "only the last minute is read again"


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


def test_the_usual_commit_time_is_that_of_the_last_day_learned_again_each_hour(
    figures: ClusterBaselines,
) -> None:
    names = {"payments", "idle", "unknown"}
    assert figures.usual_commits(names, NOW_MS) == {}
    factories.counters(span_s=3_600, at_ms=NOW_MS - HOUR_MS, commit=80, open_ms=10)
    factories.counters(span_s=3_600, at_ms=NOW_MS - 30 * HOUR_MS, commit=80, open_ms=90_000)
    factories.counters("idle", span_s=3_600, at_ms=NOW_MS - HOUR_MS, timeout=3)
    assert figures.usual_commits(names, NOW_MS) == {}
    assert figures.usual_commits(names, NOW_MS + HOUR_MS) == {"payments": UsualCommit(80, 10)}


@pytest.mark.parametrize("ahead_ms", [0, HOUR_MS, -HOUR_MS])
def test_takeovers_are_counted_within_the_window_by_the_local_clock_and_followed_back(
    figures: ClusterBaselines, ahead_ms: int
) -> None:
    ahead_s = ahead_ms / 1_000
    for offset, ago_s in enumerate((9_000, 1_500, 1_000, 500, 100, 5)):
        factories.transition(TransitionKind.TAKEOVER, "payments-7", ago_s + ahead_s, offset=offset)
    factories.transition(TransitionKind.TAKEOVER, "orders-1", 2_000 + ahead_s, offset=10)
    (found,) = recent_activity(figures, ahead_ms=ahead_ms).takeovers
    assert found == Repeated("transaction:payments-7", 3, 3, NOW_MS - 1_500_000, NOW_MS - 5_000)


def test_timeouts_of_one_id_are_in_a_row_until_it_commits(figures: ClusterBaselines) -> None:
    timeouts_of(*["payments-7"] * 4)
    for offset in range(4):
        factories.transition(
            TransitionKind.TIMEOUT, "orders-1", 400 - 100 * offset, offset=10 + offset, application="orders"
        )
    timeouts = [(TransitionKind.TIMEOUT, offset) for offset in range(4)]
    factories.recent_transitions("payments-7", (TransitionKind.COMMIT, 99), *timeouts)
    begun = ((kind, 10 + at) for kind, at in timeouts[:2])
    factories.recent_transitions("orders-1", *begun, (TransitionKind.COMMIT, 20))
    (found,) = recent_activity(figures).timeouts
    assert found == Repeated("transaction:payments-7", 4, 4, NOW_MS - 400_000, NOW_MS - 100_000, 60_000)


@cases(
    (3_000, 4, "before the first"),
    (350, 3, "between the first and the second"),
    (30, 0, "after the last"),
)
def test_timeouts_of_single_use_ids_count_for_their_application_until_its_commit(
    figures: ClusterBaselines, committed_s_ago: int, times: int, why: str
) -> None:
    factories.counters(commit=1, at_ms=NOW_MS - committed_s_ago * 1_000)
    timeouts_of(*SINGLE_USE)
    first_ms = NOW_MS - times * 100_000
    found = Repeated("application:payments", times, times, first_ms, NOW_MS - 100_000, 60_000)
    assert list(recent_activity(figures).timeouts) == ([found] if times else []), why


def test_a_commit_beyond_the_window_of_minutes_is_found_too(figures: ClusterBaselines) -> None:
    factories.counters(commit=1, at_ms=NOW_MS - 1_500_000)
    for offset, ago_s in enumerate((3_000, 2_500, 2_000, 1_200, 1_100, 1_000)):
        factories.transition(TransitionKind.TIMEOUT, f"payments-{offset}", ago_s, offset=offset)
    assert [each.times for each in recent_activity(figures).timeouts] == [3]


@pytest.fixture
def lease(take: Take) -> Lease:
    return take(evaluate_rules.NAME)


@pytest.fixture
def reader(lease: Lease) -> SnapshotReader:
    factories.collectors("transaction_state", "checkpoints")
    return SnapshotReader("prod")


def damage_checkpoint(severity: str, words: str = "fails") -> Query:
    """A query whose restart would fail, by the last poll of its checkpoint."""
    row = Query.objects.filter(ident__isnull=False).first() or query()
    row.restart, row.restart_words = "previous_missing", words
    row.detail = {**row.detail, "restart": {"first_batch": None, "severity": severity, "remedy": "r"}}
    row.rev += 1
    row.save()
    return row


def severities(lease: Lease, reader: SnapshotReader, ticks: int = 1) -> list[str]:
    for _ in range(ticks):
        evaluate_rules.evaluate_cluster(lease, reader, now_ms=NOW_MS)
    rows = FindingRecord.objects.filter(closed_at=None, rule="restart_fails")
    return list(rows.values_list("severity", flat=True))


def test_ticks_over_a_single_poll_open_nothing_critical(lease: Lease, reader: SnapshotReader) -> None:
    damage_checkpoint("critical")
    assert severities(lease, reader, ticks=5) == []
    factories.complete_next_polls()
    # This may be the look that was being saved.
    assert severities(lease, reader, ticks=5) == []
    factories.complete_next_polls()
    assert severities(lease, reader) == ["critical"]
    assert severities(lease, reader) == ["critical"]


def test_a_warning_opens_at_once_and_is_raised_by_a_second_poll(lease: Lease, reader: SnapshotReader) -> None:
    damage_checkpoint("warning", "is odd")
    assert severities(lease, reader) == ["warning"]
    damage_checkpoint("critical", "fails")
    for _ in range(2):
        assert severities(lease, reader, ticks=2) == ["warning"]
        assert FindingRecord.objects.get(rule="restart_fails").evidence == "A restart is odd"
        factories.complete_next_polls()
    assert severities(lease, reader) == ["critical"]
    assert FindingRecord.objects.get(rule="restart_fails").evidence == "A restart fails"


def test_a_finding_missing_in_the_next_poll_restarts_its_confirmation(
    lease: Lease, reader: SnapshotReader
) -> None:
    for _ in range(4):
        damage_checkpoint("critical")
        assert severities(lease, reader) == []
        factories.complete_next_polls()
        damage_checkpoint("info")
        assert severities(lease, reader) == []
        factories.complete_next_polls()


def test_a_new_evaluator_restarts_confirmations_and_keeps_open_findings(
    lease: Lease, reader: SnapshotReader, take: Take
) -> None:
    damage_checkpoint("critical")
    severities(lease, reader)
    factories.complete_next_polls()
    severities(lease, reader)
    factories.complete_next_polls()
    second = take(evaluate_rules.NAME, previous=lease.token)
    assert severities(second, reader) == []
    for _ in range(2):
        factories.complete_next_polls()
        severities(second, reader)
    assert severities(second, reader) == ["critical"]
    third = take(evaluate_rules.NAME, previous=second.token)
    assert severities(third, SnapshotReader("prod")) == ["critical"]


def test_a_reported_finding_needs_no_second_poll(lease: Lease, reader: SnapshotReader) -> None:
    query(state="failed", exception="boom")
    evaluate_rules.evaluate_cluster(lease, reader, now_ms=NOW_MS)
    assert FindingRecord.objects.get(rule="query_failed").severity == "critical"


def test_a_source_that_is_behind_is_not_waited_for(reader: SnapshotReader) -> None:
    factories.collectors("transaction_state-1", "transaction_state-2")
    factories.collectors("transaction_state-2", seen_ms=NOW_MS - 3_600_000)
    snapshot = reader.read(now_ms=NOW_MS, limits=Limits())
    how: dict[str, Any] = {"now_ms": NOW_MS, "limits": Limits()}
    waited_for = source_collectors("coordinator_overdue", snapshot, **how)
    assert {"transaction_state-1", "transaction_state-2"} & {*waited_for} == {"transaction_state-1"}
    expected = ["aborted_under_commit", "hanging", "lso_pinned", "flink_commit_lost"]
    assert [name for name in RULES if RULES[name].settled] == expected
    assert list(source_collectors("hanging", snapshot, **how)) == []


def test_every_source_must_have_polled_again() -> None:
    waits = SecondPolls()
    looks = [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 2}, {"a": 3, "b": 3}, {"a": 4, "b": 3}]
    assert [bool(waits.unconfirmed_findings("t", {b"k": marks})) for marks in looks] == [True] * 4 + [False]
    assert waits.unconfirmed_findings("t", {b"other": {"a": None}}) == {b"other"}
    assert waits.unconfirmed_findings("t", {b"event": {}}) == set()
