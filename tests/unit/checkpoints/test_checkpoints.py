"""Proves that checkpoints are found and read on any store, and that each poll reads only new files
(unreadable ones are in test_broken_checkpoints.py)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from collectors import polling
from collectors.checkpoints import roots
from collectors.checkpoints.store import CheckpointStore
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
    remove,
    write_file,
)

pytestmark = pytest.mark.usefixtures("empty_stores")

CAPTURED = Path(__file__).parents[2] / "data" / "checkpoints" / "spark-4.2.0.jsonl"
KINDS = {made["kind"]: made for made in map(json.loads, CAPTURED.read_text().splitlines())}


@pytest.fixture(params=["local", "file URL", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder in one of the stores that need no server, as a configuration spells it."""
    urls = {"local": str(tmp_path), "file URL": f"file:{tmp_path}", "memory": "memory://box/checkpoints"}
    return urls[request.param]


@pytest.mark.parametrize("kind", KINDS)
def test_what_real_spark_wrote_is_read_on_every_store(root: str, kind: str) -> None:
    made = KINDS[kind]
    for path, text in made["files"].items():
        write_file(f"{root}/{kind}", path, text)
    looked = poll(collector(root))
    assert looked.gaps == {}
    (found,) = looked.observations
    checkpoint = found.checkpoint
    assert (checkpoint.path, checkpoint.query_id) == (f"{root}/{kind}", made["progress"][0]["id"])
    assert (checkpoint.broken, checkpoint.foreign, checkpoint.identity) == ((), (), None)
    logs = [[path for path in made["files"] if path.startswith(log)] for log in ("offsets/", "commits/")]
    assert [len(checkpoint.offsets), len(checkpoint.commits)] == [len(log) for log in logs]
    assert [each.batch_id for each in found.planned] == list(checkpoint.offsets)
    assert set(found.committed_ms) == set(checkpoint.commits)
    operators = {event["operatorName"] for event in made["progress"][-1]["stateOperators"]}
    assert {each.name for each in checkpoint.operators} == operators
    assert bool(checkpoint.initial) == kind.startswith("kafka")


def test_checkpoints_are_found_at_any_depth_and_not_inside_of_each_other(root: str) -> None:
    make_checkpoint(f"{root}/orders")
    make_checkpoint(f"{root}/team/deep/er/payments")
    make_checkpoint(f"{root}/orders/state/0/strange")
    write_file(f"{root}/team", "README.md", "nothing")
    expected = {f"{root}/orders", f"{root}/team/deep/er/payments"}
    assert set(polled_checkpoints(poll(collector(root)))) == expected


@cases("lake/events/_checkpoints/etl", "lake/sales/_checkpoint", "lake/.checkpoints/etl", "_tmp/etl", "__x")
def test_checkpoints_are_found_in_folders_of_any_other_name(root: str, path: str) -> None:
    make_checkpoint(f"{root}/{path}")
    looked = poll(collector(root))
    assert set(polled_checkpoints(looked)) == {f"{root}/{path}"}
    assert looked.skipped == {}


def test_folders_that_are_not_searched_are_counted_and_one_is_named(root: str) -> None:
    logs = "a/_delta_log", "b/_delta_log", "a/_spark_metadata", "a/.hoodie", "a/_temporary"
    for path in (*logs, "a/day=1", "a/day=2"):
        make_checkpoint(f"{root}/{path}/orders")
    looked = poll(collector(root))
    assert looked.observations == []
    (skipped,) = looked.skipped.values()
    assert [each[:2] for each in skipped] == [
        (".hoodie", 1), ("_delta_log", 2), ("_spark_metadata", 1), ("_temporary", 1), ("day=…", 2),
    ]  # fmt: skip
    assert skipped[1][2].endswith("/a/_delta_log")
    named = poll(collector(root, f"{root}/a/_delta_log"))
    assert set(polled_checkpoints(named)) == {f"{root}/a/_delta_log/orders"}
    assert named.skipped[root][1] == ("_delta_log", 1, f"{root}/b/_delta_log")


def test_a_root_may_be_a_checkpoint_itself(root: str) -> None:
    make_checkpoint(root)
    assert set(polled_checkpoints(poll(collector(root + "/")))) == {root}


