"""Proves the way from files to findings: a folder and a ledger as Spark and the sink write them,
evaluated.
"""

from pathlib import Path

import pytest

from dashboard.models import FindingRecord, Query
from dashboard.streaming.batch_state import chain_of, newest_batch, safe_to_restart
from fenceline.decode import ledger as ledgers
from fenceline.decode.ledger import Generation, Round
from fenceline.spark.batch_chain import RECOVER_AND_COMMIT, BatchStep, first_broken_link
from fenceline.spark.records import Ledger
from tests.db import factories
from tests.db.checkpoint_stage import CheckpointStage
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import LEDGER_ID, QUERY_ID, decision, decision_end, sink_transaction
from tests.unit.checkpoints.factories import (
    finish_batches,
    make_checkpoint,
    plan_batches,
    remove,
    write_file,
)

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
