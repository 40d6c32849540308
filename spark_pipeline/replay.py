"""The replay job: write the input records that an audit found missing, each exactly once.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 --py-files fenceline-spark.zip \\
        spark_pipeline/replay.py --bootstrap-servers broker:9092 --cluster prod --pipeline orders \\
        --output s3a://data/fenceline-audit --target enriched --value "upper(value)"

Without `--execute` it only previews the records. It replays the losses in the newest manifest of the audit
that no earlier replay has listed. It creates a list of ranges exclusively; then a Spark query writes the
records of each list through the exactly-once sink. The next run continues a killed one.

Below the audit's output of a pipeline: `replays/lists/000000000001.json` and so on, and
`replays/checkpoint`, the query's own: each of its batches writes the records of one list.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fenceline.audit.continuing import count_offsets, ranges_without
from fenceline.audit.manifest import LOSSES, AuditedRange
from fenceline.compat import SLOTS
from fenceline.decode.typed import TornFile
from fenceline.facts import TopicPartition
from fenceline.formatting import count_noun
from fenceline.history.reports import manifest_name, manifest_number
from spark_pipeline.audits import AuditError
from spark_pipeline.audits.cluster import kafka_connection, read_topics
from spark_pipeline.audits.keys import EVERY_RECORD
from spark_pipeline.audits.sources import RecordRanges, read_records
from spark_pipeline.audits.store import AuditStore
from spark_pipeline.exactly_once import explain_error
from spark_pipeline.job import BatchFunction, folder_name, java_properties, job_parser, run_job
from spark_pipeline.sink import ExactlyOnceKafkaSink
from spark_pipeline.sink.errors import SinkError

_FOLDER = "replays"
_LISTS, _CHECKPOINT = f"{_FOLDER}/lists", f"{_FOLDER}/checkpoint"
_RANGE_DDL = "topic STRING, partition INT, from_offset LONG, to_offset LONG"
#: A list waits for its batch however old it gets.
_LIST_OPTIONS = {"maxFilesPerTrigger": "1", "maxFileAge": "36500d"}
#: Maximum ranges named in a sentence.
_MOST_NAMED = 5
_EXAMPLES = """examples:
  what would be written, and nothing else:
    spark-submit … replay.py --bootstrap-servers broker:9092 --cluster prod --pipeline orders \\
        --output s3a://data/fenceline-audit --target enriched
  write it; key, value and headers as the pipeline makes them
    spark-submit … replay.py … --execute --key "get_json_object(value, '$.id')" --value "upper(value)" \\
        --where "value IS NOT NULL"

