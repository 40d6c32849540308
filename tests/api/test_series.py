"""Proves the API of figures over time: what a range of a partition, a group or a cluster holds, its gaps with
their reasons, unknown subjects, and wrong ranges."""

from typing import Any

import pytest

from dashboard.models import Cluster
from fenceline.history.time_range import format_instant, read_instant
from fenceline.series.points import GROUP, PARTITION
from tests.api.conftest import Ask
from tests.cases import cases
from tests.web import factories, series
from tests.web.series import HOUR_MS, MINUTE_MS

pytestmark = pytest.mark.django_db

ENDS = ("since", "until")
ONE = "partitions/prod/payments/0/series"
PATHS = (ONE, "groups/prod/billing/series", "clusters/prod/series", "clusters/prod/series/groups")


@pytest.fixture(scope="module")
def prod(rows_of_module: None) -> Cluster:
    """A cluster with a partition and a group, and figures of an hour."""
    of = factories.watched_cluster()
    factories.partition(of)
    factories.group(of)
    series.hour(of)
    return of


@pytest.fixture
def unseen(prod: Cluster) -> Cluster:
    """The same cluster without figures."""
    series.forget(prod)
    return prod


def held_at(body: dict[str, Any], ms: int) -> dict[str, Any]:
    """The step that holds at an instant."""
    found = [step for step in body["items"] if read_instant(step["at"]) <= ms]
    assert found, body
    return dict(found[-1])


def test_a_range_of_a_partition_has_what_was_polled(ask: Ask, unseen: Cluster) -> None:
    now = factories.now_ms() // 1_000 * 1_000
    series.observed(unseen)
    polls = [(300_000, (100, 0)), (200_000, (150, 20)), (100_000, (150, 90)), (50_000, (240, 0))]
    series.polled(unseen, PARTITION, "payments-0", polls, now_ms=now)
    body = ask(f"{ONE}?from={format_instant(now - 250_000)}&to={format_instant(now)}")
    assert (body["resolution"], body["step_ms"], body["next"], body["gaps"]) == ("detail", 1_000, None, [])
    assert (read_instant(body["from"]), read_instant(body["to"])) == (now - 250_000, now)
    assert read_instant(body["kept_since"]) == now - 300_000
    for ago_ms, lso, high in ((250_000, 100, 100), (180_000, 150, 170), (100_000, 150, 240), (1, 240, 240)):
        step = held_at(body, now - ago_ms)
        assert (step["lso"]["last"], step["high_watermark"]) == (lso, high), ago_ms
    assert max(step["uncommitted"]["high"] for step in body["items"]) == 90
    assert len(body["items"]) <= 5, "a step only where something changed, and at the ends"


def test_a_range_of_a_group_has_its_lag_growing(ask: Ask, unseen: Cluster) -> None:
    now = factories.now_ms() // 1_000 * 1_000
    grows = [(ago_ms, (0, 700, 206_000 - ago_ms, 1)) for ago_ms in range(200_000, 50_000, -10_000)]
    polls = [(220_000, (0, 5, 200, 0)), *grows, (50_000, (0, 0, 0, 0)), (30_000, (0, 0, 0, 0))]
    series.polled(unseen, GROUP, "billing", [*polls, (5_000, (0, 0, 0, 0))], now_ms=now, span=True)
    body = ask(f"groups/prod/billing/series?from={format_instant(now - 210_000)}&to={format_instant(now)}")
    assert body["gaps"] == []
    blocked = held_at(body, now - 61_000)
    assert blocked["lag_ms"]["last"] == 146_000
    assert (blocked["lag_lso"]["last"], blocked["lag_hw"]["last"], blocked["blocked"]["last"]) == (0, 700, 1)
    assert held_at(body, now - 1)["lag_ms"]["last"] == 0


def test_open_transactions_are_told_of_a_cluster_and_of_an_application(ask: Ask, prod: Cluster) -> None:
    for path in ("clusters/prod/series", "clusters/prod/series?application=payments"):
        body = ask(path)
        assert max(step["blocked"]["high"] for step in body["items"]) > 10_000
        assert max(step["oldest_ms"]["high"] for step in body["items"]) > 14 * MINUTE_MS
        assert {step["open"]["high"] for step in body["items"]} == {1, 2}


def test_the_worst_groups_come_first_and_in_fewer_steps(ask: Ask, prod: Cluster) -> None:
    series.polled(prod, GROUP, "never behind", [(HOUR_MS, (0, 0, 0, 0))])
    body = ask("clusters/prod/series/groups?steps=40")
    assert [each["group"] for each in body["items"]] == ["billing", "orders-view"]
    assert all(len(each["steps"]) <= 41 for each in body["items"])
    assert [each["group"] for each in ask("clusters/prod/series/groups?number=1")["items"]] == ["billing"]
    quiet = ask("clusters/prod/series/groups?last=15m")
    assert [each["group"] for each in quiet["items"]] == ["orders-view", "billing"]


