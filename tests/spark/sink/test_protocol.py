"""Proves the sink's protocol on a real broker, without Spark: tasks write and flush, drivers decide, die,
come back, take over from each other and are late; readers of committed records get each batch exactly once,
or the sink reports which batch, range and ids are lost."""

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from fenceline.decode.ledger import Round
from fenceline.facts import TransactionState
from fenceline.kafka.reconcile import Described
from fenceline.spark.records import Decided, Decision, DecisionOutcome
from spark_pipeline.sink import names
from spark_pipeline.sink.coordinator import Attempt
from spark_pipeline.sink.errors import LostTransactions, SinkError
from spark_pipeline.sink.options import translate_options
from spark_pipeline.sink.steps import Step
from spark_pipeline.sink.task.writer import admin_for
from tests.spark.sink.queries import FakeQuery, open_ids, states, values_of
from tests.waiting import wait_for
from transaction_admin.api import Ending

pytestmark = pytest.mark.kafka


class DriverStopped(Exception):
    """Where a driver's process would be killed."""


def stopping_at(at: Step, batch_id: int = 0) -> Callable[[Step, int], None]:
    def die(step: Step, batch: int) -> None:
        if (step, batch) == (at, batch_id):
            raise DriverStopped

    return die


def end_behind_its_back(query: FakeQuery, attempt: Attempt, transactional_id: str) -> None:
    """Abort a transaction as its timeout would."""
    admin = admin_for(translate_options(query.options).connection)
    said = admin.describe_transactions([transactional_id])[transactional_id]
    assert isinstance(said, Described)
    ending = Ending(transactional_id, said.producer_id, said.producer_epoch, commit=False)
    assert admin.end_transactions([ending], timeout_s=30)[transactional_id].code == 0


def test_batches_are_committed_one_after_the_other(query: FakeQuery) -> None:
    steps: list[tuple[Step, int]] = []
    driver = query.driver(0, observer=lambda step, batch: steps.append((step, batch)))
    for batch in range(3):
        attempt = query.begin(driver, batch)
        written = query.run_tasks(attempt)
        expected = sorted(value for before in range(batch) for value in values_of(before, 0, 1))
        assert query.committed() == expected
        driver.commit(attempt, written)
    assert query.committed() == sorted(value for batch in range(3) for value in values_of(batch, 0, 1))
    of_each = [step for step in Step if step is not Step.OPENED]
    assert steps == [(Step.OPENED, 0), *((step, batch) for batch in range(3) for step in of_each)]
    assert [each.outcome for each in query.ledger.read_state().done] == [DecisionOutcome.COMMITTED] * 3
    assert query.ledger.read_state().broken == ()
    decision = query.ledger.read_decision(Round(1, 0))
    assert decision.input[0].start == f'{{"{query.topic}": {{"0": 10}}}}'
    assert decision.input[0].end == f'{{"{query.topic}": {{"0": 20}}}}'


def test_a_batch_that_is_done_is_skipped_and_one_without_rows_is_done(query: FakeQuery) -> None:
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    assert query.run_task(attempt, 0, []) is None
    driver.commit(attempt, [])
    assert driver.begin(0) is None
    assert query.driver(0).begin(0) is None
    assert open_ids(query) == []


@pytest.mark.parametrize("step", list(Step))
def test_a_driver_that_stops_at_any_step_loses_no_batch(query: FakeQuery, step: Step) -> None:
    try:
        driver = query.driver(0, observer=stopping_at(step))
        attempt = query.begin(driver, 0)
        driver.commit(attempt, query.run_tasks(attempt, tasks=3))
    except DriverStopped:
        pass
    decided = "0.0.decision" in query.files()
    assert decided == (list(Step).index(step) >= list(Step).index(Step.PREPARED))
    assert ("0.0.done" in query.files()) == (step is Step.DONE)
    again = query.driver(0)
    # What was prepared is committed before the first batch, what was not is not to be seen and not open.
    assert query.committed() == (values_of(0, 0, 1, 2) if decided else [])
    assert open_ids(query) == []
    if not decided:
        attempt = query.begin(again, 0)
        assert attempt.round == 1
        again.commit(attempt, query.run_tasks(attempt, tasks=3))
    assert again.begin(0) is None
    assert query.committed() == values_of(0, 0, 1, 2)
    assert query.ledger.read_state().open_decisions() == ()
    done = query.ledger.read_outcome(Round(0, int(not decided)))
    assert done is not None
    assert done.outcome is DecisionOutcome.COMMITTED


