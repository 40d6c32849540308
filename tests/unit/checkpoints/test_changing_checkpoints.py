"""Proves what polls say of a checkpoint that changes: one whose files are purged while they are listed is
never reported as damaged; a changed restart verdict needs a second poll that agrees, and none is delayed
for ever."""

import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collectors.checkpoints import collector as checkpoint_collector
from collectors.checkpoints.collector import CheckpointsCollector
from collectors.checkpoints.store import CannotRead, CheckpointStore, FileEntry, Missing
from fenceline.decode import ledger as ledgers
from fenceline.decode.ledger import Round
from fenceline.spark.records import DecisionOutcome, Done, Ledger
from fenceline.spark.restart_prediction import RestartVerdict, predict_restart
from tests.cases import cases
from tests.unit.checkpoints.factories import (
    ID,
    NOW_MS,
    ROOT,
    FaultyFileSystem,
    collector,
    finish_batches,
    make_checkpoint,
    plan_batches,
    poll,
    polled_checkpoints,
    raising,
    remove,
    write_decision,
    write_file,
)
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


FOLDER = f"{ROOT}/orders"
Change = Callable[[], None]
V = RestartVerdict


def verdict(watch: CheckpointsCollector) -> RestartVerdict:
    """Poll once and save."""
    looked = poll(watch)
    assert looked.gaps == {}
    watch.mark_saved()
    return predict_restart(polled_checkpoints(looked)[FOLDER], alive=None).verdict


def before_each_listing(part: str, *changes: Change) -> None:
    """Let a folder change before each of its next listings, in turn."""
    left = list(changes)

    def change() -> None:
        if left:
            left.pop(0)()

    FaultyFileSystem.on_list[f"/box/checkpoints/orders/{part}"] = change


def without(*paths: str) -> Change:
    return lambda: [remove(FOLDER, path) for path in paths] and None


@cases(
    (without("offsets/4"), V.PREVIOUS_MISSING),
    (without("commits/3", "commits/4", "commits/5"), V.SILENT_GAP),
    (without("offsets/5"), V.ROLLED_BACK),
    (without("offsets"), V.OFFSETS_GONE),
    (without("metadata"), V.IDENTITY_LOST),
    (without("offsets/1"), V.HISTORY_GAP),
    (lambda: write_file(FOLDER, "offsets/5", ""), V.TORN_OFFSETS),
)
def test_a_verdict_changes_at_the_second_poll_that_finds_it(damage: Change, found: RestartVerdict) -> None:
    make_checkpoint(FOLDER, last=5)
    watch = collector()
    assert verdict(watch) is V.CLEAN
    damage()
    assert [verdict(watch) for _ in range(3)] == [V.CLEAN, found, found]
    make_checkpoint(FOLDER, last=5)
    assert [verdict(watch) for _ in range(3)] == [found, V.CLEAN, V.CLEAN]


def test_a_restored_log_counts_after_two_polls() -> None:
    make_checkpoint(FOLDER, last=5)
    watch = collector()
    verdict(watch)
    for path in ("offsets/4", "offsets/5", "commits/4", "commits/5"):
        remove(FOLDER, path)
    ends = [polled_checkpoints(poll(watch))[FOLDER].newest_planned for _ in range(3)]
    assert ends == [5, 3, 3]


@pytest.mark.parametrize("listings", [1, 2])
def test_a_finding_of_a_single_poll_changes_no_verdict(listings: int) -> None:
    make_checkpoint(FOLDER, last=5)
    watch = collector()
    verdict(watch)
    hidden = [without("commits/4", "commits/5"), *[lambda: None] * (listings - 1)]
    before_each_listing("commits", *hidden, lambda: finish_batches(FOLDER, 4, 5))
    assert [verdict(watch) for _ in range(4)] == [V.CLEAN] * 4


