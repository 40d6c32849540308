"""Proves the API of Flink's jobs, with what a checkpoint decided, and of connectors; and for an engine's API
that cannot be read its URL, since when, and what to do, beside what it reported last."""

from dataclasses import replace
from typing import Any

import pytest

from dashboard.config import EngineEndpoint
from dashboard.models import Cluster
from fenceline.engines.answers import EngineKind
from fenceline.facts import TransactionState
from tests.api.client import Ask
from tests.web import factories
from tests.web.factories import FLINK_IDENT

pytestmark = pytest.mark.django_db

MANAGER, WORKER = "http://jm:8081", "http://w1:8083"
GONE = "does not answer (ConnectionRefusedError): start it, or correct the URL"


@pytest.fixture
def prod(settings: Any, prod: Cluster) -> Cluster:
    managers = [EngineEndpoint(EngineKind.FLINK, url, "prod") for url in (MANAGER, "http://jm2:8081")]
    settings.FENCELINE = replace(settings.FENCELINE, engines=managers)
    return prod


def api_gap(of: Cluster, url: str) -> None:
    factories.gap(of, source="engines", scope=f"api:{url}", reason=f"{url} {GONE}")


def job(ask: Ask) -> Any:
    return ask(f"flink-jobs/prod/{FLINK_IDENT}")


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


def test_a_job_has_what_its_job_manager_reports(ask: Ask, prod: Cluster) -> None:
    row = factories.flink_job(prod)
    assert (job(ask)["run"], job(ask)["api_errors"]) == (None, [])

    factories.flink_run(row)
    run = job(ask)["run"]

    assert (run["url"], run["version"], run["state"], run["ended_at"]) == (
        MANAGER,
        "2.1.0",
        "RESTARTING",
        None,
    )
    assert run["operators"] == [{"name": "Source: in -> Sink: Writer", "parallelism": 2, "state": "RUNNING"}]
    assert run["checkpoints"] == {"completed": 41, "failed": 1, "in_progress": 0}
    assert (run["completed"]["checkpoint_id"], run["completed"]["duration_ms"]) == (41, 320)
    assert run["failed"]["error"] == "Checkpoint expired before completing."
    assert run["restored"] is None


def test_a_job_manager_that_is_gone_is_named_beside_its_last_report(ask: Ask, prod: Cluster) -> None:
    row = factories.flink_job(prod)
    api_gap(prod, MANAGER)
    api_gap(prod, "http://jm2:8081")
    assert [each["url"] for each in job(ask)["api_errors"]] == [MANAGER, "http://jm2:8081"], "any may have it"

    factories.flink_run(row)
    one = job(ask)

    (error,) = one["api_errors"]
    assert (error["url"], error["error"]) == (MANAGER, f"{MANAGER} {GONE}")
    assert error["since"].endswith("Z")
    assert one["run"]["state"] == "RESTARTING"


@pytest.mark.sql
@pytest.mark.parametrize(("query", "found"), [("", 5), ("q=source3", 1), ("q=mysqlconn", 5), ("group=x", 0)])
def test_connectors_are_filtered(ask: Ask, prod: Cluster, query: str, found: int) -> None:
    for number in range(5):
        factories.connector(prod, name=f"source{number}")

    assert len(ask(f"connectors?{query}")["items"]) == found


def test_a_connector_has_its_tasks_and_the_topics_of_debezium(ask: Ask, prod: Cluster) -> None:
    factories.connector(prod)

    (one,) = ask("connectors")["items"]

    assert (one["cluster"], one["group"], one["name"], one["type"]) == (
        "prod",
        "cdc",
        "mysql-source",
        "source",
    )
    assert one["tasks"] == [
        {"task": 0, "state": "FAILED", "worker": "w1:8083", "error": "ConnectException: no such table"},
        {"task": 1, "state": "RUNNING", "worker": "w2:8083", "error": ""},
    ]
    assert one["debezium"]["schema_history"] == "schema-changes.shop"
    assert one["api_error"] is None


def test_a_worker_that_is_gone_is_named_beside_its_last_report(ask: Ask, prod: Cluster) -> None:
    factories.connector(prod)
    api_gap(prod, WORKER)

    found = ask("connectors")

    (one,) = found["items"]
    assert (one["api_error"]["url"], one["api_error"]["error"]) == (WORKER, f"{WORKER} {GONE}")
    assert one["api_error"]["since"] == found["gaps"][0]["since"]
    assert one["state"] == "RUNNING"


def test_the_id_of_a_task_has_its_connector(ask: Ask, prod: Cluster) -> None:
    for name in ("connect-cluster-cdc", "cdc-mysql-source-0", "plain"):
        factories.transaction(prod, name)
    factories.connector(prod)

    assert ask("transactions/prod/cdc-mysql-source-0")["connector"]["name"] == "mysql-source"
    assert ask("transactions/prod/plain")["connector"] is None
