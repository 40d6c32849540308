"""Proves which ids a restore of pooled sinks aborts and which it leaves open: the pools of the older sink,
and ids of a pool whose pre-committed transaction a newer one has superseded (FLINK-40626)."""

import pytest

from fenceline.engines.flink.records import Committable, TransactionOwnership, WriterState
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
from fenceline.facts import TransactionState

IMPLICIT, EXPLICIT, OLDER_SINK = TransactionOwnership
ONGOING, COMMITTED = TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT
ABORTED, EMPTY = TransactionState.COMPLETE_ABORT, TransactionState.EMPTY
HELD = Committable("copy-3", 12, 4, None, "out")


def older_sink(subtask: int, first: int, next_free: int | None = None, subtasks: int = 2) -> WriterState:
    pool = tuple(f"copy-{number}" for number in range(first, first + 5))
    return WriterState("copy-", subtask, subtasks, OLDER_SINK, (), "out", pool, pool[-1], next_free)


@pytest.mark.parametrize(
    ("state", "producer_id", "epoch", "of_pool", "fate"),
    [
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
    ],
)
def test_a_superseded_transaction_has_a_newer_one_open(
    state: TransactionState, producer_id: int, epoch: int, of_pool: bool, fate: CommitFate
) -> None:
    assert commit_fate(HELD, CoordinatorView(state, producer_id, epoch), of_pool=of_pool) is fate
    assert commit_fate(HELD, None, of_pool=of_pool) is CommitFate.UNKNOWN


def test_a_restore_leaves_what_supersedes_open() -> None:
    assert restore_sentence("chk-4", [CommitFate.SUPERSEDED]) == (
        "A restore from chk-4 finds 1 transaction ended, and leaves a newer one under its id open."
    )


@pytest.mark.parametrize(
    ("ownerships", "pooled"),
    [
        ((), False),
        ((IMPLICIT,), False),
        ((EXPLICIT,), True),
        ((OLDER_SINK,), True),
        ((IMPLICIT, EXPLICIT), False),
    ],
)
def test_ids_are_of_a_pool_only_where_every_writer_has_one(
    ownerships: tuple[TransactionOwnership, ...], pooled: bool
) -> None:
    assert is_pooled(ownerships) is pooled


@pytest.mark.parametrize(
    ("name", "prefix", "expected"),
    [
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
    ],
)
def test_an_id_of_the_older_sink_has_one_number(name: str, prefix: str, expected: bool) -> None:
    assert is_of_prefix(name, [prefix]) is expected


@pytest.mark.parametrize(
    ("ownership", "started_ms", "kind"),
    [
        (OLDER_SINK, 95, Lingering.WRITING),
        (OLDER_SINK, 85, Lingering.UNDECIDED),
        (OLDER_SINK, 70, Lingering.LEFT),
        (OLDER_SINK, None, Lingering.UNDECIDED),
        # A newer sink's own prefix may end with a dash: an id with one number is not its.
        (IMPLICIT, 70, Lingering.UNDECIDED),
        (EXPLICIT, 70, Lingering.UNDECIDED),
    ],
)
def test_what_else_is_open_of_the_older_sink_is_told_apart_by_its_start(
    ownership: TransactionOwnership, started_ms: int | None, kind: Lingering
) -> None:
    assert lingering_kind("copy-30", started_ms, "copy-", [ownership], 4, (90, 80)) is kind


def test_the_pools_of_all_subtasks_are_one() -> None:
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


def test_a_newer_sink_has_no_such_pool() -> None:
    assert producer_pools([WriterState("copy", 0, 2, EXPLICIT, ("copy-0-0",), "out")]) == []


@pytest.mark.parametrize(
    ("subtasks", "needed"), [(1, 1), (5, 1), (6, 2), (10, 2), (11, 3), (100, 20)]
)  # fmt: skip
def test_a_start_with_five_times_fewer_subtasks_leaves_nothing_open(subtasks: int, needed: int) -> None:
    (pool,) = producer_pools([older_sink(index, 5 * index, subtasks=subtasks) for index in range(subtasks)])

    assert safe_parallelism(pool) == needed
    leaves = f"With fewer than {needed} subtasks, it leaves higher ids open until their timeout."
    assert (leaves in list(pool_sentences(pool))) is (needed > 1)
