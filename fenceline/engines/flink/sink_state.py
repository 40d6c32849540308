"""Decode the state of a two-phase committing sink in a checkpoint, as far as it is Kafka's.

A list has an entry for each subtask: its length, then version, length and bytes (`SimpleVersionedListState`).
The committer's entries are those of `CommittableCollectorSerializer` (1 of Sink V1, 2 of today), around
`KafkaCommittableSerializer` 1; the writer's those of `KafkaWriterStateSerializer` (1 of connector 3, 2 from
4.0 on). Other sinks use the same lists: an entry that is not exactly Kafka's counts as another sink's, and is
never half read.

`FlinkKafkaProducer`, the sink of flink-connector-kafka before 4.0, has its own lists. Its list `state` has an
entry for each subtask (`TwoPhaseCommitSinkFunction.StateSerializer`): the open transaction, the pre-committed
ones, and the pool of its ids. An entry has no length and no version: the serializers' snapshots before the
lists name both. A list beside it has the next id to use.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from fenceline.decode.text import escape_bytes
from fenceline.engines.flink.data_input import DataInput, MalformedState, read_compressed_entry, read_frames
from fenceline.engines.flink.metadata import (
    COMMITTER_STATE,
    HINT_STATE,
    PRODUCER_STATE,
    CheckpointMetadata,
    FlinkStateFile,
    ListState,
    OperatorMetadata,
)
from fenceline.engines.flink.records import UNKNOWN_SUBTASK, Committable, TransactionOwnership, WriterState
from fenceline.facts import Undecoded

_COLLECTOR_MAGIC = 0xB91F252C
_SINK_V1, _SINK_V2 = 1, 2
#: `KafkaCommittableSerializer`, and the versions of `KafkaWriterStateSerializer`.
_COMMITTABLE_VERSION, _WRITER_V1, _WRITER_V2 = 1, 1, 2
#: `CheckpointSimpleVersionedSerializer` 0 and 1, `SubtaskSimpleVersionedSerializer` 0 to 2 (from 1 on each
#: begins with a number), and `RequestSimpleVersionedSerializer` 0.
_CHECKPOINT_VERSIONS, _SUBTASK_VERSIONS, _REQUEST_VERSIONS = range(2), range(3), range(1)
#: The first version of an operator's state that records whether its lists are compressed
#: (`OperatorBackendSerializationProxy`), and the newest known one.
_RECORDS_COMPRESSION, _NEWEST_BACKEND = 6, 7
#: The numbers in `KafkaWriterState`.
_OWNERSHIPS = (
    TransactionOwnership.IMPLICIT_BY_SUBTASK_ID,
    TransactionOwnership.EXPLICIT_BY_WRITER_STATE,
)
_SINK = "org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer$"
_STATE = "org.apache.flink.streaming.api.functions.sink.TwoPhaseCommitSinkFunction$StateSerializerSnapshot"
_TRANSACTION = f"{_SINK}TransactionStateSerializer$TransactionStateSerializerSnapshot"
_CONTEXT = f"{_SINK}ContextStateSerializer$ContextStateSerializerSnapshot"
_HINT = f"{_SINK}NextTransactionalIdHintSerializer$NextTransactionalIdHintSerializerSnapshot"
#: Versions that Flink 1.14 to 1.20 write: of any snapshot, and of `StateSerializerSnapshot`'s additions.
_SNAPSHOT_VERSION, _STATE_VERSION = 3, 4
#: `CompositeTypeSerializerSnapshot`, and `NestedSerializersSnapshotDelegate` with its version.
_COMPOSITE_MAGIC, _NESTED_MAGIC, _NESTED_VERSION = 911_108, 1_333_245, 1


class _AnotherSink(Exception):
    """An entry is whole, but not of Kafka's sink."""


class SinkStates(NamedTuple):
    """The state of Kafka's sinks in one checkpoint."""

    committables: tuple[Committable, ...]
    writers: tuple[WriterState, ...]
    #: Entries of other sinks.
    other_entries: int


def decode_sink_states(
    metadata: CheckpointMetadata, files: Mapping[FlinkStateFile, bytes]
) -> SinkStates | Undecoded:
    """Decode the state of all sinks; `files` are the contents of `metadata.state_files`. Never raises.

    A committable of two subtasks after a rescaling is returned once.
    """
    records: list[Committable | WriterState] = []
    others = 0
    try:
        for operator in metadata.operators:
            hints = {state.subtask: state for state in operator.states if state.name == HINT_STATE}
            for state in operator.states:
                for entry in _entries(operator, state, hints.get(state.subtask), files):
                    try:
                        records += entry()
                    except _AnotherSink:
                        others += 1
    except MalformedState as wrong:
        return Undecoded(wrong.reason, wrong.detail)
    committables = dict.fromkeys(record for record in records if isinstance(record, Committable))
    writers = tuple(record for record in records if isinstance(record, WriterState))
    return SinkStates(tuple(committables), writers, others)


