"""Proves the chain as it is read, ledger beside coordinators; and whether queries may be stopped."""

from collections.abc import Sequence
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.models import Query, SinkDecision, Transaction
from dashboard.streaming.batch_state import (
    chain_of,
    chains_of,
    decision_of,
    done_of,
    is_overdue,
    newest_batch,
    owner_query,
    safe_cluster,
    safe_to_restart,
)
from fenceline.facts import TransitionKind
from fenceline.spark.batch_chain import BatchStep, ChainLink, LinkState
from fenceline.spark.records import Decided, DecisionOutcome
from fenceline.spark.safe_to_restart import RestartSafety
from tests.cases import cases
from tests.db import factories
from tests.db.conftest import NOW_MS
from tests.db.factories import batch, decision, decision_end, decision_row, prod, query, sink_transaction

NAME = sink_transaction().transactional_id
LETTERS = {"done": "D", "waiting": "w", "broken": "B", "unknown": "?", "absent": "-"}


def letters(links: Sequence[ChainLink]) -> str:
    return "".join(LETTERS[each.state] for each in links)


def at_coordinator(number: int = 0, state: str = "Ongoing", **columns: Any) -> None:
    """Make the row of a transaction of the sink at its coordinator."""
    said = sink_transaction(number)
    values = {
        "producer_id": said.producer_id,
        "producer_epoch": said.producer_epoch,
        "started_ms": said.started_ms,
        "updated_ms": NOW_MS + 50,
        "client_version": 0,
        **columns,
    }
    factories.transaction(said.transactional_id, state=state, **values)


def decided_batch(number: int = 1, **columns: Any) -> Query:
    """Make a query whose batch 3 is decided, with so many transactions."""
    row = query(**columns)
    batch(row)
    decision_row(row, decision(3, number=number))
    return row


def chain_letters(now_ms: int = NOW_MS + 1_000) -> str:
    (row,) = Query.objects.all()
    alone = chain_of(row, newest_batch(row), now_ms=now_ms)
    assert chains_of([row], now_ms=now_ms)[row.pk] == alone
    return letters(alone)


def test_a_decided_batch_in_progress_has_its_commits_pending() -> None:
    row = decided_batch(2)
    at_coordinator(0, "CompleteCommit")
    at_coordinator(1)
    assert chain_letters() == "DDDwww"
    links = chain_of(row, newest_batch(row), now_ms=NOW_MS + 1_000)
    assert links[0] == ChainLink(BatchStep.PLANNED, LinkState.DONE, NOW_MS - 2_000, "offsets/3 is there")
    second = sink_transaction(1).transactional_id
    assert links[3].evidence == f"1 of 2 transactions committed, {second} still open"


@cases(
    ({}, 1_000, "DDDwww", "its driver is heard"),
    ({"state": "failed"}, 1_000, "DDDBww", "it ended with an exception"),
    ({"state": "stopped"}, 1_000, "DDDBww", "it was stopped"),
    ({"state": "unheard", "heard_ms": None}, 1_000, "DDDwww", "no listener: who knows"),
    ({"state": "unheard", "heard_ms": None}, 10_001, "DDDBww", "but nobody has gone on for long"),
    ({}, 10_001, "DDDBww", "neither has a driver that is heard"),
)
def test_a_decision_is_completed_by_its_driver_or_by_recovery(
    columns: dict[str, Any], after_ms: int, wanted: str, why: str
) -> None:
    decided_batch(**columns)
    at_coordinator()
    assert chain_letters(NOW_MS + after_ms) == wanted, why


@cases(
    ("CompleteCommit", {}, "DDDDww", "committed"),
    ("CompleteCommit", {"producer_epoch": 4, "client_version": 2}, "DDDDww", "by protocol 2"),
    ("CompleteAbort", {"producer_epoch": 4}, "DDDBww", "timed out"),
    ("Ongoing", {"started_ms": NOW_MS + 9, "producer_epoch": 4}, "DDD?ww", "the id has gone on"),
    ("Ongoing", {"producer_id": 9}, "DDD?ww", "it has another producer id"),
)
def test_a_link_follows_the_coordinators_state(
    state: str, columns: dict[str, Any], wanted: str, why: str
) -> None:
    decided_batch()
    at_coordinator(0, state, **columns)
    assert chain_letters() == wanted, why


def test_an_id_with_later_transactions_is_checked_in_its_history() -> None:
    decided_batch()
    at_coordinator(0, "Empty", producer_epoch=4, started_ms=None)
    assert chain_letters() == "DDD?ww"
    factories.recent_end(NAME, TransitionKind.COMMIT, producer_id=4_000, started_ms=NOW_MS)
    assert chain_letters() == "DDDDww"


