"""Proves that the task polls and saves, reports what is unavailable, and loses nothing when a save fails;
and the way from files to findings: a folder and a ledger as Spark and the sink write them, evaluated."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from collectors.checkpoints import collector as checkpoint_collector
from dashboard.config import CheckpointRoot, ClusterConfig, Config
from dashboard.models import Batch, Collector, FindingRecord, GapRecord, Query
from dashboard.runtime import loop
from dashboard.runtime.leases import Lease, LeaseLost
from dashboard.streaming import checkpoint_store
from dashboard.streaming.batch_state import chain_of, newest_batch, safe_to_restart
from dashboard.tasks import polls
from fenceline.decode import ledger as ledgers
from fenceline.decode.ledger import Generation, Round
from fenceline.limits import Limits
from fenceline.spark.batch_chain import RECOVER_AND_COMMIT, BatchStep, first_broken_link
from fenceline.spark.records import Ledger
from fenceline.spark.restart_prediction import RestartVerdict
from tests.db import factories
from tests.db.checkpoint_stage import CheckpointStage
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import LEDGER_ID, QUERY_ID, decision, decision_end, sink_transaction
from tests.turns import take_turns
from tests.unit.checkpoints.factories import (
    ID,
    finish_batches,
    make_checkpoint,
    plan_batches,
    remove,
    write_file,
)
from tests.waiting import wait_for

LIMITS = Limits(checkpoints_every_s=0.01)


@pytest.fixture(autouse=True)
def _without_collectors() -> Iterator[None]:
    yield
    polls.checkpoint_collectors.clear()


@pytest.fixture
def root(tmp_path: Path, settings: Settings) -> Path:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    configure(settings, folder)
    return folder


def configure(settings: Settings, *roots: Path, limits: Limits = LIMITS) -> None:
    clusters = {name: ClusterConfig(name, {"bootstrap.servers": "x:1"}) for name in ("prod", "other")}
    checkpoints = [CheckpointRoot(str(root), "prod") for root in roots]
    settings.FENCELINE = Config(clusters=clusters, checkpoints=checkpoints, limits=limits)


def poll_until(lease: Lease, until: Callable[[], Any], what: str) -> Any:
    """Let the task poll, in short slices, until a condition holds."""

    def poll_once() -> Any:
        take_turns(polls.poll_checkpoints(lease), 0.05)
        return until()

    return wait_for(poll_once, what)


def saved() -> Query | None:
    return Query.objects.filter(cluster__name="prod").exclude(checkpoint="").first()


def test_a_checkpoint_is_saved_with_its_verdict(root: Path, take: Take) -> None:
    make_checkpoint(str(root / "orders"))
    lease = take(checkpoint_store.NAME)
    query = poll_until(lease, saved, "the query is saved")
    assert (query.query_id, query.checkpoint) == (ID, str(root / "orders"))
    assert (query.planned, query.finished, query.restart) == (2, 2, RestartVerdict.CLEAN)
    make_checkpoint(str(root / "orders"), last=4)
    batches = Batch.objects.filter(query=query)
    poll_until(lease, lambda: batches.count() == 5, "the new batches are saved")
    assert list(batches.order_by("batch_id").values_list("offsets", flat=True)) == [
        [["0", f'{{"t":{{"0":{batch * 10}}}}}']] for batch in range(5)
    ]
    assert not batches.filter(committed_ms=None).exists()
    row = Collector.objects.get(name=checkpoint_store.NAME)
    assert row.seen_through_ms is not None


def test_a_save_that_fails_loses_nothing(root: Path, take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(str(root / "orders"))
    lease = take(checkpoint_store.NAME)

    def raise_lease_lost(*_: object, **__: object) -> int:
        raise LeaseLost("another one holds it")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_store, "save_checkpoints", raise_lease_lost)
        with pytest.raises(LeaseLost):
            poll_until(lease, lambda: False, "nothing")
    poll_until(lease, lambda: Batch.objects.count() == 3, "every batch is saved after all")


def test_folders_that_are_not_searched_are_noted(root: Path, take: Take) -> None:
    make_checkpoint(str(root / "orders"), last=0)
    (root / "orders_table" / "_delta_log").mkdir(parents=True)
    lease = take(checkpoint_store.NAME)
    collector = Collector.objects.filter(name=checkpoint_store.NAME)

    def skipped() -> Any:
        return collector.get().detail.get("skipped")

    log = str(root / "orders_table" / "_delta_log")
    wanted = {str(root): [["_delta_log", 1, log]]}
    poll_until(lease, lambda: skipped() == wanted, "it is noted")
    (root / "orders_table" / "_delta_log").rmdir()
    polls.checkpoint_collectors.clear()
    poll_until(lease, lambda: skipped() == {}, "it is forgotten")


def test_an_unreadable_root_is_a_gap_until_it_is_readable(
    root: Path, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_collector, "SEARCH_EVERY_S", 0.0)
    root.rmdir()
    lease = take(checkpoint_store.NAME)
    gaps = GapRecord.objects.filter(source=checkpoint_store.NAME, until_ms=None)
    gap = poll_until(lease, gaps.first, "a gap tells it")
    assert gap.scope == "cluster"
    assert f"{root} does not exist: check the path" in gap.reason
    make_checkpoint(str(root / "orders"), last=0)
    poll_until(lease, saved, "it is seen again")
    assert not gaps.exists()


def test_a_checkpoint_removed_between_two_workers_is_gone(root: Path, take: Take) -> None:
    make_checkpoint(str(root / "orders"), last=0)
    make_checkpoint(str(root / "payments"), last=0)
    lease = take(checkpoint_store.NAME)
    poll_until(lease, lambda: Query.objects.count() == 2, "both are saved")
    polls.checkpoint_collectors.clear()
    for file in sorted((root / "orders").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    (root / "orders").rmdir()
    gone = Query.objects.filter(checkpoint=str(root / "orders"))
    poll_until(lease, lambda: "is gone" in gone.get().error, "the row says that its folder is gone")


@pytest.mark.parametrize(("roots", "every_s", "sent"), [(1, 1.0, ["prod"]), (0, 1.0, []), (1, 0.0, [])])
def test_only_clusters_with_a_root_are_polled(
    tmp_path: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    roots: int,
    every_s: float,
    sent: list[str],
) -> None:
    configure(settings, *[tmp_path] * roots, limits=Limits(checkpoints_every_s=every_s))
    messages: list[str] = []
    monkeypatch.setattr(
        polls.checkpoints.task,
        "apply_async",
        lambda arguments, **options: messages.append(arguments[0]),
    )
    monkeypatch.setattr(loop, "begin_slice", lambda *arguments, **options: messages.append("ran"))
    polls.checkpoints.start({checkpoint_store.NAME: ["prod"]})
    assert messages == sent
    polls.checkpoints.task("other")
    assert "ran" not in messages
    if sent:
        polls.checkpoints.task("prod")
        assert messages[-1] == "ran"


LATER_MS = NOW_MS + 20_000


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A checkpoint whose batch 3 is decided and not committed."""
    at = make_checkpoint(str(tmp_path / "orders"), query_id=QUERY_ID)
    plan_batches(at, 3)
    ledger = {
        ledgers.LEDGER: ledgers.encode_ledger(Ledger(LEDGER_ID, QUERY_ID, "orders", NOW_MS)),
        ledgers.generation_name(1): ledgers.encode_generation(Generation(1, "r-1", NOW_MS)),
        ledgers.decision_name(Round(3, 0)): ledgers.encode_decision(decision(3)),
    }
    for name, written in ledger.items():
        write_file(at, f"{ledgers.FOLDER}/{name}", written.decode())
    return at


