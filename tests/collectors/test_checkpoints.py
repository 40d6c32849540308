"""Proves that checkpoints are found and read on any store, and that each look reads only what is new.

What cannot be read is told with its path and a remedy, and harms no other checkpoint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from collectors import checkpoints as module
from collectors.checkpoint_folder import MOST_READ
from collectors.checkpoints import CheckpointsCollector, Looked
from collectors.stores import LARGEST, Store
from dashboard.config import CheckpointRoot
from fenceline.decode import ledger as ledgers
from fenceline.restarts import Verdict, restart
from fenceline.spark import Broken, Checkpoint, Damage, Decided, Decision, Ledger
from tests.collectors.faulty import FaultyFileSystem, raising

CAPTURED = Path(__file__).parents[1] / "data" / "checkpoints" / "spark-4.2.0.jsonl"
KINDS = {made["kind"]: made for made in map(json.loads, CAPTURED.read_text().splitlines())}
ID = "9e0e48fd-8628-4fc5-ba71-6cd718564ea4"
NOW_MS = 1_795_000_000_000
ROOT = "faulty://box/checkpoints"


@pytest.fixture(autouse=True)
def _empty_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Every look searches, unless a test says otherwise.
    monkeypatch.setattr(module, "SEARCH_EVERY_S", 0.0)
    monkeypatch.setattr(module, "_PACE", 0)
    FaultyFileSystem.forget()
    yield
    FaultyFileSystem.forget()
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


def write(folder: str, path: str, text: str) -> None:
    with fsspec.open(f"{folder}/{path}", "wb", **_making(folder)) as file:
        file.write(text.encode())


def _making(folder: str) -> dict[str, Any]:
    return {} if "://" in folder and not folder.startswith("file:") else {"auto_mkdir": True}


def remove(folder: str, path: str) -> None:
    files, inside = fsspec.core.url_to_fs(f"{folder}/{path}")
    files.rm(inside, recursive=True)


def plan(folder: str, *batches: int, version: int = 1) -> None:
    for batch in batches:
        meta = {"batchWatermarkMs": 0, "batchTimestampMs": NOW_MS + batch, "conf": {"a": "b"}}
        write(folder, f"offsets/{batch}", f'v{version}\n{json.dumps(meta)}\n{{"t":{{"0":{batch * 10}}}}}')


def finish(folder: str, *batches: int) -> None:
    for batch in batches:
        write(folder, f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')


def make(folder: str, last: int = 2, query_id: str = ID) -> str:
    """Make a checkpoint whose batches up to `last` are planned and done."""
    write(folder, "metadata", json.dumps({"id": query_id}))
    plan(folder, *range(last + 1))
    finish(folder, *range(last + 1))
    return folder


def collector(*roots: str, known: tuple[str, ...] = ()) -> CheckpointsCollector:
    return CheckpointsCollector([CheckpointRoot(root, "prod") for root in roots or (ROOT,)], known)


def look(of: CheckpointsCollector) -> Looked:
    return of.look(NOW_MS, every_s=0.1)


def seen(looked: Looked) -> dict[str, Checkpoint]:
    return {each.checkpoint.path: each.checkpoint for each in looked.looks}


@pytest.fixture(params=["local", "file URL", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder in one of the stores that need no server, as a configuration spells it."""
    urls = {"local": str(tmp_path), "file URL": f"file:{tmp_path}", "memory": "memory://box/checkpoints"}
    return urls[request.param]


@pytest.mark.parametrize("kind", KINDS)
def test_what_real_spark_wrote_is_read_on_every_store(root: str, kind: str) -> None:
    made = KINDS[kind]
    for path, text in made["files"].items():
        write(f"{root}/{kind}", path, text)
    looked = look(collector(root))
    assert looked.gaps == {}
    (found,) = looked.looks
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


# Finding them.


def test_checkpoints_are_found_at_any_depth_and_not_inside_of_each_other(root: str) -> None:
    make(f"{root}/orders")
    make(f"{root}/team/deep/er/payments")
    make(f"{root}/orders/state/0/strange")
    make(f"{root}/.hidden/orders")
    make(f"{root}/table/day=2026-11-22/orders")
    write(f"{root}/team", "README.md", "nothing")
    assert set(seen(look(collector(root)))) == {f"{root}/orders", f"{root}/team/deep/er/payments"}


