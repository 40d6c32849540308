"""What collectors hand to stores about Flink jobs: checkpoints, and what they hold of Kafka's sinks.

Instants end in `_ms`. Transactional ids and prefixes are text as `fenceline.decode.text` escapes it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

#: What a version of the writer's state does not record.
UNKNOWN_SUBTASK = -1


class Committable(NamedTuple):
    """A transaction that a checkpoint has decided to commit (`KafkaCommittable`)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    #: The checkpoint that pre-committed it; None where an older format does not record it.
    checkpoint_id: int | None
    #: The operator that commits it: its uid, else its id.
    operator: str


class TransactionOwnership(StrEnum):
    """Which subtask aborts what is left of a transactional id (`TransactionOwnership`)."""

    #: By the subtask in the id: names that count checkpoints.
    IMPLICIT_BY_SUBTASK_ID = "implicit_by_subtask_id"
    #: By the writer's state: names of a pool.
    EXPLICIT_BY_WRITER_STATE = "explicit_by_writer_state"
    #: By the pool in the state of `FlinkKafkaProducer`, of flink-connector-kafka before 4.0.
    POOL_OF_PRODUCER = "pool_of_producer"


class WriterState(NamedTuple):
    """What a writer of Kafka's sink has in a checkpoint: `KafkaWriterState`, or `FlinkKafkaProducer`'s state.

    Ids are `prefix-S-N`; of `FlinkKafkaProducer`, whose prefix here ends with its dash, `prefix-N`.
    """

    prefix: str
    #: -1 where the connector does not record them (before 4.0).
    subtask: int
    subtasks: int
    ownership: TransactionOwnership
    #: Transactional ids of this writer that were pre-committed and not yet known to be committed.
    precommitted: tuple[str, ...]
    operator: str
    #: Of `FlinkKafkaProducer`: all ids of this subtask, the one that it wrote when the checkpoint was
    #: taken, and the first id that no subtask has had, which subtask 0 alone records.
    pool: tuple[str, ...] = ()
    writing: str = ""
    next_free: int | None = None


class FlinkCheckpoint(NamedTuple):
    """One completed checkpoint or savepoint of a job."""

    #: Its folder, as the configuration's root spells it.
    path: str
    checkpoint_id: int
    version: int
    #: None where the version does not record it.
    is_savepoint: bool | None
    #: When `_metadata` was written, by the store's clock; None where the store does not report it.
    completed_ms: int | None
    committables: tuple[Committable, ...]
    writers: tuple[WriterState, ...]
    #: Entries of sinks that are not Kafka's: how many.
    other_entries: int

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Return the prefixes of transactional ids of its sinks, sorted: also where writers have finished."""
        pools = {writer.operator for writer in self.writers if writer.pool}
        decided = {
            _prefix_of(committable.transactional_id)
            for committable in self.committables
            if committable.operator not in pools
        }
        return tuple(sorted({writer.prefix for writer in self.writers} | decided - {""}))


def _prefix_of(transactional_id: str) -> str:
    """Return the prefix of `prefix-S-N`, "" for any other id."""
    prefix, *numbers = transactional_id.rsplit("-", 2)
    return prefix if len(numbers) == 2 and all(number.isdecimal() for number in numbers) else ""


class UnreadCheckpoint(NamedTuple):
    """A checkpoint whose `_metadata`, or a file that it names, could not be read or decoded."""

    path: str
    completed_ms: int | None
    #: What, where and what to do.
    reason: str


class FlinkJobObservation(NamedTuple):
    """A folder that holds checkpoints of one job, or one savepoint, as it was listed."""

    #: As the configuration's root spells it.
    path: str
    #: 32 hexadecimal digits where the folder has a job's name, else "".
    job_id: str
    #: The newest first.
    checkpoints: tuple[FlinkCheckpoint | UnreadCheckpoint, ...]
