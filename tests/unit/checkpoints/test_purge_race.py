"""Proves that a checkpoint whose files are purged while they are listed is never reported as damaged."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collectors.checkpoints.store import CannotRead, CheckpointStore, Missing
from fenceline.spark.restart_prediction import RestartVerdict, predict_restart
from tests.unit.checkpoints.factories import ROOT, collector, make_checkpoint, poll, polled_checkpoints
from tests.unit.checkpoints.faulty_store import FaultyFileSystem, raising
from tests.unit.checkpoints.purging_query import purging

pytestmark = pytest.mark.usefixtures("empty_stores")

#: Between two batches, and in one.
HEALTHY = {RestartVerdict.CLEAN, RestartVerdict.REPLAY}
POLLS = 250


@pytest.fixture
def vanish(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of files that are deleted after their folder was read and before they are asked about."""
    names: set[str] = set()
    scan = os.scandir

    @contextmanager
    def scandir(folder: str) -> Iterator[list[os.DirEntry[str]]]:
        with scan(folder) as inside:
            entries = list(inside)
        for name in names & {each.name for each in entries}:
            os.unlink(os.path.join(folder, name))
        yield entries

    monkeypatch.setattr(os, "scandir", scandir)
    return names


def test_a_file_that_vanishes_while_a_folder_is_listed_is_skipped(tmp_path: Path, vanish: set[str]) -> None:
    for name in "012":
        (tmp_path / name).touch()
    vanish.add("1")
    assert set(CheckpointStore(str(tmp_path)).list_folder(str(tmp_path))) == {"0", "2"}


def replace_all_files(folder: Path, monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    """Let the first listings of a folder find one file that is replaced before it is asked about."""
    (folder / "0").touch()
    scan, number = os.scandir, itertools.count(1)

    @contextmanager
    def scandir(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with scan(path) as inside:
            entries = list(inside)
        if (latest := next(number)) <= times:
            (folder / str(latest)).touch()
            (folder / str(latest - 1)).unlink()
        yield entries

    monkeypatch.setattr(os, "scandir", scandir)


def test_a_folder_whose_files_are_all_replaced_meanwhile_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_all_files(tmp_path, monkeypatch, times=1)
    assert set(CheckpointStore(str(tmp_path)).list_folder(str(tmp_path))) == {"1"}


def test_a_folder_whose_files_are_always_replaced_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_all_files(tmp_path, monkeypatch, times=1_000)
    with pytest.raises(CannotRead, match="its files vanish while they are listed"):
        CheckpointStore(str(tmp_path)).list_folder(str(tmp_path))


def test_a_checkpoint_whose_oldest_batch_is_purged_meanwhile_is_clean(
    tmp_path: Path, vanish: set[str]
) -> None:
    folder = make_checkpoint(f"{tmp_path}/orders", last=5)
    watch = collector(str(tmp_path))
    poll(watch)
    vanish.add("0")
    (found,) = poll(watch).observations
    assert (found.checkpoint.path, found.checkpoint.commits) == (folder, (1, 2, 3, 4, 5))
    assert predict_restart(found.checkpoint, alive=None).verdict is RestartVerdict.CLEAN


def fail_next_listing(folder: str, error: Exception) -> None:
    """Let the next listing of a folder fail."""

    def fault() -> None:
        del FaultyFileSystem.on_list[folder]
        raise error

    FaultyFileSystem.on_list[folder] = fault


@pytest.mark.parametrize("part", ["", "/offsets", "/commits"])
def test_a_listing_that_misses_a_file_is_repeated(part: str) -> None:
    folder = make_checkpoint(f"{ROOT}/orders")
    watch = collector()
    poll(watch)
    watch.mark_saved()
    fail_next_listing(f"/box/checkpoints/orders{part}", FileNotFoundError(f"orders{part}/0"))
    looked = poll(watch)
    assert (looked.gaps, looked.gone) == ({}, [])
    assert predict_restart(polled_checkpoints(looked)[folder], alive=None).verdict is RestartVerdict.CLEAN


def test_only_a_folder_that_is_not_there_is_missing() -> None:
    make_checkpoint(f"{ROOT}/orders")
    store = CheckpointStore(ROOT)
    with pytest.raises(Missing, match="does not exist"):
        store.list_folder(f"{ROOT}/nowhere")
    FaultyFileSystem.on_list["/box/checkpoints/orders/offsets"] = raising(FileNotFoundError("offsets/0"))
    with pytest.raises(CannotRead, match="its files vanish while they are listed") as failed:
        store.list_folder(f"{ROOT}/orders/offsets")
    assert not isinstance(failed.value, Missing)
    looked = poll(collector())
    assert looked.observations == []
    assert "vanish while they are listed" in looked.gaps[f"checkpoint:{ROOT}/orders"][1]


@pytest.mark.parametrize("keep", [2, 20])
def test_a_query_that_purges_constantly_is_healthy_at_every_poll(tmp_path: Path, keep: int) -> None:
    watch = collector(str(tmp_path))
    with purging(tmp_path / "orders", keep):
        verdicts = [verdict for _ in range(POLLS) for verdict in polled_verdicts(watch)]
    assert set(verdicts) <= HEALTHY
    assert len(verdicts) >= POLLS / 2


def polled_verdicts(watch: Any) -> list[RestartVerdict]:
    """Poll once and save; return the verdicts, none where the query was faster than every listing."""
    looked = poll(watch)
    watch.mark_saved()
    return [predict_restart(each.checkpoint, alive=None).verdict for each in looked.observations]
