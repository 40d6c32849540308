"""Proves that checkpoints of every kind that Spark 4.2 writes are read, and equal Spark's own reports.

Each is made by real Spark here; every figure is compared with its own progress events, and state with its own
state-metadata source. A broken chain of state files fails the restart.

Of queries that purge all the time no poll reports a damaged checkpoint, and none flaps. A run of `make soak`
polls 60,000 times for each number of batches kept and each store; FENCELINE_POLLS changes that.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fenceline.facts import TopicPartition
from fenceline.spark.records import CheckpointObservation, CommitsEntry, OffsetsEntry
from fenceline.spark.restart_prediction import RestartVerdict, predict_restart
from fenceline.spark.state_chains import OperatorState
from sandbox.kafka import Broker
from tests.spark.checkpoint_kinds import KINDS, LONG, TOPIC_PARTITIONS, Progress, Stage
from tests.spark.queries import (
    DEADLINE_S,
    PARTITIONS,
    ROCKSDB,
    STATE_FORMAT,
    STATE_STORE,
    counts,
    noop,
    numbers,
    poll_checkpoint,
    ran_to,
    remove,
    settings,
)
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
#: What sources are called in offsets/N, where they have names.
NAMED = {"named sources": {"orders", "a_b"}, "kafka named": {"orders"}}
VERSIONS = {
    "version 2": (2, 1),
    "named sources": (2, 1),
    "kafka named": (2, 1),
    "named sink": (1, 3),
    "state format 2": (1, 2),
}
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
STATE_KINDS: Mapping[str, Mapping[str, str]] = {
    "hdfs": {},
    "rocksdb": {STATE_STORE: ROCKSDB, CHANGELOG: "false"},
    "changelog": {STATE_STORE: ROCKSDB, CHANGELOG: "true"},
    "format 2": {STATE_STORE: ROCKSDB, STATE_FORMAT: "2", CHANGELOG: "true"},
}
#: Further ways of RocksDB to keep its files.
MORE_STATE_KINDS = ("changelog", "format 2")
POLLS = int(os.environ.get("FENCELINE_POLLS", "60000"))
RETAIN = "spark.sql.streaming.minBatchesToRetain"
#: Seconds that a store takes for each file, and how many collectors poll it at once.
POLLED_STORES = {"local": (0.0, 1), "1 ms per stat": (0.001, 24)}


@pytest.mark.kafka
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
    ours = {(each.operator_id, each.name, *store) for each in operators for store in each.stores}
    assert ours == theirs
    assert {row.maxBatchId for row in rows} == {look.checkpoint.newest_finished}


def _assert_positions_match(look: CheckpointObservation, progress: Progress) -> None:
    """Kafka's offsets are positions by partition, and its first ones were kept."""
    (source,) = look.planned[-1].sources
    ended = _plain(progress[-1]["sources"][0]["endOffset"])
    ((topic, partitions),) = ended.items()
    newest = {each.batch_id: each for each in look.planned}[progress[-1]["batchId"]]
    expected = {TopicPartition(topic, int(number)): offset for number, offset in partitions.items()}
    assert newest.sources[0].positions == expected
    expected = {source.source: {TopicPartition(topic, number): 0 for number in range(TOPIC_PARTITIONS)}}
    assert look.checkpoint.initial == expected


def _plain(offset: Any) -> Any:
    return json.loads(offset) if isinstance(offset, str) else offset


def _sorted(offsets: list[Any]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in offsets)


def _epoch_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def started(spark: SparkSession, folder: Path) -> StreamingQuery:
    query: StreamingQuery = noop(counts(numbers(spark)), folder, "update").start()
    return query


def state_of(folder: Path) -> OperatorState:
    (state,) = poll_checkpoint(folder).state
    return state


def files_of(folder: Path, version: int, partition: int = 1) -> Iterable[str]:
    inside = folder / "state" / "0" / str(partition)
    for file in inside.iterdir():
        if file.name.startswith((f"{version}.", f"{version}_")) and file.suffix != ".crc":
            yield str(file.relative_to(folder))


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.matrix] * (kind in MORE_STATE_KINDS)) for kind in STATE_KINDS],
)
def test_a_chain_without_a_file_is_named_and_spark_fails_to_load_it(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "checkpoint"
    with settings(spark, {PARTITIONS: "2", **STATE_KINDS[kind]}):
        ran_to(started(spark, folder), 3)
        whole = state_of(folder)
        finished = poll_checkpoint(folder).checkpoint.newest_finished
        assert finished is not None
        assert [each.partition for each in whole.chains] == [0, 1]
        assert {each.needed for each in whole.chains} == {finished + 1}
        assert not whole.broken
        assert not whole.unread
        ran_to(started(spark, folder), finished + 2)
        (chain,) = [each for each in state_of(folder).chains if each.partition == 1]
        assert chain.needed is not None
        # Of RocksDB without changelogs each version is a snapshot: only the newest is needed.
        lost = chain.needed - (1 if kind == "hdfs" else 0)
        remove(folder, *files_of(folder, lost))
        (broken,) = state_of(folder).broken
        assert (broken.partition, broken.missing) == (1, (lost,))
        predicted = predict_restart(poll_checkpoint(folder).checkpoint, alive=False)
        assert (predicted.verdict, predicted.first_batch) == (RestartVerdict.STATE_BROKEN, None)
        assert f"partition 1: version {lost} is missing" in predicted.sentence
        query = started(spark, folder)
        wait_for(lambda: query.exception() is not None, "Spark fails", DEADLINE_S)
        assert "CANNOT_LOAD_STATE_STORE" in str(query.exception())


@pytest.mark.soak
@pytest.mark.parametrize("retained", [2, 20, 100])
def test_no_poll_reports_a_purge_as_damage(spark: SparkSession, tmp_path: Path, retained: int) -> None:
    folder = tmp_path / "orders"
    with settings(spark, {RETAIN: str(retained)}):
        query = noop(numbers(spark, rows=1), folder).start()
    try:
        wait_for(lambda: purged(folder, retained), "the first batch is purged", DEADLINE_S)
        running = {name: poller(folder, *how) for name, how in POLLED_STORES.items()}
        counts = {name: json.loads(process.communicate()[0]) for name, process in running.items()}
        assert query.exception() is None
    finally:
        query.stop()
    print(f"\n{retained} batches kept, {query.lastProgress['batchId']} run:", json.dumps(counts))
    for count in counts.values():
        assert (count.get("wrong", 0), count.get("flaps", 0), count.get("gone", 0)) == (0, 0, 0)
        # The polls met a query that went on.
        assert count["moved"] >= 3


def purged(folder: Path, retained: int) -> bool:
    """Whether the query has come so far that it purges with each batch."""
    logs = folder / "offsets"
    return logs.exists() and not (logs / "0").exists() and (folder / "commits" / str(retained)).exists()


def poller(folder: Path, stat_s: float, threads: int) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tests.spark.checkpoint_polls",
        str(folder),
        str(POLLS),
        str(stat_s),
        str(threads),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
