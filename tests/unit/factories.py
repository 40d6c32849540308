"""Facts that plans and histories are made of, each with every field."""

from typing import Any

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import (
    Confidence,
    TopicPartition,
    TopicPartitions,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from fenceline.kafka.partitions import PartitionVerdict, Pin, ProducerState, VerdictReason
from fenceline.kafka.reconcile import Described
from fenceline.plans.impact import HeldLog
from fenceline.plans.producers import Producer

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
#: The topic and the producer id of everything here.
TOPIC, MINE, OTHER = "payments", 4_000, 5_000


def open_producer(start: int, producer_id: int = MINE) -> ProducerState:
    """Return a producer with an open transaction."""
    return ProducerState(producer_id, 3, 7, NOW_MS, None, start)


def data_batch(
    first: int, records: int = 1, producer_id: int = MINE, *, transactional: bool = True
) -> RecordBatch:
    """Return the header of a batch of records."""
    return RecordBatch(first, first + records - 1, producer_id, 3, transactional, "", records)


def marker_batch(at: int, producer_id: int, kind: str = "commit") -> RecordBatch:
    """Return the header of an end of a transaction."""
    return RecordBatch(at, at, producer_id, 3, True, kind, 1)


def transition_of(kind: TransitionKind, **fields: Any) -> Transition:
    """Return a certain transition of an id; an end is of a transaction that was open for 50 ms."""
    values = {
        "confidence": Confidence.CERTAIN,
        "reason": TransitionReason.SAME_EPOCH,
        "at_ms": NOW_MS,
        "producer_id": MINE,
        "producer_epoch": 3,
        "previous_epoch": 3,
        "timeout_ms": MINUTE_MS,
        "open_ms": 50,
        "completed_ms": None,
        "gap_ms": None,
        "partition": 3,
        "offset": 9,
        **fields,
    }
    return Transition(kind, **values)


def blocked_log(partition: int = 0, topic: str = TOPIC, **fields: Any) -> HeldLog:
    """Return a partition in which one transaction is open, two records of it and three behind them."""
    values = {
        "lso": 10,
        "high_watermark": 15,
        "opened": (open_producer(10),),
        "batches": (data_batch(10, 2), data_batch(12, 3, -1, transactional=False)),
        **fields,
    }
    return HeldLog(TopicPartition(topic, partition), **values)


def described_transaction(name: str = "payments-7", **fields: Any) -> Described:
    """Return the description of an id with a transaction in `payments-0`, open for ten minutes."""
    values = {
        "state": TransactionState.ONGOING,
        "producer_id": MINE,
        "producer_epoch": 3,
        "timeout_ms": 15 * MINUTE_MS,
        "started_ms": NOW_MS - 10 * MINUTE_MS,
        "partitions": (TopicPartitions(TOPIC, (0,)),),
        **fields,
    }
    return Described(name, **values)


def plan_producer(name: str = "payments-7", said: Any = None, **fields: Any) -> Producer:
    """Return an id whose transaction is open for ten minutes, and has written nothing for nine of them."""
    values = {
        "logs": (blocked_log(),),
        "started_ms": NOW_MS - 10 * MINUTE_MS,
        "silent_since_ms": NOW_MS - 9 * MINUTE_MS,
        **fields,
    }
    return Producer(name, described_transaction(name) if said is None else said, **values)


def hanging_transaction(start: int = 10, **fields: Any) -> Pin:
    """Return a transaction of `payments-0` that hangs."""
    values = {
        "producer_id": MINE,
        "producer_epoch": 3,
        "last_sequence": 7,
        "last_timestamp_ms": NOW_MS,
        "coordinator_epoch": None,
        "first_seen_ms": NOW_MS - MINUTE_MS,
        "transactional_id": "",
        "verdict": PartitionVerdict.HANGING,
        "ground": VerdictReason.NO_SUCH_PRODUCER,
        **fields,
    }
    return Pin(TOPIC, 0, start_offset=start, **values)
