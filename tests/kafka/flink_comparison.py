"""Compares what is read of checkpoints with what Flink itself reads of them."""

from collections.abc import Sequence
from pathlib import Path

from fenceline.engines.flink.records import FlinkCheckpoint, TransactionOwnership
from tests.java import flink_state
from tests.java.flink_state import FlinkStateReader, ReadCommittable, ReadWriter
from tests.kafka.flink_stage import FlinkStage


def read_checkpoints(stage: FlinkStage, jobs: int | None = None) -> Sequence[FlinkCheckpoint]:
    """Return the checkpoints and savepoints of all jobs, or of the newest, as the collector reads them.

    Each must be readable.
    """
    found = [each for job in stage.observe()[:jobs] for each in job.checkpoints]
    read = [each for each in found if isinstance(each, FlinkCheckpoint)]
    assert read
    assert len(read) == len(found), found
    return read


def compare_checkpoint(checkpoint: FlinkCheckpoint, reader: FlinkStateReader) -> set[ReadCommittable]:
    """Assert that Flink reads the same of a checkpoint; return its committables."""
    path = Path(checkpoint.path.removeprefix("file://"))
    committables = {ReadCommittable(*each[:3], each.checkpoint_id or 0) for each in checkpoint.committables}
    assert committables == set(reader.committables(path)), path
    writers = [
        ReadWriter(*each[:3], _shown(each.ownership, each.subtask), each.precommitted)
        for each in checkpoint.writers
    ]
    assert sorted(writers) == sorted(reader.writers(path)), path
    assert {each.operator for each in checkpoint.committables} <= _names(reader, flink_state.COMMITTER)
    assert {each.operator for each in checkpoint.writers} <= _names(reader, flink_state.WRITER)
    return committables


def _shown(ownership: TransactionOwnership, subtask: int) -> str:
    """Return Flink's text of an ownership, "" where the connector does not record it."""
    return ownership.name if subtask >= 0 else ""


def _names(reader: FlinkStateReader, uid: str) -> set[str]:
    """Return the names by which an operator may be read: its uid, or its id before Flink 2.0."""
    return {uid, reader.operator_id(uid)}
