"""Clusters with streaming queries of every kind: healthy, prepared and abandoned, foreign, unreadable."""

import json

from dashboard.models import Cluster, Query
from fenceline.facts import TransactionState
from fenceline.formatting import format_clock
from tests.web import factories


def busy_queries(of: Cluster) -> None:
    """Fill a cluster with queries of every kind, after `busy_partitions`."""
    factories.collectors(of, "checkpoints")
    source_partitions(of)
    abandoned_query(of)
    for fill in (
        _blocked_query,
        _stateful_query,
        _query_without_checkpoint,
        _query_without_listener,
        _query_without_identity,
        _query_with_lost_batch,
    ):
        fill(of)
    _prepared_batch_finding(of)


def _blocked_query(of: Cluster) -> None:
    """It is blocked in partition 0 of payments, whose offset does not move."""
    now = factories.now_ms()
    blocked = factories.query(
        of,
        "payments_ledger",
        "7a2e3b4c-5d6e-4f7a-9b0c-1d2e3f4a5b6c",
        ledger_id="5a6b7c8d-9e0f-4a1b-8c2d-3e4f5a6b7c8d",
        planned=9_871,
        finished=9_871,
        restart_words="runs batch 9872",
    )
    for n in range(40):
        end = json.dumps({"payments": {"0": 48_211, "1": 48_211 - (39 - n)}})
        factories.batch(blocked, 9_832 + n, offsets=[["0", end]], started_ms=now - (40 - n) * 1_000)
    factories.sink_decision(blocked, 9_871)
    factories.query_run(blocked, batch_id=9_871)


def _stateful_query(of: Cluster) -> None:
    """Stateful, with Spark's own sink, and a batch in progress."""
    now = factories.now_ms()
    sessions = factories.query(
        of,
        "clicks_sessions",
        "8b3f4c5d-6e7f-4a8b-8c1d-2e3f4a5b6c7d",
        sink="kafka",
        ledger_id="",
        prefix="",
        generation=None,
        planned=40_112,
        finished=40_111,
        detail=factories.checkpoint_detail(
            operators=[
                {
                    "operator_id": 0,
                    "name": "stateStoreSave",
                    "stores": [{"name": "default", "partitions": 200}],
                }
            ],
            has_state=True,
            ledger=None,
        ),
    )
    chains = [factories.state_chain(n, newest=40_112, needed=40_112, base=40_100) for n in range(12)]
    factories.operator_state(sessions, *chains)
    state = {
        "name": "stateStoreSave",
        "rows_total": 1_204_311,
        "rows_updated": 8_012,
        "rows_removed": 7_640,
        "memory_bytes": 431_882_240,
        "rows_dropped_by_watermark": 12,
        "commit_ms": 88,
        "custom": {"rocksdbSstFileSize": 402_653_184},
    }
    for n in range(40):
        end = factories.source_offsets("clicks", 12, 9_000 + n * 20)
        factories.batch(
            sessions, 40_072 + n, offsets=[["0", end]], operators=[state], started_ms=now - (40 - n) * 1_000
        )
    factories.unfinished_batch(
        sessions, 40_112, planned_ms=now - 800, offsets=[["0", factories.source_offsets("clicks", 12, 9_900)]]
    )
    factories.query_run(sessions, batch_id=40_111)


def _query_without_checkpoint(of: Cluster) -> None:
    """No checkpoint of it is read: only the listener reports it."""
    told = factories.query(
        of,
        "listened_only",
        "9c4a5d6e-7f8a-4b9c-9d2e-3f4a5b6c7d8e",
        checkpoint="",
        sink="other",
        state="idle",
        ledger_id="",
        prefix="",
        generation=None,
        planned=None,
        finished=None,
        planned_ms=None,
        finished_ms=None,
        restart="",
        restart_words="",
    )
    for n in range(12):
        factories.batch(told, 200 + n, planned_ms=None, committed_ms=None, offsets=[], watermark_ms=None)
    factories.query_run(told, batch_id=211)


def _query_without_listener(of: Cluster) -> None:
    """No listener reports it: only its checkpoint is read."""
    now = factories.now_ms()
    files = factories.query(
        of,
        "",
        "0d5b6e7f-8a9b-4c0d-8e3f-4a5b6c7d8e9f",
        checkpoint="s3a://lake/checkpoints/stock_audit",
        state="unheard",
        heard_ms=None,
        started_ms=None,
        run_id="",
        sink="",
        ledger_id="",
        prefix="",
        generation=None,
        planned=52,
        finished=51,
        restart="replay",
        restart_words="runs batch 52 again with the same input",
    )
    for n in range(3):
        factories.unfinished_batch(
            files,
            50 + n,
            planned_ms=now - 900_000 + n * 1_000,
            committed_ms=None if n == 2 else now - 899_000,
        )


