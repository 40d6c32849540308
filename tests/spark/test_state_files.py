"""Proves that a broken chain of state files fails the restart of a real Spark; whole chains of each kind of
state are in test_checkpoints.py."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fenceline.spark.restart_prediction import RestartVerdict, predict_restart
from fenceline.spark.state_chains import OperatorState
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

CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
KINDS: Mapping[str, Mapping[str, str]] = {
    "hdfs": {},
    "rocksdb": {STATE_STORE: ROCKSDB, CHANGELOG: "false"},
    "changelog": {STATE_STORE: ROCKSDB, CHANGELOG: "true"},
    "format 2": {STATE_STORE: ROCKSDB, STATE_FORMAT: "2", CHANGELOG: "true"},
}
#: Further ways of RocksDB to keep its files.
MORE_KINDS = ("changelog", "format 2")


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
    "kind", [pytest.param(kind, marks=[pytest.mark.matrix] * (kind in MORE_KINDS)) for kind in KINDS]
)
def test_a_chain_without_a_file_is_named_and_spark_fails_to_load_it(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "checkpoint"
    with settings(spark, {PARTITIONS: "2", **KINDS[kind]}):
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
