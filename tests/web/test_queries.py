"""Proves that the list of streaming queries tells truly which needs somebody, and what is known of each."""

import html
import re
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from dashboard.config import CheckpointRoot
from dashboard.models import Cluster, Query, SinkDecision
from dashboard.runtime import collector_store, leases
from dashboard.streaming import checkpoint_store
from dashboard.web import addresses
from fenceline.facts import TopicPartition
from fenceline.spark.records import Broken, Damage, StateOperator
from tests.cases import cases
from tests.db.conftest import NOW_MS
from tests.db.factories import LEDGER_ID, checkpoint_look, decision, decision_end, ledger_state
from tests.web import factories, scenarios
from tests.web.roles import QUERY_PAGE, headline, page_html, query_tab

pytestmark = pytest.mark.django_db


def names(page: Client, query: str = "") -> list[str]:
    found = re.findall(
        r'col-name"><span class="id"><a[^>]+data-row><bdi>([^<]+)</bdi>', page_html(page, f"/queries{query}")
    )
    return [html.unescape(name) for name in found]


@pytest.fixture
def four(prod: Cluster) -> Cluster:
    now = factories.now_ms()
    factories.query(prod, "runs", "id-1", planned=7, finished_ms=now - 9_000)
    factories.query(prod, "idles", "id-2", state="idle", sink="kafka", planned=90, finished_ms=now - 1_000)
    factories.query(prod, "failed", "id-3", state="failed", sink="other", planned=8, finished_ms=now - 5_000)
    factories.query(prod, "waits", "id-4", state="stopped", prepared=1, planned=9, finished_ms=None, sink="")
    return prod


@cases(
    ("", ["waits", "failed", "runs", "idles"]),
    ("?sort=name", ["failed", "idles", "runs", "waits"]),
    ("?sort=name&dir=desc", ["waits", "runs", "idles", "failed"]),
    ("?sort=batch", ["idles", "waits", "failed", "runs"]),
    ("?sort=age", ["runs", "failed", "idles", "waits"]),
    ("?state=prepared", ["waits"]),
    ("?state=running", ["runs"]),
    ("?sink=exactly_once", ["runs"]),
    ("?sink=unknown", ["waits"]),
    ("?q=LES", ["idles"]),
    ("?q=id-3", ["failed"]),
    ("?q=checkpoints/ru", ["runs"]),
    ("?q=%25", []),
    ("?cluster=prod&state=failed&sink=other", ["failed"]),
)
def test_the_address_decides_what_is_shown(page: Client, four: Cluster, query: str, shown: list[str]) -> None:
    assert names(page, query) == shown


def test_the_verdict_names_what_is_lost_and_when(page: Client, prod: Cluster) -> None:
    scenarios.abandoned_query(prod)
    factories.query(prod, "fine", "id-2", ledger_id="5a6b7c8d-0000-4000-8000-000000000000")
    first = headline(page, "/queries")
    assert first.startswith("Batch 1,204 of orders_enrich is prepared and the driver is gone (failed at ")
    assert re.search(r": a restart finishes it until \d\d:\d\d:\d\d UTC; 2 queries\.$", first)
    late = SinkDecision.objects.get(outcome="")
    late.transactions = [each | {"timeout_ms": 1_000} for each in late.transactions]
    late.save()
    assert "; transactions timed out at " in headline(page, "/queries")


def test_without_anything_prepared_failed_ones_are_counted(page: Client, prod: Cluster) -> None:
    factories.query(prod, state="failed")
    assert headline(page, "/queries") == "1 query; 1 of them failed."
    Query.objects.update(state="unheard")
    assert headline(page, "/queries") == "1 query; no heartbeat from any driver."


def test_a_batch_that_is_just_being_committed_is_no_trouble(page: Client, prod: Cluster) -> None:
    row = factories.query(prod, prepared=1, expires_ms=factories.now_ms() + 60_000)
    factories.sink_decision(row, 1_204, outcome="", decided_ms=factories.now_ms() - 50)
    assert headline(page, "/queries") == "1 query, no uncommitted batch."


