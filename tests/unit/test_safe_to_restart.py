"""Proves the truth table of "safe to restart", and that nothing within a batch changes an answer; and what
follows from a driver's heartbeat: on time, overdue, ended, never there; no false alarm between two."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import Severity
from fenceline.spark.drivers import Driver, DriverStatus, driver_by_heartbeat, silent_after_ms
from fenceline.spark.queries import MissingTopic
from fenceline.spark.safe_to_restart import (
    PreparedBatches,
    RestartFacts,
    RestartSafety,
    cluster_restart_safety,
    prepared_headline,
    restart_safety,
)
from tests.cases import cases

#: 2026-11-18 11:06:40 UTC.
NOW_MS = 1_795_000_000_000
BEAT_MS, DECIDED_MS, EXPIRES_MS = NOW_MS - 13_000, NOW_MS - 14_000, NOW_MS + 60_000
RUNS = Driver(DriverStatus.RUNNING, NOW_MS - 1_000)
SILENT = Driver(DriverStatus.NO_HEARTBEAT, BEAT_MS)
ENDED = Driver(DriverStatus.ENDED, BEAT_MS, NOW_MS - 12_500, failed=True)
UNKNOWN = Driver(DriverStatus.UNKNOWN)
FAILS = {"restart": "fails: batch 16 doesn't exist", "severity": Severity.CRITICAL}
WAITS = "has been prepared since 11:06:26 UTC but is not committed"
GONE = "is prepared and the driver is gone (no heartbeat since 11:06:27 UTC)"
TWICE = "a batch that is killed runs again and may write its rows twice"


def prepared(*batches: int, overdue: bool = True, expires_ms: int | None = EXPIRES_MS) -> PreparedBatches:
    return PreparedBatches(batches or (17,), DECIDED_MS, expires_ms, overdue)


def verdict(sink: str = "exactly_once", driver: Driver = RUNS, **facts: Any) -> RestartSafety:
    return restart_safety(RestartFacts("orders", sink, driver, **facts), now_ms=NOW_MS)


@cases(
    ("exactly_once", {}, True, True, None, "orders is safe to restart."),
    ("exactly_once", {"driver": UNKNOWN}, True, True, None, "orders is safe to restart."),
    ("exactly_once", {"driver": ENDED}, True, True, None, "orders has stopped and is safe to restart."),
    ("exactly_once", {"driver": SILENT}, True, True, None,
     "orders is safe to restart; no heartbeat since 11:06:27 UTC."),
    ("exactly_once", {"prepared": prepared()}, False, False, 5,
     f"Do not restart orders now: batch 17 {WAITS}, and the driver still runs."),
    ("exactly_once", {"prepared": prepared(), "driver": UNKNOWN}, None, None, 5,
     f"Whether orders is safe to restart is not known: batch 17 {WAITS}, and no listener reports whether "
     "it runs."),
    ("exactly_once", {"prepared": prepared(), "driver": SILENT}, True, True, None,
     "Restart orders before 11:07:40 UTC: that finishes batch 17."),
    ("exactly_once", {"prepared": prepared(overdue=False), "driver": ENDED}, True, True, None,
     "Restart orders before 11:07:40 UTC: that finishes batch 17."),
    ("exactly_once", {"prepared": prepared(expires_ms=None), "driver": ENDED}, True, True, None,
     "Restart orders now: that finishes batch 17."),
    ("exactly_once", {"prepared": prepared(expires_ms=NOW_MS - 1), "driver": ENDED}, False, False,
     None,
     "Do not restart orders now: transactions of batch 17 timed out at 11:06:39 UTC and may be lost: a "
     "restart then fails and names what is lost."),
    ("exactly_once", FAILS, False, False, None,
     "Do not restart orders now: a restart fails: batch 16 doesn't exist."),
    ("exactly_once", {**FAILS, "severity": Severity.INFO}, True, True, None, "orders is safe to restart."),
    ("exactly_once", {"unseen": "access denied"}, None, None, 5,
     "Whether orders is safe to restart is not known: access denied."),
    ("exactly_once", {"unseen": "access denied", **FAILS}, False, False, None,
     "Do not restart orders now: a restart fails: batch 16 doesn't exist."),
    ("kafka", {"missing": [MissingTopic("gone", NOW_MS, 10)], "driver": ENDED}, False, False, None,
     "Do not restart orders now: gone was deleted with 10 unread records."),
    ("exactly_once", {"missing": [MissingTopic("b", None, None), MissingTopic("a", NOW_MS, 0)]},
     False, False, None, "Do not restart orders now: a was deleted; all of it was read."),
    ("exactly_once", {"missing": [MissingTopic("b", None, None)]}, None, None, None,
     "Whether orders is safe to restart is not known: b is not in the cluster's list of topics: deleted, "
     "or no right to DESCRIBE."),
    ("exactly_once", {"missing_outputs": ["out"]}, False, False, None,
     "Do not restart orders now: its output topic out was deleted."),
    ("kafka", {}, True, False, None, "orders is safe to restart."),
    ("other", {"driver": UNKNOWN}, True, False, None, "orders is safe to restart."),
    ("other", {"driver": ENDED, "batch_in_progress": 17}, True, True, None,
     "orders has stopped and is safe to restart."),
    ("", {}, True, None, None, "orders is safe to restart."),
    ("kafka", FAILS, False, False, None,
     "Do not restart orders now: a restart fails: batch 16 doesn't exist."),
    ("kafka", {"unseen": "access denied"}, None, None, 5,
     "Whether orders is safe to restart is not known: access denied."),
)  # fmt: skip
def test_the_truth_table(
    sink: str, facts: dict[str, Any], graceful: bool | None, kill: bool | None, retry: int | None, words: str
) -> None:
    found = verdict(sink, **facts)
    assert found.safe == graceful, found
    assert (found.kill, found.retry_after_s) == (kill, retry), found
    assert found.sentence == words
    assert bool(found.kill_reason) == (kill is not True), "a kill that is refused says why"


#: What a running query passes through within a batch, in any combination that a look may catch.
PASSING = st.fixed_dictionaries(
    {
        "batch_in_progress": st.sampled_from([None, 16, 17, 18]),
        "open_ids": st.lists(st.sampled_from(["a", "b", "c"]), unique=True),
        "prepared": st.one_of(
            st.just(PreparedBatches()),
            st.builds(
                PreparedBatches,
                st.lists(st.integers(15, 18), min_size=1, max_size=2, unique=True).map(sorted),
                st.integers(NOW_MS - 900_000, NOW_MS + 900_000),  # The driver's clock may be any.
                st.one_of(st.none(), st.integers(NOW_MS + 1, NOW_MS + 900_000)),
                st.just(False),
            ),
        ),
    }
)


@given(
    facts=PASSING,
    sink=st.sampled_from(["exactly_once", "kafka", "other", ""]),
    driver=st.sampled_from([RUNS, UNKNOWN, SILENT]),
)
def test_no_state_within_a_batch_changes_an_answer(facts: dict[str, Any], sink: str, driver: Driver) -> None:
    """The old answer was yes, no or unknown by the phase of the batch that a poll met: 18, 4 and 3 of 25."""
    idle, found = verdict(sink, driver), verdict(sink, driver, **facts)
    for name in (
        "safe",
        "kill",
        "kill_reason",
        "retry_after_s",
        "sentence",
        "reasons",
        "headline",
    ):
        assert getattr(found, name) == getattr(idle, name), name
    assert found.headline == ""


def test_an_unfinished_batch_of_a_stopped_driver_is_named_and_stays_safe() -> None:
    found = verdict("kafka", ENDED, batch_in_progress=17)
    assert found.safe is True
    assert found.reasons == (
        "batch 17 was not finished: a restart runs it again and may write its rows twice",
    )


def test_reasons_are_ordered_worst_first_with_their_figures() -> None:
    found = verdict(prepared=prepared(), open_ids=["a", "b"], unseen="access denied", **FAILS)
    assert found.safe is False
    assert [reason.split()[0] for reason in found.reasons] == ["a", "batch", "access"]
    assert (found.prepared, found.expires_ms, found.open_ids) == (1, EXPIRES_MS, ("a", "b"))


@cases(
    (prepared(), SILENT, "", f"Batch 17 {GONE}: a restart finishes it " "until 11:07:40 UTC."),
    (prepared(), ENDED, "",
     "Batch 17 is prepared and the driver is gone (failed at 11:06:27 UTC): a restart finishes it until "
     "11:07:40 UTC."),
    (prepared(overdue=False), ENDED, "",
     "Batch 17 is prepared and the driver is gone (failed at 11:06:27 UTC): a restart finishes it until "
     "11:07:40 UTC."),
    (prepared(overdue=False), SILENT, "", ""),
    (prepared(overdue=False), RUNS, "", ""),
    (prepared(), RUNS, "", f"Batch 17 {WAITS} (the driver runs); transactions time out at 11:07:40 UTC."),
    (prepared(), UNKNOWN, "",
     f"Batch 17 {WAITS} (no listener reports whether it runs); transactions time out at 11:07:40 UTC."),
    (prepared(16, 17), SILENT, "orders",
     "Batch 16 and batch 17 of orders are prepared and the driver is gone (no heartbeat since "
     "11:06:27 UTC): a restart finishes them until 11:07:40 UTC."),
    (prepared(expires_ms=NOW_MS - 1), SILENT, "",
     f"Batch 17 {GONE}; transactions timed out "
     "at 11:06:39 UTC and may be lost."),
    (prepared(expires_ms=None), SILENT, "", f"Batch 17 {GONE}: a restart finishes it."),
    (PreparedBatches(), ENDED, "", ""),
)  # fmt: skip
def test_the_headline_names_a_prepared_batch_that_will_not_be_committed(
    batches: PreparedBatches, driver: Driver, of: str, words: str
) -> None:
    assert prepared_headline(batches, driver, now_ms=NOW_MS, of=of) == words


def safety_answer(
    safe: bool | None, kill: bool | None = True, retry: int | None = None, **more: Any
) -> RestartSafety:
    return RestartSafety(
        safe, "why", kill=kill, kill_reason="" if kill else TWICE, retry_after_s=retry, **more
    )


@cases(
    (
        [safety_answer(True), safety_answer(True)],
        (True, True, None),
        "All 2 queries of prod are safe to restart.",
    ),
    ([safety_answer(True)], (True, True, None), "The one query of prod is safe to restart."),
    ([safety_answer(True), safety_answer(None, None, 5)], (None, None, 5), "is not known: see q1"),
    (
        [safety_answer(None, None, 5), safety_answer(False, False)],
        (False, False, None),
        "Do not restart the queries of prod",
    ),
    ([], (True, True, None), "No query of prod is known."),
    (
        [safety_answer(True, False), safety_answer(True, None)],
        (True, False, None),
        "All 2 queries of prod are safe",
    ),
    ([safety_answer(False, False, 5), safety_answer(None, None, 9)], (False, False, 9), "see q0"),
)
def test_a_whole_cluster(each: list[RestartSafety], wanted: tuple[Any, ...], word: str) -> None:
    found = cluster_restart_safety("prod", [(f"q{n}", one) for n, one in enumerate(each)])
    assert (found.safe, found.kill, found.retry_after_s) == wanted
    assert word in found.sentence, found.sentence


def test_a_cluster_adds_up_and_takes_the_first_expiry() -> None:
    first = safety_answer(False, False, prepared=1, expires_ms=NOW_MS + 9_000, open_ids=("a",))
    second = safety_answer(
        False, False, prepared=2, expires_ms=NOW_MS + 4_000, open_ids=("b", "c"), headline="lost soon"
    )
    found = cluster_restart_safety("prod", [("x", first), ("y", second), ("z", safety_answer(True))])
    assert (found.prepared, found.expires_ms, found.open_ids) == (3, NOW_MS + 4_000, ("a", "b", "c"))
    assert found.reasons == ("x: why", "y: why")
    assert (found.kill_reason, found.headline) == (f"x: {TWICE}", "lost soon")


@cases(
    (0, 5_000, DriverStatus.RUNNING, "a moment ago"),
    (5_400, 5_000, DriverStatus.RUNNING, "between two heartbeats"),
    (10_400, 5_000, DriverStatus.RUNNING, "one is missing: a post may be late or lost"),
    (12_000, 5_000, DriverStatus.RUNNING, "just in time"),
    (12_001, 5_000, DriverStatus.NO_HEARTBEAT, "two are missing"),
    (41_000, None, DriverStatus.RUNNING, "an older listener posts each 20 s and does not say so"),
    (42_001, None, DriverStatus.NO_HEARTBEAT, "two of its are missing"),
    (60_000, 30_000, DriverStatus.RUNNING, "its own interval counts"),
    (12_001, 100, DriverStatus.NO_HEARTBEAT, "never before the limit of the configuration"),
    (11_999, 100, DriverStatus.RUNNING, "never before the limit of the configuration"),
    (None, None, DriverStatus.UNKNOWN, "no listener"),
    (-3_000, 5_000, DriverStatus.RUNNING, "a clock was put back"),
)
def test_a_heartbeat_is_overdue_when_two_are_missing(
    age_ms: int | None, interval_ms: int | None, status: DriverStatus, why: str
) -> None:
    heartbeat_ms = None if age_ms is None else NOW_MS - age_ms
    found = driver_by_heartbeat(heartbeat_ms, interval_ms=interval_ms, least_ms=12_000, now_ms=NOW_MS)
    assert found.status is status, why


@pytest.mark.parametrize("interval_ms", [None, 100, 5_000, 20_000, 3_600_000])
def test_a_listener_that_posts_in_its_interval_is_never_overdue(interval_ms: int | None) -> None:
    assert silent_after_ms(interval_ms, 0) >= 2 * (interval_ms or 20_000)


@cases(
    (Driver(DriverStatus.RUNNING, NOW_MS), True, "running"),
    (Driver(DriverStatus.NO_HEARTBEAT, NOW_MS), None, "no heartbeat since 11:06:40 UTC"),
    (Driver(DriverStatus.ENDED, NOW_MS, NOW_MS, True), False, "failed at 11:06:40 UTC"),
    (Driver(DriverStatus.ENDED, NOW_MS, NOW_MS), False, "stopped at 11:06:40 UTC"),
    (Driver(DriverStatus.ENDED), False, "stopped"),
    (Driver(DriverStatus.UNKNOWN), None, "no listener reports whether it runs"),
)
def test_the_driver_status_is_shown_as_far_as_it_is_known(
    driver: Driver, alive: bool | None, words: str
) -> None:
    assert (driver.alive, driver.status_text) == (alive, words)
