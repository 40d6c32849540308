"""Checkpoints, ledgers and rows of streaming queries."""

from collections.abc import Sequence
from typing import Any

from dashboard.models import Batch, Query, SinkDecision
from dashboard.streaming.mapping import decision_rows
from fenceline.facts import TopicPartition
from fenceline.spark.records import (
    Broken,
    Checkpoint,
    CheckpointObservation,
    CommitsEntry,
    Decided,
    Decision,
    DecisionOutcome,
    Done,
    Ledger,
    LedgerState,
    OffsetsEntry,
    SinkTransaction,
    SourceOffset,
)
from tests.db.conftest import NOW_MS
from tests.db.factories.clusters import prod

QUERY_ID = "8a5c1f7e-2b7d-4b8e-9d5c-0d5a1c2b3e4f"
PATH = "file:///checkpoints/orders"
LEDGER_ID = "0a1b2c3d4e5f"


def offsets_entry(batch: int, *, planned_ms: int | None = None) -> OffsetsEntry:
    """Return `offsets/N`: ten records of `orders-0` a batch."""
    source = SourceOffset(
        "0", f'{{"orders":{{"0":{batch * 10}}}}}', {TopicPartition("orders", 0): batch * 10}
    )
    return OffsetsEntry(batch, 1, (source,), 0, NOW_MS + batch * 10 if planned_ms is None else planned_ms)


def checkpoint(planned: int, finished: int, *, planned_ms: int | None = None, **facts: Any) -> Checkpoint:
    """Return a checkpoint whose logs begin at batch 0."""
    return Checkpoint(
        **{
            "path": PATH,
            "query_id": QUERY_ID,
            "identity": None,
            "offsets": tuple(range(planned + 1)),
            "commits": tuple(range(finished + 1)),
            "last_offsets": offsets_entry(planned, planned_ms=planned_ms),
            "previous_offsets": offsets_entry(planned - 1) if planned else None,
            "last_commit": CommitsEntry(finished, 1, 0),
            "offsets_ms": NOW_MS + planned * 10,
            "commits_ms": NOW_MS + finished * 10 + 5,
            **facts,
        }
    )


def checkpoint_look(
    planned: int,
    finished: int,
    *,
    ledger: LedgerState | None = None,
    planned_ms: int | None = None,
    **facts: Any,
) -> CheckpointObservation:
    """Return a poll that has read the last file of each log for the first time."""
    batches = sorted({planned, finished})
    return CheckpointObservation(
        checkpoint(planned, finished, planned_ms=planned_ms, **facts),
        ledger,
        tuple(offsets_entry(each, planned_ms=planned_ms if each == planned else None) for each in batches),
        (CommitsEntry(finished, 1, 0),),
        {finished: NOW_MS + finished * 10 + 5},
    )


def sink_transaction(partition: int = 0, *, batch: int = 3) -> SinkTransaction:
    """Return a transaction of the sink with 500 records and a minute."""
    name = f"orders-0a1b2c3d-p{partition}-g1-b{batch % 2}-s0"
    where = (TopicPartition("enriched", partition),)
    return SinkTransaction(partition, 0, name, 4_000 + partition, 3, where, 500, NOW_MS, 60_000)


def decision(
    batch: int, decided: Decided = Decided.PREPARED, *, round: int = 0, at_ms: int = NOW_MS, number: int = 1
) -> Decision:
    """Return a decision about `number` transactions."""
    transactions = tuple(sink_transaction(each, batch=batch) for each in range(number))
    return Decision(batch, round, decided, "driver", at_ms, LEDGER_ID, QUERY_ID, "r-1", 1, transactions)


def decision_end(batch: int, outcome: DecisionOutcome = DecisionOutcome.COMMITTED, *lost: str) -> Done:
    """Return the end of a decision."""
    return Done(batch, 0, outcome, NOW_MS + 100, "driver", lost)


def ledger_state(
    decisions: Sequence[Decision],
    ended: Sequence[Done] = (),
    *,
    ledger: Ledger | Broken | None = None,
    broken: tuple[Broken, ...] = (),
) -> LedgerState:
    """Return a ledger in the checkpoint's folder."""
    head = ledger or Ledger(LEDGER_ID, QUERY_ID, "orders", NOW_MS)
    where = f"{PATH}/kafka_exactly_once"
    return LedgerState(where, head, 2, "r-1", tuple(decisions), tuple(ended), broken)


def query(ident: str = QUERY_ID, **columns: Any) -> Query:
    """Return the row of a query with the exactly-once sink, batch 3 in progress."""
    values = {
        "query_id": QUERY_ID,
        "name": "orders",
        "checkpoint": PATH,
        "state": "running",
        "heard_ms": NOW_MS - 500,
        "planned": 3,
        "finished": 2,
        "planned_ms": NOW_MS - 2_000,
        "finished_ms": NOW_MS - 2_500,
        "sink": "exactly_once",
        "ledger_id": LEDGER_ID,
        "prefix": "orders",
        "rev": 1,
        **columns,
    }
    return Query.objects.create(cluster=prod(), ident=ident, **values)


def batch(of: Query, number: int = 3, **columns: Any) -> Batch:
    """Return the row of a planned batch."""
    values = {
        "planned_ms": NOW_MS - 2_000,
        "offsets": [["0", f'{{"orders":{{"0":{number * 10}}}}}']],
        "rev": 1,
        **columns,
    }
    return Batch.objects.create(query=of, batch_id=number, **values)


def decision_row(of: Query, decision: Decision, ended: Done | None = None) -> SinkDecision:
    """Return the row of a decision."""
    ledger = ledger_state([decision], [] if ended is None else [ended])
    (columns,) = decision_rows(of, ledger, [(decision.batch_id, decision.round)])
    return SinkDecision.objects.create(**columns)
