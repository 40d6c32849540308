"""Proves `/api/v1/pipelines`: pipelines and edges with figures, envelope, filters, cursors, bad input."""

from pathlib import Path
from typing import Any

import pytest

from dashboard.config import Config
from dashboard.history import audits
from dashboard.models import Cluster
from tests.api.client import Ask, all_items
from tests.audit_manifests import audit_manifest, leave_audit
from tests.web import factories, scenarios

pytestmark = pytest.mark.django_db
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
    assert (through["kind"], through["group"], through["rate_unit"]) == (
        "processes",
        "ledger",
        "transactions",
    )
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
    assert body["statements"] == [
        "Each record of order_events appears exactly once in orders_enriched, through batch 1,203."
    ]
    assert [each["guarantee"] for each in body["links"]] == ["exactly_once"] * 3 + ["at_least_once"]
    assert body["weakest"] == body["links"][-1]
    (found,) = body["audits"]
    assert (found["proved_through"], found["batches"][0]["batch_id"]) == (1_203, 1_203)
    assert body["troubles"][0].startswith("The manifest cannot be read. ")


def test_a_proof_of_no_pipeline_or_of_a_bad_range_is_refused(ask: Ask, flow: Cluster) -> None:
    ask("pipelines/proof?cluster=prod&end=group:nobody", 404)
    ask("pipelines/proof?cluster=nowhere&end=group:warehouse", 404)
    ask("pipelines/proof?end=group:warehouse&last=never", 400)