def test_coordinators_records_take_precedence_over_the_ledger() -> None:
    row = query(finished=3)
    over = batch(row, committed_ms=NOW_MS + 400)
    decision_row(row, decision(3, number=2), decision_end(3))

    def committed() -> ChainLink:
        return chain_of(row, over, now_ms=NOW_MS + 10_000)[3]

    assert "2 not confirmed by a coordinator: no record of their ids is known" in committed().evidence
    at_coordinator(0, "CompleteCommit", updated_ms=NOW_MS + 60)
    at_coordinator(1, "CompleteCommit", updated_ms=NOW_MS + 70)
    assert committed()[2:4] == (NOW_MS + 70, "2 of 2 coordinators: CompleteCommit")
    again = {"started_ms": NOW_MS + 9_000, "updated_ms": NOW_MS + 9_000}
    Transaction.objects.filter(transactional_id=NAME).update(state="Ongoing", **again)
    assert committed().evidence.endswith("1 not confirmed by a coordinator: its id used again since")


def test_the_newest_round_decides() -> None:
    row = query()
    batch(row)
    decision_row(row, decision(3, Decided.ABORTED), decision_end(3, DecisionOutcome.ABORTED))
    decision_row(row, decision(3, round=1))
    at_coordinator(0, "CompleteCommit")
    assert chain_letters() == "DDDDww"


def test_a_complete_chain_and_the_next_batch_are_read() -> None:
    row = query(finished=3)
    over = batch(row, committed_ms=NOW_MS + 400)
    decision_row(row, decision(3), decision_end(3))
    assert chain_letters() == "DDDDDD"
    batch(row, 4)
    # It was planned before the checkpoint was put back.
    batch(row, 9)
    Query.objects.update(planned=4)
    assert chain_letters() == "Dwwwww"
    row.refresh_from_db()
    newest = newest_batch(row)
    assert newest is not None
    assert newest.batch_id == 4
    assert letters(chain_of(row, over)) == "DDDDDD", "an older one is told as well"


def test_a_query_known_only_by_its_listener_has_a_chain_and_one_without_batches_waits() -> None:
    row = query(checkpoint="", planned=None, finished=None, planned_ms=None, sink="kafka", ledger_id="")
    for number in (4, 2):
        batch(row, number, planned_ms=None, offsets=[], started_ms=NOW_MS, duration_ms=50)
    assert chain_letters() == "DD---D"
    assert chain_of(row, newest_batch(row))[5].at_ms == NOW_MS + 50
    new = query("new", planned=None, finished=None)
    assert letters(chain_of(new, None)) == letters(chains_of([new])[new.pk]) == "wwwwww"


def test_many_chains_are_read_in_few_database_queries() -> None:
    rows = [query(f"q-{n}", checkpoint=f"{factories.PATH}-{n}") for n in range(20)]
    for row in rows:
        batch(row)
        decision_row(row, decision(3))
    at_coordinator()
    with CaptureQueriesContext(connection) as captured:
        found = chains_of(rows, now_ms=NOW_MS)
    assert {letters(each) for each in found.values()} == {"DDDwww"}
    assert len(captured) <= 5


def test_a_decision_is_read_back_as_it_was() -> None:
    row = query()
    told, ended = decision(3, number=2), decision_end(3, DecisionOutcome.LOST, NAME)
    kept = decision_row(row, told, ended)
    kept = SinkDecision.objects.get(pk=kept.pk)
    assert decision_of(kept).transactions == told.transactions
    assert done_of(kept) == ended
    assert done_of(decision_row(row, decision(4))) is None


def test_the_owner_of_an_id() -> None:
    mine = query()
    query("other", prefix="payments", checkpoint="file:///b", ledger_id="ffffffff9999")
    cluster = prod().pk
    assert owner_query(cluster, NAME) == mine
    assert owner_query(cluster, NAME.replace("orders-", "payments-")) is None, "another prefix"
    assert owner_query(cluster, "payments-ffffffff-p3-g2-b0-s1") is not None
    assert owner_query(cluster, "orders-gateway-7") is None
    assert owner_query(cluster + 1, NAME) is None


def safe_to_stop(row: Query, *, after_ms: int = 0) -> RestartSafety:
    return safe_to_restart(row, NOW_MS + after_ms)


def test_a_restart_is_safe_unless_it_would_fail_and_names_the_open_ids_of_a_batch() -> None:
    factories.collectors("checkpoints")
    row = query(finished=3)
    assert safe_to_stop(row) == RestartSafety(True, "orders is safe to restart.", kill=True)
    Query.objects.update(finished=2)
    row.refresh_from_db()
    at_coordinator()
    factories.transaction("orders-ffffffff-p0-g1-b1-s0")
    found = safe_to_stop(row)
    assert (found.safe, found.open_ids) == (True, (NAME,))
    row.restart_words, row.detail = "fails: x", {"restart": {"severity": "critical"}}
    assert safe_to_stop(row).sentence == "Do not restart orders now: a restart fails: x."


