"""Proves that an unreadable part of a checkpoint is reported with its path and a remedy, and affects no
other.
"""

import pytest

from collectors.checkpoints import collector as checkpoint_collector
from collectors.checkpoints.collector import CheckpointsCollector, ObservedCheckpoints
from collectors.checkpoints.folder import MOST_READ
from collectors.checkpoints.store import LARGEST
from dashboard.config import CheckpointRoot
from fenceline.decode import ledger as ledgers
from fenceline.spark.records import Broken, Damage, Ledger
from fenceline.spark.restart_prediction import RestartVerdict, predict_restart
from tests.cases import cases
from tests.unit.checkpoints.factories import (
    ID,
    NOW_MS,
    ROOT,
    FaultyFileSystem,
    collector,
    make_checkpoint,
    poll,
    polled_checkpoints,
    raising,
    remove,
    write_decision,
    write_file,
)

pytestmark = pytest.mark.usefixtures("empty_stores")


def _is_unharmed(looked: ObservedCheckpoints, path: str = f"{ROOT}/unharmed") -> None:
    checkpoint = polled_checkpoints(looked)[path]
    assert predict_restart(checkpoint, alive=None).verdict is RestartVerdict.CLEAN
    assert checkpoint.broken == ()


def test_a_ledger_is_read_with_the_logs_and_again_only_after_a_change() -> None:
    folder = make_checkpoint(f"{ROOT}/orders")
    watch = collector()
    assert poll(watch).observations[0].ledger is None
    ledger = Ledger("ledger", ID, "orders", NOW_MS)
    write_file(folder, f"{ledgers.FOLDER}/{ledgers.LEDGER}", ledgers.encode_ledger(ledger).decode())
    write_decision(folder, 1)
    state = poll(watch).observations[0].ledger
    assert state is not None
    assert (state.ledger, [each.batch_id for each in state.open_decisions()]) == (ledger, [1])
    FaultyFileSystem.reads.clear()
    write_decision(folder, 2)
    state = poll(watch).observations[0].ledger
    assert state is not None
    assert [each.batch_id for each in state.decisions] == [1, 2]
    assert FaultyFileSystem.reads == [f"/box/checkpoints/orders/{ledgers.FOLDER}/2.0.decision"]
    assert poll(watch).observations[0].ledger is state


def test_a_torn_or_unreadable_ledger_is_reported_by_its_files() -> None:
    folder = make_checkpoint(f"{ROOT}/orders")
    write_file(folder, f"{ledgers.FOLDER}/{ledgers.LEDGER}", '{"v":1,')
    write_decision(folder, 1)
    denied = raising(PermissionError("no"))
    FaultyFileSystem.on_read[f"/box/checkpoints/orders/{ledgers.FOLDER}/1.0.decision"] = denied
    watch = collector()
    state = poll(watch).observations[0].ledger
    assert state is not None
    assert isinstance(state.ledger, Broken)
    assert [(each.path, each.damage) for each in state.broken] == [
        (f"{ledgers.FOLDER}/1.0.decision", Damage.DENIED)
    ]
    FaultyFileSystem.on_read.clear()
    state = poll(watch).observations[0].ledger
    assert state is not None
    assert len(state.decisions) == 1


# Bad input: a path, a remedy, and no harm to others.


@cases(
    ("faulty://box/nowhere", "faulty://box/nowhere does not exist: check the path"),
    ("faulty://box/file", "is a file: name the folder that holds checkpoints"),
    ("nonsense://box/x", "no store is known by that scheme"),
    ("gs://box/x", "its store needs a package that is not installed"),
    ("faulty://denied/x", "permission denied: let the user that runs the dashboard list and read it"),
    ("faulty://down/x", "the bucket is away (OSError): check the store"),
)
def test_an_unreadable_root_is_reported_with_a_remedy(root: str, words: str) -> None:
    write_file("faulty://box", "file", "x")
    FaultyFileSystem.on_list["/denied/x"] = raising(PermissionError(13, "Permission denied"))
    FaultyFileSystem.on_list["/down/x"] = raising(OSError("the bucket is away"))
    make_checkpoint(f"{ROOT}/unharmed")
    alone = poll(collector(root))
    assert words in alone.blind
    assert root in alone.blind
    looked = poll(collector(root, ROOT, known=(f"{root}/orders",)))
    assert looked.blind == ""
    assert set(looked.gaps) == {f"root:{root}", f"checkpoint:{root}/orders"}
    assert words in looked.gaps[f"root:{root}"][1]
    assert looked.gone == []
    _is_unharmed(looked)


