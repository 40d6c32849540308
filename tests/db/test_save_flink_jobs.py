"""Proves what is saved of Flink's jobs, from real checkpoints on a disk: what the newest one decided, what
cannot be read, what is removed, and which of several jobs holds a transactional id."""

import os
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.flink import FlinkCollector
from dashboard.config import CheckpointRoot, ClusterConfig, Config
from dashboard.engines import flink_jobs as queries
from dashboard.engines import store as store
from dashboard.models import Cluster, Collector, FlinkCheckpointRecord, FlinkJob, GapRecord
from dashboard.tasks import polls
from fenceline.limits import Limits
from tests.cases import cases
from tests.db.conftest import NOW_MS, Take
from tests.turns import take_turns
from tests.unit import flink_states as states

pytestmark = pytest.mark.sql
JOB = "5d1c0f1e8f954d1c8a1b9e3f7a6c2b10"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "flink"
    folder.mkdir()
    return folder


@pytest.fixture
def poll(take: Take, root: Path) -> Callable[[], int]:
    """Poll the root and save what is there; return how many jobs have changed."""
    lease = take(store.NAME)
    collector = FlinkCollector([CheckpointRoot(str(root), "prod")])

    def poll() -> int:
        found = collector.poll(NOW_MS, every_s=0)
        return store.save_jobs(lease, found.observations, found.searched, gaps=found.gaps, now_ms=NOW_MS)

    return poll


Poll = Callable[[], int]


def complete(folder: Path, number: int, *names: str, at_s: int = 1_795_000_000) -> Path:
    """Write a completed checkpoint that decided to commit ids of producer 12, epoch 3."""
    entry = states.collector_entry(number, [states.committable(name, 12, 3) for name in names])
    return write(folder / f"chk-{number}", states.metadata_6(number, [entry]), at_s=at_s)


def write(checkpoint: Path, raw: bytes, *, at_s: int = 1_795_000_000) -> Path:
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "_metadata").write_bytes(raw)
    os.utime(checkpoint / "_metadata", (at_s, at_s))
    return checkpoint


@pytest.mark.parametrize("version", states.VERSIONS)
@pytest.mark.parametrize("kind", ["inline", "files"])
def test_a_real_checkpoint_is_kept_with_what_it_decided(
    root: Path, poll: Poll, version: str, kind: str
) -> None:
    shutil.copytree(states.GOLDEN / version / kind, root / JOB)
    assert poll() == 1
    job = FlinkJob.objects.get()
    assert (job.job_id, job.prefixes, job.checkpoint_id, job.pending) == (JOB, ["copy"], 4, 2)
    assert (job.is_savepoint, job.error, str(job)) == (False, "", "copy")
    row = FlinkCheckpointRecord.objects.get()
    assert (row.name, row.version) == ("chk-4", states.VERSIONS[version])
    assert [each.transactional_id for each in queries.committables_of(row)] == ["copy-0-4", "copy-1-4"]
    assert len(queries.writers_of(row)) == 2


@pytest.mark.parametrize(("version", "format_version"), [("1.14", 3), ("1.18", 4), ("1.20", 4)])
@pytest.mark.parametrize("kind", ["producer", "producer-compressed"])
def test_a_real_checkpoint_of_the_older_sink_is_kept_with_its_pools(
    root: Path, poll: Poll, version: str, format_version: int, kind: str
) -> None:
    shutil.copytree(states.GOLDEN / version / kind, root / JOB)
    assert (poll(), poll()) == (1, 0)
    job, row = FlinkJob.objects.get(), FlinkCheckpointRecord.objects.get()
    assert (job.prefixes, job.checkpoint_id, job.pending, job.error) == (["copy-"], 4, 2, "")
    assert (row.version, row.other_entries) == (format_version, 0)
    assert [each.transactional_id for each in queries.committables_of(row)] == ["copy-3", "copy-6"]
    expected = [("copy-4", 10), ("copy-7", None)]
    assert [(each.writing, each.next_free) for each in queries.writers_of(row)] == expected
    holds = queries.holds_of(job.cluster_id, ["copy-3", "copy-30", "copy-0-3"], now_ms=NOW_MS)
    assert set(holds) == {"copy-3", "copy-30"}


