"""Proves the verdict on every checkpoint that Spark's own tests bring: of Spark 2.1 to 4.0, in four jars.

The folders are Spark's, fetched by checksum; what real Spark 4.2 does on the doubtful ones is proved in
tests/spark/test_restarts.py. Nothing here starts Spark.
"""

import zipfile
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import pytest

from collectors.checkpoints.collector import CheckpointsCollector, ObservedCheckpoints
from dashboard.config import CheckpointRoot
from fenceline.spark.restart_prediction import RestartVerdict, predict_restart
from sandbox.java import fetch_jars

INSIDE = "structured-streaming/"
V = RestartVerdict

#: Folder -> its offsets, its commits, what a restart does and the batch that it runs first, and why.
GOLDEN: dict[str, tuple[tuple[int, ...], tuple[int, ...], RestartVerdict, int | None, str]] = {
    "checkpoint-test-offsetId-commitId-inconsistent": (
        (0, 1, 2, 4), (0, 1, 2), V.PREVIOUS_MISSING, None,
        "offsets/3 was lost: Spark fails. Nothing reports asynchronous progress, which leaves the same",
    ),
    "checkpoint-version-2.1.0": (
        (0, 1), (), V.REPLAY, 1, "Spark 2.1 had no commit log: only its newest batch may not be done",
    ),
    "checkpoint-version-2.3.1-*": ((0, 1), (0, 1), V.CLEAN, 2, "both batches are done"),
    "checkpoint-version-2.4.0-*": ((0,), (0,), V.CLEAN, 1, "its batch is done"),
    "checkpoint-version-2.4.5-*": ((0,), (0,), V.CLEAN, 1, "its batch is done"),
    "checkpoint-version-3.0.0-*": ((0,), (0,), V.CLEAN, 1, "its batch is done"),
    "checkpoint-version-3.1.0-*": ((0,), (0,), V.CLEAN, 1, "its batch is done"),
    "checkpoint-version-3.2.0-flatmapgroupswithstate?-*": ((0,), (0,), V.CLEAN, 1, "its batch is done"),
    "checkpoint-version-3.2.0-*": ((0, 1), (0, 1), V.CLEAN, 2, "both batches are done"),
    "checkpoint-version-3.3.0-*": ((0, 1), (0, 1), V.CLEAN, 2, "both batches are done"),
    "checkpoint-version-3.5.1-streaming-join": ((0,), (0,), V.CLEAN, 1, "its batch is done"),
    "checkpoint-version-3.5.1-*": ((0, 1), (0, 1), V.CLEAN, 2, "both batches are done"),
    "checkpoint-version-3.5.4": ((0, 1), (0, 1), V.CLEAN, 2, "both batches are done"),
    "checkpoint-version-4.0.0-tws-*": ((0, 1), (0, 1), V.CLEAN, 2, "both batches are done"),
    "checkpoint-version-4.0.0*/join?": ((0, 1, 2, 3, 4), (0, 1, 2, 3, 4), V.CLEAN, 5, "all batches are done"),
    "checkpoint-version-4.0.0*/*": ((0, 1, 2, 3), (0, 1, 2, 3), V.CLEAN, 4, "all batches are done"),
    "checkpoint-version-4.0.1-*": ((0,), (0,), V.CLEAN, 1, "its batch is done"),
    "escaped-path-2.4.0/chk*": ((0,), (0,), V.CLEAN, 1, "its batch is done, and its name is escaped twice"),
}  # fmt: skip
#: How many checkpoints each jar has, so that none is passed over.
FOUND = {"3.5.8": 21, "4.0.2": 35, "4.1.1": 39, "4.2.0": 39}


@pytest.fixture(scope="module", params=FOUND)
def poll_result(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ObservedCheckpoints:
    """The first poll of all checkpoints of one tests jar."""
    jar = next(path for path in fetch_jars("spark-tests", lambda line: None) if request.param in path.name)
    root = tmp_path_factory.mktemp("golden")
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith(INSIDE) and not name.endswith("/"):
                unpack(archive, name, root / name.removeprefix(INSIDE))
    return CheckpointsCollector([CheckpointRoot(str(root), "prod")]).poll(0, every_s=1)


def unpack(archive: zipfile.ZipFile, name: str, at: Path) -> None:
    """Write a file; of state files, which no test reads, only the names."""
    at.parent.mkdir(parents=True, exist_ok=True)
    parts = PurePosixPath(name).parts
    is_state = "state" in parts and "_metadata" not in parts
    at.write_bytes(b"" if is_state else archive.read(name))


def test_every_golden_checkpoint_has_the_verdict_that_it_should(
    poll_result: ObservedCheckpoints, request: pytest.FixtureRequest
) -> None:
    assert poll_result.gaps == {}
    version = request.node.callspec.params["poll_result"]
    found = {}
    for look in poll_result.observations:
        checkpoint = look.checkpoint
        path = PurePosixPath(checkpoint.path).relative_to(root_of(poll_result)).as_posix()
        verdict = predict_restart(checkpoint, alive=None)
        found[path] = checkpoint.offsets, checkpoint.commits, verdict.verdict, verdict.first_batch
        assert checkpoint.broken == ()
        assert checkpoint.identity is None
    expected = {path: next(row for like, row in GOLDEN.items() if fnmatchcase(path, like)) for path in found}
    assert found == {path: row[:4] for path, row in expected.items()}
    assert len(found) == FOUND[version]


def root_of(poll_result: ObservedCheckpoints) -> PurePosixPath:
    """The folder that holds all of them: the one of the checkpoint that every jar has."""
    paths = [PurePosixPath(each.checkpoint.path) for each in poll_result.observations]
    return next(path.parent for path in paths if path.name == "checkpoint-version-2.1.0")


def test_a_lost_file_is_named_with_the_other_possible_cause(poll_result: ObservedCheckpoints) -> None:
    path = "checkpoint-test-offsetId-commitId-inconsistent"
    checkpoint = next(
        each.checkpoint for each in poll_result.observations if each.checkpoint.path.endswith(path)
    )
    lost = predict_restart(checkpoint, alive=None)
    assert "offsets/3 is missing" in lost.sentence
    assert "asynchronous progress tracking leaves such logs too" in lost.sentence
    reported = predict_restart(checkpoint, alive=None, asynchronous=True)
    assert (reported.verdict, reported.first_batch) == (V.ASYNC, 4)
