"""Proves that the evaluation reads streaming queries as the tables have them, and what the rules find."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.models import FindingRecord, PartitionRecord, Query, Run
from dashboard.streaming.rule_input import Queries
from fenceline.facts import Severity, TopicPartition
from fenceline.findings import Sense
from fenceline.kafka.offset_histories import LogStarts
from fenceline.limits import Limits
from fenceline.snapshot import BlockedQueryFacts
from fenceline.spark.queries import Broken, QueryStatus
from fenceline.spark.records import Damage, DecisionOutcome, QueryState
from tests.cases import cases
from tests.db import factories
from tests.db.conftest import NOW_MS
from tests.db.factories import batch, decision, decision_end, decision_row, prod, query, sink_transaction
from tests.db.test_snapshots import plans

KAFKA = "KafkaV2[Subscribe[orders]]"


def read(reader: Queries | None = None, *, now_ms: int = NOW_MS) -> QueryStatus:
    (found,) = (reader or Queries(prod().pk)).read_statuses(now_ms=now_ms)
    return found


def run(of: Query, run_id: str = "r-1", **columns: Any) -> Run:
    values = {"first_heard_ms": NOW_MS, "heard_ms": NOW_MS, **columns}
    return Run.objects.create(query=of, run_id=run_id, **values)


def finished(of: Query, number: int, **columns: Any) -> None:
    batch(of, number, **{"committed_ms": NOW_MS - 100_000 + number * 100, **columns})


def test_a_query_is_read_from_its_row() -> None:
    broken = {"path": "offsets/3", "damage": "torn", "detail": "cut"}
    restart = {"severity": "critical", "remedy": "restore it", "first_batch": None}
    query(restart_words="fails: x", detail={"restart": restart, "broken": [broken]})
    found = read()
    expected = (f"query:{found.ident}", "orders", True, 3)
    assert (found.subject, found.name, found.alive, found.under_way) == expected
    expected = (Severity.CRITICAL, "fails: x", "restore it")
    assert (found.restart_severity, found.restart, found.remedy) == expected
    assert found.unusable == (Broken("offsets/3", Damage.TORN, "cut"),)
    assert found.moved_ms == NOW_MS - 500


@cases(
    ({}, True),
    ({"state": "idle"}, True),
    ({"heard_ms": NOW_MS - 42_001}, None),
    ({"heard_ms": NOW_MS - 12_001, "heartbeat_every_ms": 5_000}, None),
    ({"state": "unheard", "heard_ms": None}, None),
    ({"state": "stopped"}, False),
    ({"state": "failed"}, False),
)
def test_a_query_is_alive_while_its_driver_runs(columns: dict[str, Any], alive: bool | None) -> None:
    query(**columns)
    assert read().alive is alive


def test_heartbeats_are_read_without_a_new_revision() -> None:
    row = query()
    reader = Queries(prod().pk)
    assert read(reader).alive is True
    assert read(reader, now_ms=NOW_MS + 90_000).alive is None
    Query.objects.filter(pk=row.pk).update(heard_ms=NOW_MS + 89_000)
    assert read(reader, now_ms=NOW_MS + 90_000).alive is True


def test_positions_are_those_of_the_last_finished_batch() -> None:
    row = query()
    finished(row, 2)
    batch(row, 3)
    factories.partition()
    (found,) = read().positions
    assert (str(found), found.position, found.stands_ms) == ("orders-0", 20, NOW_MS - 99_800)
    assert (found.log_start, found.high_watermark, found.pace) == (0, 5_812, None)


def test_a_position_is_unchanged_since_the_first_batch_that_did_not_move_it() -> None:
    row = query(finished=4, planned=4)
    for number in (1, 2, 3, 4):
        finished(row, number, offsets=[["0", f'{{"orders":{{"0":{min(number, 2) * 10},"1":{number}}}}}']])
    stands = {each.partition: each.stands_ms for each in read().positions}
    assert stands == {0: NOW_MS - 99_800, 1: NOW_MS - 99_600}


def test_an_unchanged_position_keeps_its_instant() -> None:
    row = query(finished=2)
    reader, positions = Queries(prod().pk), []
    for number, offset in ((2, 20), (3, 20), (4, 21)):
        finished(row, number, offsets=[["0", f'{{"orders":{{"0":{offset}}}}}']])
        Query.objects.update(finished=number, rev=number)
        positions += [(found.position, found.stands_ms) for found in read(reader).positions]
    assert positions == [(20, NOW_MS - 99_800), (20, NOW_MS - 99_800), (21, NOW_MS - 99_600)]


def test_before_the_first_batch_positions_are_the_initial_offsets() -> None:
    query(finished=None, planned=0, detail={"initial": {"0": {"orders": {"0": 7, "1": -2}}}})
    positions = [(str(found), found.position, found.stands_ms) for found in read().positions]
    assert positions == [("orders-0", 7, None)]


def test_positions_are_read_from_a_listener_alone_and_other_sources_than_kafka_have_none() -> None:
    row = query(planned=None, finished=None, checkpoint="")
    finished(row, 2, offsets=[["0", '{"logOffset":4}'], ["1", None], ["2", "17"]])
    assert read().positions == ()
    told = [{"description": KAFKA, "start": None, "end": '{"orders":{"0":44}}'}]
    batch(row, 9, planned_ms=None, offsets=[], started_ms=NOW_MS - 9_000, duration_ms=100, sources=told)
    (found,) = read().positions
    assert (found.position, found.stands_ms) == (44, NOW_MS - 8_900)


def test_prepared_batches_have_the_outcomes_of_their_transactions() -> None:
    row = query()
    decision_row(row, decision(3, number=3))
    decision_row(row, decision(2), decision_end(2))
    said = sink_transaction(0)
    columns = {"producer_id": said.producer_id, "producer_epoch": said.producer_epoch, "started_ms": NOW_MS}
    factories.transaction(said.transactional_id, state="CompleteCommit", **columns)
    aborted = sink_transaction(1)
    columns |= {"producer_id": aborted.producer_id, "producer_epoch": 4}
    factories.transaction(aborted.transactional_id, state="CompleteAbort", **columns)
    (found,) = read().sink_batches
    assert (found.batch_id, found.expires_ms, found.records) == (3, NOW_MS + 60_000, 1_500)
    assert (found.open, found.uncommitted_records) == ((), 1_000)
    assert found.aborted == (aborted.transactional_id,)
    assert found.unknown == (sink_transaction(2).transactional_id,)
    assert not found.recorded


def test_recorded_losses_are_marked_as_recorded() -> None:
    row = query()
    name = sink_transaction().transactional_id
    decision_row(row, decision(3, number=2), decision_end(3, DecisionOutcome.LOST, name))
    (found,) = read().sink_batches
    expected = (True, (name,), 500, NOW_MS + 100)
    assert (found.recorded, found.aborted, found.records, found.decided_ms) == expected


def test_recent_batches_give_the_usual_duration_and_a_stalled_watermark() -> None:
    row = query(finished=30, planned=30)
    for number in range(1, 31):
        mark = min(number, 12) * 1_000
        finished(row, number, duration_ms=number, input_rows=5, next_watermark_ms=mark)
    found = read()
    assert found.usual_ms == 30
    assert found.stall is not None
    assert (found.stall.watermark_ms, found.stall.batches) == (12_000, 18)


def test_without_a_listener_input_is_derived_from_offsets() -> None:
    row = query(finished=6, planned=6)
    for number in range(1, 7):
        end = number if number < 5 else 4
        finished(row, number, next_watermark_ms=9_000, offsets=[["0", f'{{"orders":{{"0":{end}}}}}']])
    found = read()
    assert found.stall is not None
    assert found.stall.batches == 3, "the first one has nothing before it, the last two read nothing"


def test_recent_batches_are_read_again_after_a_change_and_at_most_each_half_minute() -> None:
    row = query(finished=20, planned=20)
    for number in range(1, 21):
        finished(row, number, duration_ms=10)
    reader = Queries(prod().pk)
    assert read(reader).usual_ms == 10
    row.batch_set.update(duration_ms=20)
    Query.objects.update(rev=2)
    assert read(reader, now_ms=NOW_MS + 29_999).usual_ms == 10
    assert read(reader, now_ms=NOW_MS + 30_000).usual_ms == 20


def test_two_runs_that_report_in_turn_are_two_writers() -> None:
    row = query(finished=3, planned=3)
    for batch_id, run_id in enumerate("aba", 1):
        finished(row, batch_id, run_id=run_id)
    assert read().writers == "runs a and b report its batches in turn"


def test_two_drivers_reported_by_spark_count_until_a_newer_run() -> None:
    row = query()
    exception = "SparkConcurrentModificationException: [CONCURRENT_STREAM_LOG_UPDATE] …"
    run(row, exception=exception, ended_ms=NOW_MS - 5_000)
    reader = Queries(prod().pk)
    found = read(reader)
    assert found.writers == "Spark has found that another driver had written the same batch"
    assert found.writers_ms == NOW_MS - 5_000
    run(row, "r-2", heard_ms=NOW_MS + 1)
    Query.objects.update(rev=2)
    assert read(reader, now_ms=NOW_MS + 30_000).writers == ""


def test_two_generations_of_a_sink() -> None:
    row = query()
    decision_row(row, decision(1, at_ms=NOW_MS - 3_000), decision_end(1))
    newer = decision_row(row, decision(2, at_ms=NOW_MS - 2_000), decision_end(2))
    newer.generation = 2
    newer.save()
    decision_row(row, decision(3, at_ms=NOW_MS - 1_000), decision_end(3))
    assert read().writers.startswith("generation 1 of its sink has decided at")


@cases((NOW_MS - 599_000, None, True), (NOW_MS - 601_000, None, False), (None, None, False),
       (NOW_MS, NOW_MS, False), (NOW_MS, NOW_MS + 1, True))  # fmt: skip
def test_two_folders_with_one_id_that_both_progress_are_two_writers_unless_they_are_copies(
    moved_ms: int | None, planned_ms: int | None, is_told: bool
) -> None:
    """Copies share their newest batch: it was planned at the same instant."""
    first = query("a", checkpoint="file:///a", advanced_ms=NOW_MS, planned=9)
    second = query("b", checkpoint="file:///b", advanced_ms=moved_ms, planned=3)
    if planned_ms is not None:
        batch(first, planned_ms=NOW_MS)
        batch(second, planned_ms=planned_ms)
    found = Queries(prod().pk).read_statuses(now_ms=NOW_MS)
    assert [bool(each.writers) for each in found] == [is_told] * 2


WHERE = TopicPartition("orders", 0)


@cases(
    ([(0, 100)], None, "one look tells nothing"),
    ([(0, 100), (119, 200)], None, "not two minutes yet"),
    ([(0, 100), (120, 220)], 1.0, "120 in 120 seconds"),
    ([(0, 100), (60, 100), (120, 100)], 0.0, "it stands"),
    ([(0, 900), (120, 0), (180, 60)], None, "it went back: another topic of that name"),
    ([(0, 0), (3_000, 0), (3_601, 3_000)], 3_000 / 601, "an hour is looked back on"),
    ([(0, 0), *((n, n) for n in range(1, 241))], 1.0, "each second, thinned out"),
)
def test_the_deletion_rate_of_a_log_is_measured(
    points: list[tuple[int, int]], pace: float | None, why: str
) -> None:
    starts = LogStarts()
    for at_s, start in points:
        starts.record_starts({WHERE: start}, NOW_MS + at_s * 1_000)
    assert starts.deletion_rate(WHERE) == pace, why


def test_the_deletion_rate_of_a_log_reaches_the_rules() -> None:
    row = query(finished=2)
    finished(row, 2, offsets=[["0", '{"orders":{"0":900}}']])
    factories.partition()
    reader = Queries(prod().pk)
    read(reader)
    PartitionRecord.objects.update(log_start=600)
    (found,) = read(reader, now_ms=NOW_MS + 120_000).positions
    assert found.pace == 5.0


def test_a_blocked_query_is_named_with_the_transaction_that_blocks_it() -> None:
    row = query(finished=2)
    finished(row, 2, offsets=[["0", '{"orders":{"0":812}}']])
    factories.position()
    factories.partition()
    factories.lso_blocker(name="payments-7", verdict="open", ground="owned")
    factories.transaction("payments-7")
    factories.transaction("other", producer_id=8)
    found = SnapshotReader("prod").read(now_ms=NOW_MS, limits=Limits())
    named = {each.transactional_id: each.queries for each in found.transactions}
    assert named == {"payments-7": (BlockedQueryFacts(row.ident, "orders"),), "other": ()}


def snapshot_rules() -> list[tuple[str, str]]:
    rows = FindingRecord.objects.filter(closed_at=None).order_by("rule")
    return [(row.rule, row.severity) for row in rows]


def test_a_tick_finds_a_decided_batch_until_it_is_done(take: Any) -> None:
    factories.collectors("transaction_state", "partitions", "groups", "checkpoints")
    row = query(finished=2)
    kept = decision_row(row, decision(3, at_ms=NOW_MS - 11_000))
    reader, lease = SnapshotReader("prod"), take(evaluate_rules.NAME)
    factories.evaluate_polls(lease)
    assert snapshot_rules() == [("batch_prepared", "critical")]
    gap = factories.gap("checkpoints", f"query:{row.ident}")
    kept.outcome = "committed"
    kept.save()
    evaluate_rules.evaluate_cluster(lease, reader, now_ms=NOW_MS)
    assert snapshot_rules() == [("batch_prepared", "critical")], "hidden: neither opens nor closes"
    gap.delete()
    evaluate_rules.evaluate_cluster(lease, reader, now_ms=NOW_MS)
    assert snapshot_rules() == []


def test_a_gap_suppresses_the_queries_of_its_scope(take: Any) -> None:
    factories.collectors("transaction_state", "checkpoints")
    row = query()
    decision_row(row, decision(3, at_ms=NOW_MS - 11_000))
    factories.gap("checkpoints", "root:file:///elsewhere")
    found = SnapshotReader("prod").read(now_ms=NOW_MS, limits=Limits())
    assert found.places == {f"query:{row.ident}": {f"checkpoint:{row.checkpoint}"}}
    assert {each.name: each.senses for each in found.collectors}["checkpoints"] == {Sense.QUERIES}
    # A query that has failed is found without a checkpoint.
    query("b", state=QueryState.FAILED.value, exception="boom", checkpoint="", planned=None, finished=None)
    factories.evaluate_polls(take(evaluate_rules.NAME))
    assert snapshot_rules() == [("batch_prepared", "critical"), ("query_failed", "critical")]


# It asks SQLite for its plans.
@pytest.mark.sql("sqlite")
def test_a_tick_reads_along_indexes(take: Any) -> None:
    """Millions of batches and decisions lie beside the few that a tick is about."""
    row = query(finished=2)
    finished(row, 2)
    factories.partition()
    decision_row(row, decision(3))
    reader = Queries(prod().pk)
    with CaptureQueriesContext(connection) as first:
        read(reader)
    with CaptureQueriesContext(connection) as again:
        read(reader)
    Query.objects.update(rev=2)
    with CaptureQueriesContext(connection) as changed:
        read(reader, now_ms=NOW_MS + 30_000)
    for captured in (first, again, changed):
        scans = [sql for sql, plan in plans(captured) if "SCAN" in plan]
        assert not [sql for sql in scans if "batch" in sql or "sinkdecision" in sql], "a whole table is read"
    for index in "decision_open", "decision_lost":
        assert any(index in plan for _, plan in plans(again))
    assert len(again) <= 8, "of what has not changed a tick reads no more"
