"""Proves on a real broker and a real ledger which batches of the sink may be finished and which rolled back,
wherever its driver stopped; and that its ids are never fenced."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dashboard.models import Query
from dashboard.runtime.loop import now_ms
from fenceline.decode.ledger import FOLDER
from fenceline.facts import TransactionState
from fenceline.plans.plan import Act, Plan, RefusalReason
from fenceline.spark.records import SinkTransaction
from sandbox.kafka import Broker
from spark_pipeline.sink.options import translate_options
from spark_pipeline.sink.steps import Step
from spark_pipeline.sink.task.writer import admin_for
from tests.brokers import create_topics
from tests.cases import cases
from tests.kafka.planning_cluster import PlanningCluster, effect_amounts, refusal_reasons, refusal_texts
from tests.spark.sink.queries import FakeQuery
from transaction_admin.api import Ending

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

FINISH, ROLL_BACK, FENCE = Act.FINISH_BATCH, Act.ROLL_BACK_BATCH, Act.FENCE
LATER_MS = 90_000


class DriverStopped(Exception):
    """Where a driver's process would be killed."""


class Stage:
    """A query with the exactly-once sink on a broker, and a planner that has polled its checkpoint."""

    def __init__(self, broker: Broker, root: Path) -> None:
        topic = f"batches-{uuid.uuid4().hex[:8]}"
        create_topics(broker.bootstrap, topic, partitions=2)
        self.root = root
        # What looks like an escape in a URL is none in a folder's name.
        self.query = FakeQuery(root / "a b%20c", broker.bootstrap, topic)
        self.planner = PlanningCluster(broker)
        self.written: list[SinkTransaction] = []

    def stop_driver_at(self, at: Step, batch_id: int = 0) -> None:
        """Run batches up to one of them, whose driver stops at a step."""

        def observer(step: Step, batch: int) -> None:
            if (step, batch) == (at, batch_id):
                raise DriverStopped

        driver = self.query.driver(0, observer=observer)
        for batch in range(batch_id + 1):
            attempt = self.query.begin(driver, batch)
            self.written = self.query.run_tasks(attempt)
            try:
                driver.commit(attempt, self.written)
            except DriverStopped:
                return

    def poll(self) -> Query:
        """Poll the checkpoint with the collector."""
        (row,) = self.planner.poll_checkpoints(self.root)
        return row

    def plan(self, act: Act, batch_id: int = 0, *, force: bool = False) -> Plan:
        """Plan an act on a batch."""
        return self.planner.plan(act, f"{self.poll().ident}@{batch_id}", force=force)

    def end(self, each: SinkTransaction, *, commit: bool) -> None:
        """End a transaction behind everybody's back."""
        admin = admin_for(translate_options(self.query.options).connection)
        ending = Ending(each.transactional_id, each.producer_id, each.producer_epoch, commit=commit)
        assert admin.end_transactions([ending], timeout_s=30)[each.transactional_id].code == 0


