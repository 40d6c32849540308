"""Proves that an abort marker is offered for what hangs and for nothing else; what is verified again; that of
several in one partition each releases what is behind it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import TopicPartition, TransactionState
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.kafka.partitions import VerdictReason as Why
from fenceline.kafka.reconcile import Described, NotDescribed
from fenceline.plans.impact import HeldLog
from fenceline.plans.markers import Marked, marker_warnings, plan_markers
from fenceline.plans.plan import Act, Plan, RefusalReason, SubjectPlan, from_json
from tests.cases import cases
from tests.unit.factories import (
    MINE,
    NOW_MS,
    OTHER,
    TOPIC,
    blocked_log,
    described_transaction,
    hanging_transaction,
    open_producer,
)

NOT_HANGING, PREPARE = RefusalReason.NOT_HANGING, RefusalReason.PREPARE
NOTHING_OPEN, ALREADY_ENDED = RefusalReason.NOTHING_OPEN, RefusalReason.ALREADY_ENDED
LATE, OPEN = PartitionVerdict.LATE, PartitionVerdict.OPEN
NAME = "payments-7"


def owned(why: Why = Why.OWNED, verdict: PartitionVerdict = PartitionVerdict.OPEN) -> Any:
    return hanging_transaction(transactional_id=NAME, verdict=verdict, ground=why)


def unknown(why: Why) -> Any:
    return hanging_transaction(verdict=PartitionVerdict.UNKNOWN, ground=why)


def marked(*pins: Any, said: Described | NotDescribed | None = None, **fields: Any) -> Marked:
    values = {"leader": 1, "leader_epoch": 5, "remedy": "kafka-acls --add", **fields}
    return Marked(
        values.pop("log", blocked_log()),
        pins=pins,
        descriptions={} if said is None else {NAME: said},
        **values,
    )


def plans(each: Marked, start: int | None = None, **more: Any) -> list[SubjectPlan]:
    found = list(plan_markers(each, start, **more))
    whole = Plan(Act.ABORT_MARKER, "prod", NOW_MS, "payments-0", tuple(found))
    assert from_json(whole.as_json()).digest == whole.digest
    return found


COMMITTING = described_transaction(state=TransactionState.PREPARE_COMMIT)
ABORTING = described_transaction(state=TransactionState.PREPARE_ABORT)
GONE = blocked_log(lso=None, high_watermark=None, opened=(), unseen="there is no such partition")


@cases(
    # Offered: it hangs.
    (marked(hanging_transaction()), None, None, ""),
    (marked(hanging_transaction()), 10, None, ""),
    (marked(hanging_transaction(transactional_id=NAME, ground=Why.NOT_ITS_PARTITION)), None, None, ""),
    # Refused: its coordinator owns it, late or not.
    (marked(owned(), said=described_transaction()), None, NOT_HANGING, "The coordinator still owns this"),
    (marked(owned(Why.PAST_TIMEOUT, LATE), said=described_transaction()), 10, NOT_HANGING, NAME),
    (marked(owned(Why.TWO_PHASE), said=described_transaction()), None, NOT_HANGING, "Fence the id"),
    # Refused: it is decided, whatever its verdict.
    (marked(owned(Why.STUCK_IN_PREPARE, LATE), said=COMMITTING), None, PREPARE, "decided to commit it"),
    (marked(owned(), said=ABORTING), None, PREPARE, "Bring back"),
    # Refused: it cannot be told.
    (marked(unknown(Why.MAY_BE_HIDDEN)), None, RefusalReason.IDS_HIDDEN, "sees_all_transactional_ids ="),
    (marked(unknown(Why.MAY_BE_HIDDEN)), 10, RefusalReason.IDS_HIDDEN, "kafka-acls --add"),
    (marked(unknown(Why.UNSEEN)), None, RefusalReason.NOT_SEEN, "could not be asked"),
    (marked(unknown(Why.SEEN_ONCE)), None, RefusalReason.NOT_SEEN, "once only"),
    (marked(log=GONE), None, RefusalReason.NOT_SEEN, "there is no such partition"),
    # Refused: nothing is there.
    (marked(log=blocked_log(opened=())), None, NOTHING_OPEN, "No transaction is open in payments-0"),
    (marked(hanging_transaction()), 11, ALREADY_ENDED, "at offset 11: it has ended. 1 transaction of other"),
    (marked(log=blocked_log(opened=())), 10, ALREADY_ENDED, "it has ended."),
)
def test_offered_or_refused(each: Marked, start: int | None, ground: RefusalReason | None, word: str) -> None:
    (found,) = plans(each, start)
    assert found.subject == "partition:payments-0"
    if ground is None:
        assert found.refusals == ()
        assert [step.request for step in found.steps] == ["WriteTxnMarkers"]
        return
    assert [refusal.ground for refusal in found.refusals] == [ground]
    assert word in found.refusals[0].words, found.refusals[0].words
    assert not found.refusals[0].forceable
    assert found.steps == ()


@pytest.mark.parametrize(("told", "expected"), [(None, 0), (-1, 0), (0, 0), (17, 17)])
def test_a_marker_plan_lists_its_checks(told: int | None, expected: int) -> None:
    (found,) = plans(marked(hanging_transaction(coordinator_epoch=told)))
    assert found.seen == {
        "topic": TOPIC, "partition": 0, "producer_id": MINE, "producer_epoch": 3, "start_offset": 10,
        "leader": 1, "leader_epoch": 5, "coordinator_epoch": expected,
    }  # fmt: skip
    assert found.title == "payments-0 at offset 10"
    assert {effect.name: effect.amount for effect in found.effects} == {
        "records_released": 3, "records_lost": 2,
    }  # fmt: skip
    assert found.held == ((TOPIC, 0, 10, 15, 15),)


def test_all_hanging_transactions_are_planned_and_no_owned_one() -> None:
    """One is its coordinator's, between two that hang: the second one waits behind it."""
    ours = (open_producer(10), open_producer(20, OTHER), open_producer(30, 6_000))
    whole = blocked_log(opened=ours, high_watermark=40, batches=None)
    pins = (
        hanging_transaction(30, producer_id=6_000),
        hanging_transaction(),
        hanging_transaction(20, producer_id=OTHER, verdict=PartitionVerdict.OPEN),
    )
    found = plans(marked(*pins, log=whole))
    assert [each.title for each in found] == ["payments-0 at offset 10", "payments-0 at offset 30"]
    assert [each.is_refused for each in found] == [False, False]
    assert [each.held for each in found] == [((TOPIC, 0, 10, 40, 20),), ()]
    assert [each.effects[0].name for each in found] == ["offsets_released", "lso_stays"]
    assert found[0].effects[0].amount == 10
    # Where another subject of the plan ends the first one, the next is the first.
    (last,) = plans(marked(*pins, log=whole), 30, ended=frozenset({MINE, OTHER}))
    assert last.effects[0].amount == 10