def _entries(
    operator: OperatorMetadata,
    state: ListState,
    hint: ListState | None,
    files: Mapping[FlinkStateFile, bytes],
) -> Iterator[Callable[[], Sequence[Committable | WriterState]]]:
    """Yield a decoder for each entry of a list."""
    if state.stored is None or not state.offsets or state.name == HINT_STATE:
        return
    raw = state.stored if isinstance(state.stored, bytes) else files[state.stored]
    if isinstance(state.stored, FlinkStateFile) and len(raw) != state.stored.size:
        raise MalformedState(
            "truncated", f"{state.stored.path} has {len(raw):,} of {state.stored.size:,} bytes"
        )
    compressed = _is_compressed(raw)
    for offset in state.offsets:
        if state.name == PRODUCER_STATE:
            yield partial(_producer_entry, operator, state, hint, raw, offset)
        else:
            inside = read_compressed_entry(raw, offset) if compressed else DataInput(raw, offset).read_bytes()
            yield partial(_versioned_entry, operator, state.name, inside)


def _is_compressed(raw: bytes) -> bool:
    """Whether the lists of an operator's state are compressed."""
    source = DataInput(raw)
    version = source.read_int()
    if not 1 <= version <= _NEWEST_BACKEND:
        raise MalformedState("state_version", f"{version}; 1 to {_NEWEST_BACKEND} are known here")
    return version >= _RECORDS_COMPRESSION and source.read_byte() != 0


def _producer_entry(
    operator: OperatorMetadata, state: ListState, hint: ListState | None, raw: bytes, offset: int
) -> Sequence[Committable | WriterState]:
    """Decode an entry of `FlinkKafkaProducer`, with the hint beside it."""
    header = DataInput(raw).take(state.begins[0])
    has_idle = records_idle(header)
    if has_idle is None:
        raise _AnotherSink
    places = hint.offsets if hint else ()
    hints = [read_hint(header, _unsized(state, raw, place)) for place in places]
    writer = WriterState(
        "",
        state.subtask,
        operator.parallelism,
        TransactionOwnership.POOL_OF_PRODUCER,
        (),
        _operator_name(operator),
        next_free=max(hints, default=None),
    )
    return list(read_producer(_unsized(state, raw, offset), writer, has_idle=has_idle))


def _unsized(state: ListState, raw: bytes, offset: int) -> bytes:
    """Return an entry without a length: it ends where the next one begins."""
    end = next((begin for begin in state.begins if begin > offset), len(raw))
    inside = DataInput(raw, offset).take(end - offset)
    return read_frames(inside) if _is_compressed(raw) else inside


def _operator_name(operator: OperatorMetadata) -> str:
    return operator.uid or operator.operator_id


def _versioned_entry(
    operator: OperatorMetadata, name: str, inside: bytes
) -> Sequence[Committable | WriterState]:
    entry, mine = DataInput(inside), _operator_name(operator)
    version, data = entry.read_int(), entry.read_bytes()
    if name == COMMITTER_STATE:
        return list(_committables(mine, version, data))
    return [_writer(mine, version, data)]


def _committables(operator: str, version: int, data: bytes) -> Iterator[Committable]:
    source = DataInput(data)
    if version == _SINK_V1:
        committable_version = source.read_int()
        for _ in range(source.read_count()):
            yield _committable(operator, None, committable_version, source.read_bytes())
    elif version == _SINK_V2:
        magic = source.read_int() & 0xFFFFFFFF
        if magic != _COLLECTOR_MAGIC:
            raise MalformedState("committer", f"its state begins with {magic:08x}")
        for checkpoint_version, checkpoint in _listed(source, _CHECKPOINT_VERSIONS, "checkpoint"):
            yield from _of_checkpoint(operator, checkpoint_version, checkpoint)
    else:
        raise MalformedState("committer", f"version {version} of its state; 1 and 2 are known here")
    source.end()


def _of_checkpoint(operator: str, version: int, source: DataInput) -> Iterator[Committable]:
    checkpoint_id = source.read_long()
    if version:
        source.read_int()
    for subtask_version, subtask in _listed(source, _SUBTASK_VERSIONS, "subtask"):
        if subtask_version:
            subtask.read_int()
        for _, request in _listed(subtask, _REQUEST_VERSIONS, "request"):
            committable_version = request.read_int()
            yield _committable(operator, checkpoint_id, committable_version, request.read_bytes())


def _listed(source: DataInput, versions: range, what: str) -> Iterator[tuple[int, DataInput]]:
    """Read a list of `SimpleVersionedSerialization`; yield each entry with its version."""
    version = source.read_int()
    if version not in versions:
        raise MalformedState(
            "committer", f"version {version} of a {what}; up to {versions[-1]} are known here"
        )
    for _ in range(source.read_count()):
        yield version, DataInput(source.read_bytes())


def _committable(operator: str, checkpoint_id: int | None, version: int, data: bytes) -> Committable:
    if version != _COMMITTABLE_VERSION:
        raise _AnotherSink
    with _kafkas():
        source = DataInput(data)
        epoch, producer_id, name = source.read_short(), source.read_long(), read_name(source)
        source.end()
    if epoch < 0 or producer_id < 0 or not name:
        raise _AnotherSink
    return Committable(name, producer_id, epoch, checkpoint_id, operator)


