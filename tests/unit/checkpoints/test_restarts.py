"""Proves which state files a restart needs, that the reader of `state/` finds those that are missing, and
the verdict on every checkpoint that Spark's own tests bring: of Spark 2.1 to 4.0, in four jars.

The folders are Spark's, fetched by checksum; what real Spark 4.2 does on the doubtful ones is proved in
tests/spark/test_restarts.py. Nothing here starts Spark.
"""

import json
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import pytest

from collectors.checkpoints import state_files
from collectors.checkpoints.collector import CheckpointsCollector, ObservedCheckpoints
from dashboard.config import CheckpointRoot
from fenceline.spark.restart_prediction import RestartVerdict, predict_restart
from fenceline.spark.state_chains import (
    OperatorState,
    StateChain,
    StateFile,
    broken_sentence,
    chain_of,
    decode_state_file,
    pack_chains,
    store_id,
    unpack_chains,
)
from sandbox.java import fetch_jars
from tests.cases import cases
from tests.unit.checkpoints import factories

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


@pytest.fixture(
    scope="module",
    params=["3.5.8", *(pytest.param(each, marks=pytest.mark.matrix) for each in ("4.0.2", "4.1.1")), "4.2.0"],
)
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


FOLDER = "memory://state/one"
ID = "56b9157f-043c-4f70-b170-550ea6b6dbb3"


@cases(
    ("12.delta", StateFile(12, False, "", 7)),
    ("12.snapshot", StateFile(12, True, "", 7)),
    ("3.changelog", StateFile(3, False, "", 7)),
    ("3.zip", StateFile(3, True, "", 7)),
    (f"6_{ID}.changelog", StateFile(6, False, ID, 7)),
    ("12.delta.crc", None),
    (".12.delta.3f1c.TID7.tmp", None),
    ("000012-3f1c.sst", None),
    ("schema", None),
    ("-1.delta", None),
)
def test_a_name_has_version_kind_and_id(name: str, found: StateFile | None) -> None:
    assert decode_state_file(name, 7) == found


def files(*names: str) -> list[StateFile]:
    return [found for name in names if (found := decode_state_file(name, 10)) is not None]


@cases(
    # From the empty state, every delta.
    ("1.delta 2.delta 3.delta", 3, 0, ()),
    ("1.delta 3.delta", 3, 0, (2,)),
    # From the newest snapshot up to the version: what is before or behind them is not needed.
    ("3.snapshot 4.delta 5.delta 6.delta", 5, 3, ()),
    ("2.snapshot 4.snapshot 6.delta 7.snapshot", 6, 4, (5,)),
    ("5.snapshot 5.delta", 5, 5, ()),
    # Without its newest file, and without any.
    ("1.delta 2.delta", 3, 0, (3,)),
    ("", 3, 0, (3,)),
    # The snapshot is gone, and the deltas before it were deleted long ago.
    ("12.delta 13.delta", 13, 0, (1, 2, 3, 4, 5)),
    # RocksDB without changelogs: a snapshot each.
    ("1.zip 2.zip 3.zip", 3, 3, ()),
    ("1.zip 2.zip", 3, 2, (3,)),
    # Nothing is committed.
    ("1.delta", None, None, ()),
)
def test_a_chain_reaches_from_a_snapshot_to_the_version_that_a_restart_loads(
    names: str, needed: int | None, base: int | None, missing: tuple[int, ...]
) -> None:
    chain = chain_of(0, "default", files(*names.split()), needed)
    assert (chain.base, chain.missing) == (base, missing)
    assert chain.missing_count >= len(missing)
    assert unpack_chains(pack_chains([chain])) == (chain,)


def test_the_newest_file_counts_only_with_the_id_that_its_commit_names() -> None:
    ids = {"0": [[ID], ["other"]]}
    found = files(f"1_{ID}.changelog", f"2_{ID}.changelog")
    assert chain_of(0, "default", found, 2, store_id(ids, 0, 0, 0)).missing == ()
    assert chain_of(1, "default", found, 2, store_id(ids, 0, 1, 0)).missing == (2,)
    assert [store_id(each, 0, 1, 0) for each in ({}, {"0": []}, {"0": "?"}, {"0": [[], [3]]})] == [""] * 4


