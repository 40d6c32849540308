"""Proves what is held against the timeout of an id, and when Kafka forgets it."""

import pytest

from fenceline.facts import NOT_REPORTED, TWO_PHASE_COMMIT_TIMEOUT_MS
from fenceline.preflight.limits import forgotten_ms, id_limits
from fenceline.preflight.setup import BrokerSetup, JobSetup, QuerySetup

MINUTE = 60_000
BROKERS = BrokerSetup(15 * MINUTE, 7 * 24 * 60 * MINUTE)


def test_what_needs_the_timeout_is_told_as_its_share() -> None:
    query = QuerySetup("orders_enrich", longest_batch_ms=48_000)
    job = JobSetup("flink", longest_interval_ms=10_000)
    told = id_limits(MINUTE, BROKERS, [500, 3_000], query, job)
    assert [(each.value_ms, each.share, each.is_near) for each in told] == [
        (MINUTE, None, False),
        (15 * MINUTE, None, False),
        (3_000, 5.0, False),
        (48_000, 80.0, True),
        (20_000, pytest.approx(100 / 3), False),
    ]


def test_what_is_not_known_is_left_out() -> None:
    assert [
        each.value_ms for each in id_limits(MINUTE, BrokerSetup(), [], QuerySetup("q"), JobSetup("j"))
    ] == [MINUTE]


@pytest.mark.parametrize("timeout_ms", [NOT_REPORTED, TWO_PHASE_COMMIT_TIMEOUT_MS, 0, -5])
def test_an_id_without_a_timeout_has_no_limits(timeout_ms: int) -> None:
    assert id_limits(timeout_ms, BROKERS, [MINUTE]) == ()


def test_an_idle_id_is_forgotten_after_its_last_change() -> None:
    assert forgotten_ms(5_000, BROKERS, is_open=False) == 5_000 + 7 * 24 * 60 * MINUTE
    assert forgotten_ms(5_000, BROKERS, is_open=True) is None
    assert forgotten_ms(5_000, BrokerSetup(), is_open=False) is None
