"""Proves that a checkpoint which is made anew at its path has its batches as a query of its own."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from collectors import polling
from collectors.checkpoints import collector as checkpoint_collector
from dashboard.models import Batch, Query
from dashboard.streaming.lag import query_sources
from tests.db.checkpoint_stage import CheckpointStage
from tests.db.conftest import NOW_MS, Take
from tests.unit.checkpoints.factories import finish_batches, plan_batches, write_file

OLD, NEW = "9e0e48fd-8628-4fc5-ba71-6cd718564ea4", "0b6e0c33-6f3f-4f5c-b5a1-2f7d3a3f6c11"
ANEW_MS = NOW_MS + 100_000


@pytest.fixture
def stage(tmp_path: Path, take: Take, monkeypatch: pytest.MonkeyPatch) -> CheckpointStage:
    """A query with batches 0 to 6; after the first search only a missing folder causes another."""
    monkeypatch.setattr(checkpoint_collector, "SEARCH_EVERY_S", 3_600.0)
    monkeypatch.setattr(polling, "SHARE", 0)
    begin(tmp_path / "redo", OLD, 7, NOW_MS)
    made = CheckpointStage(tmp_path, take)
    made.poll(2)
    return made


def begin(folder: Path, query_id: str, batches: int, from_ms: int) -> None:
    write_file(str(folder), "metadata", json.dumps({"id": query_id}))
    run(folder, range(batches), from_ms)


def run(folder: Path, batches: range, from_ms: int) -> None:
    plan_batches(str(folder), *batches, from_ms=from_ms)
    finish_batches(str(folder), *batches)


def planned(query_id: str) -> Mapping[int, int]:
    rows = Batch.objects.filter(query__query_id=query_id)
    return dict(rows.order_by("batch_id").values_list("batch_id", "planned_ms"))


def expect(new: int, *, old: int = 7) -> None:
    assert planned(OLD) == {n: NOW_MS + n for n in range(old)}, "the old query's history is as it was"
    assert planned(NEW) == {n: ANEW_MS + n for n in range(new)}


@pytest.mark.parametrize("polls_between", [0, 1, 3, 8])
@pytest.mark.parametrize("batches", [2, 7, 9])
def test_a_checkpoint_made_anew_has_its_own_history(
    stage: CheckpointStage, polls_between: int, batches: int
) -> None:
    folder = stage.root / "redo"
    shutil.rmtree(folder)
    stage.poll(polls_between)
    begin(folder, NEW, batches, ANEW_MS)
    if polls_between > 1:
        stage.search_soon()
    stage.poll(2)
    expect(batches)
    row = Query.objects.get(query_id=NEW)
    assert (row.checkpoint, row.planned, row.finished) == (str(folder), batches - 1, batches - 1)
    (source,) = query_sources([row])[row.pk]
    assert [part.position for part in source.parts] == [10 * (batches - 1)]
    run(folder, range(batches, batches + 1), ANEW_MS)
    stage.poll()
    expect(batches + 1)


def test_a_deliberate_reset_is_no_incident(stage: CheckpointStage) -> None:
    shutil.rmtree(stage.root / "redo")
    begin(stage.root / "redo", NEW, 2, ANEW_MS)
    stage.poll(4)
    assert stage.findings() == {}
    assert Query.objects.get(query_id=OLD).checkpoint == ""


@pytest.mark.parametrize("batches", [2, 9])
def test_a_checkpoint_made_anew_while_no_worker_polled(stage: CheckpointStage, batches: int) -> None:
    shutil.rmtree(stage.root / "redo")
    begin(stage.root / "redo", NEW, batches, ANEW_MS)
    stage.restart()
    stage.poll(2)
    expect(batches)


def test_logs_that_are_there_before_the_identity_wait_for_it(stage: CheckpointStage) -> None:
    folder = stage.root / "redo"
    shutil.rmtree(folder)
    run(folder, range(2), ANEW_MS)
    looked = stage.poll()
    assert looked is not None
    assert any("has no metadata yet" in why for _, why in looked.gaps.values())
    expect(0)
    write_file(str(folder), "metadata", json.dumps({"id": NEW}))
    stage.poll()
    expect(2)


def test_batches_after_a_lost_identity_are_of_the_same_query(stage: CheckpointStage) -> None:
    """Spark up to 4.1 gives the folder a new id, and goes on."""
    folder = stage.root / "redo"
    write_file(str(folder), "metadata", json.dumps({"id": NEW}))
    stage.restart()
    run(folder, range(7, 8), NOW_MS)
    stage.poll(2)
    row = Query.objects.get()
    assert (row.ident, row.query_id, row.finished) == (OLD, NEW, 7)
    assert planned(NEW) == {n: NOW_MS + n for n in range(8)}


def test_one_rewritten_file_after_a_lost_identity_makes_no_other_query(stage: CheckpointStage) -> None:
    folder = stage.root / "redo"
    write_file(str(folder), "metadata", json.dumps({"id": NEW}))
    plan_batches(str(folder), 6, from_ms=ANEW_MS)
    stage.restart()
    stage.poll(2)
    assert [(row.ident, row.query_id) for row in Query.objects.all()] == [(OLD, NEW)]


def test_later_batches_under_a_new_identity_are_of_the_same_query(stage: CheckpointStage) -> None:
    """Spark has deleted all batches that were read before."""
    folder = stage.root / "redo"
    shutil.rmtree(folder)
    write_file(str(folder), "metadata", json.dumps({"id": NEW}))
    run(folder, range(200, 203), ANEW_MS)
    stage.restart()
    stage.poll(2)
    assert [(row.ident, row.query_id, row.finished) for row in Query.objects.all()] == [(OLD, NEW, 202)]


def test_a_copy_from_before_that_is_put_back_is_the_same_query(stage: CheckpointStage) -> None:
    folder = stage.root / "redo"
    shutil.rmtree(folder)
    begin(folder, OLD, 3, NOW_MS)
    stage.poll(3)
    row = Query.objects.get()
    assert (row.finished, planned(OLD)) == (2, {n: NOW_MS + n for n in range(7)})
