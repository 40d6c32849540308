"""Proves the history job on real Kafka and real Spark: what it leaves is the offline replay.

Thousands of records with all sorts of outcomes in small micro-batches, with merges and restarts; a driver
that is killed with SIGKILL between its steps, again and again; and everything that it must refuse to do in
silence.
"""

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from py4j.java_gateway import JavaGateway
from pyspark.sql import SparkSession

from fenceline.history.reports import (
    APPLICATIONS,
    IDS,
    TRANSITIONS,
    Manifest,
    folder_of,
    manifest_name,
    read_manifest,
)
from sandbox.kafka import Broker
from spark_pipeline import history
from spark_pipeline.reports import batches
from spark_pipeline.reports.batches import HistoryError
from tests.brokers import create_topics, java
from tests.java.clients import JavaAdmin
from tests.kafka.random_transactions import ClientCluster, run_clients
from tests.kafka.topic_records import RawRecord, raw_records
from tests.seeds import SEED
from tests.spark import test_history_task
from tests.spark.conftest import ROOT
from tests.spark.kills.killed_job import kill_job
from tests.spark.offline_replay import replay, sums
from tests.spark.test_history_task import transition_of

__all__ = ["java"]

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

CLUSTER = "test"


class Job:
    """The job with an output and a checkpoint in a folder of its own."""

    def __init__(self, folder: Path, bootstrap: str, *more: str) -> None:
        self.output, self.checkpoint = folder / "output", folder / "checkpoint"
        self.arguments = [
            "--bootstrap-servers", bootstrap, "--cluster", CLUSTER, "--output", self.output.as_uri(),
            "--checkpoint", self.checkpoint.as_uri(), "--tasks", "2", *more,
        ]  # fmt: skip

    def run(self, spark: SparkSession) -> str:
        # A session of its own: the job sets what it needs.
        return history.run_history(spark.newSession(), history.argument_parser().parse_args(self.arguments))

    def manifests(self) -> list[Manifest]:
        folder = self.output / folder_of(CLUSTER) / "log"
        return [read_manifest(path.read_text()) for path in sorted(folder.glob("*.json"))]

    def published(self) -> int:
        """How many manifests there are, perhaps one of them half written."""
        return len(list((self.output / folder_of(CLUSTER) / "log").glob("*.json")))

    def parts(self) -> set[str]:
        return {
            path.name.removeprefix("part=") for path in (self.output / folder_of(CLUSTER) / "parts").glob("*")
        }

    def committed(self) -> int:
        """The last micro-batch that Spark took for done, -1 before the first."""
        names = [path.name for path in (self.checkpoint / "commits").glob("*")]
        return max((int(name) for name in names if name.isdecimal()), default=-1)


def check(spark: SparkSession, job: Job, records: Sequence[RawRecord]) -> int:
    """Compare the output with the replay of what was read; return how many transitions that were."""
    last = job.manifests()[-1]
    read = [each for each in records if each.offset < last.positions.get(each.partition, 0)]
    assert last.records == len(read)
    expected, undecoded = replay(read)
    assert last.undecoded == undecoded
    parts = job.output / folder_of(CLUSTER) / "parts"
    found = batches.read_rows(spark, str(parts), [part.name for part in last.parts])
    rows = [row.asDict() for row in batches.resolve_rows(found, TRANSITIONS).collect()]
    assert {(row["partition"], row["offset"]): transition_of(row) for row in rows} == expected
    assert len(rows) == len(expected)
    for table in IDS, APPLICATIONS:
        told = dict(map(_sum, batches.resolve_rows(found, table).collect()))
        assert {where: each for where, each in told.items() if any(each.values())} == sums(
            expected, by_id=table == IDS
        )
    return len(rows)