@cases(
    ((6,), 1, "version 6 is missing to load version 9"),
    ((6, 7), 2, "versions 6, 7 are missing"),
    ((1, 2), 1_200, "and 1,198 more are missing"),
)
def test_what_is_missing_is_named(missing: tuple[int, ...], count: int, words: str) -> None:
    chain = StateChain(3, "left-keyToNumValues", 1, 9, 0, 9, 90, 9, 0, missing, count)
    assert words in broken_sentence(chain)
    assert "partition 3 of store left-keyToNumValues" in broken_sentence(chain)


def make_state(partitions: int, stores: tuple[str, ...] = ("default",)) -> None:
    """Make a checkpoint of three batches with one operator, whose partitions have deltas 1 to 3."""
    factories.make_checkpoint(FOLDER)
    info = {
        "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
        "stateStoreInfo": [{"storeName": each, "numPartitions": partitions} for each in stores],
    }
    factories.write_file(FOLDER, "state/0/_metadata/metadata", f"v1\n{json.dumps(info)}")
    for partition in range(partitions):
        for store in stores:
            below = f"state/0/{partition}/" + ("" if store == "default" else f"{store}/")
            for version in (1, 2, 3):
                factories.write_file(FOLDER, f"{below}{version}.delta", "delta")


def polled(of: CheckpointsCollector) -> tuple[OperatorState, ...]:
    (observation,) = factories.poll(of).observations
    return observation.state


@pytest.mark.usefixtures("empty_stores")
class TestReading:
    def test_every_store_of_every_partition_is_listed(self) -> None:
        make_state(2, ("left", "right"))
        factories.remove(FOLDER, "state/0/1/right/2.delta")
        (state,) = polled(factories.collector("memory://state"))
        places = [(each.partition, each.store, each.needed, each.missing) for each in state.chains]
        assert places == [
            (0, "left", 3, ()), (0, "right", 3, ()), (1, "left", 3, ()), (1, "right", 3, (2,)),
        ]  # fmt: skip
        assert (state.name, state.unread, state.read_ms) == ("stateStoreSave", "", factories.NOW_MS)

    def test_a_partition_without_a_folder_is_broken(self) -> None:
        make_state(3)
        factories.remove(FOLDER, "state/0/1")
        (state,) = polled(factories.collector("memory://state"))
        assert [(each.partition, each.newest, each.missing) for each in state.broken] == [(1, None, (3,))]

    def test_an_operator_that_uses_one_partition_needs_no_other(self) -> None:
        make_state(3)
        for partition in (1, 2):
            factories.remove(FOLDER, f"state/0/{partition}")
        (state,) = polled(factories.collector("memory://state"))
        assert [(each.partition, each.missing) for each in state.chains] == [(0, ())]
        factories.remove(FOLDER, "state/0/0")
        (state,) = polled(factories.collector("memory://state"))
        assert [each.partition for each in state.broken] == [0]

    def test_a_round_takes_several_polls_and_is_returned_until_it_is_saved(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(state_files, "_AT_ONCE", 2)
        make_state(5)
        collector = factories.collector("memory://state")
        assert [len(polled(collector)) for _ in range(4)] == [0, 0, 1, 1]
        collector.mark_saved()
        assert polled(collector) == (), "the next round is not due"

    def test_more_partitions_than_are_listed_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(state_files, "MOST_PARTITIONS", 3)
        make_state(5)
        (state,) = polled(factories.collector("memory://state"))
        assert [each.partition for each in state.chains] == [0, 1, 2]
        assert state.unread == "partitions 3 to 4 are not listed"

    def test_a_broken_chain_is_what_a_restart_meets_until_it_is_whole(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(state_files, "ROUND_EVERY_S", 0.0)
        make_state(3)
        collector = factories.collector("memory://state")
        for partition in (1, 2):
            factories.remove(FOLDER, f"state/0/{partition}/2.delta")
        (observation,) = factories.poll(collector).observations
        restart = predict_restart(observation.checkpoint, alive=False)
        assert restart.verdict is RestartVerdict.STATE_BROKEN
        assert "operator 0 (stateStoreSave), partition 1: version 2 is missing" in restart.sentence
        assert "1 more of its partitions" in restart.sentence
        for partition in (1, 2):
            factories.write_file(FOLDER, f"state/0/{partition}/2.delta", "delta")
        (observation,) = factories.poll(collector).observations
        assert predict_restart(observation.checkpoint, alive=False).verdict is RestartVerdict.CLEAN

    def test_a_query_without_state_has_none(self) -> None:
        factories.make_checkpoint(FOLDER)
        assert polled(factories.collector("memory://state")) == ()