def test_what_could_not_be_seen_is_a_gap_with_its_reason(ask: Ask, unseen: Cluster) -> None:
    now = factories.now_ms() // 1_000 * 1_000
    series.observed(unseen, (HOUR_MS, 30 * MINUTE_MS), (20 * MINUTE_MS, 0), now_ms=now)
    polls = [(50 * MINUTE_MS, (1, 0)), (10 * MINUTE_MS, None), (5 * MINUTE_MS, (2, 0))]
    series.polled(unseen, PARTITION, "payments-0", polls, now_ms=now)
    factories.gap(unseen, source="partitions", scope="partition:payments-0", since_ms=now - 10 * MINUTE_MS,
             until_ms=now - 5 * MINUTE_MS, reason="leader not available")  # fmt: skip
    factories.gap(unseen, source="partitions", scope="partition:others-0", since_ms=now - 10 * MINUTE_MS,
             until_ms=now - 5 * MINUTE_MS, reason="another one's")  # fmt: skip
    body = ask(f"{ONE}?from={format_instant(now - HOUR_MS)}&to={format_instant(now)}")
    minutes = [round((now - read_instant(each[end])) / MINUTE_MS) for each in body["gaps"] for end in ENDS]
    gaps = {
        tuple(minutes[2 * n : 2 * n + 2]): (each["source"], each["scope"], each["reason"])
        for n, each in enumerate(body["gaps"])
    }
    assert gaps == {
        (60, 50): ("partitions", "partition:payments-0", "Nothing was recorded before."),
        (30, 20): ("partitions", "partition:payments-0", "The collector did not run."),
        (10, 5): ("partitions", "partition:payments-0", "leader not available"),
    }
    shown = [read_instant(step["at"]) for step in body["items"]]
    for each in body["gaps"]:
        since, until = read_instant(each["since"]), read_instant(each["until"])
        inside = [at for at in shown if since <= at and at + body["step_ms"] <= until]
        assert not inside, "nothing is interpolated"


def test_a_cluster_that_could_not_be_reached_says_why(ask: Ask, unseen: Cluster) -> None:
    now = factories.now_ms()
    series.observed(unseen, (HOUR_MS, 30 * MINUTE_MS), (20 * MINUTE_MS, 0), now_ms=now)
    series.polled(unseen, GROUP, "billing", [(50 * MINUTE_MS, (1, 1, 1, 0))], now_ms=now)
    factories.gap(unseen, source="groups", scope="cluster", since_ms=now - 30 * MINUTE_MS,
             until_ms=now - 20 * MINUTE_MS, reason="no answer in time")  # fmt: skip
    body = ask("groups/prod/billing/series?last=1h")
    assert "no answer in time" in {each["reason"] for each in body["gaps"]}


def test_a_range_of_long_ago_says_since_when_it_is_kept(ask: Ask, prod: Cluster) -> None:
    now = factories.now_ms()
    body = ask(
        f"{ONE}?from={format_instant(now - 30 * 24 * HOUR_MS)}&to={format_instant(now - 29 * 24 * HOUR_MS)}"
    )
    assert (body["items"], body["resolution"]) == ([], "hour")
    (gap,) = body["gaps"]
    assert gap["reason"] == "Nothing was recorded before."
    assert abs(read_instant(body["kept_since"]) - now) < HOUR_MS
    older = ask(
        f"{ONE}?from={format_instant(now - 800 * 24 * HOUR_MS)}&to={format_instant(now - 700 * 24 * HOUR_MS)}"
    )
    assert older["items"] == []


def test_a_subject_that_was_seen_once_is_empty_and_not_unknown(ask: Ask, unseen: Cluster) -> None:
    for path in PATHS:
        body = ask(path)
        assert body["items"] == []
        assert body["kept_since"] is None


def test_what_is_gone_keeps_its_history_in_as_few_steps_as_are_asked_for(ask: Ask, prod: Cluster) -> None:
    prod.partitionrecord_set.all().delete()
    prod.group_set.all().delete()
    for path in (ONE, "groups/prod/billing/series"):
        assert len(ask(path)["items"]) > 11
        assert len(ask(f"{path}?steps=10")["items"]) <= 11


@cases(
    "partitions/prod/payments/9/series",
    "partitions/prod/payments/99999999999/series",
    "partitions/nowhere/payments/0/series",
    "partitions/prod/nothing/0/series",
    "groups/prod/no%20such%20group/series",
    "groups/nowhere/billing/series",
    "clusters/nowhere/series",
    "clusters/nowhere/series/groups",
    "clusters/prod/series?application=no-such-application",
)
def test_an_unknown_subject_is_not_found(ask: Ask, path: str) -> None:
    assert ask(path, 404)["detail"]
