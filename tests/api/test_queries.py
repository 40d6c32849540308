"""Proves the API of streaming queries: lists, one query by each of its names, batches, and safe to stop."""

from typing import Any
from urllib.parse import quote

import pytest

from dashboard.models import Batch, Cluster, Query
from tests.api.conftest import Ask, all_items
from tests.web import factories, scenarios

pytestmark = pytest.mark.django_db


def test_a_query_is_told_in_full(ask: Ask, prod: Cluster) -> None:
    scenarios.source_partitions(prod)
    row = scenarios.abandoned_query(prod)
    told = ask(f"queries/{row.ident}")
    assert (told["name"], told["state"], told["planned"], told["finished"]) == (
        "orders_enrich", "failed", 1_204, 1_203,
    )  # fmt: skip
    assert [(link["link"], link["state"]) for link in told["chain"]] == [
        ("planned", "done"),
        ("written", "done"),
        ("prepared", "done"),
        ("committed", "broken"),
        ("recorded", "waiting"),
        ("checkpointed", "waiting"),
    ]
    assert told["chain"][3]["recovery"] == "recoverAndCommit"
    assert told["ledger"]["decisions"] == {"prepared": 1, "committed": 8}
    assert told["checkpoint_holds"]["kept"]["offsets"] == [1_103, 1_203]
    assert [run["dropped"] for run in told["runs"]] == [0, 2]
    parts = {part["partition"]: part for part in told["sources"][0]["partitions"]}
    assert (parts[0]["position"], parts[0]["planned"], parts[0]["lag_lso"], parts[0]["lag_hw"]) == (
        13_120, 13_200, 280, 292,
    )  # fmt: skip
    assert (parts[0]["deleted_unread"], parts[2]["deleted_unread"]) == (0, 30)
    assert (told["lag_lso"], told["lag_hw"]) == (1_090, 1_168)


def test_who_stands_at_a_pinned_lso_is_told_with_what_holds_it(ask: Ask, prod: Cluster) -> None:
    factories.lso_blocker(prod, "payments", 0, transactional_id="payments-7")
    row = factories.query(prod)
    factories.batch(row, 1_203, offsets=[["0", '{"payments":{"0":48211,"1":7}}']])
    waits, unseen = ask(f"queries/{row.ident}")["sources"][0]["partitions"]
    assert (waits["waiting"], waits["blockers"][0]["transactional_id"]) == ("probably", "payments-7")
    assert (unseen["waiting"], unseen["lag_hw"]) == ("", None)
    assert ask(f"queries/{row.ident}")["lag_hw"] is None  # Not the sum of what is known.


@pytest.mark.parametrize("asked", ["orders_enrich", factories.QUERY_ID, f"{factories.QUERY_ID}@0a1b2c3d"])
def test_a_query_has_an_address_by_each_of_its_names(ask: Ask, prod: Cluster, asked: str) -> None:
    factories.query(prod, ident=f"{factories.QUERY_ID}@0a1b2c3d")
    assert ask(f"queries/{quote(asked, safe='')}")["id"] == f"{factories.QUERY_ID}@0a1b2c3d"


@pytest.mark.sql
@pytest.mark.parametrize("name", ["dir/c d", "batches", "safe_to_stop", "ü%2F?"])
def test_any_name_has_an_address(ask: Ask, prod: Cluster, name: str) -> None:
    row = factories.query(prod, name)
    factories.batch(row, 1_203)
    where = f"queries/{quote(name, safe='')}"
    assert ask(where)["id"] == row.ident
    assert len(ask(f"{where}/batches")["items"]) == 1
    assert ask(f"{where}/safe_to_stop")["safe"] is True


