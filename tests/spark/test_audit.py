"""Proves the audit job on a real Kafka and Spark: clean batches are proved, every fault is found and named.

Batches are written by the sink's own coordinator and tasks (`FakeQuery`), one by a real query of Spark.
"""

import json
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fenceline.audit.manifest import PARTITIONS, AuditManifest, AuditVerdict, ObstacleKind
from fenceline.decode.ledger import FOLDER, transaction_to_json
from sandbox.kafka import Broker
from sandbox.ports import free_port
from spark_pipeline.audits import AuditError
from spark_pipeline.sink import ExactlyOnceKafkaSink
from spark_pipeline.sink.coordinator import Attempt, SinkCoordinator
from spark_pipeline.sink.ledger import open_ledger
from tests.brokers import configure_topic, create_topics, wait_for_markers
from tests.spark.audits import Audited, delete_records, delete_topic, kinds
from tests.spark.sink.queries import FakeQuery
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


class Pipeline(FakeQuery, Audited):
    """A query from one topic to another; each of its two tasks writes half of what a batch reads."""

    def __init__(self, folder: Path, bootstrap: str, output: Path) -> None:
        name = uuid.uuid4().hex[:8]
        self.source, self.bootstrap, self.output = f"audit-in-{name}", bootstrap, output
        super().__init__(folder, bootstrap, f"audit-out-{name}")
        create_topics(bootstrap, self.source, partitions=1)
        create_topics(bootstrap, self.topic, partitions=2)
        (folder / "sources" / "0").mkdir(parents=True)
        (folder / "sources" / "0" / "0").write_text(f"\0v1\n{json.dumps({self.source: {'0': 0}})}")
        self._end = 0
        self._driver: SinkCoordinator | None = None

    def read(self, records: int) -> None:
        """Let the input have more records."""
        produce(self.bootstrap, self.source, [b"in"] * records)
        self._end += records

    def batch(self, batch_id: int, records: int = 6, *, written: int | None = None) -> None:
        """Run a batch that reads so many records, and commit it."""
        self.read(records)
        driver, attempt = self.prepare(batch_id)
        found = [self.run_task(attempt, number, self._values(number, written, records)) for number in (0, 1)]
        driver.commit(attempt, [each for each in found if each is not None])

    def _values(self, task: int, written: int | None, records: int) -> list[str]:
        return [str(value) for value in range(records if written is None else written) if value % 2 == task]

    def prepare(self, batch_id: int) -> tuple[SinkCoordinator, Attempt]:
        """Plan a batch and begin it."""
        line = json.dumps({self.source: {"0": self._end}})
        head = json.dumps({"batchTimestampMs": 1})
        (self.folder / "offsets" / str(batch_id)).write_text(f"v1\n{head}\n{line}")
        self._driver = self._driver or self.driver(batch_id)
        return self._driver, self.begin(self._driver, batch_id)

    def own_arguments(self) -> Sequence[str]:
        return ["--checkpoint", self.folder.as_uri()]

    def partitions(self, manifest: AuditManifest) -> list[dict[str, Any]]:
        """Return the rows of the table `partitions`, by batch and partition."""
        return sorted(
            self.rows(manifest.parts, PARTITIONS), key=lambda row: (row["batch_id"], row["partition"])
        )


def produce(bootstrap: str, topic: str, values: list[bytes], transactional_id: str = "") -> None:
    named = {"transactional.id": transactional_id} if transactional_id else {}
    producer = Producer({"bootstrap.servers": bootstrap, **named})
    if named:
        producer.init_transactions(60)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    if named:
        producer.commit_transaction(60)
        wait_for_markers(bootstrap, topic)


@pytest.fixture
def pipeline(kafka_42: Broker, tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path / "checkpoint", kafka_42.bootstrap, tmp_path / "output")


def test_clean_batches_are_proved_over_restarts(spark: SparkSession, pipeline: Pipeline) -> None:
    for batch in range(3):
        pipeline.batch(batch)
    first = pipeline.run(spark)
    assert (first.verdict, first.first_batch, first.proved_through) == (AuditVerdict.PROVED, 0, 2)
    assert (first.input, first.readable, first.missing, first.duplicated) == (18, 18, 0, 0)
    # The first marker of a batch follows its last record.
    markers: dict[int, int] = {}
    for each in first.batches[-1].markers:
        markers[each.partition] = min(each.offset, markers.get(each.partition, each.offset))
    ends = {row["partition"]: row["to_offset"] for row in pipeline.partitions(first) if not row["batch_id"]}
    assert markers == ends
    assert pipeline.run(spark) == first, "a run that finds nothing new leaves nothing"
    pipeline.batch(3)
    # A driver that died while it wrote: a part and half a manifest.
    folder = pipeline.audits
    (folder / "parts" / "part=000000000002-dead").mkdir()
    (folder / "log" / "000000000002.json").write_text('{"format": 1, "clus')
    second = pipeline.run(spark)
    assert (second.run, second.proved_through, second.readable) == (2, 3, 24)
    assert [each.batch_id for each in second.batches] == [3, 2, 1, 0]
    assert {path.name for path in (folder / "parts").iterdir()} == {f"part={name}" for name in second.parts}
    rows = pipeline.partitions(second)
    assert sum(row["committed"] for row in rows) == 24 == sum(row["written"] for row in rows)


