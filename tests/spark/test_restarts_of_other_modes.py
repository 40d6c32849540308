"""Proves the decision table for asynchronous progress tracking and continuous processing, whose logs are of
another kind.

Spark does what was predicted: the first batch that it runs and its range, or the words with which it
fails."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fenceline.spark.logs import is_sparse
from fenceline.spark.restart_prediction import RestartVerdict, predict_restart
from tests.spark.damaged_checkpoints import ROWS, damaged, gone, predicted, restarted, watched
from tests.spark.queries import DEADLINE_S, noop, numbers, poll_checkpoint, remove, trim
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
ASYNC = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "400"}


@pytest.fixture(scope="module")
def sparse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of asynchronous progress tracking whose newest batch but one is in neither log."""
    folder = tmp_path_factory.mktemp("restarts") / "sparse"
    query = noop(numbers(spark), folder, **ASYNC).start()
    wait_for(
        lambda: (newest := _sparse_end(folder)) is not None and newest > 1, "holes in the logs", DEADLINE_S
    )
    query.stop()
    newest = _sparse_end(folder)
    assert newest is not None
    trim(folder, newest)
    return folder


def _sparse_end(folder: Path) -> int | None:
    """Return the newest batch that is in both logs and follows a hole."""
    logs = [
        {int(file.name) for file in (folder / log).iterdir() if file.name.isdigit()}
        for log in ("offsets", "commits")
        if (folder / log).exists()
    ]
    whole = sorted(set.intersection(*logs)) if len(logs) == 2 else []
    return max((each for each in whole if each - 1 not in logs[0] and each > whole[0]), default=None)


def test_asynchronous_progress_resumes_over_holes_and_synchronous_does_not(
    spark: SparkSession, sparse: Path, tmp_path: Path
) -> None:
    folder = damaged(sparse, tmp_path / "async", gone())
    checkpoint = poll_checkpoint(folder).checkpoint
    newest = checkpoint.offsets[-1]
    assert is_sparse(checkpoint.offsets, checkpoint.commits)
    assert predict_restart(checkpoint, alive=None).verdict == RestartVerdict.PREVIOUS_MISSING
    said = predict_restart(checkpoint, alive=None, asynchronous=True)
    assert (said.verdict, said.first_batch) == (RestartVerdict.ASYNC, newest + 1)
    assert f"without it, it fails: batch {newest - 1} doesn't exist" in said.sentence

    synchronous = damaged(sparse, tmp_path / "sync", gone())
    assert f"batch {newest - 1} doesn't exist" in restarted(spark, synchronous).failure
    did = watched(noop(numbers(spark), folder, **ASYNC).start(), [])
    assert did.failure == ""
    assert did.first is not None
    assert did.first["batchId"] == newest + 1


def test_asynchronous_progress_runs_several_batches_again_as_one(
    spark: SparkSession, sparse: Path, tmp_path: Path
) -> None:
    checkpoint = poll_checkpoint(sparse).checkpoint
    newest, before = checkpoint.offsets[-1], checkpoint.offsets[-2]
    folder = damaged(sparse, tmp_path / "checkpoint", gone(f"commits/{newest}"))
    said = predict_restart(poll_checkpoint(folder).checkpoint, alive=None, asynchronous=True)
    assert (said.verdict, said.first_batch) == (RestartVerdict.ASYNC, newest)
    assert f"runs batch {newest} from offsets/{before} on" in said.sentence

    did = watched(noop(numbers(spark), folder, **ASYNC).start(), [])
    assert did.failure == ""
    assert did.first is not None
    assert did.first["batchId"] == newest
    source = did.first["sources"][0]
    ends = [json.loads(source[key])["offset"] for key in ("startOffset", "endOffset")]
    assert ends == [(before + 1) * ROWS, (newest + 1) * ROWS]


def test_continuous_processing_resumes_from_the_newest_commit(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "continuous"

    def run_until(epoch: int) -> None:
        rows = spark.readStream.format("rate").option("rowsPerSecond", 50).option("numPartitions", 1).load()
        query = noop(rows, folder).trigger(continuous="200 milliseconds").start()
        wait_for((folder / "commits" / str(epoch)).exists, f"epoch {epoch}", DEADLINE_S)
        query.stop()

    run_until(3)
    trim(folder, 3)
    remove(folder, "commits/3", "commits/2")
    said = predicted(folder)
    assert (said.verdict, said.first_batch) == (RestartVerdict.CONTINUOUS, 2)
    run_until(4)
    assert {"2", "3", "4"} <= {file.name for file in (folder / "commits").iterdir()}