The principal needs READ and DESCRIBE on the input, WRITE and DESCRIBE on the output and on transactional ids
that begin with fenceline-replay.
"""


@dataclass(frozen=True, **SLOTS)
class ReplayOptions:
    """The records to write. `java` has properties of Java clients; `key`, `value`, `where` are Spark SQL."""

    java: Mapping[str, str]
    target: str
    key: str
    value: str
    where: str
    #: Whether to include uncertain ranges, of which an audit knows only the number of missing records.
    uncertain: bool


class Replay:
    """The replay of one pipeline's losses. Raises AuditError if cluster or target topic is missing."""

    def __init__(self, spark: SparkSession, store: AuditStore, options: ReplayOptions) -> None:
        self._spark, self._store, self._options = spark, store, options
        self._files = store.files
        self.writer: BatchFunction | None = None
        # Raises AuditError at once; Spark would wait a minute for a missing topic.
        read_topics(kafka_connection(options.java), [options.target])

    def preview(self) -> str:
        """Describe what a replay would write, in one sentence. Raises AuditError."""
        lists = self._lists()
        new = self._new_ranges(lists)
        waiting = [range_ for number in self._unfinished(lists) for range_ in lists[number]]
        ranges = [*waiting, *new]
        if not ranges:
            return "nothing to replay: no loss that is listed is still to be written"
        records = self._rows(ranges).count()
        return (
            f"{count_noun(records, 'record')} would be written to {self._options.target}: "
            f"{_named(ranges)}. Run it with --execute"
        )

    def execute(self) -> str:
        """List new losses, and write the listed losses that are not written yet. Raises AuditError."""
        lists = self._lists()
        new = self._new_ranges(lists)
        if new:
            number = max(lists, default=0) + 1
            text = json.dumps({"ranges": [range_._asdict() for range_ in new]}) + "\n"
            if not self._files.create(f"{_LISTS}/{manifest_name(number)}", text):
                raise AuditError(f"another replay of {self._store.folder} has begun: run one at a time.")
            lists = {**lists, number: new}
        waiting = self._unfinished(lists)
        if not waiting:
            return "nothing to replay: no loss that is listed is still to be written"
        self._write_lists()
        ranges = [range_ for number in waiting for range_ in lists[number]]
        return f"the records of {count_noun(count_offsets(ranges), 'offset')} are written: {_named(ranges)}"

    def _new_ranges(self, lists: Mapping[int, Sequence[AuditedRange]]) -> Sequence[AuditedRange]:
        """Return the newest manifest's losses that are in no list. Raises AuditError without a manifest."""
        manifest = self._store.log.newest()
        if manifest is None:
            raise AuditError(f"{self._store.folder} has no manifest: run the audit first")
        table = self._store.read_table(manifest, LOSSES)
        if table is None:
            return ()
        rows = table if self._options.uncertain else table.where("certain")
        found = [
            AuditedRange(row.topic, row.partition, row.from_offset, row.to_offset) for row in rows.collect()
        ]
        return ranges_without(found, (range_ for listed in lists.values() for range_ in listed))

    def _lists(self) -> Mapping[int, Sequence[AuditedRange]]:
        names = {manifest_number(name): name for name in self._files.names(_LISTS)}
        found = {
            number: self._files.read_or_delete(f"{_LISTS}/{name}", _read_list)
            for number, name in names.items()
            if number is not None
        }
        return {number: ranges for number, ranges in sorted(found.items()) if ranges is not None}

    def _unfinished(self, lists: Mapping[int, Sequence[AuditedRange]]) -> Sequence[int]:
        """Return the lists without a committed batch: each batch writes one list."""
        finished = [name for name in self._files.names(f"{_CHECKPOINT}/commits") if name.isdecimal()]
        return sorted(lists)[len(finished) :]

    def _write_lists(self) -> None:
        checkpoint = f"{self._store.folder}/{_CHECKPOINT}"
        kafka = {f"kafka.{name}": value for name, value in self._options.java.items()}
        sink = ExactlyOnceKafkaSink(
            checkpoint=checkpoint, options=kafka, topic=self._options.target, prefix="fenceline-replay"
        )
        lists = self._spark.readStream.schema(f"ranges ARRAY<STRUCT<{_RANGE_DDL}>>").options(**_LIST_OPTIONS)

        def write(duplicates: DataFrame, batch_id: int) -> None:
            ranges = [AuditedRange(*range_) for row in duplicates.collect() for range_ in row.ranges]
            sink(self._rows(ranges), batch_id)

        self.writer = BatchFunction(write)
        query = (
            lists.json(f"{self._store.folder}/{_LISTS}")
            .writeStream.foreachBatch(self.writer)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _rows(self, ranges: Sequence[AuditedRange]) -> DataFrame:
        """Return the rows to write for ranges. Raises AuditError where records have been deleted since."""
        spans = _spans(ranges)
        self._refuse_deleted(spans)
        records = read_records(self._spark, self._options.java, spans, committed_only=True)
        wanted = self._spark.createDataFrame(ranges, _RANGE_DDL)
        inside = (f.col("offset") >= f.col("from_offset")) & (f.col("offset") < f.col("to_offset"))
        read = records.join(f.broadcast(wanted), ["topic", "partition"]).where(inside)
        chosen = read.where(self._options.where)
        return chosen.selectExpr(f"{self._options.key} AS key", f"{self._options.value} AS value", "headers")

    def _refuse_deleted(self, spans: RecordRanges) -> None:
        topics = read_topics(kafka_connection(self._options.java), {where.topic for where in spans})
        for where, (first, end) in spans.items():
            now = topics.offsets.get(where)
            if now is None or first < now.log_start or end > now.high_watermark:
                begins = (
                    f"begins at {now.log_start:,} and ends at {now.high_watermark:,}" if now else "is gone"
                )
                raise AuditError(
                    f"records {first:,} to {end - 1:,} of {where} cannot be replayed, it {begins}: retention "
                    "has deleted them, or the topic is another one"
                )


def _spans(ranges: Sequence[AuditedRange]) -> RecordRanges:
    """Return one range for each partition that covers all of its ranges."""
    found: dict[TopicPartition, tuple[int, int]] = {}
    for topic, partition, first, end in ranges:
        where = TopicPartition(topic, partition)
        known_first, known_end = found.get(where, (first, end))
        found[where] = min(first, known_first), max(end, known_end)
    return found


def _read_list(text: str) -> Sequence[AuditedRange]:
    try:
        return [AuditedRange(**fields) for fields in json.loads(text)["ranges"]]
    except (ValueError, KeyError, TypeError) as error:
        raise TornFile from error


def _named(ranges: Sequence[AuditedRange]) -> str:
    words = [
        f"{range_.topic}-{range_.partition} {range_.from_offset:,} to {range_.to_offset - 1:,}"
        for range_ in ranges
    ]
    more = len(words) - _MOST_NAMED
    return ", ".join(words[:_MOST_NAMED]) + (f" and {count_noun(more, 'more range')}" if more > 0 else "")


def argument_parser() -> argparse.ArgumentParser:
    purpose = "Write the records that an audit has found missing, each exactly once."
    made = job_parser("replay.py", purpose, _EXAMPLES)
    add = made.add_argument
    add("--cluster", required=True, type=folder_name, help="as the audit was given it")
    add("--pipeline", required=True, type=folder_name, help="as the audit was given it")
    add("--output", required=True, metavar="URL", help="the audit's output folder")
    add("--target", required=True, metavar="TOPIC", help="where the records go")
    add("--key", default="key", metavar="SQL", help="the key to write, of an input record (its own)")
    add("--value", default="value", metavar="SQL", help="the value to write (its own)")
    add("--where", default=EVERY_RECORD, metavar="SQL", help="which input records the pipeline writes (all)")
    add("--uncertain", action="store_true", help="replay records as well of which another one may be missing")
    add("--execute", action="store_true", help="write; without it, only report what would be written")
    return made


def run_replay(spark: SparkSession, options: argparse.Namespace) -> str:
    """Replay once, or preview the replay; return the result in one sentence. Raises AuditError."""
    store = AuditStore(spark, options.output, options.cluster, options.pipeline)
    chosen = ReplayOptions(
        java_properties(options), options.target, options.key, options.value, options.where,
        uncertain=options.uncertain,
    )  # fmt: skip
    replay = Replay(spark, store, chosen)
    try:
        return replay.execute() if options.execute else replay.preview()
    except (SinkError, StreamingQueryException, PySparkException) as error:
        failure = replay.writer.failure if replay.writer else None
        raise AuditError(explain_error(failure or error)) from error


def main(arguments: Sequence[str]) -> int:
    """Run the job; return the exit status."""
    options = argument_parser().parse_args(arguments)
    return run_job("replay", options.pipeline, lambda spark: [run_replay(spark, options)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
