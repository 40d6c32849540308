"""One query of each kind at once, as the fullest page shows them."""

from __future__ import annotations

import json

from dashboard.models import Cluster
from tests.web import seed
from tests.web.streams import (
    abandoned,
    batch,
    decision,
    detail,
    findings,
    offsets,
    partitions,
    planned,
    query,
    run,
    transactional_id,
    watched,
)


def busy(of: Cluster) -> None:
    """Fill a cluster with queries of every kind; `held.busy` comes before it."""
    watched(of)
    partitions(of)
    abandoned(of)
    for fill in _blocked, _sessions, _listened_only, _files_alone, _torn, _lost:
        fill(of)
    findings(of)


def _blocked(of: Cluster) -> None:
    """It waits behind partition 0 of payments, whose offset stands still."""
    now = seed.now_ms()
    blocked = query(
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
        batch(blocked, 9_832 + n, offsets=[["0", end]], started_ms=now - (40 - n) * 1_000)
    decision(blocked, 9_871)
    run(blocked, batch_id=9_871)


def _sessions(of: Cluster) -> None:
    """Stateful, with Spark's own sink, and a batch that runs."""
    now = seed.now_ms()
    sessions = query(
        of,
        "clicks_sessions",
        "8b3f4c5d-6e7f-4a8b-8c1d-2e3f4a5b6c7d",
        sink="kafka",
        ledger_id="",
        prefix="",
        generation=None,
        planned=40_112,
        finished=40_111,
        detail=detail(
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
        end = offsets("clicks", 12, 9_000 + n * 20)
        batch(
            sessions, 40_072 + n, offsets=[["0", end]], operators=[state], started_ms=now - (40 - n) * 1_000
        )
    planned(sessions, 40_112, planned_ms=now - 800, offsets=[["0", offsets("clicks", 12, 9_900)]])
    run(sessions, batch_id=40_111)


def _listened_only(of: Cluster) -> None:
    """No checkpoint of it is read: the listener alone tells of it."""
    told = query(
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
        batch(told, 200 + n, planned_ms=None, committed_ms=None, offsets=[], watermark_ms=None)
    run(told, batch_id=211)


def _files_alone(of: Cluster) -> None:
    """No listener tells of it: its checkpoint alone is read."""
    now = seed.now_ms()
    files = query(
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
        planned(
            files,
            50 + n,
            planned_ms=now - 900_000 + n * 1_000,
            committed_ms=None if n == 2 else now - 899_000,
        )


def _torn(of: Cluster) -> None:
    """Its metadata is empty, so it has no identity but its path."""
    query(
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
        detail=detail(
            broken=[{"path": "metadata", "damage": "empty", "detail": "it holds no byte"}],
            foreign=["_SUCCESS", "part-00000.parquet"],
            restart={"first_batch": None, "severity": "critical", "remedy": "restore metadata from a copy"},
        ),
        error="s3a://lake/checkpoints/torn/metadata: Access Denied. Let Fenceline read it.",
    )


def _lost(of: Cluster) -> None:
    """A prepared batch was lost; its name wants escaping."""
    lost = query(
        of,
        "<b>lost & found</b>",
        "1e6c7f8a-9b0c-4d1e-9f4a-5b6c7d8e9f0a",
        ledger_id="6b7c8d9e-0f1a-4b2c-9d3e-4f5a6b7c8d9e",
        planned=31,
        finished=30,
        state="failed",
    )
    planned(lost, 31)
    ids = [transactional_id(lost, 0, 31)]
    decision(lost, 31, "lost", lost=ids, done_by="operator")