def test_the_worst_finding_is_the_verdict_where_nothing_is_prepared(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    factories.finding(prod, f"query:{row.ident}", "warning", rule="x", summary="orders_enrich is slow")
    assert headline(page, "/queries") == "1 query; orders_enrich is slow."
    assert f'href="{QUERY_PAGE}"' in page_html(page, "/")
    assert "orders_enrich is slow" in page_html(page, QUERY_PAGE)


def test_the_overview_asks_once_whose_all_its_queries_are(
    page: Client, prod: Cluster, settings: Any, django_assert_max_num_queries: Any
) -> None:
    settings.FENCELINE = factories.config_with_owners(settings.FENCELINE, factories.owner("orders_*"))
    for number in range(15):
        row = factories.query(prod, f"orders_{number}", f"id-{number}")
        factories.finding(prod, f"query:{row.ident}", "warning", rule="x", summary="it is slow")
    with django_assert_max_num_queries(57):
        text = page_html(page, "/")
    assert text.count("<dt>Owner</dt><dd><b>Payments</b>") == 1, "one card; the rest are lines"
    assert text.count('class="fine fine-wrap"') == 5


def test_a_row_tells_chain_lag_rate_restart_and_whether_to_stop(page: Client, prod: Cluster) -> None:
    scenarios.source_partitions(prod)
    scenarios.abandoned_query(prod)
    text = page_html(page, "/queries")
    assert (
        'aria-label="planned done, written done, prepared done, committed broken, recorded waiting, '
        'checkpointed waiting"' in text
    )
    for said in ("not committed", "1,168", "1,090", 'class="trend"', ">replay<", "</i>yes</span>"):
        assert said in text, said


def test_an_empty_page_says_how_a_query_becomes_known(page: Client, prod: Cluster, settings: Any) -> None:
    text = page_html(page, "/queries?cluster=prod")
    assert 'data-empty="none"' in text
    assert "[[checkpoints]]" in text
    assert "cluster = &quot;prod&quot;" in text or 'cluster = "prod"' in text
    line = 'FencelineListener("http://testserver", "env:FENCELINE_TOKEN", cluster="prod"))'
    assert f"spark.streams.addListener({line}" in text
    root = CheckpointRoot(root="file:///checkpoints", cluster="prod")
    settings.FENCELINE = replace(settings.FENCELINE, checkpoints=[root])
    prod.collector_set.filter(name="checkpoints").delete()
    assert "Not collected yet" in page_html(page, "/queries?cluster=prod")


def test_without_a_root_a_query_is_known_from_its_listener_alone(page: Client, prod: Cluster) -> None:
    prod.collector_set.filter(name="checkpoints").delete()
    row = factories.query(
        prod, checkpoint="", seen_ms=None, planned=None, finished=None, ledger_id="", sink="", restart="",
        restart_words="", detail={},
    )  # fmt: skip
    factories.batch(row, 1_203, planned_ms=None, committed_ms=None, offsets=[])
    factories.query_run(row)
    facts, sources = query_tab(page, "facts"), query_tab(page, "sources")
    assert "No checkpoint known" in facts
    assert "No ledger" in facts
    assert "Its sink is not known" in facts
    assert "is safe to restart is not known: no configured root holds its checkpoint" in sources
    assert "order_events-0" in sources  # Its progress says how far it has read.


def test_files_alone_say_that_no_listener_is_attached(page: Client, prod: Cluster) -> None:
    row = factories.query(prod, state="unheard", heard_ms=None)
    factories.unfinished_batch(row, 1_203, committed_ms=factories.now_ms())
    assert "No listener is attached" in query_tab(page, "charts")
    facts = query_tab(page, "facts")
    assert "No listener is attached" in facts
    assert "Add a query" in facts


def test_the_overview_shows_those_that_need_somebody_first(page: Client, prod: Cluster) -> None:
    assert "No query is known." in page_html(page, "/")
    scenarios.busy_queries(prod)
    text = page_html(page, "/")
    assert "7 known" in text
    listed = re.findall(r"<bdi>([^<]+)</bdi>", text.partition("home-queries")[2].partition("</table>")[0])
    assert (listed[0], len(listed)) == ("orders_enrich", 4)


@pytest.mark.parametrize("url", ["/", "/queries"])
def test_the_demo_s_query_is_awaited_for_some_minutes(
    page: Client, prod: Cluster, settings: Any, url: str
) -> None:
    for settings.DEMO_SPARK_UNTIL_MS, is_awaited in ((factories.now_ms() + 60_000, True), (0, False)):
        assert ("about 2 min after the start" in page_html(page, url)) is is_awaited


def test_what_the_collector_saves_is_what_the_page_reads(page: Client) -> None:
    lease = take_checkpoints()
    stuck = decision(3, at_ms=NOW_MS, number=2)
    facts = {
        "broken": (Broken("commits/1", Damage.EMPTY, "it holds no byte"),),
        "foreign": ("_SUCCESS",),
        "operators": (StateOperator(0, "dedupe", (("default", 8),)),),
        "initial": {"0": {TopicPartition("orders", 0): 7}},
    }
    looks = [checkpoint_look(3, 2, ledger=ledger_state([decision(2), stuck], [decision_end(2)]), **facts)]
    for at_ms in (NOW_MS, NOW_MS + 11_000):
        checkpoint_store.save_checkpoints(lease, looks, (), gaps={}, now_ms=at_ms)
    row = Query.objects.get()
    url = addresses.query_url("prod", row.ident)
    text = html.unescape("".join(page_html(page, f"{url}?tab={tab}") for tab in ("facts", "sources")))
    for said in (
        "format v1, batches 0 to 3 kept", "commits/1", "_SUCCESS", "dedupe, default in 8 partitions",
        '{"orders":{"0":7}}', '{"orders":{"0":30}}', LEDGER_ID,
        "1 prepared, 1 committed", "orders-0a1b2c3d-p1-g1-b1-s0", "batch 3",
    ):  # fmt: skip
        assert said in text, said
    assert "On restart:" not in text, "the sentence about the prepared batch has it"
    assert headline(page, "/queries").startswith("Batch 3 of orders has been prepared since ")


def take_checkpoints() -> leases.Lease:
    collector_store.sync_clusters(["prod"])
    lease = leases.acquire("prod", checkpoint_store.NAME, holder="test", now_ms=NOW_MS)
    assert lease is not None
    return lease


def test_a_blind_collector_is_said_on_the_page(page: Client, prod: Cluster) -> None:
    factories.query(prod)
    factories.gap(prod, source="checkpoints", reason="s3a://x: access denied")
    for url in ("/queries", QUERY_PAGE, "/"):
        assert "Data is incomplete since" in page_html(page, url), url
    assert "Data is incomplete since" not in page_html(page, "/transactions")
