"""Proves the decision table, also for asynchronous progress tracking and continuous processing, whose logs
are of another kind: a checkpoint of real Spark is damaged, a verdict predicted, Spark restarted on it.

Spark does what was predicted: the first batch that it runs and its range, or the words with which it fails.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fenceline.spark.restart_prediction import RestartVerdict, is_sparse, predict_restart
from tests.spark.damaged_checkpoints import ROWS, Damage, damaged, gone, predicted, restarted, watched
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
    rewrite,
    settings,
    trim,
)
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
#: The newest batch of the checkpoint that most cases damage.
LAST = 5
ASYNC = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "400"}


@pytest.fixture(scope="module")
def base(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stateless checkpoint whose batches 0 to 5 are planned and done."""
    folder = tmp_path_factory.mktemp("restarts") / "base"
    ran_to(noop(numbers(spark, rows=ROWS), folder).start(), LAST)
    trim(folder, LAST)
    return folder


@pytest.fixture(scope="module")
def stateful(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with state in format 2, whose batches 0 to 3 are planned and done."""
    folder = tmp_path_factory.mktemp("restarts") / "stateful"
    with _in_state(spark):
        ran_to(noop(counts(numbers(spark)), folder, "update").start(), 3)
    trim(folder, 3)
    return folder


def _in_state(spark: SparkSession) -> Any:
    return settings(spark, {STATE_STORE: ROCKSDB, STATE_FORMAT: "2", PARTITIONS: "1"})


def written(path: str, text: str) -> Damage:
    return lambda folder: rewrite(folder, path, text)


def cut(path: str, keep: Callable[[str], str]) -> Damage:
    return lambda folder: rewrite(folder, path, keep((folder / path).read_text()))


def _only_batch_0_begun(folder: Path) -> None:
    trim(folder, 0)
    remove(folder, "commits/0")


def _of_spark_2_1(folder: Path) -> None:
    """Make of it what Spark 2.1 left: no commit log, and no conf in the offset log."""
    remove(folder, "commits")
    for file in list((folder / "offsets").iterdir()):
        if file.name.isdigit():
            version, planned, *sources = file.read_text().split("\n")
            kept = {name: value for name, value in json.loads(planned).items() if name != "conf"}
            rewrite(folder, f"offsets/{file.name}", "\n".join([version, json.dumps(kept), *sources]))


#: How a checkpoint is damaged, the verdict, the first batch that Spark runs, and words of the verdict.
GOES_ON = {
    "clean": (gone(), RestartVerdict.CLEAN, 6, "runs batch 6"),
    "in flight": (gone("commits/5"), RestartVerdict.REPLAY, 5, "batch 5 again with the same range"),
    "first batch in flight": (_only_batch_0_begun, RestartVerdict.REPLAY, 0, "batch 0 again"),
    "commits deleted": (
        gone("commits/5", "commits/4", "commits/3"), RestartVerdict.SILENT_GAP, 5, "skips batches 3 to 4"
    ),
    "all commits deleted": (gone("commits"), RestartVerdict.SILENT_GAP, 5, "skips batches 0 to 4"),
    "of Spark 2.1": (_of_spark_2_1, RestartVerdict.REPLAY, 5, "batch 5 again with the same range"),
    "a hole in history": (gone("offsets/2"), RestartVerdict.HISTORY_GAP, 6, "1 older files"),
    "both logs gone": (gone("offsets", "commits"), RestartVerdict.NOT_STARTED, 0, "runs batch 0"),
    "a commit without a line": (written("commits/5", "v1\n"), RestartVerdict.CLEAN, 6, "runs batch 6"),
    "an older commit is empty": (written("commits/4", ""), RestartVerdict.CLEAN, 6, "runs batch 6"),
}  # fmt: skip


#: The damage, the verdict, and the words with which Spark fails.
FAILS = {
    "previous missing": (gone("offsets/4"), RestartVerdict.PREVIOUS_MISSING, "batch 4 doesn't exist"),
    "offsets gone": (gone("offsets"), RestartVerdict.OFFSETS_GONE, "assertion failed"),
    "metadata gone": (
        gone("metadata"), RestartVerdict.IDENTITY_LOST, "STREAMING_CHECKPOINT_MISSING_METADATA_FILE"
    ),
    "metadata empty": (written("metadata", ""), RestartVerdict.IDENTITY_BROKEN, ""),
    "metadata without an id": (written("metadata", "{}"), RestartVerdict.IDENTITY_BROKEN, ""),
    "offsets empty": (written("offsets/5", ""), RestartVerdict.TORN_OFFSETS, "Incomplete log file"),
    "previous empty": (written("offsets/4", ""), RestartVerdict.TORN_OFFSETS, "Incomplete log file"),
    "commit empty": (written("commits/5", ""), RestartVerdict.TORN_COMMITS, "Incomplete log file"),
    "a source's line is gone": (
        cut("offsets/5", lambda text: text.rpartition("\n")[0]), RestartVerdict.FEWER_SOURCES,
        "There are [0] sources in the checkpoint offsets and now there are [1] sources",
    ),
    "newer offsets": (
        written("offsets/5", "v9\n{}\n{}"), RestartVerdict.NEWER_FORMAT, "INVALID_LOG_VERSION"
    ),
    "newer commit": (written("commits/5", "v9\n{}"), RestartVerdict.NEWER_FORMAT, "INVALID_LOG_VERSION"),
    # These fail with words of a parser: that they fail is what we say.
    "offsets cut in conf": (cut("offsets/5", lambda text: text[:200]), RestartVerdict.TORN_OFFSETS, ""),
    "cut in a source": (cut("offsets/5", lambda text: text[:-5]), RestartVerdict.TORN_OFFSETS, ""),
    "commit cut": (cut("commits/5", lambda text: text[:-5]), RestartVerdict.TORN_COMMITS, ""),
    "a version and no more": (written("offsets/5", "v1\n"), RestartVerdict.TORN_OFFSETS, ""),
    "another file": (written("offsets/5", "hello\n"), RestartVerdict.TORN_OFFSETS, ""),
}  # fmt: skip


#: The same of a checkpoint with state.
STATE_FAILS = {
    "commits deleted": (gone("commits/3", "commits/2"), RestartVerdict.SILENT_GAP, ""),
    "state gone": (
        gone("state"), RestartVerdict.STATE_GONE, "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
    ),
    "state left": (
        gone("offsets", "commits"), RestartVerdict.STATE_LEFT, "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
    ),
    "offsets gone": (gone("offsets"), RestartVerdict.OFFSETS_GONE, ""),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "verdict", "first", "words"), GOES_ON.values(), ids=GOES_ON)
def test_spark_resumes_where_predicted(
    spark: SparkSession,
    base: Path,
    tmp_path: Path,
    damage: Damage,
    verdict: RestartVerdict,
    first: int,
    words: str,
) -> None:
    folder = damaged(base, tmp_path / "checkpoint", damage)
    said = predicted(folder)
    assert (said.verdict, said.first_batch) == (verdict, first)
    assert words in said.sentence
    did = restarted(spark, folder)
    assert did.failure == ""
    assert did.ran[0] == first
    assert did.query_id == json.loads((base / "metadata").read_text())["id"]
    # Batch N reads one range, whoever runs it: its source has the same rows in it each time.
    source = did.first["sources"][0] if did.first else {}
    assert json.loads(source["endOffset"])["offset"] == (first + 1) * ROWS
    assert first == 0 or json.loads(source["startOffset"])["offset"] == first * ROWS


@pytest.mark.parametrize(("damage", "verdict", "words"), FAILS.values(), ids=FAILS)
def test_spark_fails_as_predicted(
    spark: SparkSession, base: Path, tmp_path: Path, damage: Damage, verdict: RestartVerdict, words: str
) -> None:
    folder = damaged(base, tmp_path / "checkpoint", damage)
    said = predicted(folder)
    assert (said.verdict, said.first_batch) == (verdict, None)
    assert words in said.sentence
    assert said.sentence.startswith("fails")
    assert said.severity
    assert said.remedy
    did = restarted(spark, folder)
    assert did.failure
    assert words in did.failure
    assert did.ran == []


def test_the_previous_batch_is_missed_while_the_newest_is_in_flight(
    spark: SparkSession, base: Path, tmp_path: Path
) -> None:
    folder = damaged(base, tmp_path / "checkpoint", gone("offsets/4", "commits/5"))
    assert predicted(folder).verdict == RestartVerdict.PREVIOUS_MISSING
    assert "Previous batch 4 not found in offset log" in restarted(spark, folder).failure


def test_a_lost_file_is_not_reported_as_asynchronous_progress(
    spark: SparkSession, base: Path, tmp_path: Path
) -> None:
    """The logs of Spark's own checkpoint-test-offsetId-commitId-inconsistent."""
    lost = ("offsets/3", "offsets/5", "commits/3", "commits/4", "commits/5")
    folder = damaged(base, tmp_path / "checkpoint", gone(*lost))
    said = predicted(folder)
    assert (said.verdict, said.first_batch) == (RestartVerdict.PREVIOUS_MISSING, None)
    assert "asynchronous progress tracking leaves such logs too" in said.sentence
    did = restarted(spark, folder)
    assert "Previous batch 3 not found in offset log" in did.failure
    assert did.ran == []


@pytest.mark.parametrize(("missing", "first", "last"), [((), 3, 3), (("commits/3",), 3, 4)])
def test_rolled_back_offsets_write_to_the_sink_before_they_fail(
    spark: SparkSession, base: Path, tmp_path: Path, missing: tuple[str, ...], first: int, last: int
) -> None:
    folder = damaged(base, tmp_path / "checkpoint", gone("offsets/5", "offsets/4", *missing))
    said = predicted(folder)
    assert (said.verdict, said.first_batch) == (RestartVerdict.ROLLED_BACK, first)
    assert "then fails: CONCURRENT_STREAM_LOG_UPDATE" in said.sentence
    ran: list[int] = []
    writer = numbers(spark, rows=ROWS).writeStream.foreachBatch(lambda rows, batch: ran.append(batch))
    query = writer.option("checkpointLocation", str(folder)).start()
    wait_for(lambda: not query.isActive, "it fails", DEADLINE_S)
    assert "CONCURRENT_STREAM_LOG_UPDATE" in str(query.exception())
    assert ran == list(range(first, last + 1))


def test_leftover_files_of_spark_change_no_verdict(spark: SparkSession, base: Path, tmp_path: Path) -> None:
    folder = damaged(base, tmp_path / "checkpoint", gone())
    (folder / "offsets" / ".6.0badc0de-0000-4000-8000-000000000000.tmp").write_text("")
    (folder / "offsets" / "README.txt").write_text("hands off")
    (folder / "_SUCCESS").write_text("")
    look = poll_checkpoint(folder)
    assert look.checkpoint.foreign == ("_SUCCESS", "offsets/README.txt")
    assert predict_restart(look.checkpoint, alive=None).verdict == RestartVerdict.CLEAN
    assert restarted(spark, folder).ran[0] == 6


@pytest.mark.parametrize(("damage", "verdict", "words"), STATE_FAILS.values(), ids=STATE_FAILS)
def test_state_fails_as_predicted(
    spark: SparkSession, stateful: Path, tmp_path: Path, damage: Damage, verdict: RestartVerdict, words: str
) -> None:
    folder = damaged(stateful, tmp_path / "checkpoint", damage)
    said = predicted(folder)
    assert (said.verdict, said.first_batch) == (verdict, None)
    assert words in said.sentence
    with _in_state(spark):
        did = watched(noop(counts(numbers(spark)), folder, "update").start(), [])
    assert did.first is None
    assert did.failure
    assert words in did.failure


def test_state_is_read_where_nothing_is_missing(spark: SparkSession, stateful: Path, tmp_path: Path) -> None:
    folder = damaged(stateful, tmp_path / "checkpoint", gone("commits/3"))
    assert predicted(folder).verdict == RestartVerdict.REPLAY
    with _in_state(spark):
        did = watched(noop(counts(numbers(spark)), folder, "update").start(), [])
    assert did.failure == ""
    assert did.first is not None
    assert did.first["batchId"] == 3


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
