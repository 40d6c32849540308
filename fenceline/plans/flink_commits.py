"""Commit a Flink checkpoint's decided transaction: EndTxn(commit) with its recorded producer id and epoch.

A completed checkpoint is the decision: a restore from it commits each transaction in it. If the job does not
return before a transaction's timeout, the records are lost, although the checkpoint's offsets are past them.
The commit is the first step of that restore, and repeating it is no error.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fenceline.engines.flink.records import Committable, TransactionOwnership
from fenceline.engines.flink.restore import (
    CommitFate,
    CoordinatorView,
    Lingering,
    commit_fate,
    is_pooled,
    lingering_kind,
)
from fenceline.facts import expand_partitions
from fenceline.formatting import format_clock, format_duration
from fenceline.kafka.reconcile import Described, NotDescribed
from fenceline.plans.impact import HeldLog, Own, compute_reach, own_effects
from fenceline.plans.plan import Effect, PlanStep, Refusal, RefusalReason, Seen, SubjectPlan

#: A job with a checkpoint younger than this counts as running.
RUNNING_MS = 60_000
#: A job that misses this many checkpoints has stopped.
_MISSED = 3
_ENDED_WORDS = {
    CommitFate.COMMITTED: "is committed already, under the epoch that the checkpoint recorded",
    CommitFate.LOST: "was aborted: its records are lost, and no restore brings them back",
    CommitFate.ENDED: "has gone on under another epoch: the transaction that the checkpoint holds has ended",
    CommitFate.SUPERSEDED: "has a newer transaction open: the one that the checkpoint holds has ended",
    CommitFate.UNKNOWN: "has nothing open",
}


@dataclass(frozen=True, slots=True)
class FlinkHold:
    """The record about one transactional id in the checkpoints of Flink's jobs."""

    #: The job in addresses, and for people.
    job: str
    name: str
    #: Its newest checkpoint: the folder's name and its number; None if unreadable.
    checkpoint: str
    checkpoint_id: int | None
    completed_ms: int | None
    is_savepoint: bool | None = None
    #: That checkpoint's decision about the id; None if only the prefix of the job's sink matches.
    committable: Committable | None = None
    #: Why that may be outdated, as a clause; "" if it is not.
    trouble: str = ""
    #: A job with the same prefix that has completed a checkpoint since; "" without one.
    newer_job: str = ""
    #: The id's prefix, and the naming of ids by the sink's writers.
    prefix: str = ""
    ownerships: frozenset[TransactionOwnership] = frozenset()
    #: The completions of the job's checkpoints, the newest first.
    completions_ms: tuple[int, ...] = ()

    def decides(self, described: Described) -> bool:
        """Return whether the checkpoint decided to commit exactly the coordinator's open transaction."""
        return fate_of(self, described) is CommitFate.PENDING

    @property
    def decides_nothing(self) -> bool:
        """Whether the newest checkpoint is known, and holds no transaction of the id.

        A savepoint decides only for a job that is restored from it (FLIP-203).
        """
        is_known = not self.trouble and self.checkpoint_id is not None and not self.is_savepoint
        return is_known and self.committable is None

    def has_left(self, transactional_id: str, started_ms: int | None) -> bool:
        """Return whether an earlier run left an id's open transaction, and no checkpoint holds it."""
        if not self.decides_nothing:
            return False
        number, times = self.checkpoint_id or 0, self.completions_ms
        kind = lingering_kind(transactional_id, started_ms, self.prefix, self.ownerships, number, times)
        return kind is Lingering.LEFT

    def has_stopped(self, now_ms: int) -> bool:
        """Return whether its job no longer completes checkpoints, by the pauses between the last ones."""
        times = self.completions_ms
        pauses = [later - before for later, before in pairwise(times)]
        return bool(pauses) and now_ms - times[0] > max(RUNNING_MS, _MISSED * max(pauses))


