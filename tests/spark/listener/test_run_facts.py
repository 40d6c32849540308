"""Proves what the listener finds out of a run beside its events: in plans of queries that read Kafka."""

import uuid
from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from sandbox.kafka import Broker
from spark_listener.listener import RunFacts, _read_facts
from tests.brokers import create_topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.mark.parametrize(
    ("sources", "isolation"),
    [
        ([COMMITTED], "read_committed"),
        ([{}], "read_uncommitted"),
        ([COMMITTED, {"kafka.isolation.level": "read_uncommitted"}], "read_uncommitted"),
        ([], None),
    ],
)
def test_the_weakest_isolation_of_all_kafka_sources_counts(
    spark: SparkSession, kafka_42: Broker, sources: list[Mapping[str, str]], isolation: str | None
) -> None:
    topic = f"facts-{uuid.uuid4().hex[:8]}"
    create_topics(kafka_42.bootstrap, topic, partitions=1)
    kafka = {"kafka.bootstrap.servers": kafka_42.bootstrap, "subscribe": topic}
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    for more in sources:
        read = spark.readStream.format("kafka").options(**kafka).options(**more).load()
        rows = rows.union(read.selectExpr("CAST(value AS STRING) AS value"))
    query = rows.writeStream.format("noop").start()
    try:
        assert _read_facts(str(query.id)) == RunFacts(False, isolation)
    finally:
        query.stop()
    assert _read_facts(str(query.id)) == RunFacts()