def test_what_means_several_is_refused_with_the_candidates(ask: Ask, prod: Cluster) -> None:
    other = factories.cluster("other")
    for of, ident in ((prod, "id-1"), (prod, "id-2"), (other, "id-1")):
        factories.query(of, "twice", ident, checkpoint=f"file:///{of.name}/{ident}")
    told = ask("queries/twice", 400)
    assert told["detail"].startswith("'twice' means 3 queries; ask for one of the candidates")
    assert [(each["cluster"], each["id"]) for each in told["candidates"]] == [
        ("other", "id-1"), ("prod", "id-1"), ("prod", "id-2"),
    ]  # fmt: skip
    assert ask("queries/twice?cluster=other")["cluster"] == "other"
    assert len(ask("queries/id-1/safe_to_stop", 400)["candidates"]) == 2
    assert ask("queries/id-2/batches")["items"] == []


def test_what_nobody_knows_is_not_found(ask: Ask, prod: Cluster) -> None:
    factories.query(prod)
    for path in ("queries/nobody", "queries/nobody/batches", "queries/nobody/safe_to_stop"):
        assert ask(path, 404)["detail"] == "No query 'nobody' is known."
    factories.cluster("other")
    assert "on cluster 'other'" in ask("queries/orders_enrich?cluster=other", 404)["detail"]
    assert ask("clusters/nowhere/safe_to_stop", 404)["status"] == 404
    Cluster.objects.update(configured=False)
    assert ask("queries")["items"] == []
    assert ask("queries/orders_enrich", 404)


def test_batches_come_newest_first_with_their_transactions(ask: Ask, prod: Cluster) -> None:
    row = scenarios.abandoned_query(prod)
    found = all_items(ask, f"queries/{row.ident}/batches?limit=7")
    assert [each["batch"] for each in found] == list(range(1_204, 1_139, -1))
    newest, before, *_ = found
    assert (newest["duration_ms"], newest["checkpointed_at"]) == (None, None)
    decision = newest["decision"]
    assert (decision["decided"], decision["outcome"], decision["done_at"]) == ("prepared", "", None)
    assert decision["transactions"][1]["transactional_id"] == "orders_enrich-3f9c11d2-p1-g7-b0-s1"
    assert decision["transactions"][1]["partitions"] == [{"topic": "orders_enriched", "partition": 1}]
    assert before["durations_ms"]["walCommit"] == 48
    assert found[-1]["decision"] is None


def test_rows_written_come_from_the_ledger_where_spark_counts_none(ask: Ask, prod: Cluster) -> None:
    row = scenarios.abandoned_query(prod)
    Batch.objects.filter(batch_id=1_202).update(output_rows=7)
    found = {
        each["batch"]: each["output_rows"] for each in all_items(ask, f"queries/{row.ident}/batches?limit=50")
    }
    counted = sum(each["records"] for each in factories.sink_transactions(row, 1_203))
    assert (found[1_203], found[1_202]) == (counted, 7), "the ledger's count; Spark's own goes first"
    assert found[1_204] is None, "prepared, not committed: nothing is written yet"
    assert found[1_195] is None, "no decision of it is kept"


def test_a_cursor_of_another_query_is_refused(ask: Ask, prod: Cluster) -> None:
    for name in ("a", "b"):
        factories.batches(factories.query(prod, name, f"id-{name}"), range(1_200, 1_203))
    after = ask("queries/id-a/batches?limit=1")["next"]
    assert ask(f"queries/id-a/batches?cursor={after}")["items"][0]["batch"] == 1_201
    ask(f"queries/id-b/batches?cursor={after}", 400)


def test_a_prepared_batch_of_a_dead_driver_asks_for_a_restart_and_names_the_time_left(
    ask: Ask, prod: Cluster
) -> None:
    """It used to answer "Do not stop orders_enrich now", of a driver that is gone and has to be started."""
    row = scenarios.abandoned_query(prod)
    for path, verdict in (
        (f"queries/{row.ident}", "Restart orders_enrich before "),
        ("clusters/prod", "The one query of prod is safe to restart."),
    ):
        told = ask(f"{path}/safe_to_stop")
        expected = (True, True, True, None)
        assert (told["safe"], told["graceful"], told["kill"], told["retry_after_s"]) == expected
        assert told["verdict"].startswith(verdict)
        assert told["headline"].startswith("Batch 1,204 is prepared and the driver is gone (failed at ")
        assert ": a restart finishes it until " in told["headline"]
        (prepared,) = told["prepared"]
        assert (prepared["query"], prepared["batch"], prepared["transactions"]) == (row.ident, 1_204, 4)
        assert 600 < told["time_left_s"] <= 702
        assert told["expires_at"].endswith("Z")
        assert len(told["open_ids"]) == 3
        assert told["as_of"]
    assert ask("queries")["items"][0]["safe_to_stop"] is True