def test_a_root_may_be_a_checkpoint_itself(root: str) -> None:
    make(root)
    assert set(seen(look(collector(root + "/")))) == {root}


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("metadata", json.dumps({"id": ID}), True),
        ("offsets/0", "v1\n{}\n-", True),
        ("commits/0", "v1\n{}", True),
        ("metadata", '{"id":"an article"}', False),
        ("metadata/0", json.dumps({"id": ID}), False),
        ("offsets/README", "v1", False),
        ("state/0/0/1.delta", "x", False),
    ],
)
def test_what_looks_like_a_checkpoint(root: str, path: str, text: str, found: bool) -> None:
    write(f"{root}/orders", path, text)
    assert bool(look(collector(root)).looks) is found


def test_a_new_checkpoint_is_found_and_a_removed_one_is_gone_until_that_is_saved(root: str) -> None:
    make(f"{root}/orders")
    make(f"{root}/payments")
    watch = collector(root)
    look(watch)
    watch.saved()
    remove(root, "orders")
    make(f"{root}/refunds")
    for _ in range(2):
        looked = look(watch)
        assert set(seen(looked)) == {f"{root}/payments", f"{root}/refunds"}
        assert looked.gone == [f"{root}/orders"]
    watch.saved()
    assert look(watch).gone == []


def test_what_was_saved_by_another_process_and_is_not_there_is_gone() -> None:
    make(f"{ROOT}/orders")
    looked = look(collector(known=(f"{ROOT}/orders", f"{ROOT}/payments", "faulty://elsewhere/refunds")))
    assert looked.gone == [f"{ROOT}/payments"]


def test_a_root_inside_of_another_one_looks_after_itself() -> None:
    make(f"{ROOT}/orders")
    make(f"{ROOT}/team/payments")
    looked = look(collector(ROOT, f"{ROOT}/team", f"{ROOT}/"))
    assert [each.checkpoint.path for each in looked.looks] == [f"{ROOT}/orders", f"{ROOT}/team/payments"]


def test_a_search_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    make(f"{ROOT}/a")
    make(f"{ROOT}/1/2/3/4/5/6/7/8/orders")
    looked = look(collector())
    assert set(seen(looked)) == {f"{ROOT}/a"}
    ((scope, (since_ms, reason)),) = looked.gaps.items()
    assert (scope, since_ms) == (f"root:{ROOT}", NOW_MS)
    assert "name narrower roots" in reason
    monkeypatch.setattr(module, "MOST_FOLDERS", 3)
    assert "more than 6 levels or 3 folders" in next(iter(look(collector()).gaps.values()))[1]


def test_links_that_go_round_in_circles_are_not_followed(tmp_path: Path) -> None:
    make(f"{tmp_path}/orders")
    os.symlink(tmp_path, tmp_path / "again", target_is_directory=True)
    looked = look(collector(str(tmp_path)))
    assert set(seen(looked)) == {f"{tmp_path}/orders"}
    assert looked.gaps == {}


# Reading what is new.


def test_each_look_reads_what_is_new_and_no_more() -> None:
    folder = make(f"{ROOT}/orders")
    watch = collector()
    look(watch)
    watch.saved()
    FaultyFileSystem.reads.clear()
    assert look(watch).looks[0].planned == ()
    assert FaultyFileSystem.reads == []
    plan(folder, 3)
    found = look(watch).looks[0]
    assert [each.batch_id for each in found.planned] == [3]
    assert FaultyFileSystem.reads == ["/box/checkpoints/orders/offsets/3"]
    finish(folder, 3)
    found = look(watch).looks[0]
    assert [each.batch_id for each in found.finished] == [3]
    assert found.checkpoint.last_commit == found.finished[0]


def test_news_are_told_until_they_are_saved() -> None:
    folder = make(f"{ROOT}/orders")
    watch = collector()
    assert [len(look(watch).looks[0].planned) for _ in range(2)] == [3, 3]
    plan(folder, 3)
    assert len(look(watch).looks[0].planned) == 4
    watch.saved()
    assert look(watch).looks[0].planned == ()


def test_a_file_that_was_changed_is_read_again() -> None:
    folder = make(f"{ROOT}/orders")
    watch = collector()
    look(watch)
    watch.saved()
    write(folder, "offsets/2", "v1\n{}\n77")
    (entry,) = look(watch).looks[0].planned
    assert entry.sources[0].raw == "77"
    write(folder, "metadata", json.dumps({"id": ID.replace("9", "8")}))
    assert look(watch).looks[0].checkpoint.query_id == ID.replace("9", "8")