def fate_of(hold: FlinkHold, described: Described) -> CommitFate | None:
    """Return the fate of the checkpoint's transaction; None without one."""
    if hold.committable is None:
        return None
    now = CoordinatorView(described.state, described.producer_id, described.producer_epoch)
    return commit_fate(hold.committable, now, of_pool=is_pooled(hold.ownerships))


@dataclass(frozen=True, slots=True)
class FlinkTransaction:
    """A transactional id from its coordinator, and the record about it in checkpoints."""

    transactional_id: str
    described: Described | NotDescribed
    #: Its start by our clock; None if unknown.
    started_ms: int | None
    hold: FlinkHold | None
    #: The partitions of its open transaction.
    logs: tuple[HeldLog, ...] = ()
    #: Why it has no description, as a refusal; None with one.
    undescribed: Refusal | None = None


def plan_flink_commit(transaction: FlinkTransaction) -> SubjectPlan:
    name, described, hold = transaction.transactional_id, transaction.described, transaction.hold
    refusals = tuple(_refusals(transaction))
    if (
        not isinstance(described, Described)
        or hold is None
        or any(not refusal.forceable for refusal in refusals)
    ):
        return SubjectPlan(f"transaction:{name}", name, {"transactional_id": name}, refusals=refusals)
    named = expand_partitions(described.partitions)
    logs = [log for log in transaction.logs if log.where in named]
    reach = compute_reach(logs, frozenset({described.producer_id}))
    seen, steps = _seen(described, hold), [_step(described, hold)]
    effects = (*_effects(hold, reach.own), *reach.effects)
    return reach.plan(f"transaction:{name}", name, seen, steps, effects, refusals)


def flink_commit_warnings(transactions: Sequence[FlinkTransaction], *, now_ms: int) -> Iterator[str]:
    for hold in dict.fromkeys(
        transaction.hold for transaction in transactions if transaction.hold is not None
    ):
        if hold.completed_ms is not None and now_ms - hold.completed_ms < RUNNING_MS:
            age = format_duration(max(0, now_ms - hold.completed_ms))
            yield (
                f"{hold.name} may be running: its checkpoint {hold.checkpoint_id} was completed {age} ago, "
                "and a running job commits it itself. To commit it twice loses nothing."
            )
        yield (
            f"Restore {hold.name} from {hold.checkpoint} or a later checkpoint afterwards. From an older "
            "one, or started anew, it writes the same records again."
        )


def fence_refusal(hold: FlinkHold, described: Described) -> Refusal | None:
    """Refuse to fence an id if a checkpoint decided to commit its open transaction."""
    if not hold.decides(described):
        return None
    name = described.transactional_id
    words = (
        f"{hold.checkpoint} of {hold.name} decided to commit the open transaction of {name}: a fence aborts "
        f"it, and its records are lost, since a restore does not write them again. Commit it instead "
        f"(commit_flink {name}), or restore the job."
    )
    return Refusal(RefusalReason.CHECKPOINTED, words, forceable=True)


def fence_warning(hold: FlinkHold, transactional_id: str) -> str:
    """Return the effect of fencing a Flink sink's id without a checkpoint's decision to commit."""
    if hold.trouble:
        return (
            f"{transactional_id} is an id of {hold.name}, and whether a checkpoint decided to commit it is "
            f"not known: {hold.trouble}. The fence may lose checkpointed data."
        )
    return (
        f"{transactional_id} is an id of {hold.name}, and its newest checkpoint, {hold.checkpoint}, does not "
        "hold its open transaction: a fence loses nothing that was decided. A running job fails and restarts."
    )


