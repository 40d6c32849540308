"""Proves on real Flink jobs, killed with SIGKILL between the completion of a checkpoint and its commits, that
the pending commits are found, that committing what the checkpoint decided loses and doubles nothing whether
the job is restored afterwards or not, and that a fence of such an id is refused and names what it loses.

What is read of each checkpoint and savepoint equals what Flink itself reads of it by its State Processor API
and the connector's own serializers: committables and the state of writers, of jobs that are killed 20 times
in a row, restored with more and fewer subtasks, with compressed state.

Of the older sink, `FlinkKafkaProducer` of Flink 1.14, 1.18 and 1.20: what a killed job had decided is what
its coordinators have open and what Flink reads; a restore with fewer subtasks commits it; a start without a
checkpoint leaves ids of too many subtasks open.
"""

import random
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dashboard.models import Action
from fenceline.engines.flink.records import Committable, FlinkCheckpoint
from fenceline.engines.flink.restore import ProducerPool, producer_pools, safe_parallelism
from fenceline.facts import TransactionState
from fenceline.plans.plan import Act, RefusalReason
from sandbox.engines.flink import checkpoint_number
from sandbox.kafka import Broker
from tests.java.flink_state import FlinkStateReader, flink_state_reader
from tests.kafka import flink_stage
from tests.kafka.action_worker import execute_plan, make_plan, outcomes, result_texts
from tests.kafka.flink_stage import FlinkStage, compare_checkpoint, read_checkpoints
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
BESIDE = {
    "execution.checkpointing.data-inline-threshold": "0b",
    "execution.checkpointing.snapshot-compression": "true",
}
#: What differs from run to run: a job is restored with more and with fewer subtasks, and back.
RUNS: Sequence[dict[str, Any]] = ({}, {"parallelism": 3, "settings": BESIDE}, {"parallelism": 1}, {})
#: More than 5 times as many as of the job that is started anew.
SUBTASKS = 6


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


@pytest.mark.matrix
@pytest.mark.parametrize("stage", ALL_STAGES, indirect=True)
def test_what_is_read_equals_what_flink_reads(stage: FlinkStage, reader: FlinkStateReader) -> None:
    opened: list[Committable] = []
    for number, changes in enumerate(RUNS):
        restored = stage.newest_checkpoint() if number else None
        with stage.job(**changes).start(restored) as job:
            job.wait_for_checkpoint(checkpoint_number(restored))
            stage.feed(20)
            job.savepoint(stage.root / "savepoints")
            opened += stage.kill_before_commit(job)
    read = read_checkpoints(stage)
    compared = {each.path: compare_checkpoint(each, reader) for each in read}
    print({path.rsplit("/", 2)[-1]: len(found) for path, found in compared.items()})
    decided = set().union(*compared.values())
    assert {each[:3] for each in opened} <= {each[:3] for each in decided}
    assert sum(each.is_savepoint is True for each in read) == len(RUNS)


@pytest.fixture
def older(tmp_path: Path, request: pytest.FixtureRequest, kafka_42: Broker) -> Iterator[FlinkStage]:
    made = FlinkStage(kafka_42, tmp_path, request.param)
    yield made
    made.close()


def newest(older: FlinkStage) -> FlinkCheckpoint:
    (found, *_) = read_checkpoints(older, 1)
    return found


def pool_of(checkpoint: FlinkCheckpoint) -> ProducerPool:
    (pool,) = producer_pools(checkpoint.writers)
    return pool


def ongoing(older: FlinkStage, ids: Collection[str]) -> set[str]:
    described = older.describe(tuple(ids))
    return {name for name, each in described.items() if each.state is TransactionState.ONGOING}


@pytest.mark.matrix
@pytest.mark.parametrize("older", ["1.14", "1.18", "1.20"], indirect=True)
def test_a_restore_with_fewer_subtasks_commits_what_was_decided(
    older: FlinkStage,
) -> None:
    with older.job(is_older_sink=True, parallelism=3).start() as job:
        decided = older.kill_before_commit(job)
    before = newest(older)
    assert set(decided) <= set(before.committables)
    pool = pool_of(before)
    assert len(pool.ids) == 15
    assert {each.transactional_id for each in decided} <= ongoing(older, pool.ids)
    restored = older.newest_checkpoint()
    with older.job(is_older_sink=True, parallelism=1).start(restored) as job:
        job.wait_for_checkpoint(checkpoint_number(restored))
        older.feed(20)
        wait_for(lambda: older.copied() == list(range(older.fed)), "every value once", 60)
    assert pool_of(newest(older)).subtasks == 1


@pytest.mark.matrix
@pytest.mark.parametrize("older", ["1.20"], indirect=True)
def test_what_is_read_of_the_older_sink_equals_what_flink_reads(older: FlinkStage, tmp_path: Path) -> None:
    with older.job(is_older_sink=True).start() as job:
        job.wait_for_checkpoint()
        older.feed(20)
        job.savepoint(older.root / "savepoints")
        older.kill_before_commit(job)
    with flink_state_reader(older.version, tmp_path / "reader") as reader:
        for checkpoint in read_checkpoints(older):
            states = reader.producer_states(Path(checkpoint.path.removeprefix("file://")))
            decided = {each for state in states for each in state.decided}
            assert decided
            assert {each[:3] for each in checkpoint.committables} == decided, checkpoint.path
            writing = [state.writing[0] for state in states]
            assert sorted(each.writing for each in checkpoint.writers) == sorted(writing), checkpoint.path


@pytest.mark.matrix
@pytest.mark.parametrize("older", ["1.20"], indirect=True)
def test_a_start_without_a_checkpoint_leaves_ids_of_too_many_subtasks_open(
    monkeypatch: pytest.MonkeyPatch, kafka_42: Broker, tmp_path: Path, older: FlinkStage
) -> None:
    monkeypatch.setattr(flink_stage, "PARTITIONS", SUBTASKS)
    wide = FlinkStage(kafka_42, tmp_path / "wide", older.version)
    with wide.job(is_older_sink=True, parallelism=SUBTASKS).start() as job:
        wide.kill_before_commit(job)
    pool = pool_of(newest(wide))
    assert safe_parallelism(pool) == 2
    beyond, below = set(pool.ids[25:]), set(pool.ids[:25])
    left = ongoing(wide, pool.ids)
    assert left & beyond
    assert left & below
    with wide.job(is_older_sink=True, parallelism=1).start():
        own = set(pool.ids[:5])
        wait_for(lambda: not ongoing(wide, below - own), "the first 25 ids to be aborted", 60)
        still = ongoing(wide, beyond)
    wide.close()
    assert still == left & beyond
