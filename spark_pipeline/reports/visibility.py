"""Prove before the job starts that Spark sees the records of an internal topic.

Spark's default offset reader omits internal topics: a query on `__transaction_state` then finds no offsets,
reads nothing and succeeds silently. So this module asks Kafka's own consumer whether there is a record, and
Spark must find one too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from pyspark.sql import SparkSession

from spark_pipeline.reports.store import HistoryError

#: Spark's older offset reader reads internal topics like any other topic.
OLD_OFFSET_READER = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
_LOOK_S = 30.0
_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


def has_records(spark: SparkSession, kafka: Mapping[str, str], topic: str) -> bool:
    """Return whether the topic has a record that Spark can read; False for an empty topic.

    `kafka` are properties of Kafka's Java clients by their own names. Raises HistoryError if the topic does
    not exist, or if Spark sees none of its records.
    """
    if not _has_records(spark, kafka, topic):
        return False
    reader = spark.read.format("kafka").option("subscribe", topic)
    for name, value in kafka.items():
        reader = reader.option(f"kafka.{name}", value)
    if not reader.load().select("offset").head(1):
        raise HistoryError(
            f"Spark sees no record in {topic} although there are some: it would read nothing, and report "
            f"nothing. Its offset reader leaves internal topics out unless {OLD_OFFSET_READER} is true (now "
            f"{spark.conf.get(OLD_OFFSET_READER, 'unset')})."
        )
    return True


def _has_records(spark: SparkSession, kafka: Mapping[str, str], topic: str) -> bool:
    jvm: Any = spark._jvm
    settings = jvm.java.util.HashMap()
    for name, value in kafka.items():
        settings[name] = value
    for side in "key", "value":
        settings[f"{side}.deserializer"] = _BYTES
    settings["allow.auto.create.topics"] = "false"
    with closing(jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)) as consumer:
        partitions = jvm.java.util.ArrayList()
        for partition in consumer.partitionsFor(topic) or ():
            partitions.add(jvm.org.apache.kafka.common.TopicPartition(topic, partition.partition()))
        if not len(partitions):
            raise HistoryError(
                f"there is no topic {topic} at {kafka['bootstrap.servers']}: no transaction was ever begun "
                "there, or the principal may not describe it (it needs DESCRIBE and READ)."
            )
        return _polls_one(jvm, consumer, partitions)


def _polls_one(jvm: Any, consumer: Any, partitions: Any) -> bool:
    """Return whether a record arrives; stop once all positions are at the partitions' ends."""
    consumer.assign(partitions)
    consumer.seekToBeginning(partitions)
    ends = consumer.endOffsets(partitions)
    until = time.monotonic() + _LOOK_S
    while time.monotonic() < until:
        if consumer.poll(jvm.java.time.Duration.ofSeconds(1)).count():
            return True
        if all(consumer.position(partition) >= ends[partition] for partition in partitions):
            return False
    raise HistoryError(
        f"no record arrives within {_LOOK_S:.0f} s although some are there; is the cluster up?"
    )