def test_a_driver_that_was_taken_over_can_no_longer_prepare(query: FakeQuery) -> None:
    late = query.driver(0)
    attempt = query.begin(late, 0)
    written = query.run_tasks(attempt)
    now = query.driver(0)
    with pytest.raises(SinkError, match=r"another driver took over: generation 2"):
        late.commit(attempt, written)
    with pytest.raises(SinkError, match="another driver took over"):
        late.begin(0)
    attempt = query.begin(now, 0)
    now.commit(attempt, query.run_tasks(attempt))
    assert query.committed() == values_of(0, 0, 1)


def test_a_driver_that_was_taken_over_is_refused_before_it_decides(query: FakeQuery) -> None:
    late = query.driver(0)
    attempt = query.begin(late, 0)
    written = query.run_tasks(attempt)
    query.ledger.claim_generation("another run", 1)
    with pytest.raises(SinkError, match=r"generation 2 of the ledger.*newer than ours \(1\)"):
        late.commit(attempt, written)
    assert "0.0.decision" not in query.files()


def test_of_two_decisions_the_first_one_counts(query: FakeQuery) -> None:
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    first, second = query.run_tasks(attempt), query.run_tasks(attempt)
    driver.commit(attempt, first)
    driver.commit(attempt, second)
    assert query.committed() == values_of(0, 0, 1)
    assert open_ids(query) == []


def test_an_operator_rolls_a_batch_back_before_it_is_prepared(query: FakeQuery) -> None:
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    by_operator = Decision(
        0, 0, Decided.ABORTED, "operator", 1, attempt.ledger_id, attempt.query_id, "", 1, reason="too slow"
    )
    assert query.ledger.decide(by_operator) == by_operator
    with pytest.raises(SinkError, match=r"batch 0 was rolled back by operator.*too slow"):
        driver.commit(attempt, written)
    assert open_ids(query) == []
    attempt = query.begin(driver, 0)
    assert attempt.round == 1
    driver.commit(attempt, query.run_tasks(attempt))
    assert query.committed() == values_of(0, 0, 1)


def test_a_failed_batch_is_rolled_back_with_unreported_transactions(query: FakeQuery) -> None:
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    query.run_task(attempt, 0, ["stray"], number=1)
    driver.abort(attempt, written[:1], "a task failed")
    assert open_ids(query) == []
    driver.abort(attempt, [], "again")
    attempt = query.begin(driver, 0)
    driver.commit(attempt, query.run_tasks(attempt))
    driver.abort(attempt, [], "too late: it is prepared")
    assert query.committed() == values_of(0, 0, 1)
    expected = {DecisionOutcome.ABORTED, DecisionOutcome.COMMITTED}
    assert {each.outcome for each in query.ledger.read_state().done} == expected


def test_an_id_that_another_attempt_has_open_is_not_used(query: FakeQuery) -> None:
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    first = query.run_task(attempt, 0, ["a"])
    second = query.run_task(attempt, 0, ["b"])
    assert first is not None
    assert second is not None
    slots = [names.parse_id(each.transactional_id) for each in (first, second)]
    assert [each and each.slot for each in slots] == [0, 2]
    assert states(query, first.transactional_id, second.transactional_id) == [TransactionState.ONGOING] * 2
    driver.abort(attempt, [first, second], "enough seen")


def test_a_transaction_ended_before_the_decision_rolls_the_whole_batch_back(query: FakeQuery) -> None:
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    end_behind_its_back(query, attempt, written[1].transactional_id)
    with pytest.raises(SinkError, match="batch 0 was rolled back") as raised:
        driver.commit(attempt, written)
    assert written[1].transactional_id in str(raised.value)
    assert f'{{"{query.topic}": {{"0": 10}}}}' in str(raised.value)
    assert open_ids(query) == []
    assert query.committed() == []


def test_a_batch_with_too_little_time_left_is_refused(query: FakeQuery) -> None:
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    with pytest.raises(SinkError, match="too little is left of its timeout of 60 s"):
        driver.commit(attempt._replace(begun_s=attempt.begun_s - 59.5), written)
    assert query.committed() == []