def run_query(
    spark: SparkSession, pipeline: Pipeline, checkpoint: Path, transform: Callable[[DataFrame], DataFrame]
) -> None:
    """Run a real query over all of the input, 15 records a batch."""
    options = {"kafka.bootstrap.servers": pipeline.bootstrap}
    reader = spark.readStream.format("kafka").options(**options, subscribe=pipeline.source)
    rows = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 15).load()
    sink = ExactlyOnceKafkaSink(checkpoint=str(checkpoint), options=options, topic=pipeline.topic)
    writer = transform(rows).writeStream.queryName(pipeline.topic).foreachBatch(sink)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    pipeline.folder = checkpoint


def test_a_real_query_is_proved_with_the_rows_that_its_progress_reports_as_dropped(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    produce(pipeline.bootstrap, pipeline.source, [b"%d" % (number % 32) for number in range(45)])

    def without_some(rows: DataFrame) -> DataFrame:
        rows = rows.selectExpr("CAST(value AS STRING) AS value")
        drops = f.sum(f.when(f.col("value") < 5, 1).otherwise(0)).alias("dropped")
        return rows.observe("fenceline", drops).filter("value >= 5").dropDuplicates(["value"])

    run_query(spark, pipeline, tmp_path / "dropping", without_some)
    produce(pipeline.bootstrap, pipeline.source, [b"4", b"5", b"50"])
    run_query(spark, pipeline, tmp_path / "dropping", without_some)
    wait_for(lambda: 3 in open_ledger(str(tmp_path / "dropping")).read_names().dropped, "it is reported")
    found = pipeline.run(spark)
    # The first batch has 0 to 4, the third has them again, and 5 to 12; the fourth has 4 and 5 once more.
    assert [(each.batch_id, each.dropped) for each in found.batches] == [(3, 2), (2, 13), (1, 0), (0, 5)]
    assert (found.verdict, found.proved_through, found.input, found.readable) == (
        AuditVerdict.PROVED, 3, 48, 28,
    )  # fmt: skip
    assert (found.sources, found.targets) == ((pipeline.source,), (pipeline.topic,))


def test_a_dropped_and_a_duplicated_send_are_found_in_their_batches(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    for batch in range(3):
        pipeline.batch(batch)
    # What a task has counted, and what is there, differ: by one less in batch 1, by one more in batch 2.
    for batch, by in ((1, 1), (2, -1)):
        path = pipeline.folder / FOLDER / f"{batch}.0.decision"
        said = json.loads(path.read_text())
        said["transactions"][0]["records"] += by
        path.unlink()
        path.write_text(json.dumps(said))
    found = pipeline.run(spark)
    assert (found.verdict, found.proved_through) == (AuditVerdict.VIOLATED, 0)
    told = {each.batch_id: (each.missing, each.duplicated, each.verdict) for each in found.batches}
    violated = AuditVerdict.VIOLATED
    assert told == {0: (0, 0, AuditVerdict.PROVED), 1: (1, 0, violated), 2: (0, 1, violated)}


def test_a_transaction_that_was_aborted_behind_the_ledger_is_a_loss(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    pipeline.batch(0)
    pipeline.read(4)
    driver, attempt = pipeline.prepare(1)
    values = ["a", "b", "c", "d"]
    written, aborted = (pipeline.run_task(attempt, task, values) for task in (0, 1))
    assert written is not None
    assert aborted is not None
    driver.commit(attempt, [written])
    end = Producer({"bootstrap.servers": pipeline.bootstrap, "transactional.id": aborted.transactional_id})
    end.init_transactions(60)
    # The ledger says that the aborted one was committed.
    path = pipeline.folder / FOLDER / "1.0.decision"
    said = json.loads(path.read_text())
    said["transactions"] = [transaction_to_json(aborted)]
    path.unlink()
    path.write_text(json.dumps(said))
    batch = pipeline.run(spark).batches[0]
    assert (batch.verdict, batch.missing, batch.committed) == (AuditVerdict.VIOLATED, 4, 0)
    assert [tuple(each) for each in batch.losses] == [(pipeline.source, 0, 6, 10)]


def test_rows_that_a_query_drops_are_no_loss_and_no_proof(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.batch(0, 6, written=4)
    newest = pipeline.run(spark)
    assert (newest.batches[0].verdict, kinds(newest)) == (AuditVerdict.UNPROVED, set()), "it may be reported"
    pipeline.batch(1)
    found = pipeline.run(spark)
    assert (found.verdict, kinds(found)) == (AuditVerdict.UNPROVED, {ObstacleKind.INPUT_UNKNOWN})
    pipeline.output = pipeline.output.with_name("other")
    found = pipeline.run(spark, "--one-to-one")
    assert (found.verdict, found.missing) == (AuditVerdict.VIOLATED, 2)


def test_a_batch_that_is_not_committed_waits(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.batch(0)
    blocking = Producer({"bootstrap.servers": pipeline.bootstrap, "transactional.id": pipeline.topic})
    blocking.init_transactions(60)
    blocking.begin_transaction()
    for partition in (0, 1):
        blocking.produce(pipeline.topic, b"x", partition=partition)
    assert blocking.flush(30) == 0
    pipeline.batch(1)
    found = pipeline.run(spark)
    assert (found.proved_through, kinds(found)) == (0, {ObstacleKind.UNREADABLE})
    assert [(each.batch_id, each.readable) for each in found.batches] == [(1, 0), (0, 6)]
    blocking.abort_transaction(60)
    wait_for_markers(pipeline.bootstrap, pipeline.topic)
    found = pipeline.run(spark)
    assert (found.verdict, found.proved_through, found.readable) == (AuditVerdict.PROVED, 1, 12)


def test_other_writers_are_named(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.batch(0)
    assert pipeline.run(spark).verdict is AuditVerdict.PROVED
    produce(pipeline.bootstrap, pipeline.topic, [b"x"] * 3)
    produce(pipeline.bootstrap, pipeline.topic, [b"x"], transactional_id="other-0123abcd-p0-g1-b0-s0")
    pipeline.batch(1)
    found = pipeline.run(spark)
    assert (found.verdict, found.proved_through) == (AuditVerdict.UNPROVED, 1)
    assert {(each.kind, each.where) for each in found.obstacles} == {
        (ObstacleKind.FOREIGN_RECORDS, f"{pipeline.topic}-0"),
        (ObstacleKind.SHARED_OUTPUT, pipeline.topic),
    }
    assert "other-0123abcd" in " ".join(each.detail for each in found.obstacles)
    pipeline.batch(2)
    assert pipeline.run(spark).verdict is AuditVerdict.UNPROVED, "an obstacle stays"


def test_a_topic_that_is_made_again_and_a_compacted_one_are_named(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    pipeline.batch(0)
    configure_topic(pipeline.bootstrap, pipeline.topic, {"cleanup.policy": "compact"})
    assert kinds(pipeline.run(spark)) == {ObstacleKind.COMPACTED}
    delete_topic(pipeline.bootstrap, pipeline.topic)
    create_topics(pipeline.bootstrap, pipeline.topic, partitions=2)
    pipeline.batch(1)
    found = pipeline.run(spark)
    assert kinds(found) == {ObstacleKind.COMPACTED, ObstacleKind.TOPIC_RECREATED}
    assert found.verdict is AuditVerdict.UNPROVED


def test_records_that_retention_has_deleted_are_named(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.batch(0)
    pipeline.batch(1)
    for topic in (pipeline.source, pipeline.topic):
        delete_records(pipeline.bootstrap, topic, 0, before=3)
    found = pipeline.run(spark)
    assert ObstacleKind.RETENTION in kinds(found)
    assert found.verdict is AuditVerdict.UNPROVED
    assert found.missing == 0


def test_what_is_wrong_is_one_sentence(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.batch(0)
    pipeline.run(spark)
    nobody = f"127.0.0.1:{free_port()}"
    for wrong, said in (
        (["--bootstrap-servers", nobody], f"cannot ask the coordinators at {nobody}"),
        (["--target", "audit-nowhere"], "there is no topic audit-nowhere"),
        (["--checkpoint", str(tmp_path / "nowhere")], "is no checkpoint of a streaming query"),
        (["--kafka", "sasl.mechanism=GSSAPI", "--kafka", "nonsense=1"], "nonsense"),
    ):
        with pytest.raises(AuditError, match=said) as raised:
            pipeline.run(spark, *wrong)
        assert "\n" not in str(raised.value)
    pipeline.write_metadata(str(uuid.uuid4()))
    with pytest.raises(AuditError, match="name the checkpoint that belongs to this output"):
        pipeline.run(spark)
