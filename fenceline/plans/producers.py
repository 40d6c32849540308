"""Fence: InitProducerId on an id with an open transaction, which aborts it.

It is offered for transactions that nobody will end in time, and refused where it would do damage: a healthy
transaction, one in a two-phase commit (KIP-939), which another system may have decided to commit, or one of
our own sink. The shape of an id alone refuses nothing: it is a warning.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from fenceline.facts import OPEN_STATES, TWO_PHASE_COMMIT_TIMEOUT_MS, TransactionState, expand_partitions
from fenceline.formatting import count_noun, format_clock, format_duration, list_names
from fenceline.kafka.applications import Shape, application_of
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from fenceline.limits import Limits
from fenceline.plans.flink_commits import FlinkHold, FlinkTransaction, fence_refusal, fence_warning, seen_of
from fenceline.plans.impact import HeldLog, Reach, compute_reach, own_effects
from fenceline.plans.plan import Effect, PlanStep, Refusal, RefusalReason, SubjectPlan
from fenceline.snapshot import UsualCommit, usual_ms

#: A producer that wrote this recently counts as alive.
LIVELY_MS = 60_000
#: How long to repeat the request while the coordinator ends the open transaction.
PATIENCE_S = 30
#: The requested timeout in place of a two-phase commit's, which only its own kind of producer may have
#: (KIP-939). The id's next producer sets another one.
TWO_PHASE_ASKED_MS = 60_000
MAY_LOSE = "this may lose checkpointed data"
#: The decision in states that nothing changes any more.
DECIDED = {TransactionState.PREPARE_COMMIT: "commit", TransactionState.PREPARE_ABORT: "abort"}
_OBSTACLES = {
    Obstacle.UNKNOWN: RefusalReason.UNKNOWN_ID,
    Obstacle.FORBIDDEN: RefusalReason.FORBIDDEN,
    Obstacle.UNSEEN: RefusalReason.NOT_SEEN,
}


@dataclass(frozen=True, slots=True)
class SinkOwner:
    """The exactly-once sink that owns an id. `ident` is "" without a known ledger."""

    ident: str = ""
    name: str = ""
    #: The batch of its open transaction, None if unknown.
    batch_id: int | None = None
    #: Whether that batch is prepared and not done.
    prepared: bool = False


@dataclass(frozen=True, slots=True)
class Producer:
    """One transactional id from its coordinator, with our observations; times by our clock."""

    transactional_id: str
    described: Described | NotDescribed
    #: The partitions of its transaction, and those in which its producer id is open.
    logs: tuple[HeldLog, ...] = ()
    #: Its coordinator's broker, None if unknown.
    coordinator: int | None = None
    #: The start of its open transaction; None if unknown.
    started_ms: int | None = None
    #: Since when no record was observed; None if it has not been observed for long enough.
    silent_since_ms: int | None = None
    #: The usual duration of its application's commits.
    usual: UsualCommit | None = None
    #: None unless it is an id of our sink.
    sink: SinkOwner | None = None
    #: Groups whose commits are part of its transaction.
    committing: tuple[str, ...] = ()
    #: The record about it in checkpoints of Flink's jobs; None if no job has it or its prefix.
    flink: FlinkHold | None = None

    @property
    def is_open(self) -> bool:
        """Whether its coordinator reports an open transaction."""
        return isinstance(self.described, Described) and self.described.state is TransactionState.ONGOING

    @property
    def producer_id(self) -> int | None:
        """Return its producer id, None without a description."""
        return self.described.producer_id if isinstance(self.described, Described) else None


def plan_fence(
    producer: Producer, *, now_ms: int, limits: Limits, ended: AbstractSet[int] = frozenset()
) -> SubjectPlan:
    """Return the plan to fence one id; `ended` are producer ids that are fenced before it."""
    name, described = producer.transactional_id, producer.described
    refusals = tuple(_refusals(producer, now_ms, limits))
    if not isinstance(described, Described):
        return SubjectPlan(f"transaction:{name}", name, {"transactional_id": name}, refusals=refusals)
    if any(not refusal.forceable for refusal in refusals):
        return SubjectPlan(f"transaction:{name}", name, seen_of(described), refusals=refusals)
    # Its coordinator writes markers to these partitions.
    named = expand_partitions(described.partitions)
    logs = [log for log in producer.logs if log.where in named]
    reach = compute_reach(logs, frozenset({described.producer_id}), ended)
    steps, effects = [_step(producer, described)], _effects(producer, described, reach, now_ms)
    return reach.plan(f"transaction:{name}", name, seen_of(described), steps, effects, refusals)


def fencing_warnings(producers: Sequence[Producer], *, now_ms: int) -> Iterator[str]:
    opened = [producer for producer in producers if producer.is_open]
    live = [producer.transactional_id for producer in opened if is_lively(producer, now_ms) is not False]
    if live:
        yield (
            f"It fences a producer that may still be running: {list_names(live)} may have been written to "
            "within the last minute. Its next send or commit fails as fenced, and it must be started again."
        )
    for producer in opened:
        if producer.flink is not None:
            if not (isinstance(producer.described, Described) and producer.flink.decides(producer.described)):
                yield fence_warning(producer.flink, producer.transactional_id)
        elif application_of(producer.transactional_id).kind is Shape.FLINK:
            yield (
                f"{producer.transactional_id} has the shape of a Flink sink's ids (name-subtask-number). "
                f"If it is Flink's, a checkpoint may have decided to commit it: {MAY_LOSE}. Then restore the "
                "job from its last checkpoint instead, which commits or aborts it; where [[checkpoints]] "
                "names its folder, Fenceline reads what it decided."
            )
        hanging = _hanging_in(producer)
        if hanging:
            yield (
                f"{list_names(hanging)} also {'holds' if len(hanging) == 1 else 'hold'} a transaction of "
                f"{producer.transactional_id} that its coordinator does not know: a fence does not end it, "
                "an abort marker does."
            )


def flink_transaction(producer: Producer) -> FlinkTransaction:
    described, name = producer.described, producer.transactional_id
    undescribed = None if isinstance(described, Described) else undescribed_refusal(name, described)
    return FlinkTransaction(name, described, producer.started_ms, producer.flink, producer.logs, undescribed)


def fencing_timeout_ms(own_ms: int) -> int:
    """Return the timeout for the fence: the id's own, unless brokers would reject it."""
    return TWO_PHASE_ASKED_MS if own_ms == TWO_PHASE_COMMIT_TIMEOUT_MS else own_ms