def test_another_process_can_finish_only_a_prepared_batch(query: FakeQuery) -> None:
    """As the sink does before its query has started; a living driver notices nothing of it."""
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    query.finisher().finish_prepared()
    assert set(open_ids(query)) == {each.transactional_id for each in written}
    driver.commit(attempt, written)
    late = query.driver(1, observer=stopping_at(Step.PREPARED, 1))
    attempt = query.begin(late, 1)
    with pytest.raises(DriverStopped):
        late.commit(attempt, query.run_tasks(attempt))
    query.finisher().finish_prepared()
    assert query.committed() == values_of(0, 0, 1) + values_of(1, 0, 1)
    assert query.ledger.read_names().generation == 2, "nobody was taken over"
    assert query.ledger.read_state().open_decisions() == ()


def test_a_late_finish_of_a_batch_finds_it_done(query: FakeQuery) -> None:
    """Meanwhile the running driver continues to the batch after the next, with the same ids: no loss."""
    half, gone_on = threading.Event(), threading.Event()

    def pause(step: Step, batch: int) -> None:
        if step is Step.ENDING:
            half.set()
            assert gone_on.wait(60)

    with ThreadPoolExecutor(1) as threads:
        late: list[Future[None]] = []

        def meet(step: Step, batch: int) -> None:
            if (step, batch) == (Step.PREPARED, 0):
                late.append(threads.submit(query.finisher(observer=pause).finish_prepared))
                assert half.wait(60)

        driver = query.driver(0, observer=meet)
        for batch in range(3):
            attempt = query.begin(driver, batch)
            written = query.run_tasks(attempt)
            if batch == 2:
                gone_on.set()
                late[0].result(60)
            driver.commit(attempt, written)
    assert query.committed() == [value for batch in range(3) for value in values_of(batch, 0, 1)]


def test_a_lost_transaction_is_reported_at_each_start_until_it_is_accepted(query: FakeQuery) -> None:
    driver = query.driver(0, timeout_ms=3_000, observer=stopping_at(Step.PREPARED))
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    with pytest.raises(DriverStopped):
        driver.commit(attempt, written)
    lost = [each.transactional_id for each in written]
    wait_for(lambda: states(query, *lost) == [TransactionState.COMPLETE_ABORT] * 2, "their timeout ends them")
    for _ in range(2):
        with pytest.raises(LostTransactions, match="batch 0 has lost 4 records: 2 of its 2") as raised:
            query.driver(0)
        report = raised.value
        assert (report.batch_id, report.records, list(report.transactional_ids)) == (0, 4, lost)
        assert report.input[0].end == f'{{"{query.topic}": {{"0": 10}}}}'
        assert "accept_loss=[0]" in str(report)
        assert "PRODUCER_FENCED" in str(report)
    again = query.driver(0, accept_loss=[0])
    assert again.begin(0) is None
    assert query.ledger.read_state().done[0].outcome is DecisionOutcome.LOST
    assert list(query.ledger.read_state().done[0].lost) == lost
    attempt = query.begin(query.driver(1), 1)
    assert attempt.batch_id == 1


def test_the_rest_of_a_batch_that_lost_something_is_committed(query: FakeQuery) -> None:
    driver = query.driver(0, observer=stopping_at(Step.PREPARED))
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    with pytest.raises(DriverStopped):
        driver.commit(attempt, written)
    end_behind_its_back(query, attempt, written[0].transactional_id)
    with pytest.raises(LostTransactions, match="batch 0 has lost 2 records: 1 of its 2"):
        query.driver(0)
    assert query.committed() == values_of(0, 1)


def test_old_batches_are_purged(query: FakeQuery) -> None:
    driver = query.driver(0)
    for batch in range(12):
        driver.commit(query.begin(driver, batch), [])
    query.ledger.purge(keep=3)
    found = query.ledger.read_names()
    assert [each.batch_id for each in found.decisions] == [9, 10, 11]
    assert found.done == found.decisions
    assert query.driver(12).begin(12) is not None


def test_the_newest_generation_is_used_by_a_host_without_state(query: FakeQuery) -> None:
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    query.run_tasks(attempt)
    unknown = driver.unknown_attempt(0)
    assert unknown is not None
    same = {"run_id": attempt.run_id, "begun_s": attempt.begun_s, "lease": attempt.lease}
    assert unknown._replace(**same) == attempt
    driver.abort(unknown, [], "the query was stopped")
    assert open_ids(query) == []
    following = driver.unknown_attempt(0)
    assert following is not None
    assert following.round == 1
    assert dataclasses.is_dataclass(query.ledger.read_decision(Round(0, 0)))
