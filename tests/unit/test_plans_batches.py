"""Proves which batches of the sink may be finished and which rolled back, never a prepared one; that lost
records are reported with their range."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import TopicPartition
from fenceline.plans.batches import (
    SinkBatchFacts,
    finish_warnings,
    plan_finish,
    plan_roll_back,
    roll_back_warnings,
)
from fenceline.plans.plan import Act, Plan, RefusalReason, SubjectPlan, from_json
from fenceline.spark.records import Decided, Decision, DecisionOutcome, Done, InputRange, SinkTransaction
from fenceline.spark.sink_fates import TransactionFate
from tests.cases import cases
from tests.unit.factories import (
    MINE,
    NOW_MS,
    OTHER,
    TOPIC,
    blocked_log,
    data_batch,
    described_transaction,
    open_producer,
)

QUERY = "8a5c1f7e-2b7d-4b8e-9d5c-0d5a1c2b3e4f"


def transaction(number: int = 0) -> SinkTransaction:
    name = f"orders-0a1b2c3d-p{number}-g1-b1-s0"
    where = (TopicPartition(TOPIC, number),)
    return SinkTransaction(number, 0, name, MINE + number, 3, where, 500, NOW_MS - 5_000, 60_000)


def decision(decided: Decided = Decided.PREPARED, round_: int = 0, number: int = 2) -> Decision:
    transactions = tuple(map(transaction, range(number)))
    read = (InputRange("0", '{"orders":{"0":400}}', '{"orders":{"0":1400}}'),)
    return Decision(41, round_, decided, "driver", NOW_MS - 4_000, "0a1b", QUERY, "r", 1, transactions, read)


def done(outcome: DecisionOutcome = DecisionOutcome.COMMITTED) -> Done:
    return Done(41, 0, outcome, NOW_MS - 3_000, "driver")


def written(*fates: TransactionFate) -> Mapping[SinkTransaction, TransactionFate]:
    return {transaction(number): fate for number, fate in enumerate(fates)}


def batch(**fields: Any) -> SinkBatchFacts:
    values = {
        "checkpoint": "file:///checkpoints/orders", "root": "/checkpoints", "ledger_id": "0a1b2c3d4e5f",
        "query_id": QUERY, "generation": 2, "last_prepared": 40, "planned": 41, **fields,
    }  # fmt: skip
    return SinkBatchFacts(QUERY, "orders", 41, **values)


def prepared(*fates: TransactionFate, **fields: Any) -> SinkBatchFacts:
    values = {"rounds": (decision(),), "last_prepared": 41, "written": written(*fates), **fields}
    return batch(prepared=(41,), **values)


def undecided(**fields: Any) -> SinkBatchFacts:
    sink = described_transaction("orders-0a1b2c3d-p0-g1-b1-s0")
    return batch(**{"undecided": (sink,), "logs": (blocked_log(),), **fields})


def checked(act: Act, found: SubjectPlan) -> SubjectPlan:
    whole = Plan(act, "prod", NOW_MS, "orders@41", (found,))
    assert from_json(whole.as_json()).digest == whole.digest
    return found


def finish(each: SinkBatchFacts) -> SubjectPlan:
    return checked(Act.FINISH_BATCH, plan_finish(each))


def roll_back(each: SinkBatchFacts) -> SubjectPlan:
    return checked(Act.ROLL_BACK_BATCH, plan_roll_back(each, now_ms=NOW_MS))


OPEN, GONE, COMMITTED = TransactionFate.OPEN, TransactionFate.ABORTED, TransactionFate.COMMITTED
ABORTED = decision(Decided.ABORTED)
TROUBLE = {"trouble": "the store is away"}


@cases(
    # Offered: prepared, and nobody has carried it out to the end.
    (prepared(OPEN, OPEN), None, ""),
    (prepared(OPEN, COMMITTED), None, ""),
    (prepared(OPEN, GONE), None, ""),
    (prepared(GONE, GONE), None, ""),
    (prepared(COMMITTED, COMMITTED), None, ""),
    (prepared(OPEN, OPEN, alive=True), None, ""),
    (prepared(OPEN, rounds=(ABORTED, decision(round_=1, number=1))), None, ""),
    # Refused: nothing is prepared.
    (batch(), RefusalReason.NOT_PREPARED, "Nothing is decided about batch 41 of orders"),
    (undecided(), RefusalReason.NOT_PREPARED, f"roll_back_batch {QUERY}@41"),
    (batch(rounds=(ABORTED,)), RefusalReason.NOT_PREPARED, "was aborted by the driver"),
    # Refused: it is over.
    (prepared(done=done()), RefusalReason.ALREADY_ENDED, "Batch 41 of orders is committed since"),
    (prepared(done=done(DecisionOutcome.LOST)), RefusalReason.ALREADY_ENDED, "is lost since"),
    # Refused: it cannot be told.
    (prepared(**TROUBLE), RefusalReason.LEDGER_UNREADABLE, "the store is away"),
    (prepared(unseen="broker 1: no answer"), RefusalReason.NOT_SEEN, "broker 1: no answer"),
)
def test_finish_is_offered_or_refused(each: SinkBatchFacts, ground: RefusalReason | None, word: str) -> None:
    found = finish(each)
    assert [refusal.ground for refusal in found.refusals] == ([ground] if ground else [])
    assert word in "".join(refusal.words for refusal in found.refusals), found.refusals
    assert not any(refusal.forceable for refusal in found.refusals)
    assert bool(found.steps) == (ground is None)


@cases(
    # Offered: nothing of it is prepared, and something is open.
    (undecided(), None, ""),
    (undecided(alive=False), None, ""),
    (undecided(rounds=(ABORTED,)), None, ""),
    (undecided(last_prepared=None, first_batch=41), None, ""),
    # Refused, also by force: it is prepared, or over.
    (prepared(OPEN), RefusalReason.PREPARED, f"finish_batch {QUERY}@41"),
    (prepared(OPEN, alive=True), RefusalReason.PREPARED, "can only be committed"),
    (prepared(done=done()), RefusalReason.PREPARED, "is committed since"),
    (undecided(last_prepared=41), RefusalReason.ALREADY_ENDED, "batch 41 is prepared already"),
    (undecided(last_prepared=None, first_batch=42), RefusalReason.ALREADY_ENDED, "begins with batch 42"),
    (undecided(prepared=(40,)), RefusalReason.PREPARED, f"finish_batch {QUERY}@40"),
    # Refused: it cannot be told.
    (undecided(**TROUBLE), RefusalReason.LEDGER_UNREADABLE, "the store is away"),
    (undecided(unseen="broker 1: no answer"), RefusalReason.NOT_SEEN, "broker 1: no answer"),
    # Refused: there is nothing of it.
    (batch(), RefusalReason.NOTHING_OPEN, "No transaction of batch 41"),
    (undecided(planned=40), RefusalReason.NOTHING_OPEN, "is not planned"),
    (undecided(planned=None), RefusalReason.NOTHING_OPEN, "the newest one in the offset log is none"),
    # Refused, an admin may: its driver lives.
    (undecided(alive=True, heard_ms=NOW_MS - 3_000), RefusalReason.DRIVER_LIVES, "last heartbeat 3 s ago"),
)
def test_roll_back_is_offered_or_refused(
    each: SinkBatchFacts, ground: RefusalReason | None, word: str
) -> None:
    found = roll_back(each)
    assert [refusal.ground for refusal in found.refusals] == ([ground] if ground else [])
    assert word in "".join(refusal.words for refusal in found.refusals), found.refusals
    forceable = [refusal.forceable for refusal in found.refusals]
    assert forceable == ([ground is RefusalReason.DRIVER_LIVES] if ground else [])
    assert bool(found.steps) == all(forceable)


def test_finishing_lists_its_checks_confirmation_and_steps() -> None:
    held = blocked_log(
        opened=(open_producer(10), open_producer(20, OTHER)), high_watermark=30, batches=(data_batch(10, 2),)
    )
    found = finish(prepared(OPEN, COMMITTED, logs=(held,)))
    first = transaction()
    assert found.seen == {
        "query": QUERY, "checkpoint": "file:///checkpoints/orders", "root": "/checkpoints",
        "ledger_id": "0a1b2c3d4e5f", "query_id": QUERY, "batch_id": 41, "round": 0, "generation": 2,
        "transactions": [[first.transactional_id, MINE, 3, NOW_MS - 5_000]],
    }  # fmt: skip
    assert (found.subject, found.title) == (f"query:{QUERY}", "orders, batch 41")
    assert [step.request for step in found.steps] == ["EndTxn", "ledger"]
    assert "41.0.done" in found.steps[1].words
    assert {effect.name: effect.amount for effect in found.effects} == {
        "records_committed": 500, "committed_before": 1, "records_released": 0, "batch_recorded": None,
    }  # fmt: skip
    assert found.held == ((TOPIC, 0, 10, 30, 20),)


def test_lost_records_are_given_with_their_range() -> None:
    each = prepared(GONE, TransactionFate.UNKNOWN)
    (lost,) = [effect for effect in finish(each).effects if effect.name == "records_lost"]
    assert lost.amount == 1_000
    assert lost.words.startswith("At most 1,000 records of it are lost: orders-0a1b2c3d-p0-g1-b1-s0 and ")
    assert (
        'from what the batch read: source 0 from {"orders":{"0":400}} to {"orders":{"0":1400}}' in lost.words
    )
    (words,) = finish_warnings([each], now_ms=NOW_MS)
    assert "2 transactions of batch 41 of orders are gone" in words
    assert [step.request for step in finish(each).steps] == ["ledger"]


def test_a_running_driver_or_an_unknown_one_is_a_warning() -> None:
    each = prepared(OPEN, OPEN, alive=True, heard_ms=NOW_MS - 3_000)
    (words,) = finish_warnings([each], now_ms=NOW_MS)
    lives = "The driver of orders lives (last heartbeat 3 s ago): it finishes the batch itself"
    assert words.startswith(lives)
    assert list(finish_warnings([prepared(OPEN, OPEN, alive=False)], now_ms=NOW_MS)) == []
    (words,) = roll_back_warnings([undecided()])
    assert words.startswith("Whether the driver of orders is running is unknown")
    assert list(roll_back_warnings([undecided(alive=False), batch()])) == []


def test_rolling_back_lists_its_checks_confirmation_and_steps() -> None:
    each = undecided(rounds=(ABORTED, replace(ABORTED, round=1)), logs=(blocked_log(groups=("billing",)),))
    found = roll_back(each)
    (open_one,) = each.undecided
    assert found.seen["round"] == 2
    assert found.seen["generation"] == 2
    assert found.seen["transactions"] == [[open_one.transactional_id, MINE, 3, open_one.started_ms]]
    assert [step.request for step in found.steps] == ["ledger", "EndTxn", "ledger"]
    assert "41.2.decision" in found.steps[0].words
    assert {effect.name: effect.amount for effect in found.effects} == {
        "records_aborted": 2, "records_released": 3, "groups_released": 1, "batch_runs_again": None,
    }  # fmt: skip
    assert "Nothing is lost" in found.effects[-1].words
    assert found.waiting == ("billing",)


@given(
    rounds=st.lists(st.sampled_from(Decided), max_size=3),
    outcome=st.none() | st.sampled_from(DecisionOutcome),
    fates=st.lists(st.sampled_from(TransactionFate), max_size=4),
    last=st.none() | st.integers(39, 43),
    planned=st.none() | st.integers(39, 43),
    others=st.lists(st.integers(38, 40), max_size=2),
    alive=st.none() | st.booleans(),
    opened_too=st.booleans(),
)
def test_no_batch_can_be_both_finished_and_rolled_back_and_no_prepared_one_rolled_back(
    rounds: list[Decided],
    outcome: DecisionOutcome | None,
    fates: list[TransactionFate],
    last: int | None,
    planned: int | None,
    others: list[int],
    alive: bool | None,
    opened_too: bool,
) -> None:
    each = batch(
        rounds=tuple(decision(decided, number) for number, decided in enumerate(rounds)),
        done=done(outcome) if outcome and rounds else None,
        written=written(*fates), last_prepared=last, planned=planned, prepared=tuple(others), alive=alive,
        undecided=(described_transaction("orders-0a1b2c3d-p0-g1-b1-s0"),) if opened_too else (),
        logs=(blocked_log(),),
    )  # fmt: skip
    finished, rolled = finish(each), roll_back(each)
    assert finished.is_refused or rolled.is_refused
    if rounds and rounds[-1] is Decided.PREPARED:
        assert not any(refusal.forceable for refusal in rolled.refusals)
        assert rolled.is_refused
    list(finish_warnings([each], now_ms=NOW_MS))
    list(roll_back_warnings([each]))
