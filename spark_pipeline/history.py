"""The history job: `__transaction_state` -> transitions and reports as Parquet, on any Spark from 3.5 to 4.2.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 --py-files fenceline.zip \\
        spark_pipeline/history.py --bootstrap-servers broker:9092 --cluster prod \\
        --output s3a://data/fenceline-history --checkpoint s3a://data/checkpoints/fenceline-history

Its results equal those of `fenceline`'s offline replay of the same records: tasks run the same fold as the
live intake. `fenceline.history.reports` has the layout of the output, docs/spark-history.md the tables.

The job uses foreachBatch with its own state instead of applyInPandasWithState or transformWithState. Those
call Python once per id, copy each id's state in and out, and need a sink that is exactly-once itself. Here a
task gets whole partitions of the topic, in which an id's records are in order, and folds 100,000 records at a
time. The state of ids is in the output itself, as rows beside the transitions. One manifest, created once per
micro-batch, publishes all of these rows at once (`reports.batches.History`). The job needs mapInArrow and
nothing newer, so it runs the same way from Spark 3.5 on.

Where the topic was compacted before the job read it, offsets are missing. As in the live intake, an id's next
record after such a hole is a baseline, never an event.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_pipeline.job import (
    BatchFunction,
    folder_name,
    java_properties,
    job_parser,
    named_application,
    positive_number,
    run_job,
)
from spark_pipeline.reports.batches import History, HistoryError, ReportStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


TOPIC = "__transaction_state"
AVAILABLE_NOW = "available-now"
#: Spark's older offset reader reads internal topics like any other topic; its default one omits them: a query
#: on `__transaction_state` then finds no offsets, reads nothing and succeeds silently.
OLD_OFFSET_READER = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
_SETTINGS = {
    OLD_OFFSET_READER: "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # A micro-batch has rows of few tables and days: one open file for each avoids a sort.
    "spark.sql.optimizer.plannedWrite.enabled": "false",
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # Local times would move rows to other days' folders.
    "spark.sql.session.timeZone": "UTC",
}
_EXAMPLES = """examples:
  all there is, then stop (run it again from cron: it goes on where it was):
    spark-submit … history.py --bootstrap-servers broker:9092 --cluster prod \\
        --output s3a://data/fenceline-history --checkpoint s3a://data/checkpoints/fenceline-history
  for ever, a micro-batch each five minutes:
    spark-submit … history.py … --trigger "5 minutes"
  with SASL; @FILE reads arguments from a file, one a line, so that no secret is in the process list:
    spark-submit … history.py … --kafka security.protocol=SASL_SSL --kafka sasl.mechanism=PLAIN @secret.args

The principal needs READ and DESCRIBE on the topic and READ on groups that begin with spark-kafka-source.
"""
_LOOK_S = 30.0
_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


def argument_parser() -> argparse.ArgumentParser:
    purpose = "Write every transition of a cluster's transactional ids, and reports, as Parquet."
    made = job_parser("history.py", purpose, _EXAMPLES)
    add = made.add_argument
    add(
        "--cluster",
        required=True,
        type=folder_name,
        help="its name in fenceline.toml, by which the dashboard finds it",
    )
    add(
        "--output",
        required=True,
        metavar="URL",
        help="a folder; [history] url in fenceline.toml names the same",
    )
    add("--checkpoint", required=True, metavar="URL", help="a folder of its own; it belongs to the output")
    add("--trigger", default=AVAILABLE_NOW, help='available-now (the default), or an interval: "1 minute"')
    add("--starting", default="earliest", choices=("earliest", "latest"), help="where the first run begins")
    add(
        "--tasks",
        type=positive_number,
        help="how many fold in parallel; by default as many as there are cores",
    )
    add(
        "--max-records",
        type=positive_number,
        default=2_000_000,
        help="most records of one micro-batch (2,000,000)",
    )
    add(
        "--application",
        action="append",
        default=[],
        type=named_application,
        metavar="PATTERN=NAME",
        help="match and application of [[owners]], each in its order, where ids are to be called so",
    )
    add("--topic", default=TOPIC, help=argparse.SUPPRESS)
    return made


def start_query(
    spark: SparkSession, write: Callable[[DataFrame, int], None], options: argparse.Namespace
) -> StreamingQuery:
    stream = read_records(spark, java_properties(options), options)
    writer = stream.writeStream.queryName(f"fenceline-history-{options.cluster}").foreachBatch(write)
    now = options.trigger == AVAILABLE_NOW
    return (
        writer.option("checkpointLocation", options.checkpoint)
        .trigger(**({"availableNow": True} if now else {"processingTime": options.trigger}))
        .start()
    )


def read_records(spark: SparkSession, kafka: Mapping[str, str], options: argparse.Namespace) -> DataFrame:
    """Return the topic's records as a stream; the query fails if Kafka deletes unread records."""
    reader = spark.readStream.format("kafka").options(**_source_options(kafka, options.topic))
    reader = reader.option("startingOffsets", options.starting).option("failOnDataLoss", "true")
    return reader.option("maxOffsetsPerTrigger", options.max_records).load()


def _source_options(kafka: Mapping[str, str], topic: str) -> dict[str, str]:
    return {"subscribe": topic, **{f"kafka.{name}": value for name, value in kafka.items()}}


def run_history(spark: SparkSession, options: argparse.Namespace) -> str:
    """Run until all is read, or without end; return the result in one sentence. Raises HistoryError."""
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    tasks = options.tasks or spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    has_any = has_records(spark, java_properties(options), options.topic)
    store = ReportStore(spark, options.output, options.cluster)
    owners = tuple(options.application)
    history = History(store, options.cluster, options.topic, options.checkpoint, tasks, owners)
    before, began = history.manifest.records if history.manifest else 0, time.monotonic()
    write = BatchFunction(history)
    try:
        start_query(spark, write, options).awaitTermination()
    except StreamingQueryException as error:
        if isinstance(write.failure, HistoryError):
            raise write.failure from error
        raise
    after = history.manifest
    if has_any and options.starting == "earliest" and (after is None or not after.records):
        raise HistoryError(f"nothing was read although {options.topic} has records; the output is empty")
    count = after.records if after else 0
    took, batch = time.monotonic() - began, after.batch if after else "-"
    return f"{count - before:,} records read in {took:.1f} s, {count:,} in all, up to micro-batch {batch}"


def has_records(spark: SparkSession, kafka: Mapping[str, str], topic: str) -> bool:
    """Return whether the topic has a record that Spark can read; False for an empty topic.

    It asks Kafka's own consumer whether there is a record, and Spark must find one too.
    `kafka` are properties of Kafka's Java clients by their own names. Raises HistoryError if the topic does
    not exist, or if Spark sees none of its records.
    """
    if not _has_records(spark, kafka, topic):
        return False
    reader = spark.read.format("kafka").options(**_source_options(kafka, topic))
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


def main(arguments: Sequence[str]) -> int:
    """Run the job; return the exit status."""
    options = argument_parser().parse_args(arguments)
    return run_job("history", options.cluster, lambda spark: [run_history(spark, options)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
