"""Proves that what real jobs with the older sink, `FlinkKafkaProducer` of Flink 1.14, 1.18 and 1.20, left in
their checkpoints and savepoints is decoded: decided transactions, the open one, the pool of ids and the next
free one; that another version of a serializer is named, and state that is cut anywhere is never half read."""

import struct
import tracemalloc

import pytest

from fenceline.engines.flink.metadata import CheckpointMetadata, decode_checkpoint_metadata
from fenceline.engines.flink.records import Committable, FlinkCheckpoint, TransactionOwnership, WriterState
from fenceline.engines.flink.sink_state import SinkStates, decode_sink_states
from fenceline.engines.flink.state_handles import ListState
from fenceline.facts import Undecoded
from tests.unit import flink_states as states

CHECKPOINTS = [
    (version, f"producer{place}")
    for version in ("1.14", "1.18", "1.20")
    for place in ("", "-files", "-compressed")
]
POOLS = tuple(tuple(f"copy-{number}" for number in range(first, first + 5)) for first in (0, 5))


def with_raw(metadata: CheckpointMetadata, change: dict[bytes, bytes] | int) -> CheckpointMetadata:
    """Return metadata whose state inside it is cut at a length, or has bytes replaced."""

    def changed(state: ListState) -> ListState:
        assert isinstance(state.stored, bytes)
        if isinstance(change, int):
            return state._replace(stored=state.stored[:change])
        raw = state.stored
        for before, after in change.items():
            assert before in raw
            raw = raw.replace(before, after)
        return state._replace(stored=raw)

    (operator,) = metadata.operators
    return metadata._replace(operators=(operator._replace(states=tuple(map(changed, operator.states))),))


@pytest.fixture(scope="module")
def metadata() -> CheckpointMetadata:
    found = decode_checkpoint_metadata(states.golden("1.20", "producer").read_bytes())
    assert isinstance(found, CheckpointMetadata)
    return found


@pytest.mark.parametrize(("version", "kind"), CHECKPOINTS)
def test_what_a_job_with_the_older_sink_has_pre_committed_is_read(version: str, kind: str) -> None:
    found = states.golden_sink_states(version, kind)

    assert [each.transactional_id for each in found.committables] == ["copy-3", "copy-6"]
    assert len({each.producer_id for each in found.committables}) == 2
    assert all(each.producer_epoch > 0 for each in found.committables)
    assert {each.checkpoint_id for each in found.committables} == {None}
    assert found.other_entries == 0
    operator, owned = found.committables[0].operator, TransactionOwnership.POOL_OF_PRODUCER
    assert found.writers == (
        WriterState("copy-", 0, 2, owned, (), operator, POOLS[0], "copy-4", 10),
        WriterState("copy-", 1, 2, owned, (), operator, POOLS[1], "copy-7", None),
    )


@pytest.mark.parametrize("version", ["1.18", "1.20"])
def test_a_savepoint_of_the_older_sink_is_read(version: str) -> None:
    found = states.golden_sink_states(version, "producer-savepoint")

    assert [each.transactional_id for each in found.committables] == ["copy-4", "copy-7"]
    assert [each.writing for each in found.writers] == ["copy-0", "copy-8"]


def test_the_prefix_of_the_older_sink_is_that_of_its_pool() -> None:
    committable = Committable("job-2-7", 12, 3, None, "out")
    writer = WriterState(
        "job-2-", 0, 1, TransactionOwnership.POOL_OF_PRODUCER, (), "out", ("job-2-6", "job-2-7"), "job-2-6", 5
    )

    checkpoint = FlinkCheckpoint("chk-4", 4, 4, False, None, (committable,), (writer,), 0)

    assert checkpoint.prefixes == ("job-2-",)


def test_state_that_is_cut_anywhere_is_not_read(metadata: CheckpointMetadata) -> None:
    longest = max(
        len(state.stored) for state in metadata.operators[0].states if isinstance(state.stored, bytes)
    )

    for length in range(longest):
        found = decode_sink_states(with_raw(metadata, length), {})
        assert isinstance(found, Undecoded), length
        assert found.reason in ("truncated", "offset", "count"), found


@pytest.mark.parametrize(
    ("before", "after", "detail"),
    [
        (b"$StateSerializerSnapshot\0\0\0\3", 4, "version 4 of FlinkKafkaProducer's StateSerializer"),
        (struct.pack(">ii", 911_108, 4), 5, "version 5 of FlinkKafkaProducer's StateSerializer"),
        (struct.pack(">i", 911_108), 7, "magic number 7 of"),
        (struct.pack(">ii", 1_333_245, 1), 2, "version 2 of FlinkKafkaProducer's nested serializers"),
        (b"$TransactionStateSerializerSnapshot\0\0\0\3", 4, "FlinkKafkaProducer's TransactionState"),
        (b"$ContextStateSerializerSnapshot\0\0\0\3", 4, "version 4 of FlinkKafkaProducer's ContextState"),
        (b"ContextStateSerializer$Context", int.from_bytes(b"Text"), "in place of"),
        (b"HintSerializerSnapshot\0\0\0\3", 4, "version 4 of FlinkKafkaProducer's NextTransactionalIdHint"),
    ],
)
def test_another_version_of_a_serializer_is_named(
    metadata: CheckpointMetadata, before: bytes, after: int, detail: str
) -> None:
    found = decode_sink_states(with_raw(metadata, {before: before[:-4] + struct.pack(">i", after)}), {})

    assert isinstance(found, Undecoded)
    assert found.reason == "committer"
    assert detail in found.detail


def test_another_sink_of_two_phases_is_counted(metadata: CheckpointMetadata) -> None:
    theirs = with_raw(metadata, {b"kafka.FlinkKafkaProducer$Tr": b"pulsar.FlinkPulsarProduce$T"})

    assert decode_sink_states(theirs, {}) == SinkStates((), (), 2)


def test_a_list_of_the_same_name_without_a_hint_is_not_of_this_sink() -> None:
    raw = states.golden("1.20", "producer").read_bytes().replace(b"-id-hint-v2", b"-id-hint-v9")

    found = decode_checkpoint_metadata(raw)

    assert isinstance(found, CheckpointMetadata)
    assert found.operators == ()


def test_10_000_subtasks_of_the_older_sink_take_little_memory(metadata: CheckpointMetadata) -> None:
    (operator,) = metadata.operators
    many = tuple(state._replace(subtask=index) for index in range(10_000) for state in operator.states[:2])
    size = sum(len(state.stored) for state in many if isinstance(state.stored, bytes))

    tracemalloc.start()
    found = decode_sink_states(metadata._replace(operators=(operator._replace(states=many),)), {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert isinstance(found, SinkStates)
    assert len(found.writers) == 10_000
    assert peak < 2 * size
