"""Decode `_metadata` of a Flink checkpoint or savepoint: the operators with a sink's state, and its location.

The file has magic number, version, checkpoint id, master states, operators. From version 4 on the properties
of the checkpoint follow; from version 5 on an operator has name and uid. Versions 2 to 6 are read: Flink 1.14
writes 3, 1.20 writes 4, 2.0 writes 5, 2.1 writes 6 (`Checkpoints.storeCheckpointMetadata` and
`MetadataV2Serializer` to `MetadataV6Serializer`). Other versions are not decoded, since a later one may move
decisive fields.

Keyed state and the state of channels are skipped. The layouts of state handles are those of Flink's
`MetadataV2V3SerializerBase` and `ChannelStateHandleSerializerV1` and `V2`, of Flink 1.20 to 2.1.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fenceline.engines.flink.data_input import DataInput, MalformedState
from fenceline.facts import Undecoded

#: Codes of handles in `MetadataV2V3SerializerBase`.
_NULL, _BYTES, _FILE, _KEY_GROUPS, _OPERATOR_STATE, _INCREMENTAL, _RELATIVE = range(7)
_SAVEPOINT_KEY_GROUPS, _CHANGELOG, _CHANGELOG_BYTES, _CHANGELOG_FILE = range(7, 11)
_INCREMENTAL_V2, _KEY_GROUPS_V2, _CHANGELOG_FILE_V2, _CHANGELOG_V2 = range(11, 15)
_SEGMENT, _EMPTY_SEGMENT, _SEGMENT_OPERATOR_STATE = range(15, 18)
#: Codes of `ChannelStateHandleSerializerV2`: single channels, and merged ones.
_CHANNELS, _MERGED_CHANNELS = (1, 2), (3, 4)
#: A changelog handle contains others; none is written deeper than this.
_DEEPEST = 4
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


class FlinkStateFile(NamedTuple):
    """A part of a file with state."""

    #: In Flink's spelling: a URL or a path, or a name below the checkpoint's own folder.
    path: str
    relative: bool
    start: int
    size: int


class ListState(NamedTuple):
    """One list of an operator's state in one subtask: the location of its bytes, and its entries' starts."""

    name: str
    subtask: int
    offsets: tuple[int, ...]
    #: None for a list without any bytes.
    stored: bytes | FlinkStateFile | None
    #: The starts of all entries in the same bytes, sorted: each is the end of the entry before.
    begins: tuple[int, ...] = ()


def read_operator_state(source: DataInput, subtask: int, wanted: frozenset[str]) -> list[ListState]:
    """Read an operator state handle; return its wanted lists."""
    kind = source.read_byte()
    if kind == _NULL:
        return []
    if kind not in (_OPERATOR_STATE, _SEGMENT_OPERATOR_STATE):
        raise MalformedState("handle", f"code {kind} for an operator's state")
    offsets = {}
    for _ in range(source.read_count()):
        name = source.read_text()
        source.read_byte()
        offsets[name] = source.read_longs(source.read_int())
    if kind == _SEGMENT_OPERATOR_STATE:
        # Two folders of the file merging, and a flag for emptiness.
        source.read_text(), source.read_text(), source.read_byte()
    stored = read_stream(source)
    begins = tuple(sorted(offset for where in offsets.values() for offset in where))
    return [
        ListState(name, subtask, where, stored, begins) for name, where in offsets.items() if name in wanted
    ]


def read_stream(source: DataInput) -> bytes | FlinkStateFile | None:
    """Read a stream handle; return its bytes or their file."""
    kind = source.read_byte()
    if kind == _BYTES:
        source.read_text()
        return source.read_bytes()
    if kind == _FILE:
        size = source.read_long()
        return FlinkStateFile(source.read_text(), False, 0, size)
    if kind == _RELATIVE:
        return FlinkStateFile(source.read_text(), True, 0, source.read_long())
    if kind == _SEGMENT:
        start, size, _ = source.read_long(), source.read_long(), source.read_int()
        path, _ = source.read_text(), source.read_text()
        return FlinkStateFile(path, False, start, size)
    if kind == _KEY_GROUPS:
        _skip_key_groups(source)
        return None
    if kind in (_NULL, _EMPTY_SEGMENT):
        return None
    raise MalformedState("handle", f"code {kind} for a stream of state")


def skip_keyed_state(source: DataInput, depth: int = 0) -> None:
    kind = source.read_byte()
    if kind == _NULL:
        return
    skip = _KEYED.get(kind)
    if skip is None or depth > _DEEPEST:
        raise MalformedState("handle", f"code {kind} for keyed state")
    skip(source, kind, depth)


def skip_channel_state(source: DataInput, *, typed: bool) -> None:
    """Skip the handles of input channels, or of result partitions; `typed` from version 6 on."""
    for _ in range(source.read_count()):
        kind = source.read_byte() if typed else _CHANNELS[0]
        if kind in _CHANNELS:
            # Subtask, the channel's two numbers, offsets, and the size.
            source.take(12)
            source.read_longs(source.read_int())
            source.read_long()
            read_stream(source)
        elif kind in _MERGED_CHANNELS:
            source.take(12)
            read_stream(source)
            source.read_bytes()
        else:
            raise MalformedState("handle", f"code {kind} for a channel's state")


def _skip_key_groups(source: DataInput, kind: int = _KEY_GROUPS, depth: int = 0) -> None:
    source.read_int()
    source.read_longs(source.read_int())
    read_stream(source)
    if kind == _KEY_GROUPS_V2:
        source.read_text()


def _skip_incremental(source: DataInput, kind: int, depth: int) -> None:
    source.read_long()
    source.read_text()
    source.take(8 if kind == _INCREMENTAL else 16)
    read_stream(source)
    for _ in ("shared", "private"):
        for _ in range(source.read_count()):
            source.read_text()
            read_stream(source)
    if kind == _INCREMENTAL_V2:
        source.read_text()


def _skip_changelog(source: DataInput, kind: int, depth: int) -> None:
    source.take(16)
    for _ in ("materialized", "not yet"):
        for _ in range(source.read_count()):
            skip_keyed_state(source, depth + 1)
    source.take(8 if kind == _CHANGELOG else 16)
    source.read_text()


def _skip_changelog_bytes(source: DataInput, kind: int, depth: int) -> None:
    source.take(24)
    for _ in range(source.read_count()):
        source.read_int()
        source.read_bytes()
    source.read_text()


def _skip_changelog_file(source: DataInput, kind: int, depth: int) -> None:
    source.take(8)
    for _ in range(source.read_count()):
        source.read_long()
        read_stream(source)
    source.take(16)
    source.read_text()
    if kind == _CHANGELOG_FILE_V2:
        source.read_text()


_KEYED: dict[int, Callable[[DataInput, int, int], None]] = {
    _KEY_GROUPS: _skip_key_groups,
    _KEY_GROUPS_V2: _skip_key_groups,
    _SAVEPOINT_KEY_GROUPS: _skip_key_groups,
    _INCREMENTAL: _skip_incremental,
    _INCREMENTAL_V2: _skip_incremental,
    _CHANGELOG: _skip_changelog,
    _CHANGELOG_V2: _skip_changelog,
    _CHANGELOG_BYTES: _skip_changelog_bytes,
    _CHANGELOG_FILE: _skip_changelog_file,
    _CHANGELOG_FILE_V2: _skip_changelog_file,
}


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
