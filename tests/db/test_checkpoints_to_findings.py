"""Proves the way from files to findings: a folder and a ledger as Spark and the sink write them,
evaluated.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from collectors.checkpoints.collector import CheckpointsCollector
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.models import FindingRecord, Query
from dashboard.runtime.leases import Lease
from dashboard.streaming import checkpoint_store
from dashboard.streaming.batch_state import chain_of, newest_batch, safe_to_restart
from fenceline.decode import ledger as ledgers
from fenceline.decode.ledger import Generation, Round
from fenceline.spark.batch_chain import RECOVER_AND_COMMIT, BatchStep, first_broken_link
from fenceline.spark.records import Ledger
from tests.db import factories
from tests.db.conftest import NOW_MS
from tests.db.factories import LEDGER_ID, QUERY_ID, decision, decision_end, sink_transaction

LATER_MS = NOW_MS + 11_000


class Root(NamedTuple):
    """A `[[checkpoints]]`."""

    root: str
    map: Mapping[str, str] = {}
    options: Mapping[str, str] = {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint whose batch 3 is decided and not committed."""
    at = tmp_path / "checkpoints" / "orders"
    for name in ("offsets", "commits", ledgers.FOLDER):
        (at / name).mkdir(parents=True)
    (at / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    for number in range(4):
        plan(at, number)
    for number in range(3):
        (at / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    head, ledger = Ledger(LEDGER_ID, QUERY_ID, "orders", NOW_MS), at / ledgers.FOLDER
    (ledger / ledgers.LEDGER).write_bytes(ledgers.encode_ledger(head))
    (ledger / ledgers.generation_name(1)).write_bytes(ledgers.encode_generation(Generation(1, "r-1", NOW_MS)))
    (ledger / ledgers.decision_name(Round(3, 0))).write_bytes(ledgers.encode_decision(decision(3)))
    return at


def plan(at: Path, number: int) -> None:
    planned = {"batchWatermarkMs": 0, "batchTimestampMs": NOW_MS + number * 10, "conf": {"a": "b"}}
    position = {"orders": {"0": number * 10}}
    (at / "offsets" / str(number)).write_text(f"v1\n{json.dumps(planned)}\n{json.dumps(position)}")


@pytest.fixture
def tick(folder: Path, take: Callable[..., Lease]) -> Callable[..., list[str]]:
    """Poll, save and evaluate, until a second poll agrees; return the rules that find something."""
    factories.collectors("transaction_state", "partitions", "groups", seen_ms=LATER_MS)
    checkpoints, judging = take(checkpoint_store.NAME), take(evaluate_rules.NAME)
    collector, reader = CheckpointsCollector([Root(str(folder.parent))]), SnapshotReader("prod")

    def tick(now_ms: int = LATER_MS) -> list[str]:
        for look in range(4):
            found = collector.poll(now_ms, every_s=0)
            assert not found.blind
            checkpoint_store.save_checkpoints(
                checkpoints, found.observations, found.gone, gaps=found.gaps, now_ms=now_ms + look
            )
            collector.mark_saved()
            factories.complete_next_polls()
            evaluate_rules.evaluate_cluster(judging, reader, now_ms=now_ms)
        return sorted(FindingRecord.objects.filter(closed_at=None).values_list("rule", flat=True))

    return tick


def links(link: BatchStep) -> tuple[str, str]:
    row = Query.objects.get()
    found = next(each for each in chain_of(row, newest_batch(row), now_ms=LATER_MS) if each.link is link)
    return found.state.value, found.recovery


def test_a_decided_batch_is_found_until_it_ends(folder: Path, tick: Callable[..., list[str]]) -> None:
    said = sink_transaction()
    columns = {"producer_id": said.producer_id, "producer_epoch": said.producer_epoch}
    row = factories.transaction(said.transactional_id, started_ms=said.started_ms, **columns)
    assert tick(NOW_MS) == [], "a first look cannot tell for how long it has been open"
    assert tick() == ["batch_prepared"]
    assert links(BatchStep.COMMITTED) == ("broken", RECOVER_AND_COMMIT)
    assert safe_to_restart(Query.objects.get(), LATER_MS).safe is None, "no listener: it may be committing"
    row.state = "CompleteCommit"
    row.save()
    (folder / ledgers.FOLDER / ledgers.completion_name(Round(3, 0))).write_bytes(
        ledgers.encode_completion(decision_end(3))
    )
    (folder / "commits" / "3").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert tick() == []
    assert links(BatchStep.CHECKPOINTED) == ("done", "")
    kept = Query.objects.get()
    assert first_broken_link(chain_of(kept, newest_batch(kept), now_ms=LATER_MS)) is None
    assert safe_to_restart(kept, LATER_MS).safe is True


def test_an_aborted_batch_is_a_loss(tick: Callable[[], list[str]]) -> None:
    said = sink_transaction()
    columns = {"producer_id": said.producer_id, "producer_epoch": said.producer_epoch + 1}
    factories.transaction(said.transactional_id, state="CompleteAbort", started_ms=said.started_ms, **columns)
    assert tick() == ["batch_lost"]
    assert links(BatchStep.COMMITTED) == ("broken", "lost")


def test_a_failing_restart_is_found_until_the_checkpoint_is_repaired(
    folder: Path, tick: Callable[[], list[str]]
) -> None:
    (folder / "offsets" / "2").unlink()
    assert "restart_fails" in tick()
    row = FindingRecord.objects.get(rule="restart_fails")
    assert row.evidence.startswith("A restart fails: batch 2 doesn't exist")
    plan(folder, 2)
    assert "restart_fails" not in tick()