@cases(
    ("metadata", json.dumps({"id": ID}), True),
    ("offsets/0", "v1\n{}\n-", True),
    ("commits/0", "v1\n{}", True),
    ("metadata", '{"id":"an article"}', False),
    ("metadata/0", json.dumps({"id": ID}), False),
    ("offsets/README", "v1", False),
    ("state/0/0/1.delta", "x", False),
)
def test_a_folder_is_recognised_as_a_checkpoint_by_its_files(
    root: str, path: str, text: str, found: bool
) -> None:
    write_file(f"{root}/orders", path, text)
    assert bool(poll(collector(root)).observations) is found


def test_a_new_checkpoint_is_found_and_a_removed_one_is_gone_until_that_is_saved(root: str) -> None:
    make_checkpoint(f"{root}/orders")
    make_checkpoint(f"{root}/payments")
    watch = collector(root)
    poll(watch)
    watch.mark_saved()
    remove(root, "orders")
    make_checkpoint(f"{root}/refunds")
    for _ in range(2):
        looked = poll(watch)
        assert set(polled_checkpoints(looked)) == {f"{root}/payments", f"{root}/refunds"}
        assert looked.gone == [f"{root}/orders"]
    watch.mark_saved()
    assert poll(watch).gone == []


def test_a_checkpoint_saved_by_another_process_and_missing_is_gone() -> None:
    make_checkpoint(f"{ROOT}/orders")
    looked = poll(collector(known=(f"{ROOT}/orders", f"{ROOT}/payments", "faulty://elsewhere/refunds")))
    assert looked.gone == [f"{ROOT}/payments"]


def test_a_root_inside_another_root_polls_its_own_checkpoints() -> None:
    make_checkpoint(f"{ROOT}/orders")
    make_checkpoint(f"{ROOT}/team/payments")
    looked = poll(collector(ROOT, f"{ROOT}/team", f"{ROOT}/"))
    expected = [f"{ROOT}/orders", f"{ROOT}/team/payments"]
    assert [each.checkpoint.path for each in looked.observations] == expected


def test_a_search_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(f"{ROOT}/a")
    make_checkpoint(f"{ROOT}/1/2/3/4/5/6/7/8/orders")
    looked = poll(collector())
    assert set(polled_checkpoints(looked)) == {f"{ROOT}/a"}
    ((scope, (since_ms, reason)),) = looked.gaps.items()
    assert (scope, since_ms) == (f"root:{ROOT}", NOW_MS)
    assert "name narrower roots" in reason
    monkeypatch.setattr(roots, "MOST_FOLDERS", 3)
    assert "more than 6 levels or 3 folders" in next(iter(poll(collector()).gaps.values()))[1]


def test_circular_links_are_not_followed(tmp_path: Path) -> None:
    make_checkpoint(f"{tmp_path}/orders")
    os.symlink(tmp_path, tmp_path / "again", target_is_directory=True)
    looked = poll(collector(str(tmp_path)))
    assert set(polled_checkpoints(looked)) == {f"{tmp_path}/orders"}
    assert looked.gaps == {}


def test_each_poll_reads_only_new_files() -> None:
    folder, watch = make_checkpoint(f"{ROOT}/orders"), collector()
    poll(watch)
    watch.mark_saved()
    FaultyFileSystem.reads.clear()
    assert poll(watch).observations[0].planned == ()
    assert FaultyFileSystem.reads == []
    plan_batches(folder, 3)
    found = poll(watch).observations[0]
    assert [each.batch_id for each in found.planned] == [3]
    assert FaultyFileSystem.reads == ["/box/checkpoints/orders/offsets/3"]
    finish_batches(folder, 3)
    found = poll(watch).observations[0]
    assert [each.batch_id for each in found.finished] == [3]
    assert found.checkpoint.last_commit == found.finished[0]


def test_new_batches_are_reported_until_they_are_saved() -> None:
    folder = make_checkpoint(f"{ROOT}/orders")
    watch = collector()
    assert [len(poll(watch).observations[0].planned) for _ in range(2)] == [3, 3]
    plan_batches(folder, 3)
    assert len(poll(watch).observations[0].planned) == 4
    watch.mark_saved()
    assert poll(watch).observations[0].planned == ()


