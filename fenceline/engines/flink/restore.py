"""The fate of transactions that a checkpoint decided to commit, and the effect of a restore. Pure.

A restore from a checkpoint commits each of its pending transactions with the recorded producer id and epoch
(`KafkaCommitter`). A committed one is no error. One that its coordinator has aborted, or whose id another
producer has, is lost: Flink logs it and continues. It aborts every other open transaction of the sink's
prefix (`TransactionAbortStrategy`), and reads their records from the source again. `FlinkKafkaProducer`
commits in the same way, and aborts only the other ids of its pools: each subtask has a pool of ids,
`prefix-N`, in its state. A job that starts without a checkpoint guesses: `TransactionalIdsGenerator` aborts
the first ids, as many as 5 times its parallelism would have (`SAFE_SCALE_DOWN_FACTOR`). Transactions of later
ids stay open until their timeout.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fenceline.engines.flink.records import Committable, TransactionOwnership, WriterState
from fenceline.facts import ABORTED_STATES, COMMITTED_STATES, TransactionState
from fenceline.formatting import count_noun
from fenceline.grouping import grouped

#: A start without a checkpoint may have at most this many times fewer subtasks.
_SAFE_SCALE_DOWN = 5
_MOST_NAMED = 3


class CommitFate(StrEnum):
    """The fate of a transaction that a checkpoint decided to commit, worst first."""

    #: Aborted: its records are lost, whatever is restored.
    LOST = "lost"
    #: Open since its pre-commit: a restore commits it.
    PENDING = "pending"
    #: Its coordinator was not read, or its id is unknown.
    UNKNOWN = "unknown"
    #: Its id has continued: it ended earlier, and the id's history has its end.
    ENDED = "ended"
    #: It ended, and its pooled id has a newer open transaction, which a restore leaves open.
    SUPERSEDED = "superseded"
    COMMITTED = "committed"


class CoordinatorView(NamedTuple):
    """A transactional id from its coordinator."""

    state: TransactionState
    producer_id: int
    producer_epoch: int


def is_pooled(ownerships: Collection[TransactionOwnership]) -> bool:
    """Return whether writers take ids from a pool, each repeatedly; False if unknown."""
    return bool(ownerships) and TransactionOwnership.IMPLICIT_BY_SUBTASK_ID not in ownerships


def commit_fate(
    committable: Committable, now: CoordinatorView | None, *, of_pool: bool = False
) -> CommitFate:
    """Return the fate of a transaction; `now` is None for an unknown id.

    For an id `of_pool`, a restore skips its commit where it aborts the other ids (FLINK-40626).
    """
    if now is None:
        return CommitFate.UNKNOWN
    raised = now.producer_epoch - committable.producer_epoch
    is_later = now.producer_id == committable.producer_id and raised > 0
    if of_pool and is_later and now.state is TransactionState.ONGOING:
        return CommitFate.SUPERSEDED
    if now.producer_id != committable.producer_id or raised not in (0, 1):
        # An abort by a fence or a timeout raises the epoch by one, the next producer's start raises it again.
        return CommitFate.ENDED
    if now.state in COMMITTED_STATES:
        # Transaction version 2 raises the epoch with each end (KIP-890).
        return CommitFate.COMMITTED
    if now.state in ABORTED_STATES:
        return CommitFate.LOST
    if raised:
        return CommitFate.ENDED
    return CommitFate.PENDING if now.state is TransactionState.ONGOING else CommitFate.UNKNOWN


class Lingering(StrEnum):
    """The kind of an open transaction of a sink's prefix that the newest checkpoint does not hold."""

    #: It writes for a later checkpoint.
    WRITING = "writing"
    #: No checkpoint holds it: it is left from an earlier run, and no running job writes it.
    LEFT = "left"
    #: Neither the id nor its start shows the kind: a run without a checkpoint yet may write it.
    UNDECIDED = "undecided"


def subtask_and_number(transactional_id: str, prefix: str) -> tuple[int, int] | None:
    """Return S and N of `prefix-S-N` (`TransactionalIdFactory`), None for any other id."""
    if not transactional_id.startswith(f"{prefix}-"):
        return None
    subtask, dash, number = transactional_id[len(prefix) + 1 :].partition("-")
    if not dash or not (subtask + number).isascii() or not (subtask.isdecimal() and number.isdecimal()):
        return None
    return int(subtask), int(number)


def is_of_prefix(transactional_id: str, prefixes: Collection[str]) -> bool:
    """Return whether a sink with one of these prefixes makes such an id."""
    return any(
        subtask_and_number(transactional_id, prefix) is not None or _is_of_producer(transactional_id, prefix)
        for prefix in prefixes
    )