def _step(producer: Producer, described: Described) -> PlanStep:
    broker = "" if producer.coordinator is None else f" (broker {producer.coordinator})"
    asked_ms = fencing_timeout_ms(described.timeout_ms)
    its = f"its own timeout of {format_duration(asked_ms)}"
    if asked_ms != described.timeout_ms:
        its = f"a timeout of {format_duration(asked_ms)}, since only a two-phase producer may ask for its own"
    return PlanStep(
        "InitProducerId",
        f"To the coordinator of {described.transactional_id}{broker}, with {its}; asked again for "
        f"{PATIENCE_S} s while it aborts what is open.",
    )


def _hanging_in(producer: Producer) -> list[str]:
    """Return the partitions with its open transaction that its coordinator does not name."""
    described = producer.described
    if not isinstance(described, Described):
        return []
    named = expand_partitions(described.partitions) if described.state in OPEN_STATES else ()
    return [
        str(log.where)
        for log in producer.logs
        if log.where not in named and log.start_of({described.producer_id}) is not None
    ]


def _effects(producer: Producer, described: Described, reach: Reach, now_ms: int) -> Iterator[Effect]:
    yield from reach.effects
    yield from own_effects("records_lost", reach.own, "aborted")
    if producer.committing:
        verb = "reads" if len(producer.committing) == 1 else "read"
        words = (
            f"The commits in it are dropped: {count_noun(len(producer.committing), 'group')} "
            f"({list_names(producer.committing)}) {verb} that input again."
        )
        yield Effect("commits_dropped", len(producer.committing), words)
    fenced = f"Producer id {described.producer_id}, epoch {described.producer_epoch} is fenced"
    yield Effect("producer_fenced", None, f"{fenced}; {_liveliness(producer, now_ms)}.")


def is_lively(producer: Producer, now_ms: int) -> bool | None:
    """Whether the producer may have written within the last minute; None if unknown."""
    if producer.started_ms is not None and now_ms - producer.started_ms < LIVELY_MS:
        return True
    if producer.silent_since_ms is None:
        return None
    return now_ms - producer.silent_since_ms < LIVELY_MS


def _liveliness(producer: Producer, now_ms: int) -> str:
    lively = is_lively(producer, now_ms)
    if lively is None:
        return "when it wrote last cannot be seen"
    if lively:
        return "as far as we can see it may have written within the last minute"
    since_ms = max(producer.silent_since_ms or 0, 0)
    return f"no record of it was observed for {format_duration(now_ms - since_ms)}"


def _refusals(producer: Producer, now_ms: int, limits: Limits) -> Iterator[Refusal]:
    name, described = producer.transactional_id, producer.described
    if not isinstance(described, Described):
        yield undescribed_refusal(name, described, "A fence would create it. ")
    elif described.state in DECIDED:
        yield _prepared(producer, described)
    elif described.state is not TransactionState.ONGOING:
        yield Refusal(RefusalReason.NOTHING_OPEN, _nothing_open(producer, described))
    elif producer.sink is not None:
        yield Refusal(RefusalReason.OWN_SINK, _own_sink(producer.sink, described))
    else:
        if producer.flink is not None and (decided := fence_refusal(producer.flink, described)):
            yield decided
        yield from _forceable(producer, described, now_ms, limits)


