"""Choose the actions to offer: those that the planners would allow, and that lose no decided records.

One place for cards, pages, the admin and the API. The facts may be our own rows instead of a reading from the
cluster: the plan, and its execution, read the cluster again.
"""

from dataclasses import dataclass

from fenceline.kafka.applications import Shape, application_of
from fenceline.limits import Limits
from fenceline.plans.batches import SinkBatchFacts, plan_finish, plan_roll_back
from fenceline.plans.flink_commits import plan_flink_commit
from fenceline.plans.markers import Marked, plan_markers
from fenceline.plans.plan import Act, Refusal, RefusalReason
from fenceline.plans.producers import Producer, flink_transaction, is_lively, plan_fence


@dataclass(frozen=True, slots=True)
class Appraisal:
    """Whether the planner would allow one action on one subject."""

    act: Act
    #: Its name in `dashboard.actions.planning.make_plan`.
    subject: str
    refusals: tuple[Refusal, ...] = ()
    #: Whether it may lose decided records although it is allowed: it is never offered first.
    may_lose: bool = False


def appraise_fence(producer: Producer, *, now_ms: int, limits: Limits) -> Appraisal:
    """Appraise fencing one transactional id.

    A checkpoint may have decided to commit the open transaction of an id of Flink's shape, unless its job's
    checkpoints show the opposite.
    """
    plan = plan_fence(producer, now_ms=now_ms, limits=limits)
    name = producer.transactional_id
    may_lose = application_of(name).kind is Shape.FLINK and not _is_abandoned(producer, now_ms)
    return Appraisal(Act.FENCE, name, plan.refusals, may_lose)


def _is_abandoned(producer: Producer, now_ms: int) -> bool:
    """Whether an earlier run of a Flink job left an id's open transaction, or its job silently stopped."""
    hold = producer.flink
    if hold is None or not hold.decides_nothing:
        return False
    if hold.has_left(producer.transactional_id, producer.started_ms):
        return True
    return hold.has_stopped(now_ms) and is_lively(producer, now_ms) is False


def appraise_markers(marked: Marked, start_offset: int | None = None) -> Appraisal:
    """Appraise an abort marker for one transaction, or (without an offset) for any in the partition."""
    plans = plan_markers(marked, start_offset)
    subject = str(marked.log.where) if start_offset is None else f"{marked.log.where}@{start_offset}"
    if any(not plan.is_refused for plan in plans):
        return Appraisal(Act.ABORT_MARKER, subject, ())
    refusals = tuple(refusal for plan in plans for refusal in plan.refusals)
    return Appraisal(Act.ABORT_MARKER, subject, refusals)


def appraise_finish(batch: SinkBatchFacts) -> Appraisal:
    """Appraise finishing a batch; a finish that accepts a loss is not offered."""
    plan = plan_finish(batch)
    lost = [effect for effect in plan.effects if effect.name == "records_lost"]
    refusals = plan.refusals or tuple(Refusal(RefusalReason.ALREADY_ENDED, effect.words) for effect in lost)
    return Appraisal(Act.FINISH_BATCH, batch.subject, refusals)


def appraise_flink_commit(producer: Producer) -> Appraisal:
    """Return whether a Flink checkpoint's decision about an id may be committed, and if not, why."""
    plan = plan_flink_commit(flink_transaction(producer))
    return Appraisal(Act.COMMIT_FLINK, producer.transactional_id, plan.refusals)


def appraise_roll_back(batch: SinkBatchFacts, *, now_ms: int) -> Appraisal:
    refusals = plan_roll_back(batch, now_ms=now_ms).refusals
    return Appraisal(Act.ROLL_BACK_BATCH, batch.subject, refusals, may_lose=True)
