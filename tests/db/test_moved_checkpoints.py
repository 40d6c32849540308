"""Proves that a copy of a checkpoint is no second driver: a query moves where polls find newer batches; and
that a checkpoint which is made anew at its path has its batches as a query of its own."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from collectors import polling
from collectors.checkpoints import collector as checkpoint_collector
from dashboard.models import Batch, Query
from dashboard.streaming.lag import query_sources
from dashboard.streaming.rule_input import Queries
from tests.cases import cases
from tests.db import factories
from tests.db.checkpoint_stage import CheckpointStage
from tests.db.conftest import NOW_MS, Take
from tests.unit.checkpoints.factories import finish_batches, make_checkpoint, plan_batches, write_file

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


def test_two_folders_at_rest_are_no_two_drivers(stage: CheckpointStage) -> None:
    copy(stage)
    stage.poll(4)
    assert Query.objects.count() == 2
    assert stage.findings() == {}


@pytest.mark.parametrize("is_followed", [False, True])
def test_a_copy_at_rest_or_brought_up_to_date_is_no_second_driver(
    stage: CheckpointStage, is_followed: bool
) -> None:
    copy(stage)
    for batch in range(5, 12):
        run_batches(stage.root / "orders", batch)
        stage.poll()
        if is_followed:
            copy(stage)
            stage.poll()
        assert "two_writers" not in stage.findings()
    assert Query.objects.count() == 2
    assert {row.finished for row in Query.objects.all()} == ({11} if is_followed else {4, 11})


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_driver_on_the_copy_is_a_second_one_unless_the_query_is_stopped(
    stage: CheckpointStage, is_stopped: bool
) -> None:
    moved = copy(stage)
    stage.poll()
    for batch in range(5, 9):
        if not is_stopped:
            run_batches(stage.root / "orders", batch)
        run_batches(moved, batch, from_ms=NOW_MS + 700)
        stage.poll()
    assert stage.findings().get("two_writers", []) == ([] if is_stopped else ["critical"] * 2)


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


OLD, NEW = "9e0e48fd-8628-4fc5-ba71-6cd718564ea4", "0b6e0c33-6f3f-4f5c-b5a1-2f7d3a3f6c11"
ANEW_MS = NOW_MS + 100_000


@pytest.fixture
def redone(tmp_path: Path, take: Take, monkeypatch: pytest.MonkeyPatch) -> CheckpointStage:
    """A query with batches 0 to 6; after the first search only a missing folder causes another."""
    monkeypatch.setattr(checkpoint_collector, "SEARCH_EVERY_S", 3_600.0)
    monkeypatch.setattr(polling, "SHARE", 0)
    begin(tmp_path / "redo", OLD, 7, NOW_MS)
    made = CheckpointStage(tmp_path, take)
    made.poll(2)
    return made


def begin(folder: Path, query_id: str, batches: int, from_ms: int) -> None:
    write_file(str(folder), "metadata", json.dumps({"id": query_id}))
    run_batches(folder, *range(batches), from_ms=from_ms)


def planned(query_id: str) -> Mapping[int, int]:
    rows = Batch.objects.filter(query__query_id=query_id)
    return dict(rows.order_by("batch_id").values_list("batch_id", "planned_ms"))


def expect(new: int, *, old: int = 7) -> None:
    assert planned(OLD) == {n: NOW_MS + n for n in range(old)}, "the old query's history is as it was"
    assert planned(NEW) == {n: ANEW_MS + n for n in range(new)}


@cases((0, 2), (0, 9), (1, 7), (1, 9), (3, 2), (3, 7), (8, 9))
def test_a_checkpoint_made_anew_has_its_own_history(
    redone: CheckpointStage, polls_between: int, batches: int
) -> None:
    folder = redone.root / "redo"
    shutil.rmtree(folder)
    redone.poll(polls_between)
    begin(folder, NEW, batches, ANEW_MS)
    if polls_between > 1:
        redone.search_soon()
    redone.poll(2)
    expect(batches)
    row = Query.objects.get(query_id=NEW)
    assert (row.checkpoint, row.planned, row.finished) == (str(folder), batches - 1, batches - 1)
    (source,) = query_sources([row])[row.pk]
    assert [part.position for part in source.parts] == [10 * (batches - 1)]
    run_batches(folder, *range(batches, batches + 1), from_ms=ANEW_MS)
    redone.poll()
    expect(batches + 1)


def test_a_deliberate_reset_is_no_incident(redone: CheckpointStage) -> None:
    shutil.rmtree(redone.root / "redo")
    begin(redone.root / "redo", NEW, 2, ANEW_MS)
    redone.poll(4)
    assert redone.findings() == {}
    assert Query.objects.get(query_id=OLD).checkpoint == ""


@pytest.mark.parametrize("batches", [2, 9])
def test_a_checkpoint_made_anew_while_no_worker_polled(redone: CheckpointStage, batches: int) -> None:
    shutil.rmtree(redone.root / "redo")
    begin(redone.root / "redo", NEW, batches, ANEW_MS)
    redone.restart()
    redone.poll(2)
    expect(batches)


def test_logs_that_are_there_before_the_identity_wait_for_it(redone: CheckpointStage) -> None:
    folder = redone.root / "redo"
    shutil.rmtree(folder)
    run_batches(folder, *range(2), from_ms=ANEW_MS)
    looked = redone.poll()
    assert looked is not None
    assert any("has no metadata yet" in why for _, why in looked.gaps.values())
    expect(0)
    write_file(str(folder), "metadata", json.dumps({"id": NEW}))
    redone.poll()
    expect(2)


def lose_identity(redone: CheckpointStage) -> Path:
    """Give the folder a new id, as Spark up to 4.1 does, which goes on."""
    write_file(str(redone.root / "redo"), "metadata", json.dumps({"id": NEW}))
    redone.restart()
    return redone.root / "redo"


def test_batches_after_a_lost_identity_are_of_the_same_query(redone: CheckpointStage) -> None:
    run_batches(lose_identity(redone), *range(7, 8), from_ms=NOW_MS)
    redone.poll(2)
    row = Query.objects.get()
    assert (row.ident, row.query_id, row.finished) == (OLD, NEW, 7)
    assert planned(NEW) == {n: NOW_MS + n for n in range(8)}


def test_one_rewritten_file_after_a_lost_identity_makes_no_other_query(redone: CheckpointStage) -> None:
    plan_batches(str(lose_identity(redone)), 6, from_ms=ANEW_MS)
    redone.poll(2)
    assert [(row.ident, row.query_id) for row in Query.objects.all()] == [(OLD, NEW)]


def test_later_batches_under_a_new_identity_are_of_the_same_query(redone: CheckpointStage) -> None:
    """Spark has deleted all batches that were read before."""
    shutil.rmtree(redone.root / "redo")
    run_batches(lose_identity(redone), *range(200, 203), from_ms=ANEW_MS)
    redone.poll(2)
    assert [(row.ident, row.query_id, row.finished) for row in Query.objects.all()] == [(OLD, NEW, 202)]


def test_a_copy_from_before_that_is_put_back_is_the_same_query(redone: CheckpointStage) -> None:
    folder = redone.root / "redo"
    shutil.rmtree(folder)
    begin(folder, OLD, 3, NOW_MS)
    redone.poll(3)
    row = Query.objects.get()
    assert (row.finished, planned(OLD)) == (2, {n: NOW_MS + n for n in range(7)})