def test_a_root_may_be_a_job_a_savepoint_or_a_folder_of_both(root: Path, poll: Poll) -> None:
    (savepoint,) = (states.GOLDEN / "2.1" / "savepoint").iterdir()
    shutil.copytree(savepoint, root / "savepoints" / savepoint.name)
    complete(root / JOB, 4, "copy-0-4")
    poll()
    found = {row.path.rpartition("/")[2]: row for row in FlinkJob.objects.all()}
    assert set(found) == {savepoint.name, JOB}
    assert found[savepoint.name].is_savepoint is True
    assert FlinkCheckpointRecord.objects.get(job=found[savepoint.name]).name == ""


def test_nothing_is_written_while_nothing_is_new(root: Path, poll: Poll) -> None:
    complete(root / JOB, 4, "copy-0-4")
    poll()
    before, rev = list(FlinkCheckpointRecord.objects.values()), FlinkJob.objects.get().rev
    assert poll() == 0
    assert list(FlinkCheckpointRecord.objects.values()) == before
    assert FlinkJob.objects.get().rev == rev
    complete(root / JOB, 5, "copy-0-5", at_s=1_795_000_010)
    assert poll() == 1
    assert FlinkJob.objects.get().rev > rev
    assert [row.name for row in queries.checkpoints_of(FlinkJob.objects.get())] == ["chk-5", "chk-4"]


def test_a_job_that_numbers_its_checkpoints_anew_is_read_by_their_age(root: Path, poll: Poll) -> None:
    complete(root / JOB, 9, "copy-0-9")
    poll()
    complete(root / JOB, 1, "copy-0-1", at_s=1_795_000_100)
    poll()
    assert FlinkJob.objects.get().checkpoint_id == 1


def test_jobs_that_are_gone_and_those_of_roots_that_are_configured_no_more_are_removed(
    root: Path, poll: Poll
) -> None:
    complete(root / JOB, 4, "copy-0-4")
    complete(root / "other", 1, "other-0-1")
    poll()
    shutil.rmtree(root / JOB)
    poll()
    store.remove_unrooted_jobs({"prod": [str(root)]})
    assert [row.path for row in FlinkJob.objects.all()] == [str(root / "other")]
    assert FlinkCheckpointRecord.objects.count() == 1
    store.remove_unrooted_jobs({"prod": [str(root / "elsewhere")]})
    assert not FlinkJob.objects.exists()


def test_a_job_is_not_removed_while_its_root_cannot_be_listed(root: Path, poll: Poll) -> None:
    complete(root / JOB, 4, "copy-0-4")
    poll()
    root.rename(root.with_name("away"))
    poll()
    job = FlinkJob.objects.get()
    assert f"{root} does not exist" in job.error
    assert [row.scope for row in GapRecord.objects.filter(until_ms=None)] == [f"root:{root}"]
    hold = queries.holds_of(job.cluster_id, ["copy-0-4"], now_ms=NOW_MS)["copy-0-4"]
    assert "does not exist" in hold.trouble


@cases(
    (states.metadata_6(5, [])[:40], "truncated"),
    (struct.pack(">Iiq", 0x4960672D, 9, 5), "(version: 9; 2 to 6 are known here): update Fenceline"),
    (b"", "magic"),
)
def test_a_checkpoint_that_cannot_be_decoded_is_a_gap_from_the_second_poll_on(
    root: Path, poll: Poll, raw: bytes, words: str
) -> None:
    complete(root / JOB, 4, "copy-0-4")
    broken = write(root / JOB / "chk-5", raw, at_s=1_795_000_010)
    poll()
    # It may be written at this moment.
    assert FlinkJob.objects.get().error == ""
    poll()
    job = FlinkJob.objects.get()
    assert words in job.error
    assert str(broken / "_metadata") in job.error
    assert (job.checkpoint_id, job.pending) == (None, 0)
    assert [row.reason for row in GapRecord.objects.filter(until_ms=None)] == [job.error]
    complete(root / JOB, 5, "copy-0-5", at_s=1_795_000_020)
    poll()
    assert (FlinkJob.objects.get().error, FlinkJob.objects.get().checkpoint_id) == ("", 5)
    assert not GapRecord.objects.filter(until_ms=None).exists()