def test_purged_batches_go_and_what_was_read_of_them_stays_told() -> None:
    folder = make(f"{ROOT}/orders", last=4)
    watch = collector()
    look(watch)
    remove(folder, "offsets/0")
    remove(folder, "commits/0")
    found = look(watch).looks[0]
    assert found.checkpoint.offsets == (1, 2, 3, 4)
    assert [each.batch_id for each in found.planned] == [0, 1, 2, 3, 4]


def test_a_batch_that_ends_between_two_listings_is_not_lost_and_not_rolled_back() -> None:
    folder = make(f"{ROOT}/orders", last=5)

    def go_on() -> None:
        FaultyFileSystem.on_list.clear()
        plan(folder, 6, 7, 8)
        finish(folder, 6, 7)

    watch = collector()
    look(watch)
    FaultyFileSystem.on_list["/box/checkpoints/orders/commits"] = go_on
    checkpoint = look(watch).looks[0].checkpoint
    assert (checkpoint.planned, checkpoint.finished) == (8, 7)
    remove(folder, "offsets/8")
    remove(folder, "offsets/7")
    checkpoint = look(watch).looks[0].checkpoint
    assert (checkpoint.planned, checkpoint.finished) == (6, 7)
    assert restart(checkpoint, alive=None).verdict is Verdict.ROLLED_BACK


def test_a_slow_store_is_asked_for_a_twentieth_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    make(f"{ROOT}/orders")
    listed = Store.entries

    def slowly(self: Store, folder: str) -> Any:
        self.spent_s += 10
        return listed(self, folder)

    monkeypatch.setattr(module, "_PACE", 20)
    watch = collector()
    look(watch)
    monkeypatch.setattr(Store, "entries", slowly)
    look(watch)
    # One slow answer is no habit, two are.
    assert watch.wait_s() < 1
    look(watch)
    assert watch.wait_s() > 20 * 10


# The ledger of the sink.


def _decide(folder: str, batch: int) -> None:
    decision = Decision(batch, 0, Decided.PREPARED, "driver", NOW_MS, "ledger", ID, "run", 1)
    name = f"{ledgers.FOLDER}/{ledgers.decision_name(ledgers.Round(batch, 0))}"
    write(folder, name, ledgers.encode_decision(decision).decode())


def test_the_ledger_is_read_beside_the_logs_and_only_where_it_is_new() -> None:
    folder = make(f"{ROOT}/orders")
    watch = collector()
    assert look(watch).looks[0].ledger is None
    ledger = Ledger("ledger", ID, "orders", NOW_MS)
    write(folder, f"{ledgers.FOLDER}/{ledgers.LEDGER}", ledgers.encode_ledger(ledger).decode())
    _decide(folder, 1)
    state = look(watch).looks[0].ledger
    assert state is not None
    assert (state.ledger, [each.batch_id for each in state.open_decisions()]) == (ledger, [1])
    FaultyFileSystem.reads.clear()
    _decide(folder, 2)
    state = look(watch).looks[0].ledger
    assert state is not None
    assert [each.batch_id for each in state.decisions] == [1, 2]
    assert FaultyFileSystem.reads == [f"/box/checkpoints/orders/{ledgers.FOLDER}/2.0.decision"]
    assert look(watch).looks[0].ledger is state


def test_a_ledger_that_is_torn_or_denied_is_told_by_its_files() -> None:
    folder = make(f"{ROOT}/orders")
    write(folder, f"{ledgers.FOLDER}/{ledgers.LEDGER}", '{"v":1,')
    _decide(folder, 1)
    denied = raising(PermissionError("no"))
    FaultyFileSystem.on_read[f"/box/checkpoints/orders/{ledgers.FOLDER}/1.0.decision"] = denied
    watch = collector()
    state = look(watch).looks[0].ledger
    assert state is not None
    assert isinstance(state.ledger, Broken)
    assert [(each.path, each.damage) for each in state.broken] == [
        (f"{ledgers.FOLDER}/1.0.decision", Damage.DENIED)
    ]
    FaultyFileSystem.on_read.clear()
    state = look(watch).looks[0].ledger
    assert state is not None
    assert len(state.decisions) == 1


# Bad input: a path, a remedy, and no harm to others.


