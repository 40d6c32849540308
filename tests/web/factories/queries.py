"""Streaming queries, their batches, runs and decisions for pages to show."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dashboard.models import Batch, Cluster, Query, Run, SinkDecision
from dashboard.streaming import queries as operator_state_rows
from fenceline.facts import TransactionState
from fenceline.spark.state_chains import OperatorState, StateChain
from tests.web.factories.clusters import now_ms
from tests.web.factories.transactions import transaction

LEDGER_ID = "3f9c11d2-7a54-4e0b-9a61-0c1d2e3f4a5b"
QUERY_ID = "6f1d2a3b-4c5d-4e6f-8a9b-0c1d2e3f4a5b"
RUN_ID = "0a1b2c3d-4e5f-4a6b-8c7d-8e9f0a1b2c3d"


def query(of: Cluster, name: str = "orders_enrich", ident: str = QUERY_ID, **fields: object) -> Query:
    """Return a query that runs with our sink and has just finished batch 1,203, but for `fields`."""
    now = now_ms()
    defaults: dict[str, object] = {
        "query_id": ident.partition("@")[0] if not ident.startswith("path-") else "",
        "checkpoint": f"file:///checkpoints/{name}",
        "state": "running",
        "run_id": RUN_ID,
        "heard_ms": now - 400,
        "started_ms": now - 3_600_000,
        "planned": 1_203,
        "finished": 1_203,
        "planned_ms": now - 1_600,
        "finished_ms": now - 700,
        "restart": "clean",
        "restart_words": "runs batch 1204",
        "sink": "exactly_once",
        "ledger_id": LEDGER_ID,
        "prefix": name,
        "generation": 7,
        "detail": checkpoint_detail(),
        "seen_ms": now - 300,
        "rev": 1,
    }
    return Query.objects.create(cluster=of, ident=ident, name=name, **(defaults | fields))


def checkpoint_detail(**fields: object) -> dict[str, object]:
    """Return the details of a sound checkpoint, but for `fields`."""
    return {
        "conf": {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.multipleWatermarkPolicy": "min"},
        "sources": [{"source": "0", "offset": source_offsets("order_events", 4, 13_120), "info": {}}],
        "initial": {"0": {"order_events": {str(number): 1_000 for number in range(4)}}},
        "operators": [],
        "broken": [],
        "foreign": [],
        "versions": {"offsets": 1, "commits": 1},
        "control": "",
        "asynchronous": False,
        "has_state": False,
        "kept": {"offsets": [1_103, 1_203], "commits": [1_102, 1_203]},
        "restart": {"first_batch": 1_204, "severity": None, "remedy": ""},
        "ledger": {"path": "file:///checkpoints/orders/ledger", "broken": [], "created_ms": 0, "seen": ""},
        **fields,
    }


def source_offsets(topic: str, partitions: int, at: int) -> str:
    """Return a Kafka source's offsets as Spark writes them."""
    return json.dumps({topic: {str(number): at for number in range(partitions)}})


def batch(of: Query, number: int, **fields: object) -> Batch:
    """Return a batch that is planned, reported and checkpointed, but for `fields`."""
    now = now_ms()
    begun = now - 700 - (1_203 - number) * 1_000
    took = 700 + number * 7919 % 420
    end = source_offsets("order_events", 4, 9_000 + (number - 1_100) * 40)
    defaults: dict[str, object] = {
        "planned_ms": begun,
        "watermark_ms": begun - 30_000,
        "offsets": [["0", end]],
        "committed_ms": begun + took,
        "next_watermark_ms": begun - 29_000,
        "run_id": of.run_id,
        "started_ms": begun,
        "duration_ms": took,
        "input_rows": 18_004 + number * 104_729 % 4_001,
        "output_rows": None,
        "input_rate": 17_950.0,
        "processed_rate": (18_004 + number * 104_729 % 4_001) * 1_000 / took,
        "durations": {
            "triggerExecution": took,
            "addBatch": took - 190,
            "walCommit": 48,
            "commitOffsets": 42,
            "latestOffset": 31,
            "getBatch": 4,
            "queryPlanning": 37,
        },
        "sources": [
            {
                "description": "KafkaV2[Subscribe[order_events]]",
                "start": end,
                "end": end,
                "latest": end,
                "input_rows": 18_004,
                "input_rate": 17_950.0,
                "processed_rate": 21_000.0,
                "metrics": {},
            }
        ],
        "rev": 1,
    }
    return Batch.objects.create(query=of, batch_id=number, **(defaults | fields))


