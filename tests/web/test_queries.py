"""Proves that streaming queries are told truly: their chain, how far they are, and whether to stop them."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from dashboard import leases, query_charts, reading, save_checkpoints, store
from dashboard.config import CheckpointRoot
from dashboard.models import Batch, Cluster, PartitionRecord, Query
from dashboard.views import addresses
from fenceline.facts import State, TopicPartition
from fenceline.restarts import Verdict
from fenceline.spark import Broken, Damage, QueryState, StateOperator, StateStore
from tests.db.conftest import NOW_MS
from tests.db.streaming import LEDGER_ID, decision, done, ledger, look
from tests.web import held, seed, streams

pytestmark = pytest.mark.django_db
ONE = f"/queries/prod/{streams.QUERY_ID}"


def read(page: Client, url: str, status: int = 200) -> str:
    answer = page.get(url)
    assert answer.status_code == status, url
    return " ".join(answer.content.decode().split())


def names(page: Client, query: str = "") -> list[str]:
    found = re.findall(
        r'col-name"><span class="id"><a[^>]+data-row><bdi>([^<]+)</bdi>', read(page, f"/queries{query}")
    )
    return [html.unescape(name) for name in found]


def headline(page: Client, url: str) -> str:
    found = re.search(r"<h1 [^>]*>(.*?)</h1>", read(page, url))
    assert found
    return html.unescape(re.sub(r"<[^>]+>", "", found[1]))


@pytest.fixture
def prod(page: Client) -> Cluster:
    of = seed.cluster()
    seed.seen(of)
    held.watched(of)
    streams.watched(of)
    return of


@pytest.fixture
def four(prod: Cluster) -> Cluster:
    now = seed.now_ms()
    streams.query(prod, "runs", "id-1", planned=7, finished_ms=now - 9_000)
    streams.query(prod, "idles", "id-2", state="idle", sink="kafka", planned=90, finished_ms=now - 1_000)
    streams.query(prod, "failed", "id-3", state="failed", sink="other", planned=8, finished_ms=now - 5_000)
    streams.query(prod, "waits", "id-4", state="stopped", prepared=1, planned=9, finished_ms=None, sink="")
    return prod


@pytest.mark.parametrize(
    ("query", "shown"),
    [
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
    ],
)
def test_the_address_decides_what_is_shown(page: Client, four: Cluster, query: str, shown: list[str]) -> None:
    assert names(page, query) == shown


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?state=RUNNING", "state “RUNNING” is none of prepared, failed"),
        ("?sink=ours", "sink “ours” is none of exactly_once"),
        ("?sort=lag", "sort “lag” is none of worst"),
        ("?page=0x", "is not a page number"),
    ],
)
def test_a_bad_value_is_ignored_and_told(page: Client, four: Cluster, query: str, said: str) -> None:
    text = read(page, f"/queries{query}")
    assert said in text
    assert "runs" in text


def test_many_queries_are_paged_in_as_few_questions(
    page: Client, prod: Cluster, django_assert_max_num_queries: Any
) -> None:
    for n in range(60):
        row = streams.query(prod, f"q{n:02}", f"id-{n}", ledger_id=f"{n:08x}-0000-4000-8000-000000000000")
        streams.batches(row, (1_202, 1_203))
    with django_assert_max_num_queries(45):
        text = read(page, "/queries")
    assert "1–50 of 60" in text
    assert "51–60 of 60" in read(page, "/queries?page=2")


def test_the_verdict_names_what_is_lost_and_when(page: Client, prod: Cluster) -> None:
    streams.abandoned(prod)
    streams.query(prod, "fine", "id-2", ledger_id="5a6b7c8d-0000-4000-8000-000000000000")
    assert headline(page, "/queries").startswith(
        "2 queries; orders_enrich waits for a prepared batch, lost in 11 m"
    )
    assert 'data-until="no time: it may be lost"' in read(page, "/queries")
    Query.objects.filter(name="orders_enrich").update(expires_ms=seed.now_ms() - 1)
    assert "its transactions have timed out, the batch may be lost" in headline(page, "/queries")


def test_without_anything_prepared_failed_ones_are_counted(page: Client, prod: Cluster) -> None:
    streams.query(prod, state="failed")
    assert headline(page, "/queries") == "1 query; 1 of them failed."
    Query.objects.update(state="unheard")
    assert headline(page, "/queries") == "1 query; no listener tells whether their drivers live."


def test_a_batch_that_is_just_being_committed_is_no_trouble(page: Client, prod: Cluster) -> None:
    row = streams.query(prod, prepared=1, expires_ms=seed.now_ms() + 60_000)
    streams.decision(row, 1_204, outcome="", decided_ms=seed.now_ms() - 50)
    assert headline(page, "/queries") == "1 query; nothing waits for a commit."


def test_the_worst_finding_is_the_verdict_where_nothing_is_prepared(page: Client, prod: Cluster) -> None:
    row = streams.query(prod)
    seed.finding(prod, f"query:{row.ident}", "warning", rule="x", summary="orders_enrich is slow")
    assert headline(page, "/queries") == "1 query; orders_enrich is slow."
    assert f'href="{ONE}"' in read(page, "/")
    assert "orders_enrich is slow" in read(page, ONE)


def test_a_row_tells_chain_lag_rate_restart_and_whether_to_stop(page: Client, prod: Cluster) -> None:
    streams.partitions(prod)
    streams.abandoned(prod)
    text = read(page, "/queries")
    assert (
        'aria-label="planned done, written done, prepared done, committed broken, recorded waiting, '
        'checkpointed waiting"' in text
    )
    for said in ("not committed", "1,168", "1,120", 'class="trend"', ">replay<", "</i>no</span>"):
        assert said in text, said


def test_an_empty_page_says_how_a_query_becomes_known(page: Client, prod: Cluster, settings: Any) -> None:
    text = read(page, "/queries?cluster=prod")
    assert "No streaming query is known" in text
    assert "[[checkpoints]]" in text
    assert "cluster = &quot;prod&quot;" in text or 'cluster = "prod"' in text
    line = 'FencelineListener("http://testserver", "env:FENCELINE_TOKEN", cluster="prod"))'
    assert f"spark.streams.addListener({line}" in text
    root = CheckpointRoot(root="file:///checkpoints", cluster="prod")
    settings.FENCELINE = replace(settings.FENCELINE, checkpoints=[root])
    prod.collector_set.filter(name="checkpoints").delete()
    assert "Not collected yet" in read(page, "/queries?cluster=prod")
    assert "No query matches" in read(page, "/queries?q=x")


def test_without_a_root_a_query_is_known_from_its_listener_alone(page: Client, prod: Cluster) -> None:
    prod.collector_set.filter(name="checkpoints").delete()
    row = streams.query(
        prod, checkpoint="", seen_ms=None, planned=None, finished=None, ledger_id="", sink="", restart="",
        restart_words="", detail={},
    )  # fmt: skip
    streams.batch(row, 1_203, planned_ms=None, committed_ms=None, offsets=[])
    streams.run(row)
    text = read(page, ONE)
    assert "No checkpoint of it is known" in text
    assert "It has no ledger" in text
    assert "Nothing tells what its sink is" in text
    assert "cannot tell" in text
    assert "order_events-0" in text  # Its progress says how far it has read.


def test_files_alone_say_that_no_listener_is_attached(page: Client, prod: Cluster) -> None:
    row = streams.query(prod, state="unheard", heard_ms=None)
    streams.planned(row, 1_203, committed_ms=seed.now_ms())
    text = read(page, ONE)
    assert text.count("No listener is attached") == 2
    assert "How to make a query known" in text


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ("exactly_once", "exactly once"),
        ("kafka", "its output is at-least-once"),
        ("other", "Fenceline does not know its sink"),
        ("", "Nothing tells what its sink is"),
    ],
)
def test_what_a_sink_promises_is_said(page: Client, prod: Cluster, sink: str, said: str) -> None:
    streams.query(prod, sink=sink)
    assert said in read(page, ONE)


def test_a_broken_link_names_its_recovery_and_its_transactions(page: Client, prod: Cluster) -> None:
    streams.abandoned(prod)
    text = read(page, ONE)
    assert "Batch 1,204 is not committed." in text
    assert "Restart the query: it finishes this batch from its ledger before it plans another." in text
    assert "recoverAndCommit" in text
    for number in range(4):
        name = f"orders_enrich-3f9c11d2-p{number}-g7-b0-s{number}"
        assert f'href="/transactions/prod/{name}"' in text
    assert text.count("</i>Ongoing</span>") == 3
    assert text.count("</i>CompleteCommit</span>") == 1
    assert "Do not stop orders_enrich now" in text
    assert re.search(r'data-until="no time" [^>]+>11 m \d+ s</time> left for 1 prepared batch', text)


def test_an_earlier_batch_is_opened_with_what_became_of_it(page: Client, prod: Cluster) -> None:
    row = streams.query(prod)
    streams.batches(row, (1_202, 1_203))
    for number in (1_202, 1_203):
        decided = streams.decision(row, number)
    streams.coordinated(row, decided, *[State.COMPLETE_COMMIT] * 4)
    assert 'href="?batch=1202#chain"' in read(page, ONE)
    text = read(page, f"{ONE}?batch=1202")
    assert "not the newest" in text
    assert text.count("nothing is known of this id") == 4  # Nobody has seen the other half of the ids.
    assert "Nothing is kept of batch 7" in read(page, f"{ONE}?batch=7")
    assert "not the newest" not in read(page, f"{ONE}?batch=x")


def test_an_id_that_went_on_is_told_by_its_ledger(page: Client, prod: Cluster) -> None:
    row = streams.query(prod)
    streams.batches(row, (1_201, 1_203))
    streams.decision(row, 1_201)
    newest = streams.decision(row, 1_203, transactions=streams.sent(row, 1_203, age_ms=2_000))
    streams.coordinated(row, newest, *[State.COMPLETE_COMMIT] * 4)
    text = read(page, f"{ONE}?batch=1201")
    assert text.count("committed, id used again") == 4
    assert "id used again" not in read(page, ONE)


def test_a_lost_batch_says_that_no_restart_mends_it(page: Client, prod: Cluster) -> None:
    row = streams.query(prod, planned=1_204, state="failed")
    streams.planned(row, 1_204)
    streams.decision(row, 1_204, "lost", lost=[streams.transactional_id(row, 0, 1_204)], done_by="operator")
    text = read(page, ONE)
    assert "No restart brings these records back" in text
    assert "by an operator" in text
    assert "13120" in text  # What it read.


@pytest.mark.parametrize("state", QueryState)
def test_each_state_is_said(page: Client, prod: Cluster, state: QueryState) -> None:
    streams.query(prod, state=state.value)
    assert f"</i>{state}</span>" in read(page, ONE)


def test_one_that_fell_silent_is_not_called_running(page: Client, prod: Cluster) -> None:
    streams.query(prod, heard_ms=seed.now_ms() - 600_000)
    text = read(page, ONE)
    assert "its listener has fallen silent" in text
    assert "</i>running</span>" not in text


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_on_a_restart_is_said(page: Client, prod: Cluster, verdict: Verdict) -> None:
    detail = streams.detail(restart={"first_batch": None, "severity": "critical", "remedy": "do this"})
    streams.query(prod, restart=verdict.value, restart_words="fails: so and so", detail=detail)
    text = read(page, ONE)
    assert "A restart fails: so and so." in text
    assert "Before it: do this." in text
    assert f"{verdict.value.replace('_', ' ')}</span>" in read(page, "/queries")


def test_the_inspector_tells_broken_and_foreign_files(page: Client, prod: Cluster) -> None:
    broken = [{"path": "offsets/17", "damage": "torn", "detail": "line 2 ends too early"}]
    operators = [{"operator_id": 0, "name": "dedupe", "stores": [{"name": "default", "partitions": 8}]}]
    streams.query(
        prod,
        detail=streams.detail(broken=broken, foreign=["_SUCCESS"], operators=operators, asynchronous=True),
    )
    text = read(page, ONE)
    for said in (
        "offsets/17", "line 2 ends too early", "_SUCCESS", "dedupe, default in 8 partitions",
        "tracked asynchronously", "batches 1,103 to 1,203 are kept", "spark.sql.shuffle.partitions",
    ):  # fmt: skip
        assert said in text, said


def test_a_query_whose_checkpoint_cannot_be_read_says_why(page: Client, prod: Cluster) -> None:
    streams.query(prod, error="s3a://x: access denied", detail={})
    text = read(page, ONE)
    assert "Its checkpoint cannot be read." in text
    assert "s3a://x: access denied" in text
    assert "cannot tell" in text


def test_sources_tell_position_lag_and_what_blocks_them(page: Client, prod: Cluster) -> None:
    pin = held.pinned(prod, "payments", 0, transactional_id="payments-7")
    held.partition(prod, "payments", 1, lso=48_211, high_watermark=48_300)
    row = streams.query(prod)
    streams.batch(row, 1_203, offsets=[["0", json.dumps({"payments": {"0": pin.start_offset, "1": 48_300}})]])
    text = read(page, ONE)
    assert "probably waits" in text
    assert 'href="/transactions/prod/payments-7"' in text
    assert 'href="/partitions/prod/payments/0"' in text
    assert "1,770" in text
    assert "at a pinned LSO" in read(page, "/queries")
    assert f'href="{ONE}"' in read(page, "/partitions/prod/payments/0")


def test_records_deleted_unread_come_first_and_are_counted(page: Client, prod: Cluster) -> None:
    streams.partitions(prod)
    streams.batch(streams.query(prod), 1_203, offsets=[["0", streams.offsets("order_events", 4, 13_120)]])
    text = read(page, ONE)
    assert "30 offsets that it has not read are deleted." in text
    assert text.index("order_events-2</bdi>") < text.index("order_events-0</bdi>")
    PartitionRecord.objects.update(high_watermark=9_000, lso=9_000, log_start=0)
    assert text.count("topic made anew?") == 0
    assert read(page, ONE).count("topic made anew?") == 4


@pytest.mark.parametrize(
    "raw", [None, "-", "{}", '{"path":"/in"}', '{"logOffset":3}', "7", "[1", '{"t":{"0":-2}}']
)
def test_any_source_is_told_as_it_is(page: Client, prod: Cluster, raw: str | None) -> None:
    assert not reading.positions(raw)
    streams.batch(streams.query(prod), 1_203, offsets=[["0", raw]])
    text = read(page, ONE)
    said = "nothing was read yet" if raw is None else "not Kafka's; read up to"
    assert said in html.unescape(text)


def test_batches_are_paged_and_keep_our_own_history(page: Client, prod: Cluster) -> None:
    row = streams.query(prod)
    Batch.objects.bulk_create(
        Batch(query=row, batch_id=n, planned_ms=seed.now_ms(), rev=1) for n in range(130)
    )
    text = read(page, ONE)
    assert "130 kept; Spark itself keeps about 100" in text
    assert "1–25 of 130" in text
    assert "126–130 of 130" in read(page, f"{ONE}?page=6")


def test_charts_stack_the_phases_and_say_in_words_what_they_show(page: Client, prod: Cluster) -> None:
    row = streams.query(prod)
    streams.batches(row, range(1_200, 1_204))
    drawn = query_charts.durations(list(Batch.objects.order_by("batch_id")))
    by_name = {trace["name"]: trace["y"] for trace in drawn["data"]}
    assert by_name["walCommit"] == [48] * 4
    whole = [batch.duration_ms for batch in Batch.objects.order_by("batch_id")]
    assert [sum(each) for each in zip(*by_name.values(), strict=True)] == whole
    looks = [
        (trace["meta"]["tone"], trace["marker"].get("pattern", {}).get("shape")) for trace in drawn["data"]
    ]
    assert len(set(looks)) == len(looks)
    text = read(page, ONE)
    assert "How long each phase of batches 1,200 to 1,203 took" in text
    assert 'id="rows-chart-figure"' in text


def test_runs_tell_what_their_listener_could_not(page: Client, prod: Cluster) -> None:
    row = streams.query(prod)
    streams.run(row, spooled=3, dropped=2, spool_age_ms=61_000, exception="java.lang.Error: boom", ended_ms=1)
    text = read(page, ONE)
    assert "2 dropped" in text
    assert "3 waiting, the oldest for 1 m 1 s" in text
    assert "java.lang.Error: boom" in text


def test_a_transaction_names_the_query_and_batch_it_belongs_to(page: Client, prod: Cluster) -> None:
    row = streams.abandoned(prod)
    text = read(page, f"/transactions/prod/{streams.transactional_id(row, 1, 1_204)}")
    assert f'href="{ONE}"' in text
    assert f'<a href="{ONE}?batch=1204#chain">batch 1,204</a> was decided last' in text
    seed.transaction(prod, "plain-1")
    assert "The sink of" not in read(page, "/transactions/prod/plain-1")


def test_the_overview_shows_those_that_need_somebody_first(page: Client, prod: Cluster) -> None:
    assert "None is known." in read(page, "/")
    streams.busy(prod)
    text = read(page, "/")
    assert "7 known" in text
    assert text.index("<bdi>orders_enrich</bdi>") < text.index("<bdi>clicks_sessions</bdi>")


@pytest.mark.parametrize("raw", seed.NASTY)
def test_any_name_is_shown_escaped(page: Client, prod: Cluster, raw: bytes) -> None:
    name = raw.decode(errors="replace").replace("\0", "")
    row = streams.query(prod, name, "id-1")
    streams.batch(row, 1_203)
    text = (
        page.get(addresses.query("prod", row.ident)).content.decode() + page.get("/queries").content.decode()
    )
    assert html.escape(name) in text
    assert "<script>alert" not in text


def test_what_is_not_known_says_so(page: Client, prod: Cluster) -> None:
    assert "No such query is known on cluster prod" in read(page, "/queries/prod/<b>x", 404)
    assert page.get("/queries/nowhere/x").status_code == 404
    streams.query(prod)
    Cluster.objects.update(configured=False)
    assert page.get(ONE).status_code == 404
    assert names(page) == []


def test_what_the_collector_saves_is_what_the_page_reads(page: Client) -> None:
    lease = take_checkpoints()
    stuck = decision(3, at_ms=NOW_MS, number=2)
    facts = {
        "broken": (Broken("commits/1", Damage.EMPTY, "it holds no byte"),),
        "foreign": ("_SUCCESS",),
        "operators": (StateOperator(0, "dedupe", (StateStore("default", 8),)),),
        "initial": {"0": {TopicPartition("orders", 0): 7}},
    }
    looks = [look(3, 2, ledger=ledger([decision(2), stuck], [done(2)]), **facts)]
    save_checkpoints.save(lease, looks, (), gaps={}, now_ms=NOW_MS)
    row = Query.objects.get()
    text = html.unescape(read(page, addresses.query("prod", row.ident)))
    for said in (
        "format v1, batches 0 to 3 are kept", "commits/1", "_SUCCESS", "dedupe, default in 8 partitions",
        '{"orders":{"0":7}}', '{"orders":{"0":30}}', f"A restart {row.restart_words}.", LEDGER_ID,
        "1 prepared, 1 committed", "orders-0a1b2c3d-p1-g1-b1-s0", "batch 3",
    ):  # fmt: skip
        assert said in text, said
    assert "orders waits for a prepared batch" in headline(page, "/queries")


def take_checkpoints() -> leases.Lease:
    store.sync_clusters(["prod"])
    lease = leases.acquire("prod", save_checkpoints.NAME, holder="test", now_ms=NOW_MS)
    assert lease is not None
    return lease


def test_a_blind_collector_is_said_on_the_page(page: Client, prod: Cluster) -> None:
    streams.query(prod)
    seed.gap(prod, source="checkpoints", reason="s3a://x: access denied")
    for url in ("/queries", ONE, "/"):
        assert "Not everything was seen since" in read(page, url), url
    assert "Not everything was seen since" not in read(page, "/transactions")