@pytest.fixture
def stage(folder: str, tmp_path: Path, take: Take) -> CheckpointStage:
    return CheckpointStage(tmp_path, take)


def links(link: BatchStep) -> tuple[str, str]:
    row = Query.objects.get()
    found = next(each for each in chain_of(row, newest_batch(row), now_ms=LATER_MS) if each.link is link)
    return found.state.value, found.recovery


def test_a_decided_batch_is_found_until_it_ends(folder: str, stage: CheckpointStage) -> None:
    said = sink_transaction()
    columns = {"producer_id": said.producer_id, "producer_epoch": said.producer_epoch}
    row = factories.transaction(said.transactional_id, started_ms=said.started_ms, **columns)
    stage.poll(4)
    assert stage.findings() == {}, "a first look cannot tell for how long it has been open"
    stage.poll(10)
    assert list(stage.findings()) == ["batch_prepared"]
    assert links(BatchStep.COMMITTED) == ("broken", RECOVER_AND_COMMIT)
    assert safe_to_restart(Query.objects.get(), LATER_MS).safe is None, "no listener: it may be committing"
    row.state = "CompleteCommit"
    row.save()
    done = ledgers.encode_completion(decision_end(3)).decode()
    write_file(folder, f"{ledgers.FOLDER}/{ledgers.completion_name(Round(3, 0))}", done)
    finish_batches(folder, 3)
    stage.poll(4)
    assert stage.findings() == {}
    assert links(BatchStep.CHECKPOINTED) == ("done", "")
    kept = Query.objects.get()
    assert first_broken_link(chain_of(kept, newest_batch(kept), now_ms=LATER_MS)) is None
    assert safe_to_restart(kept, LATER_MS).safe is True


def test_an_aborted_batch_is_a_loss(stage: CheckpointStage) -> None:
    said = sink_transaction()
    columns = {"producer_id": said.producer_id, "producer_epoch": said.producer_epoch + 1}
    factories.transaction(said.transactional_id, state="CompleteAbort", started_ms=said.started_ms, **columns)
    stage.poll(4)
    assert list(stage.findings()) == ["batch_lost"]
    assert links(BatchStep.COMMITTED) == ("broken", "lost")


def test_a_failing_restart_is_found_until_the_checkpoint_is_repaired(
    folder: str, stage: CheckpointStage
) -> None:
    remove(folder, "offsets/2")
    stage.poll(4)
    row = FindingRecord.objects.get(rule="restart_fails", closed_at=None)
    assert row.evidence.startswith("A restart fails: batch 2 doesn't exist")
    plan_batches(folder, 2)
    stage.poll(4)
    assert "restart_fails" not in stage.findings()
