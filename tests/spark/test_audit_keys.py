"""Proves the audit by keys on a real Kafka and Spark: the injected losses and duplicates, by offset.

Pipelines are those of a consumer group, and of a query whose sink is not ours.
"""

import json
import random
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from pyspark.sql import SparkSession

from fenceline.audit.manifest import (
    DUPLICATES,
    LOSSES,
    AuditManifest,
    AuditMode,
    AuditVerdict,
    ObstacleKind,
)
from sandbox.kafka import Broker
from spark_pipeline.audits import AuditError
from tests.brokers import create_topics, wait_for_markers
from tests.spark.audits import Audited, delete_records, delete_topic, kinds
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PARTITIONS = 2
SEED = 20_261_125
Place = tuple[int, int]


class GroupPipeline(Audited):
    """Two topics, and a group that has committed some of the first."""

    def __init__(self, bootstrap: str, output: Path) -> None:
        name = uuid.uuid4().hex[:8]
        self.bootstrap, self.output, self.group = bootstrap, output, f"keys-{name}"
        self.source, self.target = f"keys-in-{name}", f"keys-out-{name}"
        self.into: tuple[str, ...] = ("--target", self.target)
        for topic in (self.source, self.target):
            create_topics(bootstrap, topic, partitions=PARTITIONS)

    def produce(self, topic: str, records: Iterable[tuple[str | None, str]], **more: Any) -> list[Place]:
        """Write records to a topic; return where each of them is."""
        places: list[Place] = []
        with _producer(self.bootstrap, **more) as producer:
            for number, (key, value) in enumerate(records):
                producer.produce(
                    topic, value, key, number % PARTITIONS,
                    on_delivery=lambda error, sent: places.append((sent.partition(), sent.offset())),
                )  # fmt: skip
                assert producer.flush(30) == 0
        if more:
            wait_for_markers(self.bootstrap, topic)
        return places

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Let the group have read the input up to these offsets."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        positions = [TopicPartition(self.source, *each) for each in offsets.items()]
        wait_for(lambda: _is_committed(consumer, positions), "the group commits")
        consumer.close()

    def own_arguments(self) -> Sequence[str]:
        return ["--mode", "keys", *self.into]

    def audit(self, spark: SparkSession, *more: str) -> AuditManifest:
        """Run the job about the group; return the newest manifest."""
        return self.run(spark, "--group", self.group, "--source", self.source, *more)

    def places(self, manifest: AuditManifest, table: str) -> set[Place]:
        """Return the offsets in the ranges of a table."""
        return {
            (row["partition"], offset)
            for row in self.rows(manifest.parts, table)
            for offset in range(row["from_offset"], row["to_offset"])
        }


def _is_committed(consumer: Consumer, positions: list[TopicPartition]) -> bool:
    """Commit; return False while the coordinator of a new broker is not there yet."""
    try:
        consumer.commit(offsets=positions, asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE):
            raise
        return False
    return True


@contextmanager
def _producer(bootstrap: str, **more: Any) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": bootstrap, **more})
    if more:
        producer.init_transactions(60)
        producer.begin_transaction()
    yield producer
    assert producer.flush(30) == 0
    if more:
        producer.commit_transaction(60)


@pytest.fixture
def pipeline(kafka_42: Broker, tmp_path: Path) -> GroupPipeline:
    return GroupPipeline(kafka_42.bootstrap, tmp_path / "output")


def records(numbers: Iterable[int]) -> list[tuple[str | None, str]]:
    return [(f"k{each}", json.dumps({"id": each})) for each in numbers]


def test_the_injected_losses_and_duplicates_are_found_by_offset(
    spark: SparkSession, pipeline: GroupPipeline
) -> None:
    chosen = random.Random(SEED)
    places = pipeline.produce(pipeline.source, records(range(60)))
    lost = set(chosen.sample(range(60), 7))
    sent = [each for each in range(60) if each not in lost]
    pipeline.produce(pipeline.target, records(sent), **{"transactional.id": pipeline.target})
    doubled = pipeline.produce(pipeline.target, records(chosen.sample(sent, 5)))
    pipeline.commit({0: 30, 1: 30})
    found = pipeline.audit(spark)
    assert (found.mode, found.verdict) == (AuditMode.KEYS, AuditVerdict.VIOLATED)
    assert (found.input, found.readable, found.missing, found.duplicated) == (60, 53, 7, 5)
    assert pipeline.places(found, LOSSES) == {places[each] for each in lost}
    assert pipeline.places(found, DUPLICATES) == set(doubled)
    in_manifest = {(each.partition, offset) for each in found.losses for offset in range(*each[2:])}
    assert in_manifest == {places[each] for each in lost}
    assert pipeline.audit(spark) == found, "a run that finds nothing new leaves nothing"


def test_what_is_not_due_and_what_was_written_since_is_neither(
    spark: SparkSession, pipeline: GroupPipeline
) -> None:
    pipeline.produce(pipeline.source, records(range(20)))
    # The group has committed 5 of each partition; one more is in the output already.
    pipeline.produce(pipeline.target, records(range(11)))
    pipeline.commit({0: 5, 1: 5})
    found = pipeline.audit(spark)
    assert (found.verdict, found.input, found.readable) == (AuditVerdict.PROVED, 10, 10)
    expected = [(pipeline.source, 0, 0, 5), (pipeline.source, 1, 0, 5)]
    assert [tuple(each) for each in found.compared] == expected


