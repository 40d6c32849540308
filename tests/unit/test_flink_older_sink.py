"""Proves that what real jobs with the older sink, `FlinkKafkaProducer` of Flink 1.14, 1.18 and 1.20, left in
their checkpoints is decoded and never half read; and which ids a restore of pooled sinks aborts or leaves
open, also where a newer transaction has superseded a pre-committed one (FLINK-40626)."""

import struct
import tracemalloc

import pytest

from fenceline.engines.flink.metadata import CheckpointMetadata, ListState, decode_checkpoint_metadata
from fenceline.engines.flink.records import Committable, FlinkCheckpoint, TransactionOwnership, WriterState
from fenceline.engines.flink.restore import (
    CommitFate,
    CoordinatorView,
    Lingering,
    commit_fate,
    is_of_prefix,
    is_pooled,
    lingering_kind,
    pool_sentences,
    producer_pools,
    restore_sentence,
    safe_parallelism,
)
from fenceline.engines.flink.sink_state import SinkStates, decode_sink_states
from fenceline.facts import TransactionState, Undecoded
from tests.cases import cases
from tests.unit import flink_states as states

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


@pytest.mark.parametrize("version", ["1.14", "1.18", "1.20"])
@pytest.mark.parametrize("place", ["", "-files", "-compressed"])
def test_what_a_job_with_the_older_sink_has_pre_committed_is_read(version: str, place: str) -> None:
    found = states.golden_sink_states(version, f"producer{place}")
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
    if version != "1.14":
        savepoint = states.golden_sink_states(version, "producer-savepoint")
        assert [each.transactional_id for each in savepoint.committables] == ["copy-4", "copy-7"]
        assert [each.writing for each in savepoint.writers] == ["copy-0", "copy-8"]


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


@cases(
    (b"$StateSerializerSnapshot\0\0\0\3", 4, "version 4 of FlinkKafkaProducer's StateSerializer"),
    (struct.pack(">ii", 911_108, 4), 5, "version 5 of FlinkKafkaProducer's StateSerializer"),
    (struct.pack(">i", 911_108), 7, "magic number 7 of"),
    (struct.pack(">ii", 1_333_245, 1), 2, "version 2 of FlinkKafkaProducer's nested serializers"),
    (b"$TransactionStateSerializerSnapshot\0\0\0\3", 4, "FlinkKafkaProducer's TransactionState"),
    (b"$ContextStateSerializerSnapshot\0\0\0\3", 4, "version 4 of FlinkKafkaProducer's ContextState"),
    (b"ContextStateSerializer$Context", int.from_bytes(b"Text"), "in place of"),
    (b"HintSerializerSnapshot\0\0\0\3", 4, "version 4 of FlinkKafkaProducer's NextTransactionalIdHint"),
)
def test_another_version_of_a_serializer_is_named(
    metadata: CheckpointMetadata, before: bytes, after: int, detail: str
) -> None:
    found = decode_sink_states(with_raw(metadata, {before: before[:-4] + struct.pack(">i", after)}), {})
    assert isinstance(found, Undecoded)
    assert found.reason == "committer"
    assert detail in found.detail


def test_another_sink_of_two_phases_is_counted_and_a_list_without_a_hint_is_not_of_this_sink(
    metadata: CheckpointMetadata,
) -> None:
    theirs = with_raw(metadata, {b"kafka.FlinkKafkaProducer$Tr": b"pulsar.FlinkPulsarProduce$T"})
    assert decode_sink_states(theirs, {}) == SinkStates((), (), 2)
    raw = states.golden("1.20", "producer").read_bytes().replace(b"-id-hint-v2", b"-id-hint-v9")
    found = decode_checkpoint_metadata(raw)
    assert isinstance(found, CheckpointMetadata)
    assert found.operators == ()