def _is_unharmed(looked: Looked, path: str = f"{ROOT}/unharmed") -> None:
    checkpoint = seen(looked)[path]
    assert restart(checkpoint, alive=None).verdict is Verdict.CLEAN
    assert checkpoint.broken == ()


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("faulty://box/nowhere", "faulty://box/nowhere does not exist: check the path"),
        ("faulty://box/file", "is a file: name the folder that holds checkpoints"),
        ("nonsense://box/x", "no store is known by that scheme"),
        ("gs://box/x", "its store needs a package that is not installed"),
        ("faulty://denied/x", "permission denied: let the user that runs the dashboard list and read it"),
        ("faulty://down/x", "the bucket is away (OSError): check the store"),
    ],
)
def test_a_root_that_cannot_be_read_is_told_with_a_remedy(root: str, words: str) -> None:
    write("faulty://box", "file", "x")
    FaultyFileSystem.on_list["/denied/x"] = raising(PermissionError(13, "Permission denied"))
    FaultyFileSystem.on_list["/down/x"] = raising(OSError("the bucket is away"))
    make(f"{ROOT}/unharmed")
    alone = look(collector(root))
    assert words in alone.blind
    assert root in alone.blind
    looked = look(collector(root, ROOT, known=(f"{root}/orders",)))
    assert looked.blind == ""
    assert set(looked.gaps) == {f"root:{root}", f"checkpoint:{root}/orders"}
    assert words in looked.gaps[f"root:{root}"][1]
    assert looked.gone == []
    _is_unharmed(looked)


def test_a_root_is_told_in_both_spellings() -> None:
    mapped = CheckpointRoot(
        "hdfs://nameservice1/checkpoints", "prod", {"hdfs://nameservice1": "faulty://box"}
    )
    alone = CheckpointsCollector([mapped]).look(NOW_MS, every_s=1)
    assert "hdfs://nameservice1/checkpoints (opened as faulty://box/checkpoints)" in alone.blind
    make(f"{ROOT}/orders")
    found = CheckpointsCollector([mapped]).look(NOW_MS, every_s=1)
    assert set(seen(found)) == {"hdfs://nameservice1/checkpoints/orders"}


def test_a_root_that_comes_back_is_read_again() -> None:
    watch = collector()
    assert look(watch).blind
    make(f"{ROOT}/orders")
    looked = look(watch)
    assert (looked.blind, len(looked.looks)) == ("", 1)
    FaultyFileSystem.on_list["/box/checkpoints"] = raising(OSError("away"))
    watch.saved()
    assert look(watch).blind
    FaultyFileSystem.on_list.clear()
    looked = look(watch)
    assert looked.gone == []
    assert looked.looks[0].planned == ()


@pytest.mark.parametrize("denied", ["orders", "orders/offsets", "orders/commits", "orders/state"])
def test_a_folder_that_may_not_be_listed_is_a_gap_of_that_checkpoint(denied: str) -> None:
    folder = make(f"{ROOT}/orders")
    write(folder, "state/0/_metadata/metadata", "v1\n")
    make(f"{ROOT}/unharmed")
    watch = collector()
    look(watch)
    FaultyFileSystem.on_list[f"/box/checkpoints/{denied}"] = raising(PermissionError("no"))
    looked = look(watch)
    _, reason = looked.gaps[f"checkpoint:{folder}"]
    assert f"{ROOT}/{denied} cannot be read: permission denied" in reason
    assert looked.gone == []
    _is_unharmed(looked)
    FaultyFileSystem.on_list.clear()
    assert look(watch).gaps == {}


def test_a_file_that_may_not_be_read_is_broken_until_it_may() -> None:
    make(f"{ROOT}/orders")
    make(f"{ROOT}/unharmed")
    FaultyFileSystem.on_read["/box/checkpoints/orders/offsets/2"] = raising(PermissionError("no"))
    watch = collector()
    looked = look(watch)
    checkpoint = seen(looked)[f"{ROOT}/orders"]
    assert isinstance(checkpoint.last_offsets, Broken)
    assert checkpoint.last_offsets.path == "offsets/2"
    assert checkpoint.last_offsets.damage is Damage.DENIED
    assert restart(checkpoint, alive=None).verdict is Verdict.UNREADABLE
    _is_unharmed(looked)
    FaultyFileSystem.on_read.clear()
    assert restart(seen(look(watch))[f"{ROOT}/orders"], alive=None).verdict is Verdict.CLEAN


def test_a_file_that_is_deleted_while_it_is_read_was_not_there() -> None:
    make(f"{ROOT}/orders")
    make(f"{ROOT}/unharmed")
    FaultyFileSystem.on_read["/box/checkpoints/orders/offsets/0"] = raising(FileNotFoundError("gone"))
    looked = look(collector())
    assert seen(looked)[f"{ROOT}/orders"].offsets == (1, 2)
    assert seen(looked)[f"{ROOT}/orders"].broken == ()
    _is_unharmed(looked)


