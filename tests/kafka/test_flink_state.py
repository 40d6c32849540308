"""Proves on real Flink jobs that what is read of a checkpoint or savepoint equals what Flink itself reads of
it by its State Processor API and the connector's own serializers: committables and the state of writers, of
jobs that were killed after the pre-commit, restored with more and fewer subtasks, with compressed state."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fenceline.engines.flink.records import Committable
from sandbox.engines.flink import checkpoint_number
from sandbox.kafka import Broker
from tests.java.flink_state import FlinkStateReader, flink_state_reader
from tests.kafka.flink_comparison import compare_checkpoint, read_checkpoints
from tests.kafka.flink_stage import FlinkStage

pytestmark = [pytest.mark.kafka, pytest.mark.matrix, pytest.mark.django_db]

#: Versions of Flink, and whether transactional ids are of a pool (connector 4.0 and newer).
STAGES = [("1.20", False), ("2.0", False), ("2.0", True), ("2.1", False), ("2.1", True)]
BESIDE = {
    "execution.checkpointing.data-inline-threshold": "0b",
    "execution.checkpointing.snapshot-compression": "true",
}
#: What differs from run to run: a job is restored with more and with fewer subtasks, and back.
RUNS: Sequence[dict[str, Any]] = ({}, {"parallelism": 3, "settings": BESIDE}, {"parallelism": 1}, {})


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest, kafka_42: Broker) -> Iterator[FlinkStage]:
    version, pooling = request.param
    made = FlinkStage(kafka_42, tmp_path, version, pooling=pooling)
    yield made
    made.close()


@pytest.fixture
def reader(stage: FlinkStage, tmp_path: Path) -> Iterator[FlinkStateReader]:
    with flink_state_reader(stage.version, tmp_path / "reader") as made:
        yield made


@pytest.mark.parametrize("stage", STAGES, indirect=True, ids=str)
def test_what_is_read_equals_what_flink_reads(stage: FlinkStage, reader: FlinkStateReader) -> None:
    opened: list[Committable] = []
    for number, changes in enumerate(RUNS):
        restored = stage.newest_checkpoint() if number else None
        with stage.job(**changes).start(restored) as job:
            job.wait_for_checkpoint(checkpoint_number(restored))
            stage.feed(20)
            job.savepoint(stage.root / "savepoints")
            opened += stage.kill_before_commit(job)
    read = read_checkpoints(stage)
    compared = {each.path: compare_checkpoint(each, reader) for each in read}
    print({path.rsplit("/", 2)[-1]: len(found) for path, found in compared.items()})
    decided = set().union(*compared.values())
    assert {each[:3] for each in opened} <= {each[:3] for each in decided}
    assert sum(each.is_savepoint is True for each in read) == len(RUNS)
