"""Proves that what cannot be read of a checkpoint is told with its path and a remedy, and harms no other."""

from __future__ import annotations

import pytest

from collectors.checkpoints import collector as checkpoint_collector
from collectors.checkpoints.collector import CheckpointsCollector, Looked
from collectors.checkpoints.folder import MOST_READ
from collectors.checkpoints.store import LARGEST
from dashboard.config import CheckpointRoot
from fenceline.decode import ledger as ledgers
from fenceline.spark.records import Broken, Damage, Ledger
from fenceline.spark.restart_prediction import RestartVerdict, predict_restart
from tests.unit.checkpoints.faulty import FaultyFileSystem, raising
from tests.unit.checkpoints.making import (
    ID,
    NOW_MS,
    ROOT,
    collector,
    decide,
    look,
    make,
    plan,
    remove,
    seen,
    write,
)

pytestmark = pytest.mark.usefixtures("empty_stores")


def _is_unharmed(looked: Looked, path: str = f"{ROOT}/unharmed") -> None:
    checkpoint = seen(looked)[path]
    assert predict_restart(checkpoint, alive=None).verdict is RestartVerdict.CLEAN
    assert checkpoint.broken == ()


def test_the_ledger_is_read_beside_the_logs_and_only_where_it_is_new() -> None:
    folder = make(f"{ROOT}/orders")
    watch = collector()
    assert look(watch).looks[0].ledger is None
    ledger = Ledger("ledger", ID, "orders", NOW_MS)
    write(folder, f"{ledgers.FOLDER}/{ledgers.LEDGER}", ledgers.encode_ledger(ledger).decode())
    decide(folder, 1)
    state = look(watch).looks[0].ledger
    assert state is not None
    assert (state.ledger, [each.batch_id for each in state.open_decisions()]) == (ledger, [1])
    FaultyFileSystem.reads.clear()
    decide(folder, 2)
    state = look(watch).looks[0].ledger
    assert state is not None
    assert [each.batch_id for each in state.decisions] == [1, 2]
    assert FaultyFileSystem.reads == [f"/box/checkpoints/orders/{ledgers.FOLDER}/2.0.decision"]
    assert look(watch).looks[0].ledger is state


def test_a_ledger_that_is_torn_or_denied_is_told_by_its_files() -> None:
    folder = make(f"{ROOT}/orders")
    write(folder, f"{ledgers.FOLDER}/{ledgers.LEDGER}", '{"v":1,')
    decide(folder, 1)
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
    alone = CheckpointsCollector([mapped]).poll(NOW_MS, every_s=1)
    assert "hdfs://nameservice1/checkpoints (opened as faulty://box/checkpoints)" in alone.blind
    make(f"{ROOT}/orders")
    found = CheckpointsCollector([mapped]).poll(NOW_MS, every_s=1)
    assert set(seen(found)) == {"hdfs://nameservice1/checkpoints/orders"}


def test_a_root_that_comes_back_is_read_again() -> None:
    watch = collector()
    assert look(watch).blind
    make(f"{ROOT}/orders")
    looked = look(watch)
    assert (looked.blind, len(looked.looks)) == ("", 1)
    FaultyFileSystem.on_list["/box/checkpoints"] = raising(OSError("away"))
    watch.mark_saved()
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
    assert predict_restart(checkpoint, alive=None).verdict is RestartVerdict.UNREADABLE
    _is_unharmed(looked)
    FaultyFileSystem.on_read.clear()
    # A changed verdict takes a second look.
    look(watch)
    assert predict_restart(seen(look(watch))[f"{ROOT}/orders"], alive=None).verdict is RestartVerdict.CLEAN


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
    monkeypatch.setattr(checkpoint_collector, "SEARCH_EVERY_S", 1_000.0)
    make(f"{ROOT}/orders")
    make(f"{ROOT}/unharmed")
    watch = collector()
    look(watch)
    watch.mark_saved()
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
    assert predict_restart(found.checkpoint, alive=None).first_batch == 10_000
    _, reason = looked.gaps[f"checkpoint:{folder}"]
    assert "holds 9,800 older batches that were not read" in reason
    _is_unharmed(looked)
    watch.mark_saved()
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
    said = predict_restart(seen(looked)[folder], alive=None)
    assert said.verdict is RestartVerdict.NEWER_FORMAT
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
