"""The transactional ids that a restore of `FlinkKafkaProducer` aborts, and those that it leaves open. Pure.

Each subtask has a pool of ids, `prefix-N`, in its state; a restore aborts their open transactions. A job that
starts without a checkpoint guesses: `TransactionalIdsGenerator` aborts the first ids, as many as 5 times its
parallelism would have (`SAFE_SCALE_DOWN_FACTOR`). Transactions of later ids stay open until their timeout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fenceline.engines.flink.records import WriterState
from fenceline.formatting import count_noun
from fenceline.grouping import grouped

#: A start without a checkpoint may have at most this many times fewer subtasks.
_SAFE_SCALE_DOWN = 5
_MOST_NAMED = 3


class ProducerPool(NamedTuple):
    """The transactional ids of one `FlinkKafkaProducer` in a checkpoint."""

    #: With its dash.
    prefix: str
    subtasks: int
    #: By number.
    ids: tuple[str, ...]
    #: Ids that were open at the checkpoint: a restore aborts them.
    writing: tuple[str, ...]
    #: The first number that no subtask has had; None if not recorded.
    next_free: int | None
    #: The maximum number of ids of one subtask.
    size: int


def producer_pools(writers: Sequence[WriterState]) -> Sequence[ProducerPool]:
    """Return the pools of a checkpoint's older sinks, by prefix; empty for other sinks."""
    of_prefix = grouped((writer.prefix, writer) for writer in writers if writer.pool)
    return [_pool(prefix, of_prefix[prefix]) for prefix in sorted(of_prefix)]


def _pool(prefix: str, writers: Sequence[WriterState]) -> ProducerPool:
    ids = {name for writer in writers for name in writer.pool}
    return ProducerPool(
        prefix,
        max(writer.subtasks for writer in writers),
        tuple(sorted(ids, key=lambda name: _number(name, prefix))),
        tuple(writer.writing for writer in writers if writer.writing),
        max((writer.next_free for writer in writers if writer.next_free is not None), default=None),
        max(len(writer.pool) for writer in writers),
    )


def _number(name: str, prefix: str) -> int:
    return int(name.removeprefix(prefix))


def safe_parallelism(pool: ProducerPool) -> int:
    """Return the number of subtasks that a start without a checkpoint needs to abort every id of a pool."""
    highest = _number(pool.ids[-1], pool.prefix)
    return highest // (_SAFE_SCALE_DOWN * pool.size) + 1


def pool_sentences(pool: ProducerPool) -> Iterator[str]:
    """Yield sentences about a pool, and the effect of a restore or a start without a checkpoint on it."""
    subtasks, ids = count_noun(pool.subtasks, "subtask"), count_noun(len(pool.ids), "id")
    yield f"FlinkKafkaProducer: {subtasks} with {ids}, {pool.ids[0]} to {pool.ids[-1]}."
    if pool.next_free is not None:
        yield f"New subtasks take ids from {pool.prefix}{pool.next_free} on."
    if pool.writing:
        more = len(pool.writing) - _MOST_NAMED
        named = ", ".join(pool.writing[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        yield f"Open when the checkpoint was taken: {named}."
    yield "A restore aborts open transactions of these ids alone; any other id stays open until its timeout."
    first = _SAFE_SCALE_DOWN * pool.size
    yield f"A start without a checkpoint aborts the first {first:,} ids per subtask."
    if (needed := safe_parallelism(pool)) > 1:
        yield f"With fewer than {needed:,} subtasks, it leaves higher ids open until their timeout."
