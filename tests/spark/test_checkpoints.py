"""Proves that checkpoints of every kind that Spark 4.2 writes are read, and equal Spark's own reports.

Each is made by real Spark here; every figure is compared with its own progress events, and
state with its own state-metadata source.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fenceline.facts import TopicPartition
from fenceline.spark.records import CheckpointObservation, CommitsEntry, OffsetsEntry
from fenceline.spark.restart_prediction import predict_restart
from sandbox.kafka import Broker
from tests.spark.checkpoint_kinds import KINDS, LONG, TOPIC_PARTITIONS, Progress, Stage
from tests.spark.queries import poll_checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

#: What sources are called in offsets/N, where they have names.
NAMED = {"named sources": {"orders", "a_b"}, "kafka named": {"orders"}}
VERSIONS = {
    "version 2": (2, 1),
    "named sources": (2, 1),
    "kafka named": (2, 1),
    "named sink": (1, 3),
    "state format 2": (1, 2),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.soak] * (kind in LONG)) for kind in KINDS]
)
def test_a_checkpoint_equals_what_spark_reports(
    spark: SparkSession, kafka_42: Broker, tmp_path: Path, kind: str
) -> None:
    stage = Stage(spark, tmp_path / "checkpoint", kafka_42.bootstrap)
    progress = KINDS[kind](stage)
    look = poll_checkpoint(stage.folder)

    assert look.checkpoint.broken == ()
    assert look.checkpoint.foreign == ()
    assert look.checkpoint.query_id == str(progress[0]["id"])
    assert look.ledger is None
    _entries_are_whole(look, kind)
    _assert_batches_match(look, progress)
    _assert_operators_match(spark, look, stage.folder, progress)
    if kind.startswith("kafka"):
        _assert_positions_match(look, progress)
    said = predict_restart(look.checkpoint, alive=False, asynchronous=kind == "async progress")
    # One at most is planned and not finished. Asynchronous tracking writes only some of them.
    newest = look.checkpoint.offsets[-1]
    assert look.checkpoint.newest_finished in look.checkpoint.offsets[-2:]
    assert said.first_batch == newest + (look.checkpoint.newest_finished == newest)


def _entries_are_whole(look: CheckpointObservation, kind: str) -> None:
    """Every file of both logs was read, with its version, its sources' names and when it was written."""
    checkpoint = look.checkpoint
    assert tuple(each.batch_id for each in look.planned) == checkpoint.offsets
    assert tuple(each.batch_id for each in look.finished) == checkpoint.commits
    versions = VERSIONS.get(kind, (1, 1))
    assert {each.version for each in look.planned} == {versions[0]}
    assert {each.version for each in look.finished} == {versions[1]}
    assert set(look.committed_ms) == set(checkpoint.commits)
    assert isinstance(checkpoint.last_offsets, OffsetsEntry)
    assert isinstance(checkpoint.last_commit, CommitsEntry)
    numbers = {str(number) for number in range(len(checkpoint.last_offsets.sources))}
    assert {each.source for each in checkpoint.last_offsets.sources} == NAMED.get(kind, numbers)
    assert bool(checkpoint.last_commit.sinks) == (kind == "named sink")
    assert bool(checkpoint.last_commit.state_ids) == (kind == "state format 2")


def _assert_batches_match(look: CheckpointObservation, progress: Progress) -> None:
    """Offsets, watermarks and instants of each batch are those of its progress event."""
    planned = {each.batch_id: each for each in look.planned}
    finished = {each.batch_id: each for each in look.finished}
    for event in progress:
        batch = event["batchId"]
        if batch not in planned:
            # Asynchronous progress tracking writes no file for it, continuous processing tells no batch.
            continue
        entry = planned[batch]
        raws = [None if each.raw is None else json.loads(each.raw) for each in entry.sources]
        assert _sorted(raws) == _sorted([_plain(each["endOffset"]) for each in event["sources"]])
        watermark = event["eventTime"].get("watermark") if event.get("eventTime") else None
        if watermark is not None:
            assert entry.watermark_ms == _epoch_ms(watermark)
            assert finished[batch].next_watermark_ms == (
                planned[batch + 1].watermark_ms if batch + 1 in planned else finished[batch].next_watermark_ms
            )
        if batch - 1 in planned:
            before = [
                None if each.raw is None else json.loads(each.raw) for each in planned[batch - 1].sources
            ]
            assert _sorted(before) == _sorted([_plain(each["startOffset"]) for each in event["sources"]])
        started = _epoch_ms(event["timestamp"])
        assert entry.planned_ms is not None
        assert started <= entry.planned_ms <= started + event["batchDuration"]
        assert look.committed_ms[batch] >= entry.planned_ms - 1


def _assert_operators_match(
    spark: SparkSession, look: CheckpointObservation, folder: Path, progress: Progress
) -> None:
    """Stateful operators, and the stores with a whole chain, are those that Spark's own source reads; the
    operators are those that its events report.
    """
    operators = look.checkpoint.operators
    told = sorted(each["operatorName"] for each in progress[-1]["stateOperators"])
    assert sorted(each.name for each in operators) == told
    assert look.checkpoint.has_state == bool(operators)
    if not operators:
        return
    rows = spark.read.format("state-metadata").load(str(folder)).collect()
    assert not any(state.broken or state.unread for state in look.state)
    assert {
        (state.operator_id, chain.store, chain.partition) for state in look.state for chain in state.chains
    } == {(row.operatorId, row.stateStoreName, each) for row in rows for each in range(row.numPartitions)}
    theirs = {(row.operatorId, row.operatorName, row.stateStoreName, row.numPartitions) for row in rows}
    ours = {
        (each.operator_id, each.name, store.name, store.partitions)
        for each in operators
        for store in each.stores
    }
    assert ours == theirs
    assert {row.maxBatchId for row in rows} == {look.checkpoint.newest_finished}


def _assert_positions_match(look: CheckpointObservation, progress: Progress) -> None:
    """Kafka's offsets are positions by partition, and its first ones were kept."""
    (source,) = look.planned[-1].sources
    ended = _plain(progress[-1]["sources"][0]["endOffset"])
    ((topic, partitions),) = ended.items()
    newest = {each.batch_id: each for each in look.planned}[progress[-1]["batchId"]]
    assert newest.sources[0].positions == {
        TopicPartition(topic, int(number)): offset for number, offset in partitions.items()
    }
    assert look.checkpoint.initial == {
        source.source: {TopicPartition(topic, number): 0 for number in range(TOPIC_PARTITIONS)}
    }


def _plain(offset: Any) -> Any:
    return json.loads(offset) if isinstance(offset, str) else offset


def _sorted(offsets: list[Any]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in offsets)


def _epoch_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)
