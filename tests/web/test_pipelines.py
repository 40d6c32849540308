"""Proves the page of pipelines: sentence, drawing, list and unfolded row, search, focus, zoom, 1,000 nodes,
ranges, and what it says of what was not observed; and the part of the flow around some subjects."""

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dashboard.flow import queries as flow_queries
from dashboard.models import Cluster, Group, PartitionRecord, TopicTally
from fenceline.flow.graph import Flow
from fenceline.history.time_range import format_instant, last_range
from tests.cases import cases
from tests.web import factories, scenarios
from tests.web.roles import page_html

EDGE = re.compile(r'data-edge="([^"]+)"')
NODE = re.compile(r'data-node="([^"]+)"')
DETAILS = re.compile(r'data-details="([^"]+)"')
LINK = re.compile(r'data-link="([^"]+)"')
NOTE = re.compile(r"<span data-note>([^<]*)</span>")
PIPELINE = re.compile(r'data-pipeline="([^"]+)"')


def flow_of(of: Cluster) -> Flow:
    now = factories.now_ms()
    return flow_queries.read_flow(of, last_range("1h", now_ms=now), now_ms=now).flow


@pytest.fixture
def flow(prod: Cluster) -> Cluster:
    """The cluster of all pages, with a flow in which something is blocked."""
    scenarios.busy_flow(prod)
    return prod


def test_an_empty_flow_says_in_words_why(page: Client, prod: Cluster) -> None:
    text = page_html(page, "/pipelines")
    assert "No data flow was observed." in text
    assert not NODE.findall(text)
    assert 'class="empty"' in text


def test_nodes_and_edges_have_their_health_and_lead_to_the_flow_around_them_and_what_is_blocked_is_first(
    page: Client, flow: Cluster
) -> None:
    text = page_html(page, "/pipelines")
    assert set(EDGE.findall(text)) == {f"{edge.source} {edge.target}" for edge in flow_of(flow).edges}
    assert 'data-node="topic:payments" data-health="blocked"' in text
    assert 'data-node="topic:order_events" data-health="ok"' in text
    assert "focus=group%3Abilling" in text
    assert "style=" not in text.split('<svg class="flow')[1].split("</svg>")[0]
    assert PIPELINE.findall(text)[0] in ("group:billing", "group:shipping")
    headline = text.split("data-headline>")[1].split("<")[0]
    assert headline.startswith("3 of 4 pipelines blocked: ")
    assert headline.endswith(" at application payments, and 2 more.")


def test_focus_shows_what_leads_to_a_node_and_from_it(page: Client, flow: Cluster) -> None:
    text = page_html(page, "/pipelines?focus=topic:payments_ledger")
    assert set(NODE.findall(text)) == {
        "application:payments", "topic:payments", "application:ledger-writer", "topic:payments_ledger",
        "group:reports",
    }  # fmt: skip


def test_the_node_in_focus_is_named_and_leads_to_its_page(page: Client, flow: Cluster) -> None:
    text = page_html(page, f"/pipelines?focus=query:{factories.QUERY_ID}")
    (chip,) = re.findall(r'<a class="chip chip-clear" href="([^"]*)".*?</a>', text)
    assert "focus" not in chip
    assert "only around Spark query orders_enrich" in text
    drawn = text.split('<svg class="flow')[1].split("</svg>")[0]
    assert f'href="/queries/prod/{factories.QUERY_ID}"' in drawn
    assert drawn.count('href="/pipelines?') == len(NODE.findall(drawn)) - 1


def test_a_row_unfolds_by_its_address_to_its_links_and_those_beside_them(page: Client, flow: Cluster) -> None:
    factories.topic_tally(flow, "backfill", "payments", 3)
    text = page_html(page, "/pipelines")
    assert "data-details" not in text
    rows = text.split("<tbody>")[1].split("</tbody>")[0]
    assert rows.count('aria-expanded="false"') == len(PIPELINE.findall(rows)) == 4
    text = page_html(page, "/pipelines?pipeline=group:billing")
    assert DETAILS.findall(text) == ["group:billing"]
    way, beside = text.split("data-details")[1].split("</ol>")
    assert LINK.findall(way) == ["payments payments", "payments billing"]
    assert LINK.findall(beside) == ["backfill payments"]
    for link in ("/groups/prod/billing", "/partitions?cluster=prod&amp;q=payments"):
        assert link in way
    assert "p95 7 min" in way
    assert text.count('aria-expanded="true" data-row') == 1


