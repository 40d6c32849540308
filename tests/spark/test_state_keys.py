"""Proves on checkpoints of real Spark that the state keys job reads the keys that the query has kept, of each
kind of store, and that what is asked for wrongly is one sentence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fenceline.spark.state_keys import StateKeys, read_state_keys, state_keys_file, state_keys_folder
from spark_pipeline import state_keys
from spark_pipeline.job import JobError
from spark_pipeline.sink.checkpoint import QueryFiles
from spark_pipeline.sink.stores.storage import open_storage
from tests.spark.checkpoint_kinds import Stage, join, transform_with_state
from tests.spark.queries import PARTITIONS, ROCKSDB, STATE_STORE, noop, numbers, ran_to, settings

pytestmark = pytest.mark.spark

CLUSTER, ROWS = "test", 5


@pytest.fixture(scope="module", params=["hdfs", "rocksdb"])
def checkpoint(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A query that counts numbers by their remainder of 3, stopped after its third batch."""
    folder: Path = tmp_path_factory.mktemp("state") / "checkpoint"
    stores = {STATE_STORE: ROCKSDB} if request.param == "rocksdb" else {}
    with settings(spark, {PARTITIONS: "2", **stores}):
        keyed = numbers(spark, rows=ROWS).selectExpr("value % 3 AS key")
        ran_to(noop(keyed.groupBy("key").count(), folder, "update").start(), 2)
    return folder


def read(spark: SparkSession, checkpoint: Path, *arguments: str) -> StateKeys:
    """Run the job, and return what the dashboard finds."""
    output = checkpoint.parent / "output"
    options = [
        "--cluster",
        CLUSTER,
        "--checkpoint",
        checkpoint.as_uri(),
        "--output",
        output.as_uri(),
        *arguments,
    ]
    parsed = state_keys.argument_parser().parse_args(options)
    print(state_keys.read_keys(spark, parsed))
    query_id = QueryFiles(open_storage(str(checkpoint))).query_id()
    assert query_id
    folder = output / state_keys_folder(CLUSTER, query_id)
    return read_state_keys((folder / state_keys_file(parsed.operator, parsed.store)).read_text())


def counted(keys: StateKeys) -> Mapping[int, int]:
    return {json.loads(row.key)["key"]: json.loads(row.value or "")["count"] for row in keys.rows}


def truth(batch_id: int) -> Mapping[int, int]:
    return Counter(number % 3 for number in range((batch_id + 1) * ROWS))


def test_keys_and_values_are_those_that_the_query_keeps(spark: SparkSession, checkpoint: Path) -> None:
    newest = read(spark, checkpoint, "--values")
    assert (newest.operator, newest.store, newest.has_more) == ("stateStoreSave", "default", False)
    assert newest.batch_id >= 2
    assert counted(newest) == truth(newest.batch_id)
    earlier = read(spark, checkpoint, "--values", "--batch", "1")
    assert (earlier.batch_id, counted(earlier)) == (1, truth(1))


def test_a_condition_and_a_limit_choose_rows_and_values_stay_away(
    spark: SparkSession, checkpoint: Path
) -> None:
    (row,) = read(spark, checkpoint, "--where", "key.key = 2").rows
    assert (json.loads(row.key), row.value) == ({"key": 2}, None)
    some = read(spark, checkpoint, "--rows", "2")
    assert (len(some.rows), some.has_more) == (2, True)


def test_each_store_of_a_join_has_keys_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    join(Stage(spark, folder, ""))
    assert read(spark, folder, "--store", "left-keyToNumValues").rows
    with pytest.raises(JobError, match="--operator 0 --store left-keyToNumValues"):
        read(spark, folder)


def test_a_state_variable_is_read_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    transform_with_state(Stage(spark, folder, ""))
    assert read(spark, folder, "--variable", "seen", "--values").rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--operator", "7"), "has no operator 7 with a store default: choose --operator 0 --store default"),
        (("--where", "key.nobody = 1"), "operator 0 after batch .* cannot be read: .*nobody"),
        (("--where", "key ="), "cannot be read: .*SYNTAX"),
        (("--batch", "999"), "operator 0 after batch 999 cannot be read"),
    ],
)
def test_what_is_asked_for_wrongly_is_one_sentence(
    spark: SparkSession, checkpoint: Path, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(JobError, match=message) as raised:
        read(spark, checkpoint, *arguments)
    assert "\n" not in str(raised.value)


def test_a_folder_without_state_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="is no checkpoint of a streaming query"):
        read(spark, tmp_path)
    folder = tmp_path / "checkpoint"
    ran_to(noop(numbers(spark), folder).start(), 0)
    with pytest.raises(JobError, match="the query keeps no state"):
        read(spark, folder)