def test_a_mapped_root_is_reported_in_both_spellings() -> None:
    mapped = CheckpointRoot(
        "hdfs://nameservice1/checkpoints", "prod", {"hdfs://nameservice1": "faulty://box"}
    )
    alone = CheckpointsCollector([mapped]).poll(NOW_MS, every_s=1)
    assert "hdfs://nameservice1/checkpoints (opened as faulty://box/checkpoints)" in alone.blind
    make_checkpoint(f"{ROOT}/orders")
    found = CheckpointsCollector([mapped]).poll(NOW_MS, every_s=1)
    assert set(polled_checkpoints(found)) == {"hdfs://nameservice1/checkpoints/orders"}


def test_a_root_that_comes_back_is_read_again() -> None:
    watch = collector()
    assert poll(watch).blind
    make_checkpoint(f"{ROOT}/orders")
    looked = poll(watch)
    assert (looked.blind, len(looked.observations)) == ("", 1)
    FaultyFileSystem.on_list["/box/checkpoints"] = raising(OSError("away"))
    watch.mark_saved()
    assert poll(watch).blind
    FaultyFileSystem.on_list.clear()
    looked = poll(watch)
    assert looked.gone == []
    assert looked.observations[0].planned == ()


@pytest.mark.parametrize("denied", ["orders", "orders/offsets", "orders/commits", "orders/state"])
def test_a_folder_that_may_not_be_listed_is_a_gap_of_that_checkpoint(denied: str) -> None:
    folder = make_checkpoint(f"{ROOT}/orders")
    write_file(folder, "state/0/_metadata/metadata", "v1\n")
    make_checkpoint(f"{ROOT}/unharmed")
    watch = collector()
    poll(watch)
    FaultyFileSystem.on_list[f"/box/checkpoints/{denied}"] = raising(PermissionError("no"))
    looked = poll(watch)
    _, reason = looked.gaps[f"checkpoint:{folder}"]
    assert f"{ROOT}/{denied} cannot be read: permission denied" in reason
    assert looked.gone == []
    _is_unharmed(looked)
    FaultyFileSystem.on_list.clear()
    assert poll(watch).gaps == {}


def test_a_file_that_may_not_be_read_is_broken_until_it_may() -> None:
    make_checkpoint(f"{ROOT}/orders")
    make_checkpoint(f"{ROOT}/unharmed")
    FaultyFileSystem.on_read["/box/checkpoints/orders/offsets/2"] = raising(PermissionError("no"))
    watch = collector()
    looked = poll(watch)
    checkpoint = polled_checkpoints(looked)[f"{ROOT}/orders"]
    assert isinstance(checkpoint.last_offsets, Broken)
    assert checkpoint.last_offsets.path == "offsets/2"
    assert checkpoint.last_offsets.damage is Damage.DENIED
    assert predict_restart(checkpoint, alive=None).verdict is RestartVerdict.UNREADABLE
    _is_unharmed(looked)
    FaultyFileSystem.on_read.clear()
    # A changed verdict takes a second look.
    poll(watch)
    assert (
        predict_restart(polled_checkpoints(poll(watch))[f"{ROOT}/orders"], alive=None).verdict
        is RestartVerdict.CLEAN
    )


def test_a_file_that_is_deleted_while_it_is_read_was_not_there() -> None:
    make_checkpoint(f"{ROOT}/orders")
    make_checkpoint(f"{ROOT}/unharmed")
    FaultyFileSystem.on_read["/box/checkpoints/orders/offsets/0"] = raising(FileNotFoundError("gone"))
    looked = poll(collector())
    assert polled_checkpoints(looked)[f"{ROOT}/orders"].offsets == (1, 2)
    assert polled_checkpoints(looked)[f"{ROOT}/orders"].broken == ()
    _is_unharmed(looked)


def test_a_checkpoint_deleted_during_a_poll_is_gone_at_the_next_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint_collector, "SEARCH_EVERY_S", 1_000.0)
    make_checkpoint(f"{ROOT}/orders")
    make_checkpoint(f"{ROOT}/unharmed")
    watch = collector()
    poll(watch)
    watch.mark_saved()
    remove(ROOT, "orders")
    looked = poll(watch)
    assert (set(polled_checkpoints(looked)), looked.gaps) == ({f"{ROOT}/unharmed"}, {})
    assert poll(watch).gone == [f"{ROOT}/orders"]


