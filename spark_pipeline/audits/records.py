"""Read Kafka records between offsets, through Spark's own source."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fenceline.facts import TopicPartition

_COLUMNS = (
    "key STRING, value STRING, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


class RecordRange(NamedTuple):
    """Records of one partition, from the first offset to before the second."""

    partition: TopicPartition
    from_offset: int
    to_offset: int


def read_records(
    spark: SparkSession, java: Mapping[str, str], ranges: Sequence[RecordRange], *, committed_only: bool
) -> DataFrame:
    """Return records with key and value as text, invalid UTF-8 unchanged. `java` has properties of Java
    clients.

    Each partition may have one range.
    """
    if not ranges:
        return spark.createDataFrame([], _COLUMNS)
    starts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    ends: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), first, end in ranges:
        starts[topic][str(partition)], ends[topic][str(partition)] = first, end
    options = {
        **{f"kafka.{name}": value for name, value in java.items()},
        "kafka.isolation.level": "read_committed" if committed_only else "read_uncommitted",
        "assign": json.dumps({topic: [int(offset) for offset in bounds] for topic, bounds in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
    }
    rows = spark.read.format("kafka").options(**options).load()
    text = {name: f.col(name).cast("string") for name in ("key", "value")}
    return rows.withColumns(text).select(
        "key", "value", "topic", "partition", "offset", "timestamp", "headers"
    )