def test_each_transaction_that_does_not_hang_is_refused_with_a_reason() -> None:
    not_hanging = hanging_transaction(20, verdict=OPEN, transactional_id=NAME)
    found = plans(marked(unknown(Why.MAY_BE_HIDDEN), not_hanging))
    expected = [RefusalReason.IDS_HIDDEN, RefusalReason.NOT_HANGING]
    assert [each.refusals[0].ground for each in found] == expected


def test_a_producer_that_may_still_write_is_a_warning() -> None:
    def warnings_of(each: Marked) -> list[str]:
        return list(marker_warnings([each], now_ms=NOW_MS))

    assert warnings_of(marked(hanging_transaction(), silent_since_ms={MINE: NOW_MS - 61_000})) == []
    assert warnings_of(marked(owned(), said=described_transaction())) == []
    for silent in ({}, {MINE: NOW_MS - 1_000}):
        (words,) = warnings_of(marked(hanging_transaction(), silent_since_ms=silent))
        assert words.startswith(f"Make sure that producer id {MINE}, epoch 3 is gone")


@given(
    starts=st.lists(st.integers(0, 50), max_size=8, unique=True),
    verdicts=st.lists(st.sampled_from(PartitionVerdict), min_size=8, max_size=8),
    grounds=st.lists(st.sampled_from(Why), min_size=8, max_size=8),
    start=st.none() | st.integers(0, 50),
    lso=st.none() | st.integers(0, 50),
)
def test_plans_never_raise_and_abort_only_hanging_transactions(
    starts: list[int],
    verdicts: list[PartitionVerdict],
    grounds: list[Why],
    start: int | None,
    lso: int | None,
) -> None:
    producers = tuple(open_producer(each, 100 + each) for each in sorted(starts))
    pins = [
        hanging_transaction(each, producer_id=100 + each, verdict=verdict, ground=why)
        for each, verdict, why in zip(starts, verdicts, grounds, strict=False)
    ]
    where = TopicPartition(TOPIC, 0)
    each = marked(*pins, log=HeldLog(where, lso, 60 if lso is not None else None, producers))
    found = plans(each, start)
    assert found
    hanging = {one.start_offset for one in pins if one.verdict is PartitionVerdict.HANGING}
    for subject in found:
        assert subject.is_refused != (subject.seen["start_offset"] in hanging)
    list(marker_warnings([each], now_ms=NOW_MS))
