"""Proves the API of Flink's jobs: the list and its filters, one job with what its checkpoint decided."""

from __future__ import annotations

import pytest

from dashboard.models import Cluster
from fenceline.facts import TransactionState
from tests.api.client import Ask, all_items
from tests.web import factories
from tests.web.factories import FLINK_IDENT

pytestmark = pytest.mark.django_db


@pytest.fixture
def prod() -> Cluster:
    of = factories.cluster()
    factories.tail_collectors(of)
    factories.flink_collector(of)
    return of


def test_a_job_is_listed_and_described(ask: Ask, prod: Cluster) -> None:
    factories.transaction(prod, "copy-0-41", age_ms=100_000, timeout_ms=600_000)
    factories.transaction(prod, "copy-1-41", TransactionState.COMPLETE_ABORT, producer_epoch=18)
    factories.transaction(prod, "copy-9-3", age_ms=100_000)
    row = factories.flink_job(prod, [factories.committable(f"copy-{each}-41") for each in range(2)])

    (listed,) = ask("flink-jobs")["items"]
    one = ask(f"flink-jobs/prod/{FLINK_IDENT}")

    assert {name: one[name] for name in listed} == listed
    assert (listed["id"], listed["prefixes"], listed["pending"]) == (row.ident, ["copy"], 2)
    assert [(each["transactional_id"], each["fate"], each["state"]) for each in one["commits"]] == [
        ("copy-1-41", "lost", "CompleteAbort"),
        ("copy-0-41", "pending", "Ongoing"),
    ]
    assert one["commits"][0]["expires_at"] is None
    assert one["commits"][1]["expires_at"] is not None
    assert [(each["transactional_id"], each["kind"]) for each in one["other_open"]] == [("copy-9-3", "left")]
    assert [(each["name"], each["pending"], each["version"]) for each in one["checkpoints"]] == [
        ("chk-41", 2, 6)
    ]


@pytest.mark.sql
@pytest.mark.parametrize(("query", "found"), [("", 5), ("q=copy3", 1), ("cluster=staging", 0)])
@pytest.mark.parametrize("limit", [2, 50])
def test_jobs_are_filtered_and_walked_through(
    ask: Ask, prod: Cluster, query: str, found: int, limit: int
) -> None:
    for number in range(5):
        factories.flink_job(prod, ident=f"job@{number}", prefix=f"copy{number}")

    assert len(all_items(ask, f"flink-jobs?limit={limit}&{query}")) == found


def test_an_unknown_job_is_a_problem(ask: Ask, prod: Cluster) -> None:
    assert "No Flink job 'x' is known" in ask("flink-jobs/prod/x", 404)["detail"]
