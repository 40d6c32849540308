"""Proves that anything is found by a part of its name or by its number, the best first, with a bounded number
of queries; and that whatever is typed gets an answer."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from dashboard.models import Cluster
from tests.cases import cases
from tests.web import factories, scenarios

pytestmark = pytest.mark.django_db


HIT = re.compile(r'role="option".*?href="([^"]*)"\s*><bdi>([^<]*)</bdi>', re.DOTALL)


@pytest.fixture(scope="module")
def prod(rows_of_module: None) -> Cluster:
    of = factories.cluster()
    scenarios.busy_transactions(of, 120)
    scenarios.busy_partitions(of)
    scenarios.busy_queries(of)
    scenarios.busy_alerts(of)
    factories.transaction_histories(of, 6, hours=1)
    return of


def found(page: Client, asked: str, **headers: str) -> dict[str, list[tuple[str, str]]]:
    """Return names and addresses of hits by kind."""
    response = page.get("/find", {"q": asked}, headers=headers)
    assert response.status_code == 200
    kinds = re.split(r'class="find-kind"[^>]*>', response.content.decode())[1:]
    return {
        unescape(kind.partition("<")[0]).strip(): [
            (unescape(name), unescape(url)) for url, name in HIT.findall(kind)
        ]
        for kind in kinds
    }


@pytest.mark.sql
@cases(
    ("payments-ledger-7", "Transactions", "payments-ledger-7", "/transactions/prod/payments-ledger-7"),
    ("payments-0", "Partitions", "payments-0", "/partitions/prod/payments/0"),
    ("PAYMENTS-0", "Partitions", "payments-0", "/partitions/prod/payments/0"),
    ("billing", "Consumer groups", "billing", "/groups/prod/billing"),
    ("partit", "Pages", "Partitions", "/partitions"),
    ("hanging", "Rules", "hanging", "/rules/hanging"),
)
def test_a_name_is_found_first(
    page: Client, prod: Cluster, asked: str, kind: str, name: str, url: str
) -> None:
    assert found(page, asked)[kind][0] == (name, url)


def test_what_begins_with_the_text_comes_before_what_mentions_it(page: Client, prod: Cluster) -> None:
    factories.incident(prod, subject="group:billing-nightly", closed_ms=factories.now_ms())
    factories.group(prod, "billing-nightly")
    kinds = [kind for kind in found(page, "billing-night") if kind not in ("More", "0 results")]
    assert kinds.index("Consumer groups") < kinds.index("Incidents")


def test_numbers_are_those_of_incidents_alerts_and_actions(page: Client, prod: Cluster) -> None:
    row = factories.incident_of(prod, factories.finding(prod, "partition:payments-3"))
    alert, action = factories.alert(prod, "transaction:later"), factories.planned_action()
    assert (f"#{row.pk}", f"/incidents/{row.pk}") in found(page, f"#{row.pk}")["Incidents"]
    assert (f"#{alert.pk}", f"/alerts/{alert.pk}") in found(page, f"{alert.pk}")["Alerts"]
    assert (f"#{action.pk}", f"/actions/{action.pk}") in found(page, f"{action.pk}")["Actions"]


def test_queries_and_applications_are_found_by_a_part(page: Client, prod: Cluster) -> None:
    assert "orders-gateway" in [name for name, _ in found(page, "gatew")["Applications"]]
    kinds = found(page, "orders")
    assert kinds["Spark queries"]
    assert all("/queries/prod/" in url for _, url in kinds["Spark queries"])


def test_a_flink_job_is_found_by_its_prefix_and_its_id(page: Client, prod: Cluster) -> None:
    job = factories.flink_job(prod, prefix="copy-orders")
    wanted = ("copy-orders", f"/flink-jobs/prod/{job.ident.replace('@', '%40')}")
    for asked in ("COPY-ord", job.job_id[:8]):
        assert found(page, asked)["Flink jobs"] == [wanted]


def test_the_palette_gets_the_results_alone(page: Client, prod: Cluster) -> None:
    palette = {"HX-Request": "true", "HX-Target": "find-results"}
    assert b"<html" not in page.get("/find", {"q": "billing"}, headers=palette).content
    assert found(page, "billing", **palette) == found(page, "billing")


def test_a_cluster_s_page_finds_its_own(page: Client, prod: Cluster) -> None:
    staging = factories.watched_cluster("staging")
    factories.transaction(staging, "payments-ledger-staging")
    text = page.get("/find", {"q": "payments-ledger", "cluster": "staging"}).content.decode()
    assert re.findall(r"/transactions/(\w+)/", text) == ["staging"]


@pytest.mark.parametrize("ids", [10, 400])
def test_the_number_of_queries_does_not_grow(
    page: Client, prod: Cluster, django_assert_max_num_queries: Any, ids: int
) -> None:
    scenarios.busy_transactions(factories.cluster("staging"), ids)
    with django_assert_max_num_queries(23):
        page.get("/find", {"q": "a"})


ODD = ["", " ", "\0", "a\0b", "x" * 200, "%", "_", "'", '"><script>', "#", "9" * 190, "²", "\x1b[0m", "🜁"]


@pytest.mark.parametrize("asked", ODD)
def test_whatever_is_typed_gets_an_answer(page: Client, prod: Cluster, asked: str) -> None:
    response = page.get("/find", {"q": asked})
    assert response.status_code == 200
    assert b"<script>" not in response.content.partition(b"data-headline")[2].partition(b"<dialog")[0]