def test_a_file_that_was_changed_is_read_again() -> None:
    folder, watch = make_checkpoint(f"{ROOT}/orders"), collector()
    poll(watch)
    watch.mark_saved()
    write_file(folder, "offsets/2", "v1\n{}\n77")
    (entry,) = poll(watch).observations[0].planned
    assert entry.sources[0].raw == "77"
    write_file(folder, "metadata", json.dumps({"id": ID.replace("9", "8")}))
    assert poll(watch).observations[0].checkpoint.query_id == ID.replace("9", "8")


def test_purged_batches_disappear_and_their_unsaved_records_are_still_reported() -> None:
    folder = make_checkpoint(f"{ROOT}/orders", last=4)
    watch = collector()
    poll(watch)
    remove(folder, "offsets/0")
    remove(folder, "commits/0")
    found = poll(watch).observations[0]
    assert found.checkpoint.offsets == (1, 2, 3, 4)
    assert [each.batch_id for each in found.planned] == [0, 1, 2, 3, 4]


def test_a_batch_that_ends_between_two_listings_is_not_lost_and_not_rolled_back() -> None:
    folder = make_checkpoint(f"{ROOT}/orders", last=5)

    def advance_query() -> None:
        FaultyFileSystem.on_list.clear()
        plan_batches(folder, 6, 7, 8)
        finish_batches(folder, 6, 7)

    watch = collector()
    poll(watch)
    FaultyFileSystem.on_list["/box/checkpoints/orders/commits"] = advance_query
    checkpoint = poll(watch).observations[0].checkpoint
    assert (checkpoint.newest_planned, checkpoint.newest_finished) == (8, 7)
    remove(folder, "offsets/8")
    remove(folder, "offsets/7")
    assert poll(watch).observations[0].checkpoint == checkpoint
    checkpoint = poll(watch).observations[0].checkpoint
    assert (checkpoint.newest_planned, checkpoint.newest_finished) == (6, 7)
    assert predict_restart(checkpoint, alive=None).verdict is RestartVerdict.ROLLED_BACK


def test_a_slow_store_is_polled_for_a_twentieth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(f"{ROOT}/orders")
    listed = CheckpointStore.list_folder

    def list_slowly(self: CheckpointStore, folder: str, **options: Any) -> Any:
        self.spent_s += 10
        return listed(self, folder, **options)

    monkeypatch.setattr(polling, "SHARE", 20)
    watch = collector()
    poll(watch)
    monkeypatch.setattr(CheckpointStore, "list_folder", list_slowly)
    poll(watch)
    # One slow answer is no habit, two are.
    assert watch.wait_s() < 1
    poll(watch)
    assert watch.wait_s() > 20 * 10


def test_a_commit_whose_file_a_copy_wrote_anew_is_no_later_than_the_next_plan(tmp_path: Path) -> None:
    folder = make_checkpoint(f"{tmp_path}/orders")
    for batch, at_ms in ((0, NOW_MS + 0.5), (1, NOW_MS + 90_000_000), (2, NOW_MS + 90_000_000)):
        os.utime(f"{folder}/commits/{batch}", ns=(0, int(at_ms * 1_000_000)))
    (found,) = poll(collector(str(tmp_path))).observations
    assert found.committed_ms == {0: NOW_MS, 1: NOW_MS + 2, 2: NOW_MS + 90_000_000}


@pytest.mark.parametrize("at", ["", "/offsets", "/commits"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_checkpoint_made_anew_amid_a_poll_is_never_filed_under_the_id_before(
    at: str, is_known: bool
) -> None:
    folder = make_checkpoint(f"{ROOT}/orders", 6)
    watch = collector()
    if is_known:
        poll(watch)
        watch.mark_saved()
    another = "0b6e0c33-6f3f-4f5c-b5a1-2f7d3a3f6c11"

    def make_anew() -> None:
        del FaultyFileSystem.on_list[listed]
        remove(ROOT, "orders")
        make_checkpoint(folder, 1, another)
        plan_batches(folder, 0, 1, from_ms=NOW_MS + 90_000)

    listed = FaultyFileSystem._strip_protocol(folder + at)
    FaultyFileSystem.on_list[listed] = make_anew
    for _ in range(4):
        for found in poll(watch).observations:
            planned = {entry.planned_ms for entry in found.planned}
            anew = {NOW_MS + 90_000, NOW_MS + 90_001}
            assert planned <= (
                anew if found.checkpoint.query_id == another else set(range(NOW_MS, NOW_MS + 7))
            )
    assert not FaultyFileSystem.on_list
    assert found.checkpoint.query_id == another
    assert planned == anew
