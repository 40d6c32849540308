"""Proves that a streaming query's page tells truly: its chain, how far it is, what a restart would do, its
state files, and a chain of these that a restart cannot load."""

import html
import json
import re

import pytest
from django.test import Client

from dashboard.models import Batch, Cluster, PartitionRecord, Query
from dashboard.streaming import lag
from dashboard.web.charts import query_figures
from fenceline.facts import TransactionState
from fenceline.spark.records import QueryState
from fenceline.spark.restart_prediction import RestartVerdict
from tests.cases import cases
from tests.web import factories, scenarios
from tests.web.roles import QUERY_PAGE, headline, page_html, query_tab, text_of

pytestmark = pytest.mark.django_db


@cases(
    ("exactly_once", "exactly once"),
    ("kafka", "its output is at-least-once"),
    ("other", "Fenceline does not know its sink"),
    ("", "Its sink is not known"),
)
def test_what_a_sink_promises_is_said(page: Client, prod: Cluster, sink: str, said: str) -> None:
    factories.query(prod, sink=sink)
    assert said in page_html(page, QUERY_PAGE)


def test_a_broken_link_names_its_recovery_and_its_transactions(page: Client, prod: Cluster) -> None:
    scenarios.abandoned_query(prod)
    text = page_html(page, QUERY_PAGE)
    assert "Batch 1,204 is not committed." in text
    assert "Restart the query: it commits this batch from its ledger first." in text
    assert "recoverAndCommit" in text
    for number in range(4):
        name = f"orders_enrich-3f9c11d2-p{number}-g7-b0-s{number}"
        assert f'href="/transactions/prod/{name}"' in text
    assert text.count("</i>Ongoing</span>") == 3
    assert text.count("</i>CompleteCommit</span>") == 1
    assert re.search(r"time out in\s*<time [^>]*>11 min \d+ s</time>", text)


