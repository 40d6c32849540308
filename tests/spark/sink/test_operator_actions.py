"""Proves that an operator ends what a driver left that died at any step of the sink's protocol: what it had
prepared is finished, what it had not is rolled back, never the other way round; and readers of committed
records see each batch exactly once, whether the driver comes back or stays stopped."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dashboard.actions import follow_up
from dashboard.config import CheckpointRoot
from dashboard.models import Action, Cluster, Query
from dashboard.runtime import loop
from fenceline.decode.ledger import Round
from fenceline.plans.plan import Act, Plan
from fenceline.spark.records import Decided, DecisionOutcome, QueryState
from spark_pipeline.sink.errors import LostTransactions, SinkError
from spark_pipeline.sink.steps import Step
from tests.cases import cases
from tests.kafka.action_worker import (
    CLUSTER,
    configured_cluster,
    execute_plan,
    execute_until_killed,
    kill_at,
    make_plan,
    outcomes,
    result_texts,  # fmt: skip
)
from tests.spark.sink.queries import FakeQuery, values_of
from tests.spark.sink.test_protocol import DriverStopped, end_behind_its_back, open_ids, stopping_at

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

DECIDED = (Step.PREPARED, Step.ENDING, Step.ENDED, Step.DONE)
UNDECIDED = (Step.WRITTEN, Step.VERIFIED)
LEFT_PREPARED = (Step.PREPARED, Step.ENDING, Step.ENDED)


@pytest.fixture(autouse=True)
def known(query: FakeQuery) -> Iterator[None]:
    """The query as the collector of checkpoints saves it."""
    root = CheckpointRoot(str(query.folder.parent), CLUSTER)
    with configured_cluster({"bootstrap.servers": query.options["kafka.bootstrap.servers"]}, [root]):
        Query.objects.create(
            cluster=Cluster.objects.get(), ident=query.query_id, query_id=query.query_id, name="orders",
            checkpoint=str(query.folder), state=QueryState.UNHEARD, rev=0,
        )  # fmt: skip
        yield


def killed(query: FakeQuery, step: Step) -> None:
    """Run batch 0 until its driver dies at a step."""
    with suppress(DriverStopped):
        driver = query.driver(0, observer=stopping_at(step))
        attempt = query.begin(driver, 0)
        driver.commit(attempt, query.run_tasks(attempt, tasks=3))


def plan(query: FakeQuery, act: Act) -> Plan:
    return make_plan(act, f"{query.query_id}@0", force=False)


@pytest.mark.parametrize("step", list(Step))
def test_a_batch_of_a_stopped_driver_is_ended_by_its_ledger(query: FakeQuery, step: Step) -> None:
    killed(query, step)
    finish, roll_back = plan(query, Act.FINISH_BATCH), plan(query, Act.ROLL_BACK_BATCH)
    assert bool(finish.doable_subjects) == (step in LEFT_PREPARED)
    assert bool(roll_back.doable_subjects) == (step in UNDECIDED)
    for each in finish, roll_back:
        if each.doable_subjects:
            row = execute_plan(each)
            assert (row.state, outcomes(row)) == (Action.State.DONE, ["done"]), result_texts(row)
    if step in LEFT_PREPARED:
        done = query.ledger.read_outcome(Round(0, 0))
        assert done is not None
        assert (done.by, done.outcome, done.lost) == ("operator", DecisionOutcome.COMMITTED, ())
    # As long as the driver stays stopped, and then when it comes back.
    assert query.committed() == (values_of(0, 0, 1, 2) if step in DECIDED else [])
    assert open_ids(query) == []
    assert query.ledger.read_state().open_decisions() == ()
    again = query.driver(0)
    if step not in DECIDED:
        attempt = query.begin(again, 0)
        again.commit(attempt, query.run_tasks(attempt, tasks=3))
    assert again.begin(0) is None
    assert query.committed() == values_of(0, 0, 1, 2)
    attempt = query.begin(again, 1)
    again.commit(attempt, query.run_tasks(attempt))
    assert query.committed() == sorted(values_of(0, 0, 1, 2) + values_of(1, 0, 1))


def comes_back(query: FakeQuery) -> None:
    query.driver(0)


def is_decided(query: FakeQuery) -> None:
    driver = query.finisher()
    attempt = driver.unknown_attempt(0)
    assert attempt is not None
    driver.abort(attempt, (), "it was given up")


@cases(
    (Step.PREPARED, Act.FINISH_BATCH, comes_back, "batch 0 is committed already, by driver"),
    (Step.WRITTEN, Act.ROLL_BACK_BATCH, comes_back, "the decision is there already: driver has it aborted"),
    (Step.WRITTEN, Act.ROLL_BACK_BATCH, is_decided, "the decision is there already: driver has it aborted"),
)
def test_a_change_by_the_driver_since_the_preview_takes_precedence(
    query: FakeQuery, step: Step, act: Act, happens: Callable[[FakeQuery], None], said: str
) -> None:
    killed(query, step)
    made = plan(query, act)
    happens(query)
    files = query.files()
    row = execute_plan(made)
    assert (row.state, outcomes(row)) == (Action.State.STALE, ["stale"])
    assert said in result_texts(row)
    assert query.files() == files


def test_a_driver_that_prepares_first_takes_precedence(query: FakeQuery) -> None:
    """Between the last check and the decision: the exclusive create is the arbiter."""
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    made = plan(query, Act.ROLL_BACK_BATCH)
    row = execute_plan(made, lambda step, _: driver.commit(attempt, written) if step == "ledger" else None)
    assert outcomes(row) == ["stale"]
    assert "driver has decided in the meantime: the batch is prepared" in result_texts(row)
    assert query.committed() == values_of(0, 0, 1)


def test_a_rolled_back_batch_of_a_running_driver_fails_and_runs_again(query: FakeQuery) -> None:
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    assert outcomes(execute_plan(plan(query, Act.ROLL_BACK_BATCH))) == ["done"]
    with pytest.raises(SinkError, match="rolled back by operator"):
        driver.commit(attempt, written)
    attempt = query.begin(driver, 0)
    driver.commit(attempt, query.run_tasks(attempt))
    assert query.committed() == values_of(0, 0, 1)


def test_transactions_lost_since_the_preview_are_reported_and_not_accepted(query: FakeQuery) -> None:
    driver = query.driver(0, observer=stopping_at(Step.PREPARED))
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    with pytest.raises(DriverStopped):
        driver.commit(attempt, written)
    made = plan(query, Act.FINISH_BATCH)
    end_behind_its_back(query, attempt, written[0].transactional_id)
    row = execute_plan(made)
    assert (row.state, outcomes(row)) == (Action.State.FAILED, ["failed"])
    assert "batch 0 has lost 2 records: 1 of its 2 transactions" in result_texts(row)
    assert "accept_loss=[0]" in result_texts(row)
    assert query.ledger.read_outcome(Round(0, 0)) is None
    with pytest.raises(LostTransactions):
        query.driver(0)
    # A new plan tells the loss: who types its confirmation accepts it.
    row = execute_plan(plan(query, Act.FINISH_BATCH))
    assert (row.state, outcomes(row)) == (Action.State.DONE, ["done"]), result_texts(row)
    done = query.ledger.read_outcome(Round(0, 0))
    assert done is not None
    assert (done.outcome, done.lost) == (DecisionOutcome.LOST, (written[0].transactional_id,))
    query.driver(1)


@cases(
    ("ledger", 0, Action.State.FAILED, "nothing was decided about it"),
    ("EndTxn", 0, Action.State.UNKNOWN, "it is decided against, 0 of 3 transactions gone"),
    ("ledger", 1, Action.State.DONE, "nothing of it is open any more"),
)
def test_a_roll_back_of_a_stopped_worker_is_reported_and_ended_by_the_driver(
    query: FakeQuery, step: str, which: int, state: str, said: str
) -> None:
    killed(query, Step.WRITTEN)
    row = execute_until_killed(plan(query, Act.ROLL_BACK_BATCH), kill_at(step, which))
    files = query.files()
    assert follow_up.settle_action(row, now_ms=loop.now_ms())
    row.refresh_from_db()
    assert (row.state, query.files()) == (state, files)
    assert said in result_texts(row)
    again = query.driver(0)
    assert open_ids(query) == []
    attempt = query.begin(again, 0)
    again.commit(attempt, query.run_tasks(attempt, tasks=3))
    assert query.committed() == values_of(0, 0, 1, 2)


@pytest.mark.parametrize(("step", "which"), [("EndTxn", 0), ("ledger", 0)])
def test_a_finish_of_a_stopped_worker_is_reported_and_can_be_planned_again(
    query: FakeQuery, step: str, which: int
) -> None:
    killed(query, Step.PREPARED)
    row = execute_until_killed(plan(query, Act.FINISH_BATCH), kill_at(step, which))
    assert follow_up.settle_action(row, now_ms=loop.now_ms())
    row.refresh_from_db()
    assert row.state == Action.State.FAILED
    assert f"it stays prepared, {3 if step == 'ledger' else 0} of 3 transactions committed" in result_texts(
        row
    )
    assert query.ledger.read_decision(Round(0, 0)).decided is Decided.PREPARED
    assert outcomes(execute_plan(plan(query, Act.FINISH_BATCH))) == ["done"]
    assert query.committed() == values_of(0, 0, 1, 2)


def test_a_missing_ledger_is_a_clear_failure(query: FakeQuery, tmp_path: Path) -> None:
    killed(query, Step.PREPARED)
    made = plan(query, Act.FINISH_BATCH)
    query.folder.rename(tmp_path / "moved")
    row = execute_plan(made)
    assert outcomes(row) == ["stale"]
    assert "the checkpoint has another ledger now, or none" in result_texts(row)