def _forceable(producer: Producer, described: Described, now_ms: int, limits: Limits) -> Iterator[Refusal]:
    if described.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        words = (
            f"{described.transactional_id} takes part in a two-phase commit: the system that decides it may "
            f"have committed it already, and {MAY_LOSE}. Find that system; only it may commit or abort it."
        )
        yield Refusal(RefusalReason.TWO_PHASE, words, forceable=True)
    # It is within its limit, and its producer may have written within the last minute.
    is_past = _is_past_limit(producer, described, now_ms, limits)
    if not is_past and is_lively(producer, now_ms) is not False:
        yield Refusal(RefusalReason.HEALTHY, _healthy(producer, described, now_ms, limits), forceable=True)


def _is_past_limit(producer: Producer, described: Described, now_ms: int, limits: Limits) -> bool:
    """Whether `open_too_long` reports it above INFO; INFO is a duration usual for its application."""
    if described.state is not TransactionState.ONGOING or producer.started_ms is None:
        return False
    usual = usual_ms(producer.usual, limits)
    return now_ms - producer.started_ms > (limits.open_too_long_s * 1_000 if usual is None else usual)


def _healthy(producer: Producer, described: Described, now_ms: int, limits: Limits) -> str:
    ends = ""
    if producer.started_ms is not None and described.timeout_ms != TWO_PHASE_COMMIT_TIMEOUT_MS:
        expires_at = format_clock(producer.started_ms + described.timeout_ms)
        ends = f", or until its coordinator aborts it at {expires_at}"
    return (
        f"{described.transactional_id} appears healthy: {_within(producer, described, now_ms, limits)}, and "
        f"{_liveliness(producer, now_ms)}. Wait until it is past its limit{ends}."
    )


def _within(producer: Producer, described: Described, now_ms: int, limits: Limits) -> str:
    """Return the open time of a transaction within its limit, and the limit."""
    limit_ms = int(limits.open_too_long_s * 1_000)
    if producer.started_ms is None:
        return f"for how long it is open is unknown; its limit is {format_duration(limit_ms)}"
    age_ms = now_ms - producer.started_ms
    if age_ms <= limit_ms or producer.usual is None:
        return f"it is open for {format_duration(age_ms)}, within its limit of {format_duration(limit_ms)}"
    application = application_of(described.transactional_id).application
    return (
        f"it is open for {format_duration(age_ms)}, which is usual where 99 of 100 commits of {application} "
        f"take up to {format_duration(producer.usual.p99_ms)}"
    )


def undescribed_refusal(name: str, described: NotDescribed, would: str = "") -> Refusal:
    """Return why an id without a coordinator's description gets no action.

    `would` is a sentence: the action's effect on an unknown id.
    """
    words = f"What is open under {name} cannot be seen: {described.text}."
    if described.obstacle is Obstacle.UNKNOWN:
        words = (
            f"{name} is not known: {described.text}. {would}Check how it is written; an id is forgotten "
            "after seven idle days."
        )
    return Refusal(_OBSTACLES[described.obstacle], words)


def _prepared(producer: Producer, described: Described) -> Refusal:
    decided = DECIDED[described.state]
    left = list_names(list(map(str, expand_partitions(described.partitions))))
    broker = "" if producer.coordinator is None else f", broker {producer.coordinator},"
    words = (
        f"{described.transactional_id} is in {described.state}: its coordinator has decided to {decided} it, "
        "and neither a fence nor an abort marker changes that. "
    )
    words += (
        f"Bring back the leader of {left}: its marker is still to be written there."
        if left
        else f"Check its coordinator{broker}, in whose log the end is still to be written."
    )
    return Refusal(RefusalReason.PREPARE, words)


def _nothing_open(producer: Producer, described: Described) -> str:
    words = f"{described.transactional_id} is {described.state}: its coordinator has nothing open under it."
    hanging = _hanging_in(producer)
    if hanging:
        words += (
            f" {list_names(hanging)} {'holds' if len(hanging) == 1 else 'hold'} a transaction of it that "
            "hangs: see there for an abort marker."
        )
    return words


def _own_sink(sink: SinkOwner, described: Described) -> str:
    name = described.transactional_id
    if not sink.ident:
        return (
            f"{name} is an id of Fenceline's sink, and no ledger of it is known here: a fence could lose a "
            "prepared batch. Start its Spark query again, or name the root of its checkpoint in "
            "[[checkpoints]]: then the batch is finished or rolled back."
        )
    what = f"{name} is written by the sink of {sink.name}"
    if sink.batch_id is None:
        return f"{what}: see its query for the batch to finish or to roll back."
    subject = f"{sink.ident}@{sink.batch_id}"
    if sink.prepared:
        return (
            f"{what}, and its batch {sink.batch_id} is prepared: a fence would lose it. Finish the batch "
            f"instead (finish_batch {subject})."
        )
    return (
        f"{what} for batch {sink.batch_id}, which is not prepared. Roll the batch back instead "
        f"(roll_back_batch {subject}), so that its ledger records it."
    )