def test_of_two_thousand_files_the_newest_are_read_and_a_gap_is_reported() -> None:
    folder = make_checkpoint(f"{ROOT}/orders", last=1_999)
    make_checkpoint(f"{ROOT}/unharmed")
    watch = collector()
    looked = poll(watch)
    found = next(each for each in looked.observations if each.checkpoint.path == folder)
    assert len(found.checkpoint.offsets) == 2_000
    assert [each.batch_id for each in found.planned] == list(range(2_000 - MOST_READ, 2_000))
    assert predict_restart(found.checkpoint, alive=None).first_batch == 2_000
    _, reason = looked.gaps[f"checkpoint:{folder}"]
    assert "holds 1,800 older batches that were not read" in reason
    _is_unharmed(looked)
    watch.mark_saved()
    assert poll(watch).gaps == {}


@pytest.mark.parametrize("part", ["offsets", "commits"])
def test_a_root_inside_a_checkpoint_is_reported(part: str) -> None:
    make_checkpoint(f"{ROOT}/orders")
    looked = poll(collector(f"{ROOT}/orders/{part}"))
    assert looked.observations == []
    assert (
        "is a part of a checkpoint: name the folder that holds checkpoints"
        in next(iter(looked.gaps.values()))[1]
    )


def test_foreign_files_are_listed_and_change_no_verdict() -> None:
    folder = make_checkpoint(f"{ROOT}/orders")
    for path in ("_SUCCESS", "notes.txt", "offsets/notes.txt", "offsets/.3.tmp", "commits/.2.crc", "x/y"):
        write_file(folder, path, "x")
    for path in ("__tmp_path_dir/x", "commits_$folder$", "offsets/__tmp_path_dir/x", "sources/0_$folder$"):
        write_file(folder, path, "x")
    write_file(folder, "offsets/7/strange", "a folder that is called like a batch")
    looked = poll(collector())
    checkpoint = polled_checkpoints(looked)[folder]
    assert checkpoint.foreign == ("_SUCCESS", "notes.txt", "x", "offsets/7", "offsets/notes.txt")
    assert checkpoint.offsets == (0, 1, 2)
    _is_unharmed(looked, folder)


def test_a_large_log_of_a_file_source_is_healthy_and_is_not_read() -> None:
    folder = make_checkpoint(f"{ROOT}/orders")
    line = '\n{"path":"s3a://b/in/%09d.json","timestamp":1700000000000,"batchId":0}'
    write_file(folder, "sources/0/0", "v1" + "".join(line % number for number in range(260_000)))
    write_file(folder, "sources/1/0", '\x00v1\n{"t":{"0":7}}')
    checkpoint = polled_checkpoints(poll(collector()))[folder]
    assert (checkpoint.broken, list(checkpoint.initial)) == ((), ["1"])
    assert predict_restart(checkpoint, alive=None).verdict is RestartVerdict.CLEAN
    assert not any(path.endswith("/sources/0/0") for path in FaultyFileSystem.reads)


def test_a_batch_file_without_end_is_unreadable_and_is_not_read() -> None:
    folder = make_checkpoint(f"{ROOT}/orders")
    write_file(folder, "offsets/3", "x" * (LARGEST + 1))
    make_checkpoint(f"{ROOT}/unharmed")
    looked = poll(collector())
    last = polled_checkpoints(looked)[folder].last_offsets
    assert isinstance(last, Broken)
    assert last.damage is Damage.DENIED, "how much of it there is says nothing about what is in it"
    assert "16,000,001 bytes" in last.detail
    assert not any(path.endswith("/offsets/3") for path in FaultyFileSystem.reads)
    _is_unharmed(looked)


def test_a_copy_of_a_checkpoint_is_a_separate_checkpoint() -> None:
    make_checkpoint(f"{ROOT}/orders")
    make_checkpoint(f"{ROOT}/orders copy [1]*?")
    looked = poll(collector())
    assert {each.query_id for each in polled_checkpoints(looked).values()} == {ID}
    assert set(polled_checkpoints(looked)) == {f"{ROOT}/orders", f"{ROOT}/orders copy [1]*?"}


def test_torn_old_files_are_listed_apart_from_torn_files_that_decide_the_verdict() -> None:
    folder = make_checkpoint(f"{ROOT}/orders", last=5)
    write_file(folder, "offsets/1", "")
    write_file(folder, "commits/5", "v1\n{")
    write_file(folder, "metadata", "")
    checkpoint = polled_checkpoints(poll(collector()))[folder]
    assert [each.path for each in checkpoint.broken] == ["offsets/1"]
    assert isinstance(checkpoint.last_commit, Broken)
    assert checkpoint.identity is not None
    assert checkpoint.identity.damage is Damage.EMPTY