def test_a_query_faster_than_its_listings_keeps_its_verdict_and_becomes_a_gap() -> None:
    make_checkpoint(FOLDER, last=5)
    watch = collector()
    verdict(watch)
    newest = iter(range(20, 1_000, 4))

    def advance_query() -> None:
        number = next(newest)
        for path in [each for each in FaultyFileSystem.store if "/offsets/" in each or "/commits/" in each]:
            del FaultyFileSystem.store[path]
        plan_batches(FOLDER, number, number + 1, number + 2)
        finish_batches(FOLDER, number - 9)

    before_each_listing("commits", *[advance_query] * 100)
    looks = [poll(watch) for _ in range(4)]
    assert {predict_restart(polled_checkpoints(each)[FOLDER], alive=None).verdict for each in looks} == {
        V.CLEAN
    }
    assert [bool(each.gaps) for each in looks] == [False, False, True, True]
    assert "changes faster than its logs can be listed" in looks[2].gaps[f"checkpoint:{FOLDER}"][1]
    FaultyFileSystem.on_list.clear()
    poll(watch)
    looked = poll(watch)
    expected = ({}, V.SILENT_GAP)
    assert (looked.gaps, predict_restart(polled_checkpoints(looked)[FOLDER], alive=None).verdict) == expected
    before_each_listing("commits", *[advance_query] * 100)
    first = poll(collector())
    assert (first.observations, list(first.gaps)) == ([], [f"checkpoint:{FOLDER}"])


def test_a_verdict_that_lasts_while_the_query_progresses_is_reported() -> None:
    make_checkpoint(FOLDER, last=5)
    watch = collector()
    verdict(watch)
    remove(FOLDER, "metadata")
    found = []
    for batch in range(6, 10):
        plan_batches(FOLDER, batch)
        found.append(verdict(watch))
        finish_batches(FOLDER, batch)
    assert found == [V.CLEAN, V.IDENTITY_LOST, V.IDENTITY_LOST, V.IDENTITY_LOST]
    assert polled_checkpoints(poll(watch))[FOLDER].newest_finished == 9


def test_state_written_after_the_last_search_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(FOLDER, last=0)
    watch = collector()
    verdict(watch)
    monkeypatch.setattr(checkpoint_collector, "SEARCH_EVERY_S", 1_000.0)
    verdict(watch)
    plan_batches(FOLDER, 1)
    write_file(FOLDER, "state/0/0/1.zip", "x")
    write_file(FOLDER, "commits/1", f"v2\n{json.dumps({'stateUniqueIds': {'0': [['a']]}})}")
    assert verdict(watch) is V.CLEAN


def test_a_decision_that_the_sink_purges_is_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(FOLDER)
    decision, completion = ledgers.decision_name(Round(1, 0)), ledgers.completion_name(Round(1, 0))
    ledger = Ledger("ledger", ID, "orders", NOW_MS)
    write_file(FOLDER, f"{ledgers.FOLDER}/{ledgers.LEDGER}", ledgers.encode_ledger(ledger).decode())
    done = ledgers.encode_completion(Done(1, 0, DecisionOutcome.COMMITTED, NOW_MS, "driver")).decode()
    write_file(FOLDER, f"{ledgers.FOLDER}/{completion}", done)
    write_decision(FOLDER, 1)
    held = FaultyFileSystem.store[f"/box/checkpoints/orders/{ledgers.FOLDER}/{decision}"].getvalue()
    entries, read = CheckpointStore.list_folder, CheckpointStore.read_files

    def purged(self: CheckpointStore, folder: str, **options: bool) -> dict[str, FileEntry]:
        """The listing read the decision before it was purged, and came to its done file after that."""
        found = dict(entries(self, folder, **options))
        if folder.endswith(ledgers.FOLDER) and completion in found:
            for name in (decision, completion):
                remove(FOLDER, f"{ledgers.FOLDER}/{name}")
            del found[completion]
        return found

    def reading(self: CheckpointStore, folder: str, files: Any) -> Any:
        """A file that was purged since its listing is read once more, as an open file is."""
        return dict(read(self, folder, files)) | ({decision: held} if decision in files else {})

    monkeypatch.setattr(CheckpointStore, "list_folder", purged)
    monkeypatch.setattr(CheckpointStore, "read_files", reading)
    state = poll(collector()).observations[0].ledger
    assert state is not None
    assert state.open_decisions() == ()