def _writer(operator: str, version: int, data: bytes) -> WriterState:
    if version not in (_WRITER_V1, _WRITER_V2):
        raise _AnotherSink
    with _kafkas():
        source = DataInput(data)
        prefix = read_name(source)
        subtask = subtasks = UNKNOWN_SUBTASK
        ownership = 0
        precommitted: tuple[str, ...] = ()
        if version == _WRITER_V2:
            subtask, subtasks, ownership = source.read_int(), source.read_int(), source.read_int()
            precommitted = tuple(_precommitted(source))
        source.end()
    if ownership not in range(len(_OWNERSHIPS)):
        raise _AnotherSink
    return WriterState(prefix, subtask, subtasks, _OWNERSHIPS[ownership], precommitted, operator)


def _precommitted(source: DataInput) -> Iterator[str]:
    for _ in range(source.read_count()):
        yield read_name(source)
        # The checkpoint that pre-committed it.
        source.read_long()


@contextmanager
def _kafkas() -> Iterator[None]:
    """An entry that cannot be read as one of Kafka's sink is another sink's."""
    try:
        yield
    except MalformedState:
        raise _AnotherSink from None


def records_idle(header: bytes) -> bool | None:
    """Return whether entries after a header begin with a flag for an open transaction.

    None for another sink. Raises `MalformedState` for an unknown version.
    """
    place = header.find(_utf(_STATE))
    if place < 0 or _utf(_TRANSACTION) not in header:
        return None
    source = DataInput(header, place)
    _expect(_version(source, _STATE), _SNAPSHOT_VERSION, "StateSerializer")
    _expect(source.read_int(), _COMPOSITE_MAGIC, "StateSerializer", "magic number")
    _expect(source.read_int(), _STATE_VERSION, "StateSerializer")
    begins_with_it = source.read_byte() != 0
    _expect(source.read_int(), _NESTED_MAGIC, "nested serializers", "magic number")
    _expect(source.read_int(), _NESTED_VERSION, "nested serializers")
    _expect(source.read_int(), 2, "nested serializers", "number")
    _expect(_version(source, _TRANSACTION), _SNAPSHOT_VERSION, "TransactionStateSerializer")
    _expect(_version(source, _CONTEXT), _SNAPSHOT_VERSION, "ContextStateSerializer")
    return begins_with_it


def read_producer(
    entry: bytes, writer: WriterState, *, has_idle: bool
) -> Iterator[Committable | WriterState]:
    """Yield the decided commits of a subtask, and `writer` with its pool, if it is exactly once."""
    source = DataInput(entry)
    is_open = not has_idle or source.read_byte() != 0
    opened = _transaction(source, writer.operator) if is_open else None
    decided = [_transaction(source, writer.operator) for _ in range(source.read_count())]
    pool = tuple(read_name(source) for _ in range(source.read_count())) if source.read_byte() else ()
    source.end()
    yield from filter(None, decided)
    if pool:
        names = tuple(sorted(pool, key=lambda name: (len(name), name)))
        yield writer._replace(
            prefix=_prefix(names), pool=names, writing=opened.transactional_id if opened else ""
        )


def read_hint(header: bytes, entry: bytes) -> int:
    """Return the first id never used by any subtask (`NextTransactionalIdHint`)."""
    snapshot = DataInput(header, max(header.find(_utf(_HINT)), 0))
    _expect(_version(snapshot, _HINT), _SNAPSHOT_VERSION, "NextTransactionalIdHintSerializer")
    source = DataInput(entry)
    next_free = source.read_long()
    # The parallelism, which is also in the operator.
    source.read_int()
    source.end()
    return next_free


def _transaction(source: DataInput, operator: str) -> Committable | None:
    """Read a `KafkaTransactionState` and its start; None if it is not transactional."""
    name = read_name(source) if source.read_byte() else ""
    producer_id, epoch = source.read_long(), source.read_short()
    source.read_long()
    return Committable(name, producer_id, epoch, None, operator) if name else None


def _prefix(names: tuple[str, ...]) -> str:
    """Return the prefix of a pool's ids, with its dash."""
    prefixes = {name.rpartition("-")[0] + "-" for name in names}
    if len(prefixes) != 1 or not all(name.rpartition("-")[2].isdecimal() for name in names):
        raise MalformedState("committer", f"{names[0]} and {names[-1]} are ids of one pool")
    return prefixes.pop()


def _version(source: DataInput, name: str) -> int:
    """Read the name of a serializer's snapshot, and return the version after it."""
    if (named := source.read_text()) != name:
        raise MalformedState("committer", f"a serializer {named[:200]} in place of {name}")
    return source.read_int()


def _expect(number: int, known: int, what: str, kind: str = "version") -> None:
    if number != known:
        raise MalformedState(
            "committer", f"{kind} {number} of FlinkKafkaProducer's {what}; {known} is known here"
        )


def read_name(source: DataInput) -> str:
    """Read a transactional id or a prefix, as escaped text."""
    return escape_bytes(source.read_text().encode(errors="surrogatepass"))


def _utf(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()