def batches(of: Query, numbers: Sequence[int], **fields: object) -> None:
    """Make batches of a query."""
    for number in numbers:
        batch(of, number, **fields)


def unfinished_batch(of: Query, number: int, **fields: object) -> Batch:
    """Return a batch that is planned and not finished."""
    now = now_ms()
    nothing = dict.fromkeys(
        ("committed_ms", "next_watermark_ms", "duration_ms", "input_rows", "input_rate", "processed_rate")
    )
    told: dict[str, object] = {"run_id": "", "started_ms": None, "durations": {}, "sources": []}
    end = source_offsets("order_events", 4, 13_200)
    return batch(
        of, number, **({**nothing, **told, "planned_ms": now - 52_000, "offsets": [["0", end]]} | fields)
    )


def sink_transactional_id(of: Query, partition: int, number: int) -> str:
    """Return the id under which a task of a batch writes."""
    return f"{of.prefix}-{of.ledger_id[:8]}-p{partition}-g{of.generation}-b{number % 2}-s{partition}"


def sink_transactions(of: Query, number: int, *, age_ms: int = 48_000) -> list[dict[str, object]]:
    """Return the four transactions of a batch as its ledger names them."""
    begun = now_ms() - age_ms
    return [
        {
            "partition": task,
            "attempt": task,
            "transactional_id": sink_transactional_id(of, task, number),
            "producer_id": 3_301 + task,
            "producer_epoch": 4,
            "partitions": [["orders_enriched", task]],
            "records": 4_480 + task * 13,
            "started_ms": begun + task,
            "timeout_ms": 750_000,
        }
        for task in range(4)
    ]


def sink_decision(of: Query, number: int, outcome: str = "committed", **fields: object) -> SinkDecision:
    """Return a decision to commit, carried out but for `outcome` ""."""
    now = now_ms()
    defaults: dict[str, object] = {
        "round": 0,
        "decided": "prepared",
        "by": "driver",
        "decided_ms": now - 47_000,
        "run_id": of.run_id,
        "generation": of.generation or 0,
        "transactions": sink_transactions(of, number),
        "input": [
            ["0", source_offsets("order_events", 4, 13_120), source_offsets("order_events", 4, 13_200)]
        ],
        "outcome": outcome,
        "done_ms": now - 46_800 if outcome else None,
        "done_by": "driver" if outcome else "",
    }
    return SinkDecision.objects.create(query=of, batch_id=number, **(defaults | fields))


def coordinator_transactions(of: Query, of_decision: SinkDecision, *states: TransactionState) -> None:
    """Make the transactions of a decision: the first ones in these states, the rest Ongoing."""
    for number, told in enumerate(of_decision.transactions):
        state = states[number] if number < len(states) else TransactionState.ONGOING
        transaction(
            of.cluster,
            told["transactional_id"],
            state,
            producer_id=told["producer_id"],
            producer_epoch=told["producer_epoch"],
            started_ms=told["started_ms"],
            updated_ms=told["started_ms"] + 900,
            timeout_ms=told["timeout_ms"],
            partitions={"orders_enriched": [number]},
        )


def query_run(of: Query, **fields: object) -> Run:
    """Return the run of a query, its listener's spool empty, but for `fields`."""
    now = now_ms()
    defaults: dict[str, object] = {
        "run_id": RUN_ID,
        "name": of.name,
        "started_ms": now - 3_600_000,
        "first_heard_ms": now - 3_599_000,
        "heard_ms": now - 400,
        "batch_id": 1_203,
        "spark_version": "4.2.0",
    }
    return Run.objects.create(query=of, **(defaults | fields))


def operator_state(row: Query, *chains: StateChain, name: str = "stateStoreSave", **fields: Any) -> None:
    """Save the state files of a query's operator 0, listed just now."""
    state = OperatorState(0, name, chains, now_ms() - 500)
    operator_state_rows.save_operator_state(row, [replace(state, **fields)])


def state_chain(partition: int = 0, **fields: Any) -> StateChain:
    """Return a chain of ten deltas after snapshot 1,194, all of them there, but for `fields`."""
    chain = StateChain(partition, "default", 1_100, 1_204, 11, 104, 420_000, 1_204, 1_194)
    return chain._replace(**fields)