def test_a_state_is_what_is_known_now_and_not_what_was_reported_last(ask: Ask, prod: Cluster) -> None:
    """A dead driver was "running" for a minute on its page, and for ever here."""
    dead = factories.now_ms() - 13_000
    factories.query(prod, "dead", "id-1", heard_ms=dead, heartbeat_every_ms=5_000)
    factories.query(prod, "idle", "id-2", heard_ms=dead, heartbeat_every_ms=5_000, state="idle")
    factories.query(prod, "older", "id-3", heard_ms=dead)
    factories.query(prod, "ended", "id-4", heard_ms=dead, state="stopped")
    factories.query(prod, "failed", "id-5", heard_ms=dead, state="failed", prepared=1)
    states = {each["name"]: each["state"] for each in ask("queries")["items"]}
    assert states == {
        "dead": "unheard", "idle": "unheard", "older": "running", "ended": "stopped", "failed": "failed",
    }  # fmt: skip
    assert [each["name"] for each in ask("queries?state=unheard")["items"]] == ["dead", "idle"]
    assert [each["name"] for each in ask("queries?state=running")["items"]] == ["older"]
    counted = ask("clusters/prod")["queries"]
    assert (counted["unheard"], counted["running"], counted["idle"], counted["stopped"]) == (2, 1, 0, 1)
    assert (counted["failed"], counted["prepared"]) == (1, 1)


def test_a_thousand_queries_fit_one_answer(ask: Ask, prod: Cluster) -> None:
    row = factories.query(prod)
    factories.batch(row, 1_203)
    fields = {field.name: getattr(row, field.name) for field in Query._meta.fields if field.name != "id"}
    names = ({"ident": f"id-{n}", "name": f"q{n}", "checkpoint": f"file:///{n}"} for n in range(999))
    Query.objects.bulk_create(Query(**{**fields, **each}) for each in names)
    copies = Query.objects.exclude(pk=row.pk)
    Batch.objects.bulk_create(Batch(query=each, batch_id=1_203, rev=1) for each in copies)
    assert len(ask("queries?limit=1000")["items"]) == 1_000


def test_a_page_of_queries_costs_the_same_for_many(
    ask: Ask, prod: Cluster, django_assert_max_num_queries: Any
) -> None:
    for n in range(30):
        row = factories.query(prod, f"q{n}", f"id-{n}", ledger_id=f"{n:08x}-0000-4000-8000-000000000000")
        factories.batch(row, 1_203)
    with django_assert_max_num_queries(32):
        assert len(ask("queries")["items"]) == 30


def test_a_query_has_its_state_files_with_broken_chains_first(ask: Ask, prod: Cluster) -> None:
    row = factories.query(prod)
    assert ask(f"queries/{row.ident}")["state_files"] == []
    broken = factories.state_chain(1, missing=(1_200,), missing_count=1)
    factories.operator_state(row, factories.state_chain(0), broken)
    (state,) = ask(f"queries/{row.ident}")["state_files"]
    assert (state["operator_id"], state["name"], state["broken"], state["unread"]) == (
        0, "stateStoreSave", 1, "",
    )  # fmt: skip
    assert [(each["partition"], each["missing"]) for each in state["chains"]] == [(1, [1_200]), (0, [])]
    assert {(each["base"], each["needed"]) for each in state["chains"]} == {(1_194, 1_204)}