def test_only_a_batch_that_stays_uncommitted_changes_the_answer() -> None:
    """It used to be "no" for the moments in which a driver that is well commits: once in each batch."""
    factories.collectors("checkpoints")
    row = query(prepared=1, expires_ms=NOW_MS + 60_000, heard_ms=NOW_MS + 10_000)
    decision_row(row, decision(3))
    at_coordinator()
    found = safe_to_stop(row)
    assert (found.safe, found.kill, found.sentence) == (True, True, "orders is safe to restart.")
    assert (found.prepared, found.expires_ms, found.open_ids) == (1, NOW_MS + 60_000, (NAME,))
    late = safe_to_stop(row, after_ms=10_001)
    assert (late.safe, late.kill, late.retry_after_s) == (False, False, 5)
    assert "has been prepared since" in late.sentence


@cases(
    (NOW_MS, NOW_MS, NOW_MS - 600_000, False, "the driver's clock is ten minutes behind ours"),
    (NOW_MS, NOW_MS + 10_000, NOW_MS, False, "not yet"),
    (NOW_MS, NOW_MS + 10_001, NOW_MS, True, "two looks ten seconds apart have found it open"),
    (NOW_MS, NOW_MS + 10_001, NOW_MS + 900_000, True, "the driver's clock is ahead of ours"),
    (NOW_MS, NOW_MS + 500, NOW_MS - 600_000, False, "a store so slow that no second look was made"),
)
def test_a_decision_is_overdue_by_the_instants_of_polls(
    first_seen_ms: int, seen_ms: int, decided_ms: int, overdue: bool, why: str
) -> None:
    row = query(seen_ms=seen_ms)
    kept = decision_row(row, decision(3, at_ms=decided_ms))
    kept.first_seen_ms = first_seen_ms
    assert is_overdue(row, kept, NOW_MS + 25_000) is overdue, why


@cases(
    ({"heard_ms": NOW_MS - 3_000}, 1,
     "Batch 3 is prepared and the driver is gone (no heartbeat since 11:06:37 UTC): a restart finishes "
     "it until 11:07:40 UTC."),
    ({"state": "failed", "ended_ms": NOW_MS}, 1,
     "Batch 3 is prepared and the driver is gone (failed at 11:06:40 UTC): a restart finishes it until "
     "11:07:40 UTC."),
    ({"state": "stopped", "ended_ms": NOW_MS}, 2,
     "Batch 3 is prepared and the driver is gone (stopped at 11:06:40 UTC): a restart finishes it."),
)  # fmt: skip
def test_a_stopped_driver_with_a_prepared_batch_is_named_with_its_deadline(
    columns: dict[str, Any], committed: int, headline: str
) -> None:
    factories.collectors("checkpoints")
    row = query(prepared=1, heartbeat_every_ms=5_000, **columns)
    decision_row(row, decision(3, number=2))
    for each in range(2):
        at_coordinator(each, "CompleteCommit" if each < committed else "Ongoing")
    found = safe_to_stop(row, after_ms=10_500)
    assert (found.headline, found.safe) == (headline, True)
    assert found.sentence.startswith("Restart orders ")


def test_an_unread_query_has_no_answer() -> None:
    factories.collectors("checkpoints")
    for columns, word in (
        ({"checkpoint": ""}, "no configured root holds its checkpoint"),
        ({"error": "permission denied"}, "permission denied"),
    ):
        found = safe_to_stop(query(word, finished=3, **columns))
        assert found.safe is None
        assert word in found.sentence


def test_an_absent_or_late_collector_gives_no_answer_but_a_single_failed_poll_changes_none() -> None:
    """Spark removes files while they are read: a gap of a moment made three polls of 25 unknown."""
    row = query(finished=3)
    assert safe_to_stop(row).reasons == ("no collector reads checkpoints",)
    factories.collectors("checkpoints")
    assert safe_to_stop(row).safe is True
    assert safe_to_stop(row, after_ms=30_001).reasons == ("the collector of checkpoints is behind",)
    gap = factories.gap("checkpoints", f"query:{row.ident}")
    assert safe_to_stop(row).reasons == (gap.reason,)
    row.seen_ms, row.error = NOW_MS, "offsets/3 vanished"
    assert safe_to_stop(row, after_ms=30_000).safe is True
    assert safe_to_stop(row, after_ms=30_001).safe is None


def test_a_cluster_leaves_out_queries_that_are_gone() -> None:
    factories.collectors("checkpoints")
    query("a", finished=3, checkpoint="file:///a", name="first")
    query("gone", checkpoint="file:///b", error="the folder is gone", detail={"gone": True})
    assert safe_cluster(prod(), NOW_MS).sentence == "The one query of prod is safe to restart."
    other = query("b", checkpoint="file:///c", name="second")
    decision_row(other, decision(3, at_ms=NOW_MS - 10_001))
    found = safe_cluster(prod(), NOW_MS)
    assert (found.safe, found.prepared, found.retry_after_s) == (False, 1, 5)
    assert found.sentence == "Do not restart the queries of prod now: see second."
