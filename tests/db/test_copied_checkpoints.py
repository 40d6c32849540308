"""Proves that a copy of a checkpoint is no second driver: a query moves where polls find newer batches."""

import shutil
from pathlib import Path

import pytest

from collectors import polling
from collectors.checkpoints import collector as checkpoint_collector
from dashboard.models import Query
from dashboard.streaming.rule_input import Queries
from tests.db import factories
from tests.db.checkpoint_stage import CheckpointStage
from tests.db.conftest import NOW_MS, Take
from tests.unit.checkpoints.factories import finish_batches, make_checkpoint, plan_batches

DAY_MS = 86_400_000


@pytest.fixture
def stage(tmp_path: Path, take: Take, monkeypatch: pytest.MonkeyPatch) -> CheckpointStage:
    """A query that has finished batches 0 to 4, polled once."""
    # Every poll searches.
    monkeypatch.setattr(checkpoint_collector, "SEARCH_EVERY_S", 0.0)
    monkeypatch.setattr(polling, "SHARE", 0)
    make_checkpoint(str(tmp_path / "orders"), 4)
    made = CheckpointStage(tmp_path, take)
    made.poll()
    return made


def run_batches(folder: Path, *batches: int, from_ms: int = NOW_MS) -> None:
    plan_batches(str(folder), *batches, from_ms=from_ms)
    finish_batches(str(folder), *batches)


def copy(stage: CheckpointStage) -> Path:
    return shutil.copytree(stage.root / "orders", stage.root / "orders_copy", dirs_exist_ok=True)


def test_a_copy_at_rest_is_no_second_driver(stage: CheckpointStage) -> None:
    copy(stage)
    for batch in range(5, 12):
        run_batches(stage.root / "orders", batch)
        stage.poll()
        assert "two_writers" not in stage.findings()
    assert Query.objects.count() == 2


def test_two_folders_at_rest_are_no_two_drivers(stage: CheckpointStage) -> None:
    copy(stage)
    stage.poll(4)
    assert Query.objects.count() == 2
    assert stage.findings() == {}


def test_a_copy_that_is_brought_up_to_date_is_no_second_driver(stage: CheckpointStage) -> None:
    copy(stage)
    for batch in range(5, 12):
        run_batches(stage.root / "orders", batch)
        stage.poll()
        copy(stage)
        stage.poll()
        assert "two_writers" not in stage.findings()
    assert {row.finished for row in Query.objects.all()} == {11}


def test_a_driver_on_the_copy_is_a_second_one(stage: CheckpointStage) -> None:
    moved = copy(stage)
    stage.poll()
    for batch in range(5, 9):
        run_batches(stage.root / "orders", batch)
        run_batches(moved, batch, from_ms=NOW_MS + 700)
        stage.poll()
    assert stage.findings()["two_writers"] == ["critical", "critical"]


def test_a_driver_on_the_copy_of_a_stopped_query_is_the_only_one(stage: CheckpointStage) -> None:
    moved = copy(stage)
    stage.poll()
    for batch in range(5, 9):
        run_batches(moved, batch, from_ms=NOW_MS + 700)
        stage.poll()
    assert "two_writers" not in stage.findings()


def test_a_copy_of_an_old_checkpoint_is_abandoned_though_its_files_are_new(
    tmp_path: Path, take: Take
) -> None:
    folder = tmp_path / "old"
    make_checkpoint(str(folder), 4)
    stage = CheckpointStage(tmp_path, take)
    stage.now_ms = NOW_MS + 8 * DAY_MS
    stage.poll(2)
    reader = Queries(Query.objects.get().cluster_id)
    (resting,) = reader.read_statuses(now_ms=stage.now_ms)
    assert resting.is_abandoned(stage.now_ms)
    run_batches(folder, 5)
    stage.poll()
    (moving,) = reader.read_statuses(now_ms=stage.now_ms)
    assert not moving.is_abandoned(stage.now_ms)


def test_the_time_of_the_newest_commit_counts_in_no_duration() -> None:
    """A copy writes its files anew: of the newest batch nothing bounds that time."""
    row = factories.query(planned=20, finished=20)
    for number in range(20):
        factories.batch(row, number, planned_ms=NOW_MS - 50_000, committed_ms=NOW_MS - 48_000)
    factories.batch(row, 20, planned_ms=NOW_MS - 9_000_000, committed_ms=NOW_MS)
    (found,) = Queries(factories.prod().pk).read_statuses(now_ms=NOW_MS)
    assert found.usual_ms == 2_000