def test_state_in_a_file_that_is_gone_is_named_by_its_path(root: Path, poll: Poll) -> None:
    shutil.copytree(states.GOLDEN / "2.1" / "files", root / JOB)
    lost = [path for path in (root / JOB / "chk-4").iterdir() if path.name != "_metadata"]
    for path in lost:
        path.unlink()
    poll()
    poll()
    error = FlinkJob.objects.get().error
    assert any(f"{path} cannot be read: it is not there any more" in error for path in lost)


def test_state_outside_of_the_root_is_not_read_unless_it_is_mapped(root: Path, take: Take) -> None:
    shutil.copytree(states.GOLDEN / "2.1" / "merged", root / JOB)
    raw = (root / JOB / "chk-4" / "_metadata").read_bytes()
    at = raw.index(b"file:/")
    made = raw[at : raw.index(b"/taskowned", at)].decode()
    lease = take(store.NAME)

    def error(mapped: dict[str, str]) -> str:
        collector = FlinkCollector([CheckpointRoot(str(root), "prod", map=mapped)])
        for _ in range(2):
            found = collector.poll(NOW_MS, every_s=0)
        store.save_jobs(lease, found.observations, found.searched, gaps=found.gaps, now_ms=NOW_MS)
        return FlinkJob.objects.get().error

    assert f"outside of {root}: name a root that holds both, or map its prefix" in error({})
    assert error({made: str(root / JOB)}) == ""
    assert FlinkJob.objects.get().pending == 2


def test_10_000_pending_commits_are_kept_in_bounded_time(root: Path, poll: Poll) -> None:
    entries = [
        states.collector_entry(4, [states.committable(f"copy-{index}-4", index, 0)])
        for index in range(10_000)
    ]
    write(root / JOB / "chk-4", states.metadata_6(4, entries))
    began = time.process_time()
    poll()
    assert FlinkJob.objects.get().pending == 10_000
    assert time.process_time() - began < 10


def test_the_job_whose_checkpoint_holds_an_id_counts(root: Path, poll: Poll) -> None:
    for name, names, at_s in (("old", ["copy-0-4"], 0), ("new", ["copy-0-9"], 100)):
        complete(root / name, 4, *names, at_s=1_795_000_000 + at_s)
    poll()
    cluster_id = Cluster.objects.get().pk
    found = queries.holds_of(cluster_id, ["copy-0-4", "copy-0-9", "copy-7-7", "other-1-1"], now_ms=NOW_MS)
    assert set(found) == {"copy-0-4", "copy-0-9", "copy-7-7"}
    assert found["copy-0-4"].job.startswith("old@")
    assert found["copy-0-4"].newer_job.startswith("new@")
    assert (found["copy-0-9"].newer_job, found["copy-0-9"].trouble) == ("", "")
    assert found["copy-7-7"].committable is None
    late = queries.holds_of(cluster_id, ["copy-0-4"], now_ms=NOW_MS + 120_000)
    assert "were polled last at" in late["copy-0-4"].trouble


@pytest.fixture
def _without_collectors() -> Iterator[None]:
    yield
    polls.flink_collectors.pop("prod", None)


@pytest.mark.usefixtures("_without_collectors")
def test_the_task_polls_saves_and_reports_a_root_that_is_away(root: Path, take: Take, settings: Any) -> None:
    complete(root / JOB, 4, "copy-0-4")
    roots = [CheckpointRoot(str(root), "prod")]
    clusters = {"prod": ClusterConfig("prod", {"bootstrap.servers": "x:1"})}
    limits = Limits(checkpoints_every_s=0.01)
    settings.FENCELINE = Config(clusters=clusters, flink_checkpoints=roots, limits=limits)
    lease = take(store.NAME)
    take_turns(polls.poll_flink(lease), 0.3)
    assert FlinkJob.objects.get().pending == 1
    root.rename(root.with_name("away"))
    take_turns(polls.poll_flink(lease), 0.3)
    assert "does not exist: check the path" in Collector.objects.get(name=store.NAME).error