def _refusals(transaction: FlinkTransaction) -> Iterator[Refusal]:
    described, hold, name = transaction.described, transaction.hold, transaction.transactional_id
    if not isinstance(described, Described):
        if transaction.undescribed is not None:
            yield transaction.undescribed
    elif hold is None:
        words = (
            f"No checkpoint that Fenceline reads holds {name}, nor the prefix of such an id. Name the folder "
            'of its job\'s checkpoints in [[checkpoints]] with kind = "flink".'
        )
        yield Refusal(RefusalReason.NOT_CHECKPOINTED, words)
    elif hold.trouble:
        words = f"What the checkpoints of {hold.name} decided is not known: {hold.trouble}."
        yield Refusal(RefusalReason.CHECKPOINT_UNREADABLE, words)
    elif hold.committable is None:
        is_older_sink = TransactionOwnership.POOL_OF_PRODUCER in hold.ownerships
        condition = ", if its pools have the id," if is_older_sink else ""
        words = (
            f"The newest checkpoint of {hold.name}, {hold.checkpoint}, does not hold {name}: nothing is "
            f"decided about it. A restore aborts it{condition} and reads its records again; a fence does no "
            "more."
        )
        yield Refusal(RefusalReason.NOT_CHECKPOINTED, words)
    else:
        yield from _held(transaction, described, hold, hold.committable)


def _held(
    transaction: FlinkTransaction, described: Described, hold: FlinkHold, committable: Committable
) -> Iterator[Refusal]:
    name, fate = transaction.transactional_id, fate_of(hold, described)
    if fate is not CommitFate.PENDING:
        words = (
            f"{name} {_ENDED_WORDS[fate or CommitFate.UNKNOWN]}: it is {described.state.value}, epoch "
            f"{committable.producer_epoch} → {described.producer_epoch}. There is nothing to commit."
        )
        yield Refusal(RefusalReason.ALREADY_ENDED, words)
        return
    started_ms, completed_ms = transaction.started_ms, hold.completed_ms
    if started_ms is not None and completed_ms is not None and started_ms > completed_ms:
        words = (
            f"The open transaction of {name} began at {format_clock(started_ms)}, after {hold.checkpoint} "
            "was completed: it is not the one that the checkpoint holds, or the clocks of the brokers and of "
            "the store differ. Compare them first."
        )
        yield Refusal(RefusalReason.BEGAN_LATER, words, forceable=True)
    yield from _forceable(hold, name)


def _forceable(hold: FlinkHold, name: str) -> Iterator[Refusal]:
    if hold.is_savepoint:
        words = (
            f"{hold.name} holds {name} in a savepoint. A savepoint decides only for a job that is restored "
            "from it (FLIP-203); after any other restore the same records are written again. Restore the job "
            "from it."
        )
        yield Refusal(RefusalReason.SAVEPOINT, words, forceable=True)
    if hold.newer_job:
        words = (
            f"{hold.newer_job} has the same prefix and has completed a checkpoint since: it may have been "
            f"restored from elsewhere, and write the records of {name} again. Check what it was restored "
            "from."
        )
        yield Refusal(RefusalReason.NEWER_JOB, words, forceable=True)


def seen_of(described: Described) -> dict[str, Any]:
    """Return the state of an id that re-verification compares, as JSON."""
    seen = {**described._asdict(), "state": described.state.value}
    del seen["partitions"]
    return seen


def _seen(described: Described, hold: FlinkHold) -> Seen:
    of_hold = {name: getattr(hold, name) for name in ("job", "checkpoint", "checkpoint_id", "newer_job")}
    return {**seen_of(described), **of_hold}


def _step(described: Described, hold: FlinkHold) -> PlanStep:
    producer = f"producer id {described.producer_id}, epoch {described.producer_epoch}"
    return PlanStep(
        "EndTxn",
        f"Commit, to the coordinator of {described.transactional_id}, as {producer}: as {hold.checkpoint} of "
        f"{hold.name} recorded it.",
    )


def _effects(hold: FlinkHold, own: Sequence[Own]) -> Iterator[Effect]:
    yield from own_effects("records_committed", own, "committed")
    words = (
        f"Nothing is lost: a restore of {hold.name} from checkpoint {hold.checkpoint_id} finds it committed "
        "and goes on behind its records."
    )
    yield Effect("checkpoint_carried_out", None, words)
