"""The replay job: write the input records that an audit found missing, each exactly once.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 --py-files fenceline-spark.zip \\
        spark_pipeline/replay.py --bootstrap-servers broker:9092 --cluster prod --pipeline orders \\
        --output s3a://data/fenceline-audit --target enriched --value "upper(value)"

Without `--execute` it only previews the records. It replays the losses in the newest manifest of the audit
that no earlier replay has listed. It creates a list of ranges exclusively; then a Spark query writes the
records of each list through the exactly-once sink. The next run continues a killed one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from spark_pipeline.audits import AuditError
from spark_pipeline.audits.keys import EVERY_RECORD
from spark_pipeline.audits.replays import Replay, ReplayOptions
from spark_pipeline.audits.store import AuditStore
from spark_pipeline.exactly_once import explain_error
from spark_pipeline.job import folder_name, java_properties, job_parser, run_job
from spark_pipeline.sink.errors import SinkError

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
