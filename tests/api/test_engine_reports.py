"""Proves the API of Flink's jobs, with what a checkpoint decided, and of connectors; and for an engine's
API that cannot be read its URL, since when, and what to do, beside what it reported last. Pipelines and
their edges have figures, envelope, filters and cursors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashboard.config import Config, EngineEndpoint
from dashboard.history import audits
from dashboard.models import Cluster
from fenceline.engines.status import EngineKind
from fenceline.facts import TransactionState
from tests.api.conftest import Ask, all_items
from tests.audit_manifests import audit_manifest, leave_audit
from tests.web import factories, scenarios
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
    expected = [("copy-1-41", "lost", "CompleteAbort"), ("copy-0-41", "pending", "Ongoing")]
    assert [(each["transactional_id"], each["fate"], each["state"]) for each in one["commits"]] == expected
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
    expected = (MANAGER, "2.1.0", "RESTARTING", None)
    assert (run["url"], run["version"], run["state"], run["ended_at"]) == expected
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
    expected = ("prod", "cdc", "mysql-source", "source")
    assert (one["cluster"], one["group"], one["name"], one["type"]) == expected
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


LISTS = ("pipelines", "pipelines/edges")


@pytest.fixture
def flow(prod: Cluster) -> Cluster:
    """A cluster with a flow in which something is blocked."""
    scenarios.busy_flow(prod)
    return prod


@pytest.mark.parametrize("path", LISTS)
def test_a_list_carries_its_envelope_range_and_what_was_not_observed(ask: Ask, path: str) -> None:
    body = ask(path)
    assert set(body) == {
        "items", "next", "as_of", "gaps", "from", "to", "kept_since", "not_observed",
    }  # fmt: skip
    assert body["as_of"]
    assert body["gaps"] == body["items"] == body["not_observed"] == []


def test_pipelines_come_weakest_first_with_what_is_known_and_what_is_missing(ask: Ask, flow: Cluster) -> None:
    items = ask("pipelines")["items"]
    assert [each["health"] for each in items] == ["blocked", "blocked", "blocked", "ok"]
    healthy = items[-1]
    assert [(node["kind"], node["label"]) for node in healthy["path"]] == [
        ("application", "orders-gateway"),
        ("topic", "order_events"),
        ("query", "orders_enrich"),
        ("topic", "orders_enriched"),
        ("group", "warehouse"),
    ]
    assert healthy["p50_ms"] < healthy["p95_ms"]
    assert (healthy["missing"], healthy["weakest"], healthy["starts"]) == ([], "", 1)
    factories.group_offset(factories.group(flow, "new"), "payments", lag_ms=None)
    factories.raise_revision(flow)
    missing = [each["missing"] for each in ask("pipelines")["items"] if each["path"][-1]["name"] == "new"]
    assert missing == [["payments → new"]]


def test_edges_name_how_they_were_observed_and_the_group_of_a_read_process_write_link(
    ask: Ask, flow: Cluster
) -> None:
    edges = {
        (each["source"]["name"], each["target"]["name"]): each for each in ask("pipelines/edges")["items"]
    }
    through = edges["payments", "ledger-writer"]
    expected = ("processes", "ledger", "transactions")
    assert (through["kind"], through["group"], through["rate_unit"]) == expected
    reads = edges["order_events", factories.QUERY_ID]
    assert (reads["kind"], reads["rate_unit"]) == ("reads", "records")
    assert edges["payments", "payments"]["health"] == "blocked"
    assert edges["payments", "billing"]["reason"] == "blocked on 1 partition"


@pytest.mark.parametrize("path", LISTS)
def test_a_cursor_goes_through_the_whole_list(ask: Ask, flow: Cluster, path: str) -> None:
    whole = [ends(each) for each in ask(path)["items"]]
    assert len(whole) > 3
    assert [ends(each) for each in all_items(ask, f"{path}?limit=2")] == whole


def ends(item: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a pipeline or an edge is of: figures move with the clock."""
    nodes = item.get("path") or [item["source"], item["target"]]
    return [(node["kind"], node["name"]) for node in nodes]


def test_filters_narrow_the_flow(ask: Ask, flow: Cluster) -> None:
    focused = ask("pipelines/edges?focus=group:billing")["items"]
    assert {each["target"]["name"] for each in focused} == {"payments", "billing"}
    assert ask("pipelines/edges?focus=group:never-seen")["items"] == []
    assert len(ask("pipelines/edges?q=warehouse")["items"]) == 1


def test_a_range_without_history_names_since_when_there_is_some(ask: Ask, flow: Cluster) -> None:
    body = ask("pipelines/edges?from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z")
    assert body["kept_since"]["prod"] > "2026-01-01"
    assert "produces" not in {each["kind"] for each in body["items"]}
    assert [each["subject"] for each in body["not_observed"]] == [""]


def test_a_proof_has_each_link_and_the_newest_audit(
    ask: Ask, flow: Cluster, tmp_path: Path, settings: Any
) -> None:
    settings.FENCELINE = Config(audit_url=tmp_path.as_uri())
    audit = audit_manifest(query_id=factories.QUERY_ID, sources=("order_events",))
    leave_audit(tmp_path, audit)
    leave_audit(tmp_path, audit_manifest("torn")).write_text("{")
    audits.clear_cache()
    body = ask("pipelines/proof?cluster=prod&end=group:warehouse")
    assert body["verdict"] == "proved"
    expected = ["Each record of order_events appears exactly once in orders_enriched, through batch 1,203."]
    assert body["statements"] == expected
    assert [each["guarantee"] for each in body["links"]] == ["exactly_once"] * 3 + ["at_least_once"]
    assert body["weakest"] == body["links"][-1]
    (found,) = body["audits"]
    assert (found["proved_through"], found["batches"][0]["batch_id"]) == (1_203, 1_203)
    assert body["troubles"][0].startswith("The manifest cannot be read. ")


def test_a_proof_of_no_pipeline_or_of_a_bad_range_is_refused(ask: Ask, flow: Cluster) -> None:
    ask("pipelines/proof?cluster=prod&end=group:nobody", 404)
    ask("pipelines/proof?cluster=nowhere&end=group:warehouse", 404)
    ask("pipelines/proof?end=group:warehouse&last=never", 400)
