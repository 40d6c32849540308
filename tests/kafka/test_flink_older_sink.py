"""Proves on real jobs with the older sink, `FlinkKafkaProducer` of Flink 1.14, 1.18 and 1.20, that what a
killed job had decided is what its coordinators have open and what Flink reads; that a restore with fewer
subtasks commits it; and that a start without a checkpoint leaves ids of too many subtasks open."""

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from fenceline.engines.flink.records import FlinkCheckpoint
from fenceline.engines.flink.restore import ProducerPool, producer_pools, safe_parallelism
from fenceline.facts import TransactionState
from sandbox.engines.flink import checkpoint_number
from sandbox.kafka import Broker
from tests.java.flink_state import flink_state_reader
from tests.kafka import flink_stage
from tests.kafka.flink_comparison import read_checkpoints
from tests.kafka.flink_stage import FlinkStage
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix, pytest.mark.django_db]
#: More than 5 times as many as of the job that is started anew.
SUBTASKS = 6


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest, kafka_42: Broker) -> Iterator[FlinkStage]:
    made = FlinkStage(kafka_42, tmp_path, request.param)
    yield made
    made.close()


def newest(stage: FlinkStage) -> FlinkCheckpoint:
    (found, *_) = read_checkpoints(stage, 1)
    return found


def pool_of(checkpoint: FlinkCheckpoint) -> ProducerPool:
    (pool,) = producer_pools(checkpoint.writers)
    return pool


def ongoing(stage: FlinkStage, ids: Collection[str]) -> set[str]:
    described = stage.describe(tuple(ids))
    return {name for name, each in described.items() if each.state is TransactionState.ONGOING}


@pytest.mark.parametrize("stage", ["1.14", "1.18", "1.20"], indirect=True)
def test_a_restore_with_fewer_subtasks_commits_what_was_decided(
    stage: FlinkStage,
) -> None:
    with stage.job(is_older_sink=True, parallelism=3).start() as job:
        decided = stage.kill_before_commit(job)
    before = newest(stage)
    assert set(decided) <= set(before.committables)
    pool = pool_of(before)
    assert len(pool.ids) == 15
    assert {each.transactional_id for each in decided} <= ongoing(stage, pool.ids)

    restored = stage.newest_checkpoint()
    with stage.job(is_older_sink=True, parallelism=1).start(restored) as job:
        job.wait_for_checkpoint(checkpoint_number(restored))
        stage.feed(20)
        wait_for(lambda: stage.copied() == list(range(stage.fed)), "every value once", 60)

    assert pool_of(newest(stage)).subtasks == 1


@pytest.mark.parametrize("stage", ["1.20"], indirect=True)
def test_what_is_read_equals_what_flink_reads(stage: FlinkStage, tmp_path: Path) -> None:
    with stage.job(is_older_sink=True).start() as job:
        job.wait_for_checkpoint()
        stage.feed(20)
        job.savepoint(stage.root / "savepoints")
        stage.kill_before_commit(job)
    with flink_state_reader(stage.version, tmp_path / "reader") as reader:
        for checkpoint in read_checkpoints(stage):
            states = reader.producer_states(Path(checkpoint.path.removeprefix("file://")))
            decided = {each for state in states for each in state.decided}
            assert decided
            assert {each[:3] for each in checkpoint.committables} == decided, checkpoint.path
            writing = [state.writing[0] for state in states]
            assert sorted(each.writing for each in checkpoint.writers) == sorted(writing), checkpoint.path


@pytest.mark.parametrize("stage", ["1.20"], indirect=True)
def test_a_start_without_a_checkpoint_leaves_ids_of_too_many_subtasks_open(
    monkeypatch: pytest.MonkeyPatch, kafka_42: Broker, tmp_path: Path, stage: FlinkStage
) -> None:
    monkeypatch.setattr(flink_stage, "PARTITIONS", SUBTASKS)
    wide = FlinkStage(kafka_42, tmp_path / "wide", stage.version)
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