def test_a_checkpoint_that_is_deleted_while_it_is_looked_at_is_gone_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SEARCH_EVERY_S", 1_000.0)
    make(f"{ROOT}/orders")
    make(f"{ROOT}/unharmed")
    watch = collector()
    look(watch)
    watch.saved()
    remove(ROOT, "orders")
    looked = look(watch)
    assert (set(seen(looked)), looked.gaps) == ({f"{ROOT}/unharmed"}, {})
    assert look(watch).gone == [f"{ROOT}/orders"]


def test_of_ten_thousand_files_the_newest_are_read_and_a_gap_says_so() -> None:
    folder = make(f"{ROOT}/orders", last=9_999)
    make(f"{ROOT}/unharmed")
    watch = collector()
    looked = look(watch)
    found = next(each for each in looked.looks if each.checkpoint.path == folder)
    assert len(found.checkpoint.offsets) == 10_000
    assert [each.batch_id for each in found.planned] == list(range(10_000 - MOST_READ, 10_000))
    assert restart(found.checkpoint, alive=None).first_batch == 10_000
    _, reason = looked.gaps[f"checkpoint:{folder}"]
    assert "holds 9,800 older batches that were not read" in reason
    _is_unharmed(looked)
    watch.saved()
    assert look(watch).gaps == {}


@pytest.mark.parametrize("part", ["offsets", "commits"])
def test_a_root_that_is_a_part_of_a_checkpoint_is_told(part: str) -> None:
    make(f"{ROOT}/orders")
    looked = look(collector(f"{ROOT}/orders/{part}"))
    assert looked.looks == []
    assert (
        "is a part of a checkpoint: name the folder that holds checkpoints"
        in next(iter(looked.gaps.values()))[1]
    )


def test_foreign_files_are_named_and_harm_nothing() -> None:
    folder = make(f"{ROOT}/orders")
    for path in ("_SUCCESS", "notes.txt", "offsets/notes.txt", "offsets/.3.tmp", "commits/.2.crc", "x/y"):
        write(folder, path, "x")
    write(folder, "offsets/7/strange", "a folder that is called like a batch")
    looked = look(collector())
    checkpoint = seen(looked)[folder]
    assert checkpoint.foreign == ("_SUCCESS", "notes.txt", "x", "offsets/7", "offsets/notes.txt")
    assert checkpoint.offsets == (0, 1, 2)
    _is_unharmed(looked, folder)


def test_a_newer_format_is_told_and_harms_no_other() -> None:
    folder = make(f"{ROOT}/orders")
    plan(folder, 3, version=9)
    make(f"{ROOT}/unharmed")
    looked = look(collector())
    said = restart(seen(looked)[folder], alive=None)
    assert said.verdict is Verdict.NEWER_FORMAT
    assert "offsets/3" in said.sentence
    assert said.remedy
    _is_unharmed(looked)


def test_a_batch_file_without_end_is_broken_and_is_not_read() -> None:
    folder = make(f"{ROOT}/orders")
    write(folder, "offsets/3", "x" * (LARGEST + 1))
    make(f"{ROOT}/unharmed")
    looked = look(collector())
    last = seen(looked)[folder].last_offsets
    assert isinstance(last, Broken)
    assert "16,000,001 bytes" in last.detail
    assert not any(path.endswith("/offsets/3") for path in FaultyFileSystem.reads)
    _is_unharmed(looked)


def test_a_copy_of_a_checkpoint_is_one_of_its_own() -> None:
    make(f"{ROOT}/orders")
    make(f"{ROOT}/orders copy [1]*?")
    looked = look(collector())
    assert {each.query_id for each in seen(looked).values()} == {ID}
    assert set(seen(looked)) == {f"{ROOT}/orders", f"{ROOT}/orders copy [1]*?"}


def test_torn_files_of_the_past_are_listed_and_those_that_decide_are_told_apart() -> None:
    folder = make(f"{ROOT}/orders", last=5)
    write(folder, "offsets/1", "")
    write(folder, "commits/5", "v1\n{")
    write(folder, "metadata", "")
    checkpoint = seen(look(collector()))[folder]
    assert [each.path for each in checkpoint.broken] == ["offsets/1"]
    assert isinstance(checkpoint.last_commit, Broken)
    assert checkpoint.identity is not None
    assert checkpoint.identity.damage is Damage.EMPTY
