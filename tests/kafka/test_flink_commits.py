"""Proves on real Flink jobs, killed with SIGKILL between the completion of a checkpoint and its commits, that
the pending commits are found, that committing what the checkpoint decided loses and doubles nothing whether
the job is restored afterwards or not, and that a fence of such an id is refused and names what it loses. Each
checkpoint of a job that is killed 20 times is what Flink's own State Processor reads of it."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dashboard.models import Action
from fenceline.engines.flink.records import Committable
from fenceline.plans.plan import Act, RefusalReason
from sandbox.kafka import Broker
from tests.java.flink_state import FlinkStateReader, flink_state_reader
from tests.kafka.action_worker import execute_plan, make_plan, outcomes, result_texts
from tests.kafka.flink_comparison import compare_checkpoint, read_checkpoints
from tests.kafka.flink_stage import FlinkStage
from tests.kafka.planning_cluster import refusal_reasons
from tests.seeds import SEED
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

#: Versions of Flink, whether transactional ids are of a pool (connector 4.0 and newer), and the broker.
ALL_STAGES = [
    ("2.1", False, "kafka_42"),
    ("1.20", False, "kafka_42"),
    ("2.0", False, "kafka_42"),
    ("2.0", True, "kafka_42"),
    ("2.1", True, "kafka_42"),
]
#: On Kafka 3.9 a commit leaves the epoch as it was, so a restore commits once more what was committed.
ON_OLD_KAFKA = [("2.1", False, "kafka_39"), ("1.20", False, "kafka_39"), ("2.1", True, "kafka_39")]
#: An abort of the coordinator's raises the epoch by two on 4.0.0; 4.3 names producer ids.
ON_OTHERS = [("2.1", pooled, broker) for broker in ("kafka_40", "kafka_43") for pooled in (False, True)]
STAGES = [*ALL_STAGES, *ON_OLD_KAFKA, *ON_OTHERS]


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FlinkStage]:
    version, pooling, broker = request.param
    kafka: Broker = request.getfixturevalue(broker)
    made = FlinkStage(kafka, tmp_path, version, pooling=pooling)
    with made.configured():
        yield made
    made.close()


@pytest.fixture
def reader(stage: FlinkStage, tmp_path: Path) -> Iterator[FlinkStateReader]:
    with flink_state_reader(stage.version, tmp_path / "reader") as made:
        yield made


def kill_with_open_commits(stage: FlinkStage, *, restore: bool) -> Sequence[Committable]:
    """Run the job until it is killed where commits of its newest checkpoint are open; return those."""
    opened: Sequence[Committable] = ()
    while not opened:
        with stage.job().start(stage.newest_checkpoint() if restore else None) as job:
            opened = stage.kill_before_commit(job)
        restore = True
    return opened


def committed_by_action(stage: FlinkStage, opened: Sequence[Committable]) -> Action:
    """Commit what a checkpoint decided, by a plan that nothing forces; return the action."""
    stage.poll()
    plan = make_plan(Act.COMMIT_FLINK, *(each.transactional_id for each in opened), force=False)
    assert [each.refusals for each in plan.subjects] == [()] * len(opened)
    return execute_plan(plan)


@pytest.mark.matrix
@pytest.mark.parametrize("stage", STAGES, indirect=True)
def test_what_a_checkpoint_decided_is_committed_and_a_restore_neither_fails_nor_repeats(
    stage: FlinkStage,
) -> None:
    opened = kill_with_open_commits(stage, restore=False)
    ids = [each.transactional_id for each in opened]
    stage.poll()
    fence = make_plan(Act.FENCE, *ids, force=False)
    assert all(RefusalReason.CHECKPOINTED in grounds for grounds in refusal_reasons(fence))
    before = stage.copied()

    row = committed_by_action(stage, opened)

    assert outcomes(row) == ["done"] * len(ids), result_texts(row)
    wait_for(lambda: len(stage.copied()) > len(before), "the records of the commit", 20)
    with stage.job().start(stage.newest_checkpoint()) as job:
        stage.feed(20)
        wait_for(lambda: len(stage.copied()) >= stage.fed, "everything copied", 60)
        assert job.status() == "RUNNING"
    assert stage.copied() == list(range(stage.fed))


@pytest.mark.soak
@pytest.mark.parametrize("stage", ALL_STAGES, indirect=True)
def test_20_kills_lose_and_double_nothing_whoever_commits(
    stage: FlinkStage, reader: FlinkStateReader
) -> None:
    chooser = random.Random(SEED)
    print(f"seed {SEED}")
    by_action = 0
    for number in range(20):
        opened = kill_with_open_commits(stage, restore=number > 0)
        compared = [compare_checkpoint(each, reader) for each in read_checkpoints(stage, jobs=1)]
        assert {each[:3] for each in opened} <= {each[:3] for found in compared for each in found}
        # What is left to the restore is committed by Flink, of what is done here maybe only a part.
        chosen = [each for each in opened if chooser.random() < 0.7]
        if chosen:
            row = committed_by_action(stage, chosen)
            assert outcomes(row) == ["done"] * len(chosen), result_texts(row)
            by_action += len(chosen)
    with stage.job().start(stage.newest_checkpoint()) as job:
        wait_for(lambda: len(stage.copied()) >= stage.fed, "everything copied", 60)
        assert job.status() == "RUNNING"
    print(f"{by_action} transactions committed by actions")
    assert stage.copied() == list(range(stage.fed))