def test_the_list_has_pages_and_opens_the_one_with_the_unfolded_row(page: Client, prod: Cluster) -> None:
    scenarios.large_flow(prod, 45)
    pages = [PIPELINE.findall(page_html(page, f"/pipelines?page={number}")) for number in (1, 2, 3)]
    assert [len(rows) for rows in pages] == [20, 20, 5]
    assert len({row for rows in pages for row in rows}) == 45
    text = page_html(page, f"/pipelines?pipeline={pages[2][1]}")
    assert PIPELINE.findall(text) == pages[2]
    assert DETAILS.findall(text) == [pages[2][1]]
    text = page_html(page, f"/pipelines?pipeline={pages[2][1]}&page=1")
    assert PIPELINE.findall(text) == pages[0]
    assert not DETAILS.findall(text)


@pytest.mark.parametrize(("zoom", "shown"), [("", "auto"), ("fit", "fit"), ("actual", "actual")])
def test_zoom_is_in_the_address(page: Client, flow: Cluster, zoom: str, shown: str) -> None:
    text = page_html(page, f"/pipelines?zoom={zoom}")
    assert f'<svg class="flow flow-{shown}" data-columns="5"' in text
    for other in {"fit", "actual"} - {zoom}:
        assert f'href="?zoom={other}"' in text


def test_a_search_shows_matches_with_their_neighbours(page: Client, flow: Cluster) -> None:
    text = page_html(page, "/pipelines?q=WAREhouse")
    assert set(NODE.findall(text)) == {"topic:orders_enriched", "group:warehouse"}


@cases(
    "focus=topic:never-seen",
    "focus=x" + "y" * 900,
    "fold=maybe",
    "from=tomorrow",
    "last=3w",
    "pipeline=group:nobody",
    "zoom=2",
    "page=0",
    "batches=x",
)
def test_what_cannot_be_used_is_named_and_the_whole_flow_shown(
    page: Client, flow: Cluster, query: str
) -> None:
    text = page_html(page, f"/pipelines?{query}")
    assert re.search(r'id="ignored-1"|data-ignored', text)
    assert "topic:payments" in NODE.findall(text)


def test_a_huge_search_finds_nothing_and_leads_back(page: Client, flow: Cluster) -> None:
    text = page_html(page, f"/pipelines?q={'z' * 200}")
    assert not NODE.findall(text)
    assert "Show the whole flow" in text


def test_many_nodes_are_folded_until_each_one_is_asked_for(page: Client, prod: Cluster) -> None:
    scenarios.large_flow(prod, 40)
    folded = NODE.findall(page_html(page, "/pipelines"))
    assert "topic:shop-*" in folded
    assert len(folded) <= 60
    whole = NODE.findall(page_html(page, "/pipelines?fold=no"))
    assert len(whole) == 40 * 5


def test_of_1000_nodes_a_bounded_number_is_drawn_and_a_search_finds_each(page: Client, prod: Cluster) -> None:
    scenarios.large_flow(prod, 200)
    for path in ("/pipelines", "/pipelines?q=shop", "/pipelines?q=shop-1", "/pipelines?focus=topic:shop-*"):
        assert 0 < len(NODE.findall(page_html(page, path))) <= 60, path
    single = page_html(page, "/pipelines?fold=no")
    drawn = NODE.findall(single)
    expected = ["200 of 1,000 nodes shown, the worst first: search or select one to see its neighbours"]
    assert NOTE.findall(single) == expected
    assert len(drawn) == 200
    assert "group:ship-04-sink" in drawn, "it is blocked"
    assert "topic:shop-19-events" not in drawn
    for path in ("/pipelines?q=shop-19-events", "/pipelines?q=shop-19-events&fold=no"):
        assert set(NODE.findall(page_html(page, path))) == {
            "application:shop-19-gateway", "topic:shop-19-events", "application:shop-19-enricher",
        }, path  # fmt: skip


def test_a_range_before_anything_was_kept_says_since_when_there_is_history(
    page: Client, flow: Cluster
) -> None:
    text = page_html(page, "/pipelines?from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z")
    assert 'data-cut="prod"' in text
    assert "application:payments" not in NODE.findall(text)
    # Groups and queries are kept as they are now alone, and the page says so.
    assert 'data-flow-gap=""' in text


def test_a_past_range_shows_what_was_written_then_without_today_s_status(page: Client, prod: Cluster) -> None:
    now = factories.now_ms()
    factories.topic_tally(prod, "then", "old-topic", age_ms=3 * 3_600_000)
    factories.topic_tally(prod, "now", "new-topic")
    scenarios.busy_partitions(prod)
    start, end = format_instant(now - 200 * 60_000), format_instant(now - 150 * 60_000)
    text = page_html(page, f"/pipelines?from={start}&to={end}")
    nodes = set(NODE.findall(text))
    assert "application:then" in nodes
    assert "application:now" not in nodes
    assert 'data-health="blocked"' not in text