def _is_of_producer(transactional_id: str, prefix: str) -> bool:
    """Whether an id is `prefix-N` of `FlinkKafkaProducer`, whose prefix ends with its dash."""
    number = transactional_id.removeprefix(prefix)
    is_number = number.isascii() and number.isdecimal()
    return prefix.endswith("-") and transactional_id.startswith(prefix) and is_number


def lingering_kind(
    transactional_id: str,
    started_ms: int | None,
    prefix: str,
    ownerships: Collection[TransactionOwnership],
    checkpoint_id: int,
    completed_ms: Sequence[int],
) -> Lingering:
    """Return the kind of an open transaction of a prefix that is not in the newest checkpoint.

    `completed_ms` are the job's checkpoints, the newest first. An id that counts checkpoints has its number
    in its name, and a restarted job counts from 1 again; for a pooled id only its start, compared with the
    checkpoint before the newest, shows it.
    """
    numbers = subtask_and_number(transactional_id, prefix)
    if numbers is not None and set(ownerships) == {TransactionOwnership.IMPLICIT_BY_SUBTASK_ID}:
        if numbers[1] > checkpoint_id:
            return Lingering.WRITING
        is_later = started_ms is not None and bool(completed_ms) and started_ms >= completed_ms[0]
        return Lingering.UNDECIDED if is_later else Lingering.LEFT
    is_ours = numbers is not None or TransactionOwnership.POOL_OF_PRODUCER in ownerships
    if started_ms is None or not completed_ms or not is_ours:
        return Lingering.UNDECIDED
    if started_ms >= completed_ms[0]:
        return Lingering.WRITING
    if len(completed_ms) > 1 and started_ms < completed_ms[1]:
        return Lingering.LEFT
    return Lingering.UNDECIDED


def restore_sentence(checkpoint: str, fates: Collection[CommitFate]) -> str:
    if not fates:
        return f"A restore from {checkpoint} has nothing to commit."
    number = {fate: list(fates).count(fate) for fate in CommitFate}
    parts = [
        words.format(count_noun(number[fate], "transaction"))
        for fate, words in _RESTORES.items()
        if number[fate]
    ]
    return f"A restore from {checkpoint} {'; '.join(parts)}."


_RESTORES = {
    CommitFate.LOST: "loses the records of {}, aborted before",
    CommitFate.PENDING: "commits {}",
    CommitFate.UNKNOWN: "commits {} if still open, which is not known",
    CommitFate.ENDED: "finds {} ended, under ids that have gone on",
    CommitFate.SUPERSEDED: "finds {} ended, and leaves a newer one under its id open",
    CommitFate.COMMITTED: "finds {} committed",
}


def decision_sentence(checkpoint: str, fate: CommitFate | None) -> str:
    """Return a sentence about a checkpoint's decision on an id and its outcome; None without one."""
    if fate is None:
        return f"Its newest checkpoint, {checkpoint}, does not hold this transaction: nothing is decided."
    return f"{checkpoint} decided to commit {_DECIDED[fate]}."


_DECIDED = {
    CommitFate.LOST: "its transaction, which was aborted: the records are lost",
    CommitFate.PENDING: "this transaction, and nobody has yet: a restore commits it, a fence loses it",
    CommitFate.UNKNOWN: "its transaction; what became of it is not known",
    CommitFate.ENDED: "an earlier transaction of this id, which has ended",
    CommitFate.SUPERSEDED: "an earlier transaction of this id; a restore leaves the newer one open",
    CommitFate.COMMITTED: "its transaction, and it is committed",
}


class DecidedTransaction(NamedTuple):
    """A transaction that a checkpoint decided to commit, with its fate at its coordinator."""

    transactional_id: str
    fate: CommitFate
    #: When its coordinator will abort it; None if it is not open, or never times out (KIP-939).
    expires_ms: int | None = None
    #: When it was aborted; None if it was not.
    aborted_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FlinkJobFacts:
    """A job whose newest checkpoint decided to commit transactions that are not committed."""

    ident: str
    name: str
    #: The folder of that checkpoint, and its completion by the store's clock, None if unknown.
    checkpoint: str
    completed_ms: int | None
    #: Prefixes of transactional ids of its sinks.
    prefixes: tuple[str, ...]
    #: Its pending or lost transactions, by id.
    transactions: tuple[DecidedTransaction, ...]
    #: A job with the same prefix that has completed a checkpoint since; "" without one.
    newer_job: str = ""

    @property
    def subject(self) -> str:
        return f"flink_job:{self.ident}"

    def of_fate(self, fate: CommitFate) -> tuple[DecidedTransaction, ...]:
        return tuple(transaction for transaction in self.transactions if transaction.fate is fate)


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
