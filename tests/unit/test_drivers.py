"""Proves what follows from a heartbeat: on time, overdue, ended, never there; no false alarm between two."""

import pytest

from fenceline.spark.drivers import Driver, DriverStatus, driver_by_heartbeat, silent_after_ms

NOW_MS = 1_795_000_000_000


@pytest.mark.parametrize(
    ("number", "age_ms", "interval_ms", "status", "why"),
    [
        (1, 0, 5_000, DriverStatus.RUNNING, "a moment ago"),
        (2, 5_400, 5_000, DriverStatus.RUNNING, "between two heartbeats"),
        (3, 10_400, 5_000, DriverStatus.RUNNING, "one is missing: a post may be late or lost"),
        (4, 12_000, 5_000, DriverStatus.RUNNING, "just in time"),
        (5, 12_001, 5_000, DriverStatus.NO_HEARTBEAT, "two are missing"),
        (6, 41_000, None, DriverStatus.RUNNING, "an older listener posts each 20 s and does not say so"),
        (7, 42_001, None, DriverStatus.NO_HEARTBEAT, "two of its are missing"),
        (8, 60_000, 30_000, DriverStatus.RUNNING, "its own interval counts"),
        (9, 12_001, 100, DriverStatus.NO_HEARTBEAT, "never before the limit of the configuration"),
        (10, 11_999, 100, DriverStatus.RUNNING, "never before the limit of the configuration"),
        (11, None, None, DriverStatus.UNKNOWN, "no listener"),
        (12, -3_000, 5_000, DriverStatus.RUNNING, "a clock was put back"),
    ],
)
def test_a_heartbeat_is_overdue_when_two_are_missing(
    number: int, age_ms: int | None, interval_ms: int | None, status: DriverStatus, why: str
) -> None:
    heartbeat_ms = None if age_ms is None else NOW_MS - age_ms
    found = driver_by_heartbeat(heartbeat_ms, interval_ms=interval_ms, least_ms=12_000, now_ms=NOW_MS)
    assert found.status is status, f"case {number}: {why}"


@pytest.mark.parametrize("interval_ms", [None, 100, 5_000, 20_000, 3_600_000])
def test_a_listener_that_posts_in_its_interval_is_never_overdue(interval_ms: int | None) -> None:
    assert silent_after_ms(interval_ms, 0) >= 2 * (interval_ms or 20_000)


@pytest.mark.parametrize(
    ("driver", "alive", "words"),
    [
        (Driver(DriverStatus.RUNNING, NOW_MS), True, "running"),
        (Driver(DriverStatus.NO_HEARTBEAT, NOW_MS), None, "no heartbeat since 11:06:40 UTC"),
        (Driver(DriverStatus.ENDED, NOW_MS, NOW_MS, True), False, "failed at 11:06:40 UTC"),
        (Driver(DriverStatus.ENDED, NOW_MS, NOW_MS), False, "stopped at 11:06:40 UTC"),
        (Driver(DriverStatus.ENDED), False, "stopped"),
        (Driver(DriverStatus.UNKNOWN), None, "no listener reports whether it runs"),
    ],
)
def test_the_driver_status_is_shown_as_far_as_it_is_known(
    driver: Driver, alive: bool | None, words: str
) -> None:
    assert (driver.alive, driver.status_text) == (alive, words)