def test_clusters_have_a_flow_each(page: Client, prod: Cluster) -> None:
    factories.topic_tally(prod, "app", "topic-a")
    staging = factories.watched_cluster("staging")
    factories.topic_tally(staging, "app", "topic-b")
    text = page_html(page, "/pipelines")
    assert re.findall(r'data-cluster-flow="([^"]+)"', text) == ["prod", "staging"]
    assert NODE.findall(page_html(page, "/pipelines?cluster=staging")) == ["application:app", "topic:topic-b"]


def test_clusters_share_one_list_and_a_row_opens_that_of_its_cluster(page: Client, prod: Cluster) -> None:
    staging = factories.watched_cluster("staging")
    for of, application in ((prod, "here"), (staging, "there")):
        factories.topic_tally(of, application, "orders")
    text = page_html(page, "/pipelines")
    assert PIPELINE.findall(text) == ["topic:orders"] * 2
    assert text.count('data-list="pipelines"') == 1
    text = page_html(page, "/pipelines?cluster=staging&pipeline=topic:orders")
    assert "?cluster=staging&amp;pipeline=topic%3Aorders#pipeline" in page_html(page, "/pipelines")
    assert LINK.findall(text) == ["there orders"]


def test_the_flow_around_subjects_has_what_leads_to_them_and_from_them(flow: Cluster) -> None:
    now = factories.now_ms()

    def around(*subjects: str) -> set[str]:
        return {str(at) for at in flow_queries.flow_around("prod", subjects, now_ms=now).nodes}

    payments = {
        "application:payments", "topic:payments", "group:billing", "group:shipping",
        "application:ledger-writer", "topic:payments_ledger", "group:reports",
    }  # fmt: skip
    assert around("transaction:payments-7") == payments
    assert around("partition:payments-0") == payments
    assert around("group:billing") == {"application:payments", "topic:payments", "group:billing"}
    # Its offsets are committed by an application: the edge through it is meant.
    assert around("group:ledger") == payments
    sink = factories.sink_transactional_id(flow.query_set.get(), 0, 1)
    assert f"query:{factories.QUERY_ID}" in around(f"transaction:{sink}")
    assert around("topic:never-seen", "broker:3", "collector:groups") == set()
    assert flow_queries.flow_around("no-such-cluster", ["group:billing"], now_ms=now) == Flow()


def test_a_transaction_that_is_open_since_before_the_range_is_an_edge(prod: Cluster) -> None:
    factories.transaction(prod, "abandoned-1", age_ms=5 * 3_600_000, partitions={"stock": [0]})
    (edge,) = flow_of(prod).edges
    assert (str(edge.source), str(edge.target)) == ("application:abandoned", "topic:stock")
    assert edge.group == ""


def test_topics_beyond_what_is_kept_are_a_gap(prod: Cluster) -> None:
    factories.topic_tally(prod, "app", "")
    assert [gap.subject for gap in flow_of(prod).gaps] == ["application:app"]


def test_a_collector_that_sees_nothing_is_a_gap_of_the_flow(prod: Cluster) -> None:
    factories.gap(prod)
    assert [gap.subject for gap in flow_of(prod).gaps] == [""]


def test_the_flow_takes_as_many_queries_however_large_it_is(prod: Cluster) -> None:
    scenarios.large_flow(prod, 2)
    few = queries_of(prod)
    for table in (TopicTally, Group, PartitionRecord):
        table.objects.all().delete()
    scenarios.large_flow(prod, 30)
    factories.raise_revision(prod)
    assert queries_of(prod) == few <= 20


def test_the_flow_is_derived_once_for_each_revision_and_step_of_the_clock(flow: Cluster) -> None:
    now = factories.now_ms() // flow_queries.STEP_MS * flow_queries.STEP_MS

    def at(ms: int) -> flow_queries.ClusterFlow:
        return flow_queries.read_flow(flow, last_range("1h", now_ms=ms), now_ms=ms)

    first = at(now + 1)
    assert at(now + flow_queries.STEP_MS) is first
    assert at(now + flow_queries.STEP_MS + 1) is not first
    factories.raise_revision(flow)
    again = at(now + 1)
    assert again is not first
    assert again.flow == first.flow


def queries_of(of: Cluster) -> int:
    with CaptureQueriesContext(connection) as asked:
        flow_of(of)
    return len(asked)