def test_an_earlier_batch_is_opened_with_what_became_of_it(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    factories.batches(row, (1_202, 1_203))
    for number in (1_202, 1_203):
        decided = factories.sink_decision(row, number)
    factories.coordinator_transactions(row, decided, *[TransactionState.COMPLETE_COMMIT] * 4)
    assert 'href="?batch=1202#chain"' in page_html(page, QUERY_PAGE)
    text = page_html(page, f"{QUERY_PAGE}?batch=1202")
    assert "newest: batch" in text
    assert text.count("no coordinator record of this id is known") == 4  # Not those of the other half.
    assert "No data for batch 7" in page_html(page, f"{QUERY_PAGE}?batch=7")
    assert "newest: batch" not in page_html(page, f"{QUERY_PAGE}?batch=x")


def test_an_id_that_went_on_is_told_by_its_ledger(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    factories.batches(row, (1_201, 1_203))
    factories.sink_decision(row, 1_201)
    newest = factories.sink_decision(
        row, 1_203, transactions=factories.sink_transactions(row, 1_203, age_ms=2_000)
    )
    factories.coordinator_transactions(row, newest, *[TransactionState.COMPLETE_COMMIT] * 4)
    text = page_html(page, f"{QUERY_PAGE}?batch=1201")
    # The ledger's word is named as such: a coordinator that cannot confirm it any more is no confirmation.
    assert text.count("id reused; ledger: committed") == 4
    assert "id reused" not in page_html(page, QUERY_PAGE)


def test_a_lost_batch_says_that_no_restart_mends_it(page: Client, prod: Cluster) -> None:
    row = factories.query(prod, planned=1_204, state="failed")
    factories.unfinished_batch(row, 1_204)
    factories.sink_decision(
        row, 1_204, "lost", lost=[factories.sink_transactional_id(row, 0, 1_204)], done_by="operator"
    )
    text = page_html(page, QUERY_PAGE)
    assert "A restart does not restore these records" in text
    assert "by an operator" in text
    assert "13120" in query_tab(page, "facts")  # What it read.


@pytest.mark.parametrize("state", QueryState)
def test_each_state_is_said(page: Client, prod: Cluster, state: QueryState) -> None:
    factories.query(prod, state=state.value)
    word = "no heartbeat" if state is QueryState.UNHEARD else state
    assert f"</i>{word}</span>" in page_html(page, QUERY_PAGE)


def first_sentence(text: str) -> str:
    """Return the first sentence of a query's page below its name."""
    found = re.search(r"<p [^>]*data-fact[^>]*>(.*?)</p>", text, re.DOTALL)
    assert found
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", found[1])).split())


@cases(
    ({"state": "failed"}, r"failed at \d\d:\d\d:\d\d UTC"),
    ({"state": "running"}, r"no heartbeat since \d\d:\d\d:\d\d UTC"),
    ({"state": "idle"}, r"no heartbeat since \d\d:\d\d:\d\d UTC"),
)
def test_a_dead_driver_with_a_prepared_batch_is_the_first_sentence(
    page: Client, prod: Cluster, columns: dict[str, str], evidence: str
) -> None:
    scenarios.abandoned_query(prod)
    Query.objects.update(heartbeat_every_ms=5_000, **columns)
    wanted = (
        rf"Batch 1,204 is prepared and the driver is gone \({evidence}\): "
        r"a restart finishes it until \d\d:\d\d:\d\d UTC\."
    )
    assert re.fullmatch(wanted, first_sentence(page_html(page, QUERY_PAGE)))
    assert re.match(
        wanted.replace("Batch 1,204 is", "Batch 1,204 of orders_enrich is")[:-2], headline(page, "/queries")
    )


def test_a_driver_that_is_heard_is_not_called_gone(page: Client, prod: Cluster) -> None:
    scenarios.abandoned_query(prod)
    Query.objects.update(state="running", heard_ms=factories.now_ms() - 9_000, heartbeat_every_ms=5_000)
    text = page_html(page, QUERY_PAGE)
    assert "driver is gone" not in text
    assert first_sentence(text).startswith("Batch 1,204 has been prepared since ")


def test_one_that_fell_silent_is_not_called_running(page: Client, prod: Cluster) -> None:
    factories.query(prod, heard_ms=factories.now_ms() - 600_000)
    text = page_html(page, QUERY_PAGE)
    assert re.search(r"no heartbeat since \d\d:\d\d:\d\d UTC: its driver may be gone", text)
    assert "</i>running</span>" not in text


def test_each_verdict_on_a_restart_is_said(page: Client, prod: Cluster) -> None:
    detail = factories.checkpoint_detail(
        restart={"first_batch": None, "severity": "critical", "remedy": "do this"}
    )
    verdicts = [verdict.value for verdict in RestartVerdict]
    for verdict in verdicts:
        factories.query(
            prod, verdict, verdict, restart=verdict, restart_words="fails: so and so", detail=detail
        )
    listed = page_html(page, "/queries")
    for verdict in verdicts:
        text = page_html(page, f"/queries/prod/{verdict}?tab=facts")
        assert "On restart: fails: so and so." in text, verdict
        assert "First: do this." in text, verdict
        assert re.search(rf">\s*{verdict.replace('_', ' ')}</span>", listed)


def test_the_inspector_tells_broken_and_foreign_files(page: Client, prod: Cluster) -> None:
    broken = [{"path": "offsets/17", "damage": "torn", "detail": "line 2 ends too early"}]
    operators = [{"operator_id": 0, "name": "dedupe", "stores": [{"name": "default", "partitions": 8}]}]
    factories.query(
        prod,
        detail=factories.checkpoint_detail(
            broken=broken, foreign=["_SUCCESS"], operators=operators, asynchronous=True
        ),
    )
    text = query_tab(page, "facts")
    for said in (
        "offsets/17", "line 2 ends too early", "_SUCCESS", "dedupe, default in 8 partitions",
        "tracked asynchronously", "batches 1,103 to 1,203 kept", "spark.sql.shuffle.partitions",
    ):  # fmt: skip
        assert said in text, said


def test_a_query_whose_checkpoint_cannot_be_read_says_why(page: Client, prod: Cluster) -> None:
    factories.query(prod, error="s3a://x: access denied", detail={}, seen_ms=factories.now_ms() - 31_000)
    text = page_html(page, QUERY_PAGE)
    assert "Its checkpoint cannot be read." in text
    assert "s3a://x: access denied" in text
    assert "Whether orders_enrich is safe to restart is not known: s3a://x: access denied." in text


def test_sources_tell_position_lag_and_what_blocks_them(page: Client, prod: Cluster) -> None:
    pin = factories.lso_blocker(prod, "payments", 0, transactional_id="payments-7")
    factories.partition(prod, "payments", 1, lso=48_211, high_watermark=48_300)
    row = factories.query(prod)
    factories.batch(
        row, 1_203, offsets=[["0", json.dumps({"payments": {"0": pin.start_offset, "1": 48_300}})]]
    )
    text = query_tab(page, "sources")
    assert "likely blocked" in text
    assert 'href="/transactions/prod/payments-7"' in text
    assert 'href="/partitions/prod/payments/0"' in text
    assert "1,770" in text
    assert "at a blocked LSO" in page_html(page, "/queries")
    assert f'href="{QUERY_PAGE}"' in page_html(page, "/partitions/prod/payments/0")


def test_records_deleted_unread_come_first_and_are_counted(page: Client, prod: Cluster) -> None:
    scenarios.source_partitions(prod)
    factories.batch(
        factories.query(prod), 1_203, offsets=[["0", factories.source_offsets("order_events", 4, 13_120)]]
    )
    text = query_tab(page, "sources")
    assert "30 unread offsets were deleted." in text
    assert text.index("order_events-2</bdi>") < text.index("order_events-0</bdi>")


def test_a_position_past_the_end_is_shown_once_the_end_is_newer(page: Client, prod: Cluster) -> None:
    scenarios.source_partitions(prod)
    batch = factories.batch(
        factories.query(prod), 1_203, offsets=[["0", factories.source_offsets("order_events", 4, 13_120)]]
    )
    cut = {"high_watermark": 9_000, "lso": 9_000, "log_start": 0}
    PartitionRecord.objects.update(**cut, seen_ms=batch.committed_ms)
    assert query_tab(page, "sources").count("past the end</span>") == 0, (
        "the query may be ahead of the last poll"
    )
    PartitionRecord.objects.update(seen_ms=batch.committed_ms + 11_000)
    assert query_tab(page, "sources").count("past the end</span>") == 4
    assert "past the end</span>" in page_html(page, "/partitions/prod/order_events/0")


@cases(None, "-", "{}", '{"path":"/in"}', '{"logOffset":3}', "7", "[1", '{"t":{"0":-2}}')
def test_any_source_is_told_as_it_is(page: Client, prod: Cluster, raw: str | None) -> None:
    assert not lag.source_positions(raw)
    factories.batch(factories.query(prod), 1_203, offsets=[["0", raw]])
    text = query_tab(page, "sources")
    said = "nothing read yet" if raw is None else "not Kafka's; read up to"
    assert said in html.unescape(text)


def test_batches_are_paged_and_keep_our_own_history(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    Batch.objects.bulk_create(
        Batch(query=row, batch_id=n, planned_ms=factories.now_ms(), rev=1) for n in range(130)
    )
    text = page_html(page, QUERY_PAGE)
    assert "1–6 of 130" in text
    assert "127–130 of 130" in page_html(page, f"{QUERY_PAGE}?page=22")


def test_charts_stack_the_phases_and_say_in_words_what_they_show(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    factories.batches(row, range(1_200, 1_204))
    drawn = query_figures.duration_figure(list(Batch.objects.order_by("batch_id")))
    by_name = {trace["name"]: trace["y"] for trace in drawn["data"]}
    assert by_name["walCommit"] == [48] * 4
    whole = [batch.duration_ms for batch in Batch.objects.order_by("batch_id")]
    assert [sum(each) for each in zip(*by_name.values(), strict=True)] == whole
    looks = [
        (trace["meta"]["tone"], trace["marker"].get("pattern", {}).get("shape")) for trace in drawn["data"]
    ]
    assert len(set(looks)) == len(looks)
    text = query_tab(page, "charts")
    assert "How long each phase of batches 1,200 to 1,203 took" in text
    assert 'id="rows-chart-figure"' in text


def test_rows_written_are_shown_from_the_ledger_in_table_and_chart(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    factories.batches(row, range(1_200, 1_204))
    counted = sum(each["records"] for each in factories.sink_decision(row, 1_203).transactions)
    for tab in ("batches", "charts"):
        cells = re.findall(r"<td[^>]* data-rows-written>(.*?)</td>", query_tab(page, tab), re.DOTALL)
        assert [f"{counted:,}" in cell for cell in cells] == [True, False, False, False]
        assert all("unknown: Spark does not count" in cell for cell in cells[1:])
    drawn = query_figures.row_figure(list(Batch.objects.order_by("batch_id")), {1_203: counted})
    by_name = {trace["name"]: trace["y"] for trace in drawn["data"]}
    assert by_name["rows written"] == [None, None, None, counted]


def test_batches_whose_rows_nothing_counts_have_no_figure(page: Client, prod: Cluster) -> None:
    factories.batches(factories.query(prod, sink="other"), range(1_200, 1_204), input_rows=None)
    text = query_tab(page, "charts")
    assert "rows read are not reported" in text
    assert "0 to 0 rows" not in text


def test_runs_tell_what_their_listener_could_not(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    factories.query_run(
        row, spooled=3, dropped=2, spool_age_ms=61_000, exception="java.lang.Error: boom", ended_ms=1
    )
    text = query_tab(page, "facts")
    assert "2 dropped" in text
    assert "3 spooled, oldest 1 min 1 s" in text
    assert "java.lang.Error: boom" in text


def test_a_transaction_names_the_query_and_batch_it_belongs_to(page: Client, prod: Cluster) -> None:
    row = scenarios.abandoned_query(prod)
    text = page_html(page, f"/transactions/prod/{factories.sink_transactional_id(row, 1, 1_204)}")
    assert f'href="{QUERY_PAGE}"' in text
    assert f'<a href="{QUERY_PAGE}?batch=1204#chain">batch 1,204</a> is the last decided batch' in text
    factories.transaction(prod, "plain-1")
    assert "The sink of" not in page_html(page, "/transactions/prod/plain-1")


def test_a_tab_is_a_link_and_keeps_the_batch(page: Client, prod: Cluster) -> None:
    factories.batches(factories.query(prod), range(1_200, 1_204))
    text = page_html(page, f"{QUERY_PAGE}?batch=1202&page=1")
    assert re.findall(r'<a\s+class="tab"\s+href="([^"]*)"\s+data-tab="(\w+)"\s+aria-current', text) == [
        ("?batch=1202#tabs", "batches")
    ]
    assert 'href="?batch=1202&amp;tab=charts#tabs"' in text
    assert "batch 1,203" in page_html(page, f"{QUERY_PAGE}?tab=nonsense")


def stores(shown: str) -> list[list[str]]:
    """Return the cells of each store that a page lists, as text, without the labels of narrow pages."""
    shown = re.sub(r'<span class="narrow-only">[^<]*</span>', "", shown)
    rows = re.findall(r"<tr data-store>(.*?)</tr>", shown, re.S)
    return [[text_of(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)] for row in rows]


def test_each_store_has_versions_files_and_what_a_restart_loads(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    empty = factories.state_chain(1, store="left", base=0, snapshots=0, needed=3, oldest=1, newest=3)
    fresh = factories.state_chain(2, oldest=None, newest=None, needed=None, base=None)
    factories.operator_state(row, factories.state_chain(0), empty, fresh)
    shown = query_tab(page, "state")
    first, second, third = stores(shown)
    assert first[0] == "0"
    assert "1,100 to 1,204" in first[1]
    assert first[-1] == "version 1,204: snapshot 1,194 and 10 deltas"
    assert second[0] == "1 · left"
    assert second[-1] == "version 3: no snapshot and 3 deltas"
    assert third[-1] == "nothing: no batch is committed"
    assert "data-broken-state" not in shown


def test_a_broken_chain_is_named_and_comes_first(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    chains = [factories.state_chain(n) for n in range(12)]
    chains[11] = chains[11]._replace(missing=(1_200, 1_203), missing_count=2)
    factories.operator_state(row, *chains)
    shown = query_tab(page, "state")
    (named,) = re.findall(r"data-broken-state>(.*?)</div>", shown, re.S)
    assert "partition 11: versions 1,200, 1,203 are missing to load version 1,204" in text_of(named)
    listed = stores(shown)
    assert [each[0] for each in listed[:2]] == ["11", "0"]
    assert listed[0][-1] == "broken"
    assert len(listed) == 12
    assert shown.split('id="more-stores-0"')[1].count("data-store>") == 4


def test_rows_come_from_progress_where_one_operator_has_the_name(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    factories.operator_state(row, factories.state_chain())
    counted = {
        "name": "stateStoreSave", "rows_total": 1_204_311, "rows_updated": 8, "rows_removed": 7,
        "memory_bytes": 431, "rows_dropped_by_watermark": 0, "commit_ms": 88, "custom": {},
    }  # fmt: skip
    factories.batch(row, 1_203, operators=[counted])
    heading = re.search(r"State of stateStoreSave.*?</h2>", query_tab(page, "state"), re.S)
    assert heading
    assert "1,204,311 rows" in text_of(heading[0])


def test_what_was_not_listed_is_named(page: Client, prod: Cluster) -> None:
    factories.operator_state(factories.query(prod), unread="permission denied")
    shown = query_tab(page, "state")
    (unread,) = re.findall(r"data-unread>(.*?)</p>", shown, re.S)
    assert "permission denied" in unread
    assert not stores(shown)


def test_a_query_without_state_has_no_such_section(page: Client, prod: Cluster) -> None:
    factories.query(prod)
    assert "data-operator-state" not in query_tab(page, "state")