@pytest.fixture
def stage(kafka_42: Broker, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(kafka_42, tmp_path)
    yield made
    made.planner.collected.close()


@cases(
    (Step.BEFORE_WRITE, [RefusalReason.NOT_PREPARED], [RefusalReason.NOTHING_OPEN]),
    (Step.WRITTEN, [RefusalReason.NOT_PREPARED], []),
    (Step.VERIFIED, [RefusalReason.NOT_PREPARED], []),
    (Step.PREPARED, [], [RefusalReason.PREPARED]),
    (Step.ENDING, [], [RefusalReason.PREPARED]),
    (Step.ENDED, [], [RefusalReason.PREPARED]),
    (Step.DONE, [RefusalReason.ALREADY_ENDED], [RefusalReason.PREPARED]),
)
def test_finish_or_roll_back_is_offered_wherever_a_driver_stops(
    stage: Stage, at: Step, finish: list[RefusalReason], roll_back: list[RefusalReason]
) -> None:
    if at is Step.BEFORE_WRITE:
        stage.query.driver(0).begin(0)
    else:
        stage.stop_driver_at(at)
    for force in False, True:
        assert refusal_reasons(stage.plan(FINISH, force=force)) == [finish]
        assert refusal_reasons(stage.plan(ROLL_BACK, force=force)) == [roll_back]


def test_a_prepared_batch_is_finished(stage: Stage) -> None:
    stage.stop_driver_at(Step.PREPARED, batch_id=1)
    found = stage.plan(FINISH, 1)
    (subject,) = found.subjects
    row = stage.poll()
    assert subject.seen == {
        "query": row.ident,
        "checkpoint": f"file://{stage.root}/a b%2520c",
        "root": str(stage.root),
        "ledger_id": row.ledger_id,
        "query_id": stage.query.query_id,
        "batch_id": 1,
        "round": 0,
        "generation": 1,
        "transactions": [
            [each.transactional_id, each.producer_id, each.producer_epoch, each.started_ms]
            for each in stage.written
        ],
    }
    assert [each.request for each in subject.steps] == ["EndTxn", "ledger"]
    assert effect_amounts(found) == [{"records_committed": 4, "records_released": 0, "batch_recorded": None}]
    assert {(topic, number) for topic, number, *_ in subject.held} <= {
        (stage.query.topic, 0), (stage.query.topic, 1),
    }  # fmt: skip
    assert subject.held
    assert found.confirm == f"{row}@1"
    assert (subject.subject, subject.title) == (f"query:{row.ident}", f"{row}, batch 1")
    assert refusal_reasons(stage.plan(FINISH, 0)) == [[RefusalReason.ALREADY_ENDED]]
    assert refusal_reasons(stage.plan(ROLL_BACK, 0)) == [[RefusalReason.PREPARED]]
    assert refusal_reasons(stage.plan(ROLL_BACK, 2)) == [[RefusalReason.PREPARED]]


def test_committed_and_lost_transactions_are_reported(stage: Stage) -> None:
    stage.stop_driver_at(Step.PREPARED)
    first, second = stage.written
    stage.end(first, commit=True)
    stage.end(second, commit=False)
    found = stage.plan(FINISH)
    (subject,) = found.subjects
    assert effect_amounts(found) == [{"committed_before": 1, "records_lost": 2, "batch_recorded": None}]
    assert subject.seen["transactions"] == []
    assert second.transactional_id in subject.effects[1].words
    assert "Write them again from what the batch read: source 0 from" in subject.effects[1].words
    assert "accepts that loss" in found.warnings[0]


def test_a_batch_that_is_not_prepared_is_rolled_back(stage: Stage) -> None:
    stage.stop_driver_at(Step.WRITTEN, batch_id=1)
    found = stage.plan(ROLL_BACK, 1)
    (subject,) = found.subjects
    assert (subject.seen["round"], subject.seen["generation"]) == (0, 1)
    ours = {(each.transactional_id, each.producer_id, each.producer_epoch) for each in stage.written}
    assert {tuple(each[:3]) for each in subject.seen["transactions"]} == ours
    assert [each.request for each in subject.steps] == ["ledger", "EndTxn", "ledger"]
    assert "1.0.decision" in subject.steps[0].words
    assert effect_amounts(found) == [{"records_aborted": 4, "records_released": 0, "batch_runs_again": None}]
    assert "is unknown: if it is" in found.warnings[0]
    assert refusal_reasons(stage.plan(ROLL_BACK, 2)) == [[RefusalReason.NOTHING_OPEN]]


def test_a_running_driver_needs_force_to_roll_back_and_none_to_finish(stage: Stage) -> None:
    stage.stop_driver_at(Step.WRITTEN)
    row = stage.poll()
    Query.objects.filter(pk=row.pk).update(state="running", heard_ms=now_ms())
    found = stage.plan(ROLL_BACK)
    assert refusal_reasons(found) == [[RefusalReason.DRIVER_LIVES]]
    forced = stage.plan(ROLL_BACK, force=True)
    assert (refusal_reasons(forced), forced.forced) == ([[]], True)
    assert forced.subjects[0].seen["transactions"]


def test_finishing_beside_a_running_driver_is_a_warning(stage: Stage) -> None:
    stage.stop_driver_at(Step.PREPARED)
    row = stage.poll()
    Query.objects.filter(pk=row.pk).update(state="running", heard_ms=now_ms())
    found = stage.plan(FINISH)
    assert refusal_reasons(found) == [[]]
    assert "lives (last heartbeat" in found.warnings[0]


def test_a_round_that_was_aborted_is_followed_by_the_next(stage: Stage) -> None:
    driver = stage.query.driver(0)
    attempt = stage.query.begin(driver, 0)
    driver.abort(attempt, stage.query.run_tasks(attempt), "a task failed")
    assert refusal_reasons(stage.plan(ROLL_BACK)) == [[RefusalReason.NOTHING_OPEN]]
    stage.query.run_tasks(stage.query.begin(driver, 0))
    found = stage.plan(ROLL_BACK)
    assert refusal_reasons(found) == [[]]
    assert found.subjects[0].seen["round"] == 1
    assert refusal_reasons(stage.plan(FINISH)) == [[RefusalReason.NOT_PREPARED]]


@pytest.mark.parametrize(("at", "act"), [(Step.WRITTEN, "roll_back_batch"), (Step.PREPARED, "finish_batch")])
def test_an_id_of_the_sink_is_refused_in_favour_of_finish_or_roll_back(
    stage: Stage, at: Step, act: str
) -> None:
    stage.stop_driver_at(at, batch_id=1)
    name = stage.written[0].transactional_id
    unknown = stage.planner.plan(FENCE, name, later_ms=LATER_MS, force=True)
    assert refusal_reasons(unknown) == [[RefusalReason.OWN_SINK]]
    assert "[[checkpoints]]" in refusal_texts(unknown)
    row = stage.poll()
    found = stage.planner.plan(FENCE, name, later_ms=LATER_MS, force=True)
    assert refusal_reasons(found) == [[RefusalReason.OWN_SINK]]
    assert f"({act} {row.ident}@1)" in refusal_texts(found)
    assert str(row) in refusal_texts(found)
    assert found.doable_subjects == ()


def unreadable(stage: Stage) -> None:
    ledger = stage.query.folder / FOLDER / "ledger.json"
    ledger.write_bytes(ledger.read_bytes()[:10])


def without_ledger(stage: Stage) -> None:
    os.rename(stage.query.folder / FOLDER, stage.query.folder / "elsewhere")


def without_root(stage: Stage) -> None:
    stage.planner.root = None


@cases(
    (unreadable, "Restore this file"),
    (without_ledger, "no exactly-once sink has written with this checkpoint"),
    (without_root, "no root in [[checkpoints]] holds"),
)
def test_an_unreadable_ledger_is_refused(stage: Stage, break_it: Callable[[Stage], None], said: str) -> None:
    stage.stop_driver_at(Step.PREPARED)
    row = stage.poll()
    break_it(stage)
    for act in FINISH, ROLL_BACK:
        found = stage.planner.plan(act, f"{row.ident}@0", force=True)
        assert refusal_reasons(found) == [[RefusalReason.LEDGER_UNREADABLE]]
        assert said in refusal_texts(found)


def test_an_unknown_query_is_refused(stage: Stage) -> None:
    found = stage.planner.plan(FINISH, "8a5c1f7e@1@7")
    assert refusal_reasons(found) == [[RefusalReason.LEDGER_UNREADABLE]]
    assert "no query 8a5c1f7e@1 is known" in refusal_texts(found)


def test_a_plan_changes_nothing(stage: Stage) -> None:
    """It has ended no transaction and written no file."""
    stage.stop_driver_at(Step.PREPARED)
    stage.plan(FINISH)
    stage.plan(ROLL_BACK, force=True)
    admin = admin_for(translate_options(stage.query.options).connection)
    open_ids = set(admin.list_transactions([TransactionState.ONGOING]).entries)
    assert {each.transactional_id for each in stage.written} <= open_ids
    assert stage.query.files() == {"ledger.json", "1.generation", "0.0.decision"}