def test_keys_and_records_are_chosen_by_sql(spark: SparkSession, pipeline: GroupPipeline) -> None:
    pipeline.produce(pipeline.source, records(range(10)))
    even = [(f"order-{each}", "x") for each in range(0, 10, 2)]
    pipeline.produce(pipeline.target, even)
    pipeline.commit({0: 5, 1: 5})
    chosen = (
        "--source-key", "get_json_object(value, '$.id')", "--target-key", "substring(key, 7)",
        "--where", "cast(get_json_object(value, '$.id') AS INT) % 2 = 0",
    )  # fmt: skip
    found = pipeline.audit(spark, *chosen)
    assert (found.verdict, found.input, found.readable) == (AuditVerdict.PROVED, 5, 5)


@pytest.mark.matrix
def test_a_query_of_spark_with_another_sink_is_audited(
    spark: SparkSession, pipeline: GroupPipeline, tmp_path: Path
) -> None:
    pipeline.produce(pipeline.source, records(range(12)))
    checkpoint = str(tmp_path / "checkpoint")
    kafka = {"kafka.bootstrap.servers": pipeline.bootstrap}
    rows = spark.readStream.format("kafka").options(**kafka, subscribe=pipeline.source)
    rows = rows.option("startingOffsets", "earliest").load().select("key", "value")
    kept = rows.where("key != 'k7'").writeStream.format("kafka").options(**kafka, topic=pipeline.target)
    query = kept.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    pipeline.produce(pipeline.source, records(range(12, 14)))
    found = pipeline.run(spark, "--checkpoint", checkpoint)
    assert (found.query_id, found.input, found.missing) == (str(query.id), 12, 1)
    assert [tuple(each) for each in found.losses] == [(pipeline.source, 1, 3, 4)]
    found = pipeline.run(spark, "--checkpoint", checkpoint, "--where", "key != 'k7'")
    assert (found.verdict, found.proved_through) == (AuditVerdict.PROVED, 0)


@pytest.mark.matrix
def test_the_last_records_of_a_key_that_is_there_too_few_times_are_listed_as_uncertain(
    spark: SparkSession, pipeline: GroupPipeline
) -> None:
    places = pipeline.produce(pipeline.source, [("same", str(each)) for each in range(6)])
    pipeline.produce(pipeline.target, [("same", str(each)) for each in range(4)])
    pipeline.commit({0: 3, 1: 3})
    found = pipeline.audit(spark)
    assert (found.missing, found.duplicated) == (2, 0)
    assert pipeline.places(found, LOSSES) == set(places[4:])
    assert not any(row["certain"] for row in pipeline.rows(found.parts, LOSSES))


def test_nothing_is_proved_past_what_readers_do_not_get(spark: SparkSession, pipeline: GroupPipeline) -> None:
    pipeline.produce(pipeline.source, records(range(4)))
    blocking = Producer({"bootstrap.servers": pipeline.bootstrap, "transactional.id": pipeline.group})
    blocking.init_transactions(60)
    blocking.begin_transaction()
    blocking.produce(pipeline.target, b"x", b"other", 0)
    assert blocking.flush(30) == 0
    pipeline.produce(pipeline.target, records(range(4)))
    pipeline.commit({0: 2, 1: 2})
    found = pipeline.audit(spark)
    expected = (AuditVerdict.UNPROVED, 0, {ObstacleKind.UNREADABLE})
    assert (found.verdict, found.missing, kinds(found)) == expected
    blocking.abort_transaction(60)
    wait_for_markers(pipeline.bootstrap, pipeline.target)
    assert pipeline.audit(spark).verdict is AuditVerdict.PROVED


def test_records_that_retention_has_deleted_do_not_count_as_missing(
    spark: SparkSession, pipeline: GroupPipeline
) -> None:
    pipeline.produce(pipeline.source, records(range(6)))
    pipeline.produce(pipeline.target, records(range(6)))
    pipeline.commit({0: 3, 1: 3})
    delete_records(pipeline.bootstrap, pipeline.target, 0, before=2)
    found = pipeline.audit(spark)
    expected = (AuditVerdict.UNPROVED, 0, {ObstacleKind.RETENTION})
    assert (found.verdict, found.missing, kinds(found)) == expected


def test_records_without_a_key_and_of_others_are_named(spark: SparkSession, pipeline: GroupPipeline) -> None:
    pipeline.produce(pipeline.source, [*records(range(4)), (None, "no key")])
    pipeline.produce(pipeline.target, [*records(range(4)), ("stranger", "x")])
    pipeline.commit({0: 3, 1: 2})
    found = pipeline.audit(spark)
    assert kinds(found) == {ObstacleKind.KEY_MISSING, ObstacleKind.FOREIGN_RECORDS}
    assert (found.verdict, found.missing, found.duplicated) == (AuditVerdict.UNPROVED, 0, 0)


def test_what_is_wrong_is_one_sentence(spark: SparkSession, pipeline: GroupPipeline) -> None:
    pipeline.produce(pipeline.source, records(range(4)))
    pipeline.commit({0: 2, 1: 2})
    for wrong, text in (
        (["--source-key", "nonsense(key)"], "nonsense"),
        (["--where", "value >"], "the records cannot be compared"),
        (["--where", "assert_true(key = 'k1') IS NULL"], "the records cannot be compared"),
        (["--group", "nobody"], f"group nobody has committed nothing of {pipeline.source}"),
        (["--checkpoint", "file:///nowhere"], "name one of these"),
        (["--mode", "counts"], "--checkpoint is needed"),
        (["--source", "keys-nowhere"], "there is no topic keys-nowhere"),
    ):
        with pytest.raises(AuditError, match=text) as raised:
            pipeline.audit(spark, *wrong)
        assert "\n" not in str(raised.value)
    delete_topic(pipeline.bootstrap, pipeline.source)
    create_topics(pipeline.bootstrap, pipeline.source, partitions=PARTITIONS)
    pipeline.commit({0: 2, 1: 2})
    with pytest.raises(AuditError, match="deleted and created again"):
        pipeline.audit(spark)
