"""Collectors' facts about Flink jobs for stores: checkpoints, and the state of Kafka's sinks in them.

Instants end in `_ms`. Transactional ids and prefixes are escaped text (`fenceline.decode.text`).
"""

from enum import StrEnum
from typing import NamedTuple

#: The value of fields that a version of the writer's state lacks.
UNKNOWN_SUBTASK = -1


class Committable(NamedTuple):
    """A transaction that a checkpoint decided to commit (`KafkaCommittable`)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    #: The checkpoint that pre-committed it; None if an older format does not record it.
    checkpoint_id: int | None
    #: The uid, else the id, of the operator that commits it.
    operator: str


class TransactionOwnership(StrEnum):
    """The subtask that aborts a transactional id's leftovers, by its evidence (`TransactionOwnership`)."""

    #: By the subtask in the id: names that count checkpoints.
    IMPLICIT_BY_SUBTASK_ID = "implicit_by_subtask_id"
    #: By the writer's state: names of a pool.
    EXPLICIT_BY_WRITER_STATE = "explicit_by_writer_state"
    #: By the pool in the state of `FlinkKafkaProducer`, of flink-connector-kafka before 4.0.
    POOL_OF_PRODUCER = "pool_of_producer"


class WriterState(NamedTuple):
    """A writer's state of Kafka's sink in a checkpoint: `KafkaWriterState`, or `FlinkKafkaProducer`'s state.

    Ids are `prefix-S-N`; for `FlinkKafkaProducer`, whose prefix ends with its dash, `prefix-N`.
    """

    prefix: str
    #: -1 if the connector does not record them (before 4.0).
    subtask: int
    subtasks: int
    ownership: TransactionOwnership
    #: Pre-committed transactional ids of this writer that are not known to be committed.
    precommitted: tuple[str, ...]
    operator: str
    #: For `FlinkKafkaProducer`: all ids of this subtask, the id in use at the checkpoint, and the first id
    #: that no subtask has had, which only subtask 0 records.
    pool: tuple[str, ...] = ()
    writing: str = ""
    next_free: int | None = None


class FlinkCheckpoint(NamedTuple):
    """One completed checkpoint or savepoint of a job."""

    #: Its folder, in the spelling of the configuration's root.
    path: str
    checkpoint_id: int
    version: int
    #: None if the version does not record it.
    is_savepoint: bool | None
    #: The write time of `_metadata` by the store's clock; None if the store does not report it.
    completed_ms: int | None
    committables: tuple[Committable, ...]
    writers: tuple[WriterState, ...]
    #: Number of entries of other sinks than Kafka's.
    other_entries: int

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Return the prefixes of its sinks' transactional ids, sorted, also for finished writers."""
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
    """A checkpoint whose `_metadata`, or a file of it, could not be read or decoded."""

    path: str
    completed_ms: int | None
    #: The error, its place, and the remedy.
    reason: str


class FlinkJobObservation(NamedTuple):
    """A folder with checkpoints of one job, or one savepoint, at its listing."""

    #: In the spelling of the configuration's root.
    path: str
    #: 32 hexadecimal digits if the folder has a job's name, else "".
    job_id: str
    #: The newest first.
    checkpoints: tuple[FlinkCheckpoint | UnreadCheckpoint, ...]
