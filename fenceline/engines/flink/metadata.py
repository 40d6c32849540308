"""Decode `_metadata` of a Flink checkpoint or savepoint: the operators with a sink's state, and its location.

The file has magic number, version, checkpoint id, master states, operators. From version 4 on the properties
of the checkpoint follow; from version 5 on an operator has name and uid. Versions 2 to 6 are read: Flink 1.14
writes 3, 1.20 writes 4, 2.0 writes 5, 2.1 writes 6 (`Checkpoints.storeCheckpointMetadata` and
`MetadataV2Serializer` to `MetadataV6Serializer`). Other versions are not decoded, since a later one may move
decisive fields.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fenceline.engines.flink.data_input import DataInput, MalformedState
from fenceline.engines.flink.state_handles import (
    FlinkStateFile,
    ListState,
    read_operator_state,
    read_stream,
    skip_channel_state,
    skip_keyed_state,
)
from fenceline.facts import Undecoded

MAGIC, MASTER_MAGIC = 0x4960672D, 0xC96B1696
OLDEST_VERSION, NEWEST_VERSION = 2, 6
#: The lists of a two-phase committing sink: `CommitterOperator` and `StatefulSinkWriterStateHandler`.
COMMITTER_STATE, WRITER_STATE = "streaming_committer_raw_states", "writer_raw_states"
#: The lists of `FlinkKafkaProducer`: its transactions, and the next ids.
PRODUCER_STATE, HINT_STATE = "state", "next-transactional-id-hint-v2"
_WANTED = frozenset({COMMITTER_STATE, WRITER_STATE, PRODUCER_STATE, HINT_STATE})
_SUBTASK_HAS_CHANNELS = _HAS_COORDINATOR = 3
_HAS_PROPERTIES, _HAS_NAMES, _CHANNELS_ARE_TYPED = 4, 5, 6
#: The class of the type in the serialized `CheckpointProperties` of a savepoint, and of a checkpoint.
_SAVEPOINT_TYPE = b"org.apache.flink.runtime.checkpoint.SavepointType"
_CHECKPOINT_TYPE = b"org.apache.flink.runtime.checkpoint.CheckpointType"


class OperatorMetadata(NamedTuple):
    """One operator with a sink's state."""

    #: 32 hexadecimal digits.
    operator_id: str
    #: "" before version 5, or without a given name.
    name: str
    uid: str
    parallelism: int
    states: tuple[ListState, ...]


class CheckpointMetadata(NamedTuple):
    """A `_metadata` file, as far as it concerns Kafka's sinks."""

    version: int
    checkpoint_id: int
    #: None before version 4, which has no such property.
    is_savepoint: bool | None
    #: Operators with a sink's state.
    operators: tuple[OperatorMetadata, ...]

    def state_files(self) -> tuple[FlinkStateFile, ...]:
        """Return the files with state of these operators, each part of one once."""
        states = (state.stored for operator in self.operators for state in operator.states)
        return tuple(dict.fromkeys(state for state in states if isinstance(state, FlinkStateFile)))


def decode_checkpoint_metadata(raw: bytes) -> CheckpointMetadata | Undecoded:
    """Decode a whole file. Never raises."""
    try:
        return _read(DataInput(raw))
    except MalformedState as wrong:
        return Undecoded(wrong.reason, wrong.detail)


def _read(source: DataInput) -> CheckpointMetadata:
    if source.left < 8 or (magic := source.read_int() & 0xFFFFFFFF) != MAGIC:
        what = f"{source.left:,} bytes" if source.left < 8 else f"it begins with {magic:08x}"
        raise MalformedState("magic", f"{what}: no _metadata of Flink, or one that is being written")
    version = source.read_int()
    if not OLDEST_VERSION <= version <= NEWEST_VERSION:
        raise MalformedState("version", f"{version}; {OLDEST_VERSION} to {NEWEST_VERSION} are known here")
    checkpoint_id = source.read_long()
    if checkpoint_id < 0:
        raise MalformedState("checkpoint_id", f"{checkpoint_id}")
    for _ in range(source.read_count()):
        _skip_master_state(source)
    operators = tuple(state for _ in range(source.read_count()) for state in _operator(source, version))
    return CheckpointMetadata(version, checkpoint_id, _read_properties(source, version), operators)


def _skip_master_state(source: DataInput) -> None:
    magic = source.read_int() & 0xFFFFFFFF
    if magic != MASTER_MAGIC:
        raise MalformedState("master_state", f"it begins with {magic:08x}")
    source.read_bytes()


def _read_properties(source: DataInput, version: int) -> bool | None:
    """Read the serialized properties; return whether they are a savepoint's."""
    if version < _HAS_PROPERTIES:
        source.end()
        return None
    properties = source.take(source.left)
    if _SAVEPOINT_TYPE in properties:
        return True
    if _CHECKPOINT_TYPE in properties:
        return False
    raise MalformedState(
        "truncated", f"its {len(properties):,} bytes of properties have no type of checkpoint"
    )


def _operator(source: DataInput, version: int) -> Iterator[OperatorMetadata]:
    """Read an operator; yield it if it has a sink's state."""
    name, uid = (source.read_text(), source.read_text()) if version >= _HAS_NAMES else ("", "")
    # The lower part is first in the written `OperatorID`, and first in its hexadecimal form.
    operator_id = source.take(16).hex()
    parallelism, _ = source.read_int(), source.read_int()
    if version >= _HAS_COORDINATOR:
        read_stream(source)
    else:
        source.read_int()
    states = [state for _ in range(_subtasks(source)) for state in _subtask(source, version)]
    if states:
        yield OperatorMetadata(operator_id, name, uid, parallelism, tuple(states))


def _subtasks(source: DataInput) -> int:
    """Read the number of following subtasks; below 0 the operator is finished and has none."""
    count = source.read_int()
    if count > source.left:
        raise MalformedState("count", f"{count:,} subtasks in {source.left:,} bytes")
    return max(count, 0)


def _subtask(source: DataInput, version: int) -> list[ListState]:
    index = source.read_int()
    if version < _SUBTASK_HAS_CHANNELS:
        # A duration, and the number of states from before Flink 1.2.
        source.take(12)
    elif index < 0:
        return []
    states = _of_sinks(read_operator_state(source, index, _WANTED) if source.read_int() else [])
    if source.read_int():
        read_operator_state(source, index, frozenset())
    skip_keyed_state(source)
    skip_keyed_state(source)
    if version >= _SUBTASK_HAS_CHANNELS:
        for _ in ("input", "output"):
            skip_channel_state(source, typed=version >= _CHANNELS_ARE_TYPED)
    return states


def _of_sinks(states: list[ListState]) -> list[ListState]:
    """Omit a list with the name of `FlinkKafkaProducer`'s without the hint beside it."""
    has_hint = any(state.name == HINT_STATE for state in states)
    return [state for state in states if has_hint or state.name != PRODUCER_STATE]
