"""Decode the state of `FlinkKafkaProducer`, the sink of flink-connector-kafka before 4.0.

Its list `state` has an entry for each subtask (`TwoPhaseCommitSinkFunction.StateSerializer`): the open
transaction, the pre-committed ones, and the pool of its ids. An entry has no length and no version: the
serializers' snapshots before the lists name both. A list beside it has the next id to use.
"""

from __future__ import annotations

from collections.abc import Iterator

from fenceline.decode.text import escape_bytes
from fenceline.engines.flink.data_input import DataInput, MalformedState
from fenceline.engines.flink.records import Committable, WriterState

_SINK = "org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer$"
_STATE = "org.apache.flink.streaming.api.functions.sink.TwoPhaseCommitSinkFunction$StateSerializerSnapshot"
_TRANSACTION = f"{_SINK}TransactionStateSerializer$TransactionStateSerializerSnapshot"
_CONTEXT = f"{_SINK}ContextStateSerializer$ContextStateSerializerSnapshot"
_HINT = f"{_SINK}NextTransactionalIdHintSerializer$NextTransactionalIdHintSerializerSnapshot"
#: Versions that Flink 1.14 to 1.20 write: of any snapshot, and of `StateSerializerSnapshot`'s additions.
_SNAPSHOT_VERSION, _STATE_VERSION = 3, 4
#: `CompositeTypeSerializerSnapshot`, and `NestedSerializersSnapshotDelegate` with its version.
_COMPOSITE_MAGIC, _NESTED_MAGIC, _NESTED_VERSION = 911_108, 1_333_245, 1


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
    _expect(
        _version(DataInput(header, max(header.find(_utf(_HINT)), 0)), _HINT),
        _SNAPSHOT_VERSION,
        "NextTransactionalIdHintSerializer",
    )
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