def _sum(row: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    each = row.asDict()
    days = str((date.fromisoformat(each.pop("day")) - date(1970, 1, 1)).days)
    where = (
        days,
        each.pop("application"),
        *([each.pop("transactional_id")] if "transactional_id" in each else []),
    )
    return where, each


def write(bootstrap: str, topic: str, records: Sequence[RawRecord]) -> None:
    """Write records that a coordinator could have written; offsets and timestamps are the broker's."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    refused: list[object] = []
    for each in records:
        producer.produce(
            topic, each.value, each.key, each.partition,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not refused


@pytest.fixture(scope="module")
def topic(kafka_42: Broker) -> str:
    """A topic like `__transaction_state` with records of random histories, some of them unreadable."""
    name = f"history-{SEED}"
    create_topics(kafka_42.bootstrap, name, partitions=test_history_task.PARTITIONS)
    write(kafka_42.bootstrap, name, test_history_task.random_records(SEED, ids=60, steps=1_500))
    return name


@pytest.fixture(autouse=True)
def merges_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "FAN", 3)


@pytest.fixture
def cluster(kafka_42: Broker, java: JavaGateway) -> Iterator[ClientCluster]:
    topics = ("history-a", "history-b")
    create_topics(kafka_42.bootstrap, *topics)
    with JavaAdmin(java, kafka_42.bootstrap) as admin:
        yield ClientCluster(kafka_42.bootstrap, java, admin, topics)


def test_real_outcomes_over_restarts_equal_the_replay(
    kafka_42: Broker, spark: SparkSession, cluster: ClientCluster, tmp_path: Path
) -> None:
    print(f"FENCELINE_SEED={SEED}")
    ids = [f"history-{number}" for number in range(12)]
    run_clients(cluster, ids, 150, SEED)
    there = sum(1 for _ in raw_records(kafka_42.bootstrap))
    job = Job(tmp_path, kafka_42.bootstrap, "--max-records", str(there // 2 + 1))
    said = job.run(spark)
    assert "in all, up to micro-batch" in said
    run_clients(cluster, [f"later-{number}" for number in range(4)] + ids[:4], 40, SEED + 1)
    job.run(spark)
    before = job.manifests()[-1]
    assert max(part.level for part in before.parts) > 0
    assert job.parts() == {part.name for part in before.parts} | set(before.retired)
    assert check(spark, job, list(raw_records(kafka_42.bootstrap))) > 300


@pytest.mark.soak
def test_a_driver_killed_again_and_again_changes_nothing(
    kafka_42: Broker, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    records = list(raw_records(kafka_42.bootstrap, topic))
    job = Job(tmp_path, kafka_42.bootstrap, "--topic", topic, "--max-records", str(len(records) // 6))
    # While its rows are written; as the manifest is there, and Spark has not noted the micro-batch yet.
    kill_when(job, tmp_path, lambda: len(job.parts()) >= 2)
    kill_when(job, tmp_path, lambda: job.published() > job.committed() + 1 >= 3)
    assert job.published() < 6
    job.run(spark)
    assert check(spark, job, records) > 2_000


@pytest.mark.soak
def test_a_driver_killed_anywhere_changes_nothing(
    kafka_42: Broker, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    print(f"FENCELINE_SEED={SEED}")
    records = list(raw_records(kafka_42.bootstrap, topic))
    job = Job(tmp_path, kafka_42.bootstrap, "--topic", topic, "--max-records", str(len(records) // 30))
    dice = random.Random(SEED)
    for kill in range(20):
        done, after = job.committed(), time.monotonic() + dice.uniform(0, 3)

        def now(done: int = done, after: float = after) -> bool:
            return job.committed() > done and time.monotonic() > after

        kill_when(job, tmp_path, now)
        print(f"kill {kill} in micro-batch {job.committed() + 1}")
    job.run(spark)
    assert check(spark, job, records) > 2_000


def kill_when(job: Job, folder: Path, there: Callable[[], object]) -> None:
    kill_job(ROOT / "spark_pipeline" / "history.py", job.arguments, folder, there)


def test_spark_without_the_internal_topic_is_refused(
    kafka_42: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer({"bootstrap.servers": kafka_42.bootstrap, "transactional.id": "history-seen"})
    producer.init_transactions(60)
    session = spark.newSession()
    kafka = {"bootstrap.servers": kafka_42.bootstrap}
    session.conf.set(history.OLD_OFFSET_READER, "false")
    with pytest.raises(HistoryError, match=r"Spark sees no record in __transaction_state .* \(now false\)"):
        history.has_records(session, kafka, history.TOPIC)
    session.conf.set(history.OLD_OFFSET_READER, "true")
    assert history.has_records(session, kafka, history.TOPIC)
    # What it would be without the look: a run that ends well and has read nothing.
    job = Job(tmp_path, kafka_42.bootstrap)
    monkeypatch.setitem(history._SETTINGS, history.OLD_OFFSET_READER, "false")
    monkeypatch.setattr(history, "has_records", lambda *_: True)
    with pytest.raises(HistoryError, match="nothing was read although __transaction_state has records"):
        job.run(spark)


def test_an_empty_topic_is_waited_for_and_a_missing_one_is_named(
    kafka_42: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    empty = f"history-empty-{SEED}"
    create_topics(kafka_42.bootstrap, empty)
    assert Job(tmp_path, kafka_42.bootstrap, "--topic", empty).run(spark).startswith("0 records read")
    with pytest.raises(HistoryError, match="no topic history-nowhere at"):
        Job(tmp_path, kafka_42.bootstrap, "--topic", "history-nowhere").run(spark)


@pytest.mark.matrix
def test_output_and_checkpoint_of_two_runs_are_refused(
    kafka_42: Broker, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, kafka_42.bootstrap, "--topic", topic)
    job.run(spark)
    shutil.rmtree(job.checkpoint)
    with pytest.raises(HistoryError, match=r"is of another run\. Name the checkpoint that belongs"):
        job.run(spark)
    shutil.rmtree(job.checkpoint)
    last = job.manifests()[-1]
    path = job.output / folder_of(CLUSTER) / "log" / manifest_name(last.batch)
    path.with_name(f".{path.name}.crc").unlink()
    path.write_text(json.dumps({"format": 99}))
    with pytest.raises(HistoryError, match="its format is 99"):
        job.run(spark)
    # A torn one is of a driver that died while it wrote it.
    path.write_text('{"format": 1, "clus')
    job.run(spark)
    assert check(spark, job, list(raw_records(kafka_42.bootstrap, topic))) > 2_000


def test_help_shows_how_to_run_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        history.main(["--help"])
    said = capsys.readouterr().out
    assert left.value.code == 0
    assert "--bootstrap-servers" in said
    assert '--trigger "5 minutes"' in said
    with pytest.raises(SystemExit):
        history.main(["--cluster", "a/b"])
    assert "use letters, digits, - _ and ." in capsys.readouterr().err
