"""Proves that one page shows all clusters: what is wrong with each, and what cannot be seen; and that System
and the API tell what works on a cluster, what does not, and what would bring it."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dashboard.models import Cluster
from dashboard.system.capabilities import cluster_capabilities
from fenceline.kafka.capabilities import CapabilityState
from tests.web import factories

pytestmark = pytest.mark.django_db


def rows_of(text: str) -> dict[str, str]:
    """Return the rows of the page by cluster, in their order."""
    found = text.split('data-cluster-row="')[1:]
    return {row.partition('"')[0]: row.partition("</tr>")[0] for row in found}


def test_clusters_that_need_attention_come_first(page: Client) -> None:
    quiet, stuck = factories.cluster("a-quiet"), factories.cluster("b-stuck")
    for each in (quiet, stuck):
        factories.collector(each, "transaction_state")
    factories.finding(stuck, "transaction:pay-1", "critical")
    factories.finding(stuck, "transaction:other")
    text = page.get("/clusters").content.decode()
    rows = rows_of(text)
    assert list(rows) == ["b-stuck", "a-quiet"]
    assert "2 open, worst critical" in rows["b-stuck"]
    assert 'class="muted"' in rows["a-quiet"]
    assert "1 cluster of 2" in text


def test_what_cannot_be_seen_is_named_per_cluster(page: Client) -> None:
    dark, limited = factories.cluster("dark"), factories.cluster("limited")
    for each in (dark, limited):
        factories.collector(each, "transaction_state")
    factories.gap(dark, source="transaction_state", reason="no route to <host>")
    lacking = {"name": "x", "words": "markers", "state": "missing", "why": "old", "remedies": []}
    detail = {"asked_ms": factories.now_ms(), "trouble": "", "checks": [lacking]}
    factories.collector(limited, "capabilities", detail=detail)
    rows = rows_of(page.get("/clusters").content.decode())
    assert "no route to &lt;host&gt;" in rows["dark"]
    assert "data-lacking" in rows["limited"]
    assert "markers" in rows["limited"]
    assert "data-blind" not in rows["limited"]


def test_more_clusters_take_no_more_queries(page: Client) -> None:
    def asked(name: str) -> int:
        factories.collector(factories.cluster(name), "transaction_state")
        with CaptureQueriesContext(connection) as queries:
            page.get("/clusters")
        return len(queries)

    page.get("/clusters")
    first = asked("one")
    assert max(asked(f"more-{number}") for number in range(5)) <= first + 1


WORKS = {"name": "groups", "words": "groups", "state": "works", "why": "", "remedies": []}
MISSING = {
    "name": "log_history", "words": "history", "state": "missing",
    "why": "no READ on topic <log>", "remedies": ["kafka-acls --add …"],
}  # fmt: skip


def looked_over(*checks: dict[str, object], trouble: str = "") -> Cluster:
    cluster = factories.cluster()
    detail = {"asked_ms": factories.now_ms(), "trouble": trouble, "checks": list(checks)}
    factories.collector(cluster, "capabilities", detail=detail)
    return cluster


def fold_of(text: str, cluster: Cluster) -> str:
    """Return the tag of a cluster's table."""
    return text.split(f'data-capabilities="{cluster.name}"')[1].split(">")[0].strip()


def test_a_missing_capability_is_shown_with_its_reason_and_remedy(page: Client) -> None:
    cluster = looked_over(WORKS, MISSING)
    text = page.get("/system").content.decode()
    assert fold_of(text, cluster).endswith("open")
    assert 'data-capability="log_history"' in text
    assert "1 of 2 work" in text
    assert "no READ on topic &lt;log&gt;" in text
    assert "<code>kafka-acls --add …</code>" in text


def test_what_works_is_folded(page: Client) -> None:
    cluster = looked_over(WORKS)
    text = page.get("/system").content.decode()
    assert not fold_of(text, cluster).endswith("open")
    assert cluster_capabilities(cluster.name).is_whole


def test_a_failed_look_keeps_what_was_known_and_says_why(page: Client) -> None:
    looked_over(WORKS, trouble="no broker answers")
    text = page.get("/system").content.decode()
    assert "could not be asked: no broker answers" in text
    assert 'data-capability="groups"' in text


def test_partitions_whose_markers_are_not_read_are_counted_by_reason(page: Client) -> None:
    unread = {"orders-1": "no READ on this topic", "orders-0": "no READ on this topic", "pay-0": "too fast"}
    detail = {"alone": True, "unseen": ["broker 2"], "markers_unseen": unread}
    factories.collector(factories.cluster(), "reconcile", detail=detail)
    text = page.get("/system").content.decode()
    assert "broker 2, markers of 2 partitions, as orders-0: no READ on this topic" in text
    assert "markers of 1 partition, as pay-0: too fast" in text


def test_before_the_first_look_nothing_is_claimed(page: Client) -> None:
    cluster = factories.cluster()
    assert "not checked yet" in page.get("/system").content.decode()
    answer = page.get(f"/api/v1/clusters/{cluster.name}/capabilities").json()
    assert (answer["asked_at"], answer["items"]) == (None, [])


def test_the_api_returns_the_same(page: Client) -> None:
    cluster = looked_over(WORKS, MISSING)
    answer = page.get(f"/api/v1/clusters/{cluster.name}/capabilities").json()
    assert answer["items"] == [WORKS, MISSING]
    assert answer["asked_at"]
    assert page.get("/api/v1/clusters/nowhere/capabilities").status_code == 404
    assert {item["state"] for item in answer["items"]} <= set(CapabilityState)
