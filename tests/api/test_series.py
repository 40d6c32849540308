"""Proves the API of figures over time: what a range of a partition, a group or a cluster holds, its gaps with
their reasons, unknown subjects, and wrong ranges."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from dashboard.models import Cluster
from fenceline.series.points import APPLICATION, GROUP, PARTITION
from tests.api.client import Ask
from tests.web import factories, series
from tests.web.series import HOUR_MS, MINUTE_MS

pytestmark = pytest.mark.django_db

ENDS = ("since", "until")
ONE = "partitions/prod/payments/0/series"
PATHS = (ONE, "groups/prod/billing/series", "clusters/prod/series", "clusters/prod/series/groups")


@pytest.fixture
def prod() -> Cluster:
    of = factories.cluster()
    factories.tail_collectors(of)
    factories.partition_collectors(of)
    factories.partition(of)
    factories.group(of)
    return of


def iso(ms: int) -> str:
    return quote(datetime.fromtimestamp(ms / 1_000, UTC).isoformat())


def instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def held_at(body: dict[str, Any], ms: int) -> dict[str, Any]:
    """The step that holds at an instant."""
    found = [step for step in body["items"] if instant(step["at"]) <= ms]
    assert found, body
    return dict(found[-1])


def test_a_range_of_a_partition_has_what_was_polled(ask: Ask, prod: Cluster) -> None:
    now = factories.now_ms() // 1_000 * 1_000
    series.observed(prod)
    polls = [(300_000, (100, 0)), (200_000, (150, 20)), (100_000, (150, 90)), (50_000, (240, 0))]
    series.polled(prod, PARTITION, "payments-0", polls, now_ms=now)
    body = ask(f"{ONE}?from={iso(now - 250_000)}&to={iso(now)}")
    assert (body["resolution"], body["step_ms"], body["next"], body["gaps"]) == ("detail", 1_000, None, [])
    assert (instant(body["from"]), instant(body["to"])) == (now - 250_000, now)
    assert instant(body["kept_since"]) == now - 300_000
    for ago_ms, lso, high in ((250_000, 100, 100), (180_000, 150, 170), (100_000, 150, 240), (1, 240, 240)):
        step = held_at(body, now - ago_ms)
        assert (step["lso"]["last"], step["high_watermark"]) == (lso, high), ago_ms
    assert max(step["uncommitted"]["high"] for step in body["items"]) == 90
    assert len(body["items"]) <= 5, "a step only where something changed, and at the ends"


def test_a_range_of_a_group_has_its_lag_growing(ask: Ask, prod: Cluster) -> None:
    now = factories.now_ms() // 1_000 * 1_000
    grows = [(ago_ms, (0, 700, 206_000 - ago_ms, 1)) for ago_ms in range(200_000, 50_000, -10_000)]
    polls = [(220_000, (0, 5, 200, 0)), *grows, (50_000, (0, 0, 0, 0)), (30_000, (0, 0, 0, 0))]
    series.polled(prod, GROUP, "billing", [*polls, (5_000, (0, 0, 0, 0))], now_ms=now, span=True)
    body = ask(f"groups/prod/billing/series?from={iso(now - 210_000)}&to={iso(now)}")
    assert body["gaps"] == []
    blocked = held_at(body, now - 61_000)
    assert blocked["lag_ms"]["last"] == 146_000
    assert (blocked["lag_lso"]["last"], blocked["lag_hw"]["last"], blocked["blocked"]["last"]) == (0, 700, 1)
    assert held_at(body, now - 1)["lag_ms"]["last"] == 0


def test_open_transactions_are_told_of_a_cluster_and_of_an_application(ask: Ask, prod: Cluster) -> None:
    series.hour(prod)
    for path in ("clusters/prod/series", "clusters/prod/series?application=payments"):
        body = ask(path)
        assert max(step["blocked"]["high"] for step in body["items"]) > 10_000
        assert max(step["oldest_ms"]["high"] for step in body["items"]) > 14 * MINUTE_MS
        assert {step["open"]["high"] for step in body["items"]} == {1, 2}


def test_the_worst_groups_come_first_and_in_fewer_steps(ask: Ask, prod: Cluster) -> None:
    series.hour(prod)
    series.polled(prod, GROUP, "never behind", [(HOUR_MS, (0, 0, 0, 0))])
    body = ask("clusters/prod/series/groups?steps=40")
    assert [each["group"] for each in body["items"]] == ["billing", "orders-view"]
    assert all(len(each["steps"]) <= 41 for each in body["items"])
    assert [each["group"] for each in ask("clusters/prod/series/groups?number=1")["items"]] == ["billing"]
    quiet = ask("clusters/prod/series/groups?last=15m")
    assert [each["group"] for each in quiet["items"]] == ["orders-view", "billing"]


def test_what_could_not_be_seen_is_a_gap_with_its_reason(ask: Ask, prod: Cluster) -> None:
    now = factories.now_ms() // 1_000 * 1_000
    series.observed(prod, (HOUR_MS, 30 * MINUTE_MS), (20 * MINUTE_MS, 0), now_ms=now)
    polls = [(50 * MINUTE_MS, (1, 0)), (10 * MINUTE_MS, None), (5 * MINUTE_MS, (2, 0))]
    series.polled(prod, PARTITION, "payments-0", polls, now_ms=now)
    factories.gap(prod, source="partitions", scope="partition:payments-0", since_ms=now - 10 * MINUTE_MS,
             until_ms=now - 5 * MINUTE_MS, reason="leader not available")  # fmt: skip
    factories.gap(prod, source="partitions", scope="partition:others-0", since_ms=now - 10 * MINUTE_MS,
             until_ms=now - 5 * MINUTE_MS, reason="another one's")  # fmt: skip
    body = ask(f"{ONE}?from={iso(now - HOUR_MS)}&to={iso(now)}")
    minutes = [round((now - instant(each[end])) / MINUTE_MS) for each in body["gaps"] for end in ENDS]
    gaps = {
        tuple(minutes[2 * n : 2 * n + 2]): (each["source"], each["scope"], each["reason"])
        for n, each in enumerate(body["gaps"])
    }
    assert gaps == {
        (60, 50): ("partitions", "partition:payments-0", "Nothing was recorded before."),
        (30, 20): ("partitions", "partition:payments-0", "The collector did not run."),
        (10, 5): ("partitions", "partition:payments-0", "leader not available"),
    }
    shown = [instant(step["at"]) for step in body["items"]]
    for each in body["gaps"]:
        since, until = instant(each["since"]), instant(each["until"])
        inside = [at for at in shown if since <= at and at + body["step_ms"] <= until]
        assert not inside, "nothing is interpolated"


def test_a_cluster_that_could_not_be_reached_says_why(ask: Ask, prod: Cluster) -> None:
    now = factories.now_ms()
    series.observed(prod, (HOUR_MS, 30 * MINUTE_MS), (20 * MINUTE_MS, 0), now_ms=now)
    series.polled(prod, GROUP, "billing", [(50 * MINUTE_MS, (1, 1, 1, 0))], now_ms=now)
    factories.gap(prod, source="groups", scope="cluster", since_ms=now - 30 * MINUTE_MS,
             until_ms=now - 20 * MINUTE_MS, reason="no answer in time")  # fmt: skip
    body = ask("groups/prod/billing/series?last=1h")
    assert "no answer in time" in {each["reason"] for each in body["gaps"]}


def test_a_range_of_long_ago_says_since_when_it_is_kept(ask: Ask, prod: Cluster) -> None:
    series.hour(prod)
    now = factories.now_ms()
    body = ask(f"{ONE}?from={iso(now - 30 * 24 * HOUR_MS)}&to={iso(now - 29 * 24 * HOUR_MS)}")
    assert (body["items"], body["resolution"]) == ([], "hour")
    (gap,) = body["gaps"]
    assert gap["reason"] == "Nothing was recorded before."
    assert abs(instant(body["kept_since"]) - now) < HOUR_MS
    older = ask(f"{ONE}?from={iso(now - 800 * 24 * HOUR_MS)}&to={iso(now - 700 * 24 * HOUR_MS)}")
    assert older["items"] == []


def test_a_subject_that_was_seen_once_is_empty_and_not_unknown(ask: Ask, prod: Cluster) -> None:
    for path in PATHS:
        body = ask(path)
        assert body["items"] == []
        assert body["kept_since"] is None


def test_what_is_gone_keeps_its_history(ask: Ask, prod: Cluster) -> None:
    series.hour(prod)
    prod.partitionrecord_set.all().delete()
    prod.group_set.all().delete()
    assert ask(ONE)["items"]
    assert ask("groups/prod/billing/series")["items"]


@pytest.mark.parametrize(
    "path",
    [
        "partitions/prod/payments/9/series",
        "partitions/prod/payments/99999999999/series",
        "partitions/nowhere/payments/0/series",
        "partitions/prod/nothing/0/series",
        "groups/prod/no%20such%20group/series",
        "groups/nowhere/billing/series",
        "clusters/nowhere/series",
        "clusters/nowhere/series/groups",
        "clusters/prod/series?application=no-such-application",
    ],
)
def test_an_unknown_subject_is_not_found(ask: Ask, path: str) -> None:
    assert ask(path, 404)["detail"]


def test_no_range_has_more_steps_than_were_asked_for(ask: Ask, prod: Cluster) -> None:
    now = factories.now_ms()
    series.observed(prod)
    polls = [(ago_ms, (HOUR_MS - ago_ms, ago_ms % 7)) for ago_ms in range(HOUR_MS, 0, -2_000)]
    series.polled(prod, PARTITION, "payments-0", polls, now_ms=now)
    for last in ("15m", "1h", "6h", "24h", "7d", "30d"):
        for steps in (10, 100, 500):
            body = ask(f"{ONE}?last={last}&steps={steps}")
            assert len(body["items"]) <= steps + 1
    series.polled(prod, APPLICATION, "", [(1_000, (1, 2, 3))])
    assert len(ask("clusters/prod/series?last=15m&steps=10")["items"]) <= 11