def _query_without_identity(of: Cluster) -> None:
    """Its metadata is empty, so it has no identity but its path."""
    factories.query(
        of,
        "",
        "path-1f2e3d4c5b6a7988",
        checkpoint="s3a://lake/checkpoints/torn",
        state="unheard",
        heard_ms=None,
        sink="",
        ledger_id="",
        prefix="",
        planned=None,
        finished=None,
        planned_ms=None,
        finished_ms=None,
        restart="identity_broken",
        restart_words="fails in start(): metadata cannot be read (it is empty)",
        detail=factories.checkpoint_detail(
            broken=[{"path": "metadata", "damage": "empty", "detail": "it holds no byte"}],
            foreign=["_SUCCESS", "part-00000.parquet"],
            restart={"first_batch": None, "severity": "critical", "remedy": "restore metadata from a copy"},
        ),
        error="s3a://lake/checkpoints/torn/metadata: Access Denied. Let Fenceline read it.",
    )


def _query_with_lost_batch(of: Cluster) -> None:
    """A prepared batch was lost; its name needs escaping."""
    lost = factories.query(
        of,
        "<b>lost & found</b>",
        "1e6c7f8a-9b0c-4d1e-9f4a-5b6c7d8e9f0a",
        ledger_id="6b7c8d9e-0f1a-4b2c-9d3e-4f5a6b7c8d9e",
        planned=31,
        finished=30,
        state="failed",
    )
    factories.unfinished_batch(lost, 31)
    ids = [factories.sink_transactional_id(lost, 0, 31)]
    factories.sink_decision(lost, 31, "lost", lost=ids, done_by="operator")


def abandoned_query(of: Cluster) -> Query:
    """Return a query whose driver died between prepared and committed: 1 of 4 transactions is committed."""
    now = factories.now_ms()
    row = factories.query(
        of,
        state="failed",
        ended_ms=now - 46_000,
        heard_ms=now - 45_900,
        exception="org.apache.spark.sql.streaming.StreamingQueryException: driver lost",
        planned=1_204,
        planned_ms=now - 52_000,
        finished_ms=now - 53_000,
        restart="replay",
        restart_words="runs batch 1204 again with the same input",
        prepared=1,
        expires_ms=now - 48_000 + 750_000,
    )
    factories.batches(row, range(1_140, 1_204))
    for number in range(1_196, 1_204):
        factories.sink_decision(row, number, decided_ms=now - (1_204 - number) * 1_000 - 52_000)
    factories.unfinished_batch(row, 1_204)
    factories.coordinator_transactions(
        row, factories.sink_decision(row, 1_204, outcome=""), TransactionState.COMPLETE_COMMIT
    )
    factories.query_run(
        row, ended_ms=now - 46_000, heard_ms=now - 45_900, exception=row.exception, batch_id=1_203
    )
    factories.query_run(
        row,
        run_id="1b2c3d4e-5f6a-4b7c-8d9e-0f1a2b3c4d5e",
        started_ms=now - 90_000_000,
        ended_ms=now - 3_700_000,
        first_heard_ms=now - 90_000_000,
        heard_ms=now - 3_700_000,
        batch_id=611,
        spooled=3,
        dropped=2,
        spool_age_ms=61_000,
    )
    return row


def _prepared_batch_finding(of: Cluster) -> None:
    """Make the finding of the prepared batch."""
    factories.finding(
        of,
        f"query:{factories.QUERY_ID}",
        "critical",
        rule="batch_prepared",
        summary="Batch 1,204 of orders_enrich is prepared but not committed",
        evidence="3 of 4 transactions are still open; the first one times out at "
        f"{format_clock(factories.now_ms() + 700_000)}",
        next_step="Restart the query: it commits them first.",
        since_ms=factories.now_ms() - 46_000,
    )


def source_partitions(of: Cluster) -> None:
    """Make the partitions that `orders_enrich` reads: past what was read, one of them truncated."""
    for number in range(4):
        start = 13_150 if number == 2 else 1_000
        factories.partition(of, "order_events", number, log_start=start, lso=13_400, high_watermark=13_412)