def test_2_000_subtasks_of_the_older_sink_take_little_memory(metadata: CheckpointMetadata) -> None:
    (operator,) = metadata.operators
    many = tuple(state._replace(subtask=index) for index in range(2_000) for state in operator.states[:2])
    size = sum(len(state.stored) for state in many if isinstance(state.stored, bytes))
    tracemalloc.start()
    found = decode_sink_states(metadata._replace(operators=(operator._replace(states=many),)), {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found, SinkStates)
    assert len(found.writers) == 2_000
    assert peak < 2 * size


IMPLICIT, EXPLICIT, OLDER_SINK = TransactionOwnership
ONGOING, COMMITTED = TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT
ABORTED, EMPTY = TransactionState.COMPLETE_ABORT, TransactionState.EMPTY
HELD = Committable("copy-3", 12, 4, None, "out")


def older_sink(subtask: int, first: int, next_free: int | None = None, subtasks: int = 2) -> WriterState:
    pool = tuple(f"copy-{number}" for number in range(first, first + 5))
    return WriterState("copy-", subtask, subtasks, OLDER_SINK, (), "out", pool, pool[-1], next_free)


@cases(
    # A newer transaction of the same producer is open: by version 1, by version 2, later still.
    (ONGOING, 12, 5, True, CommitFate.SUPERSEDED),
    (ONGOING, 12, 6, True, CommitFate.SUPERSEDED),
    (ONGOING, 12, 40, True, CommitFate.SUPERSEDED),
    # An id of no pool is not taken again by this sink.
    (ONGOING, 12, 5, False, CommitFate.ENDED),
    # It is not certain that another producer's, or that of an epoch before, is newer.
    (ONGOING, 13, 0, True, CommitFate.ENDED),
    (ONGOING, 12, 3, True, CommitFate.ENDED),
    # Nothing newer is open.
    (ONGOING, 12, 4, True, CommitFate.PENDING),
    (COMMITTED, 12, 5, True, CommitFate.COMMITTED),
    (ABORTED, 12, 5, True, CommitFate.LOST),
    (EMPTY, 12, 5, True, CommitFate.ENDED),
)
def test_a_superseded_transaction_has_a_newer_one_open(
    state: TransactionState, producer_id: int, epoch: int, of_pool: bool, fate: CommitFate
) -> None:
    assert commit_fate(HELD, CoordinatorView(state, producer_id, epoch), of_pool=of_pool) is fate
    assert commit_fate(HELD, None, of_pool=of_pool) is CommitFate.UNKNOWN


def test_ids_are_of_a_pool_only_where_every_writer_has_one() -> None:
    for pooled in ((EXPLICIT,), (OLDER_SINK,)):
        assert is_pooled(pooled)
    for unpooled in ((), (IMPLICIT,), (IMPLICIT, EXPLICIT)):
        assert not is_pooled(unpooled)
    sentence = "A restore from chk-4 finds 1 transaction ended, and leaves a newer one under its id open."
    assert restore_sentence("chk-4", [CommitFate.SUPERSEDED]) == sentence


@cases(
    ("copy-3", "copy-", True),
    ("Sink: Unnamed-0a1b-12", "Sink: Unnamed-0a1b-", True),
    # The newer sink has two numbers, and a prefix without a dash of its own has no other ids.
    ("copy-3", "copy", False),
    ("copy-3-4", "copy", True),
    ("copy-3-4", "copy-", False),
    ("copy--3-4", "copy-", True),
    ("copy-", "copy-", False),
    ("copy-x", "copy-", False),
    ("copying-3", "copy-", False),
    ("other-3", "copy-", False),
    ("copy-٣", "copy-", False),
)
def test_an_id_of_the_older_sink_has_one_number(name: str, prefix: str, expected: bool) -> None:
    assert is_of_prefix(name, [prefix]) is expected


@cases(
    (OLDER_SINK, 95, Lingering.WRITING),
    (OLDER_SINK, 85, Lingering.UNDECIDED),
    (OLDER_SINK, 70, Lingering.LEFT),
    (OLDER_SINK, None, Lingering.UNDECIDED),
    # A newer sink's own prefix may end with a dash: an id with one number is not its.
    (IMPLICIT, 70, Lingering.UNDECIDED),
    (EXPLICIT, 70, Lingering.UNDECIDED),
)
def test_what_else_is_open_of_the_older_sink_is_told_apart_by_its_start(
    ownership: TransactionOwnership, started_ms: int | None, kind: Lingering
) -> None:
    assert lingering_kind("copy-30", started_ms, "copy-", [ownership], 4, (90, 80)) is kind


def test_the_pools_of_all_subtasks_are_one_and_a_newer_sink_has_none() -> None:
    (pool,) = producer_pools([older_sink(1, 5), older_sink(0, 0, 10)])
    assert pool[:2] == ("copy-", 2)
    assert (pool.ids[0], pool.ids[-1], len(pool.ids)) == ("copy-0", "copy-9", 10)
    assert (pool.writing, pool.next_free, pool.size) == (("copy-9", "copy-4"), 10, 5)
    assert list(pool_sentences(pool)) == [
        "FlinkKafkaProducer: 2 subtasks with 10 ids, copy-0 to copy-9.",
        "New subtasks take ids from copy-10 on.",
        "Open when the checkpoint was taken: copy-9, copy-4.",
        "A restore aborts open transactions of these ids alone; any other id stays open until its timeout.",
        "A start without a checkpoint aborts the first 25 ids per subtask.",
    ]
    assert producer_pools([WriterState("copy", 0, 2, EXPLICIT, ("copy-0-0",), "out")]) == []


@cases((1, 1), (5, 1), (6, 2), (10, 2), (11, 3), (100, 20))
def test_a_start_with_five_times_fewer_subtasks_leaves_nothing_open(subtasks: int, needed: int) -> None:
    (pool,) = producer_pools([older_sink(index, 5 * index, subtasks=subtasks) for index in range(subtasks)])
    assert safe_parallelism(pool) == needed
    leaves = f"With fewer than {needed} subtasks, it leaves higher ids open until their timeout."
    assert (leaves in list(pool_sentences(pool))) is (needed > 1)
