"""Proves which ids are offered a fence, and why the others are refused, by a numbered table; what only force
takes away; that effects, steps and checks are given for an id of any text."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fenceline.decode import text
from fenceline.facts import TWO_PHASE_COMMIT_TIMEOUT_MS, TopicPartitions, TransactionState
from fenceline.kafka.reconcile import NotDescribed, Obstacle
from fenceline.limits import Limits
from fenceline.plans.plan import Act, Plan, RefusalReason, SubjectPlan, from_json
from fenceline.plans.producers import LIVELY_MS, Producer, SinkOwner, fencing_warnings, plan_fence
from fenceline.snapshot import UsualCommit
from tests.cases import cases
from tests.unit.factories import (
    MINE,
    MINUTE_MS,
    NOW_MS,
    OTHER,
    TOPIC,
    blocked_log,
    described_transaction,
    open_producer,
    plan_producer,
)

NOTHING_OPEN, PREPARE, HEALTHY = RefusalReason.NOTHING_OPEN, RefusalReason.PREPARE, RefusalReason.HEALTHY
OWN_SINK = RefusalReason.OWN_SINK
LIMITS = Limits()
TWO_PHASE = TWO_PHASE_COMMIT_TIMEOUT_MS
#: Open for half a minute, written to just now; the same, but nobody saw it write; written to long ago.
YOUNG: dict[str, Any] = {"started_ms": NOW_MS - 30_000, "silent_since_ms": NOW_MS - 1_000}
UNSEEN: dict[str, Any] = {"started_ms": NOW_MS - 30_000, "silent_since_ms": None}
#: Within a limit of an hour.
HOUR = Limits(open_too_long_s=3_600)
USUAL = UsualCommit(1_000, 30 * MINUTE_MS)
#: As the older `TransactionalIdsGenerator` of flink-connector-kafka makes them.
FLINK_POOLED = "Sink: orders-cbc357ccb763df2852fee8c4fc7d55f2-4"
SINK_ID = "orders-0a1b2c3d-p0-g1-b1-s0"


def plan(each: Producer, limits: Limits = LIMITS) -> SubjectPlan:
    found = plan_fence(each, now_ms=NOW_MS, limits=limits)
    whole = Plan(Act.FENCE, "prod", NOW_MS, each.transactional_id, (found,))
    assert from_json(whole.as_json()).digest == whole.digest
    return found


def two_phase(name: str, **fields: Any) -> Producer:
    return plan_producer(name, described_transaction(name, timeout_ms=TWO_PHASE), **fields)


def missing(obstacle: Obstacle) -> Producer:
    return plan_producer(said=NotDescribed(obstacle, "its coordinator says so"), logs=())


def of_sink(*batch: Any, **fields: Any) -> Producer:
    return plan_producer(SINK_ID, described_transaction(SINK_ID), sink=SinkOwner(*batch, **fields), **YOUNG)


def in_state(state: TransactionState, **fields: Any) -> Producer:
    return plan_producer(said=described_transaction(state=state, **fields))


@cases(
    # Offered: past its limit, or silent for longer than a minute.
    (1, plan_producer(), LIMITS, [], ""),
    (2, plan_producer(silent_since_ms=NOW_MS - 1_000), LIMITS, [], ""),
    (3, plan_producer(silent_since_ms=None), LIMITS, [], ""),
    (4, plan_producer(), HOUR, [], ""),
    (5, plan_producer(usual=USUAL), Limits(open_too_long_s=60), [], ""),
    (6, plan_producer("connect-sink-3", described_transaction("connect-sink-3")), LIMITS, [], ""),
    (7, plan_producer(started_ms=None), LIMITS, [], ""),
    # The shape of an id refuses nothing: Flink's is also that of any application that numbers twice, and
    # that of Streams of one that numbers partitions.
    (19, plan_producer("sink-0_17", described_transaction("sink-0_17")), LIMITS, [], ""),
    (8, plan_producer("sink-0-17", described_transaction("sink-0-17")), LIMITS, [], ""),
    (9, plan_producer(FLINK_POOLED, described_transaction(FLINK_POOLED)), LIMITS, [], ""),
    # Refused: nothing there that a fence could end.
    (10, missing(Obstacle.UNKNOWN), LIMITS, [RefusalReason.UNKNOWN_ID], "A fence would create it"),
    (11, missing(Obstacle.FORBIDDEN), LIMITS, [RefusalReason.FORBIDDEN], "its coordinator says so"),
    (12, missing(Obstacle.UNSEEN), LIMITS, [RefusalReason.NOT_SEEN], "cannot be seen"),
    (13, in_state(TransactionState.EMPTY), LIMITS, [NOTHING_OPEN], "payments-0 holds a transaction of it"),
    (14, in_state(TransactionState.COMPLETE_COMMIT), LIMITS, [NOTHING_OPEN], "CompleteCommit"),
    (15, in_state(TransactionState.COMPLETE_ABORT), LIMITS, [NOTHING_OPEN], "CompleteAbort"),
    (16, in_state(TransactionState.PREPARE_COMMIT), LIMITS, [PREPARE], "the leader of payments-0"),
    (17, in_state(TransactionState.PREPARE_ABORT), LIMITS, [PREPARE], "decided to abort it"),
    (18, in_state(TransactionState.PREPARE_ABORT, partitions=()), LIMITS, [PREPARE], "its coordinator"),
    # Refused, an admin may: it is healthy.
    (20, plan_producer(**YOUNG), LIMITS, [HEALTHY], "within its limit of 1 min"),
    (21, plan_producer(**UNSEEN), LIMITS, [HEALTHY], "open for 30 s"),
    (22, plan_producer(silent_since_ms=NOW_MS - 59_000), HOUR, [HEALTHY], "within the last minute"),
    (23, plan_producer(silent_since_ms=None), HOUR, [HEALTHY], "cannot be seen"),
    (24, plan_producer(usual=USUAL, silent_since_ms=NOW_MS), LIMITS, [HEALTHY], "usual where"),
    (25, plan_producer(started_ms=None, silent_since_ms=None), LIMITS, [HEALTHY], "is unknown"),
    # Refused, an admin may: another system may have decided to commit it.
    (31, two_phase("payments-7"), LIMITS, [RefusalReason.TWO_PHASE], "two-phase"),
    (32, two_phase("sink-0-17", **YOUNG), LIMITS, [RefusalReason.TWO_PHASE, HEALTHY], "checkpointed data"),
    # Refused, also by force: our own sink's.
    (40, plan_producer(SINK_ID, sink=SinkOwner()), LIMITS, [OWN_SINK], "[[checkpoints]]"),
    (41, of_sink("q-1", "orders", 41, prepared=True), LIMITS, [OWN_SINK], "finish_batch q-1@41"),
    (42, of_sink("q-1", "orders", 41), LIMITS, [OWN_SINK], "roll_back_batch q-1@41"),
    (43, plan_producer(sink=SinkOwner("q-1", "orders")), LIMITS, [OWN_SINK], "see its query"),
)
def test_offered_or_refused(
    number: int, each: Producer, limits: Limits, grounds: list[RefusalReason], word: str
) -> None:
    found = plan(each, limits)
    assert [refusal.ground for refusal in found.refusals] == grounds, f"case {number}"
    assert word in " ".join(refusal.words for refusal in found.refusals), f"case {number}: {found.refusals}"
    forceable = [refusal.forceable for refusal in found.refusals]
    assert forceable == [20 <= number < 40] * len(grounds), f"case {number}"
    assert found.subject == f"transaction:{each.transactional_id}"
    # What may be done is said whole, also where it takes force.
    assert bool(found.steps) == all(forceable), f"case {number}"


def test_a_fence_plan_lists_its_checks_and_its_request() -> None:
    found = plan(plan_producer(coordinator=2))
    assert found.seen == {
        "transactional_id": "payments-7", "producer_id": MINE, "producer_epoch": 3,
        "started_ms": NOW_MS - 10 * MINUTE_MS, "timeout_ms": 15 * MINUTE_MS, "state": "Ongoing",
    }  # fmt: skip
    (step,) = found.steps
    assert step.request == "InitProducerId"
    assert "(broker 2), with its own timeout of 15 min" in step.words
    assert found.held == ((TOPIC, 0, 10, 15, 15),)


def test_effects_of_a_fence() -> None:
    each = plan_producer(committing=("billing",), logs=(blocked_log(groups=("audit",)),))
    found = {effect.name: effect for effect in plan(each).effects}
    assert {name: effect.amount for name, effect in found.items()} == {
        "records_released": 3, "groups_released": 1, "records_lost": 2, "commits_dropped": 1,
        "producer_fenced": None,
    }  # fmt: skip
    assert "payments-0 from offset 10 to 11" in found["records_lost"].words
    assert "1 group (billing) reads that input again" in found["commits_dropped"].words
    assert "no record of it was observed for 9 min" in found["producer_fenced"].words


@cases(("sink-0-17", True), (FLINK_POOLED, True), ("sink-17", False), ("sink-0_17", False))
def test_an_id_of_flinks_shape_is_a_warning_that_names_the_risk_unless_nothing_is_open(
    name: str, warned: bool
) -> None:
    words = " ".join(fencing_warnings([plan_producer(name, described_transaction(name))], now_ms=NOW_MS))
    assert ("If it is Flink's, a checkpoint may have decided to commit it" in words) is warned
    assert ("may lose checkpointed data" in words) is warned
    closed = plan_producer(name, described_transaction(name, state=TransactionState.EMPTY))
    assert list(fencing_warnings([closed], now_ms=NOW_MS)) == []


def test_fencing_a_producer_that_may_still_run_is_a_warning() -> None:
    def warnings_of(*each: Producer) -> list[str]:
        return list(fencing_warnings(each, now_ms=NOW_MS))

    assert warnings_of(plan_producer()) == []
    assert warnings_of(missing(Obstacle.UNKNOWN), in_state(TransactionState.EMPTY)) == []
    for lively in (
        plan_producer(silent_since_ms=NOW_MS - LIVELY_MS + 1),
        plan_producer(silent_since_ms=None),
    ):
        (words,) = warnings_of(lively)
        running = "It fences a producer that may still be running"
        assert words.startswith(f"{running}: payments-7 may have been written to")


def test_hanging_transactions_in_other_partitions_are_not_ended_by_a_fence() -> None:
    """The same producer is open in a partition that its coordinator does not name."""
    each = plan_producer(logs=(blocked_log(), blocked_log(1)))
    (words,) = fencing_warnings([each], now_ms=NOW_MS)
    assert words.startswith("payments-1 also holds a transaction of payments-7")
    found = plan(each)
    assert found.held == ((TOPIC, 0, 10, 15, 15),)
    assert {effect.name: effect.amount for effect in found.effects}["records_lost"] == 2


def test_fencing_the_second_blocker_unblocks_what_the_first_blocked() -> None:
    both = blocked_log(opened=(open_producer(10, OTHER), open_producer(12)), batches=None)
    alone = plan_fence(plan_producer(logs=(both,)), now_ms=NOW_MS, limits=LIMITS)
    after = plan_fence(plan_producer(logs=(both,)), now_ms=NOW_MS, limits=LIMITS, ended=frozenset({OTHER}))
    assert {each.name for each in alone.effects} == {"lso_stays", "records_lost", "producer_fenced"}
    assert alone.held == ()
    assert after.held == ((TOPIC, 0, 10, 15, 15),)
    assert next(each.amount for each in after.effects) == 3


@given(
    raw=st.binary(min_size=1, max_size=300),
    state=st.sampled_from(TransactionState),
    timeout_ms=st.integers(1, TWO_PHASE),
    started_ms=st.none() | st.integers(0, 2 * NOW_MS),
    silent_ms=st.none() | st.integers(0, 2 * NOW_MS),
    numbers=st.lists(st.integers(0, 9), unique=True),
    limit_s=st.floats(0.001, 10**9),
)
def test_plans_never_raise_and_are_read_back_from_json(
    raw: bytes, state: TransactionState, timeout_ms: int, started_ms: int | None, silent_ms: int | None,
    numbers: list[int], limit_s: float,
) -> None:  # fmt: skip
    name = text.escape_bytes(raw)
    said = described_transaction(
        name, state=state, timeout_ms=timeout_ms, started_ms=started_ms,
        partitions=(TopicPartitions(TOPIC, tuple(numbers)),),
    )  # fmt: skip
    logs = tuple(blocked_log(number, lso=None if number % 3 == 2 else 10) for number in numbers)
    each = plan_producer(name, said, started_ms=started_ms, silent_since_ms=silent_ms, logs=logs)
    found = plan(each, Limits(open_too_long_s=limit_s))
    list(fencing_warnings([each], now_ms=NOW_MS))
    assert found.seen["transactional_id"] == name
    if state is TransactionState.ONGOING:
        assert found.steps
    else:
        assert found.is_refused
        assert not any(refusal.forceable for refusal in found.refusals)


def test_a_plan_that_differs_has_another_digest() -> None:
    one = Plan(Act.FENCE, "prod", NOW_MS, "payments-7", (plan(plan_producer()),))
    other = replace(one, subjects=(plan(plan_producer(said=described_transaction(producer_epoch=4))),))
    assert one.digest != other.digest
