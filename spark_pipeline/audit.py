"""The audit job: prove from Kafka what each batch of a pipeline read, wrote, committed and left readable.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 --py-files fenceline-spark.zip \\
        spark_pipeline/audit.py --bootstrap-servers broker:9092 --cluster prod --pipeline orders \\
        --output s3a://data/fenceline-audit --checkpoint s3a://data/checkpoints/orders

`fenceline.audit.manifest` has the layout of the output, docs/audit.md what is proved and what is not.

A run continues where the last manifest ends. It creates its own manifest exclusively, as its last step: the
files of a killed run do not count, and the next run derives the same results again.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import SparkSession

from fenceline.audit.manifest import AuditManifest, AuditMode
from spark_pipeline.audits import AuditError
from spark_pipeline.audits.checkpoint import AuditedCheckpoint
from spark_pipeline.audits.cluster import kafka_connection
from spark_pipeline.audits.counts import CountsOptions
from spark_pipeline.audits.keys import EVERY_RECORD, KeysOptions
from spark_pipeline.audits.runs import RunOf, run_counts, run_keys
from spark_pipeline.audits.sources import TABLE_EXAMPLES, AuditedTable, parse_table
from spark_pipeline.audits.store import AuditStore
from spark_pipeline.job import folder_name, java_properties, job_parser, reader_option, run_job

ONCE = "once"
_TRIGGER = re.compile(r"([1-9]\d{0,5}) seconds?")
_EXAMPLES = """examples:
  audit what has ended since the last run, then stop (run it again from cron):
    spark-submit … audit.py --bootstrap-servers broker:9092 --cluster prod --pipeline orders \\
        --output s3a://data/fenceline-audit --checkpoint s3a://data/checkpoints/orders
  for ever, each 30 seconds:
    spark-submit … audit.py … --trigger "30 seconds"
  by key, for any sink: the very records that are missing or duplicated
    spark-submit … audit.py … --mode keys --checkpoint s3a://data/checkpoints/orders --target enriched \\
        --source-key "get_json_object(value, '$.id')" --target-key key
  by key, for a pipeline that is no query of Spark: what group billing has committed of orders
    spark-submit … audit.py … --mode keys --group billing --source orders --target invoices
  by key, into a table: files, Delta, a database, or any other format that Spark reads
    spark-submit … audit.py … --mode keys --checkpoint s3a://data/checkpoints/orders --target-key order_id \\
        --target-table jdbc:postgresql://host/shop#orders @database.args
  with SASL; @FILE reads arguments from a file, one a line, so that no secret is in the process list:
    spark-submit … audit.py … --kafka security.protocol=SASL_SSL --kafka sasl.mechanism=PLAIN @secret.args

The principal needs READ and DESCRIBE on input and output topics, and DESCRIBE on transactional ids to name
other writers.
"""


def argument_parser() -> argparse.ArgumentParser:
    purpose = "Prove, batch by batch, that each input record is readable in the output exactly once."
    made = job_parser("audit.py", purpose, _EXAMPLES)
    add = made.add_argument
    add("--cluster", required=True, type=folder_name, help="its name in fenceline.toml")
    add("--pipeline", required=True, type=folder_name, help="the query's name, or one of your choice")
    add("--output", required=True, metavar="URL", help="a folder; the dashboard reads it")
    add(
        "--mode",
        default=AuditMode.COUNTS,
        type=AuditMode,
        choices=list(AuditMode),
        help="how records are compared",
    )
    add("--checkpoint", metavar="URL", help="the query's own checkpointLocation; it is only read")
    add("--target", action="append", default=[], metavar="TOPIC",
        help="an output topic; by default those that the ledger names; repeatable")  # fmt: skip
    add("--source-isolation", default="read_committed", choices=("read_committed", "read_uncommitted"),
        help="how the query reads its input (kafka.isolation.level)")  # fmt: skip
    add("--one-to-one", action="store_true", help="by counts: the query neither drops nor adds records")
    add("--group", help="by keys, instead of --checkpoint: the consumer group that reads the input")
    add(
        "--source",
        action="append",
        default=[],
        metavar="TOPIC",
        help="with --group: an input topic; repeatable",
    )
    for side, what in (("target", "the output"), ("source", "the input, of which each row is due")):
        add(f"--{side}-table", type=parse_table, metavar="FORMAT:URL",
            help=f"by keys, instead of topics: {what}; {TABLE_EXAMPLES}")  # fmt: skip
        add(f"--{side}-option", action="append", default=[], type=reader_option, metavar="KEY=VALUE",
            help="how Spark reads this table, such as header=true or user=…; repeatable")  # fmt: skip
    add("--source-key", default="key", metavar="SQL",
        help="by keys: what names an input record")  # fmt: skip
    add("--target-key", default="key", metavar="SQL", help="by keys: the same of an output record")
    add(
        "--where",
        default=EVERY_RECORD,
        metavar="SQL",
        help="by keys: which input records have an output record",
    )
    add("--trigger", default=ONCE, type=_trigger, help='once (the default), or an interval: "30 seconds"')
    return made


def run_audit(spark: SparkSession, options: argparse.Namespace) -> str:
    """Audit once; return the result in one sentence. Raises AuditError."""
    began = time.monotonic()
    _refuse_incomplete(options)
    store = AuditStore(spark, options.output, options.cluster, options.pipeline)
    checkpoint = AuditedCheckpoint(spark, options.checkpoint) if options.checkpoint else None
    before = store.log.newest()
    _refuse_other_pipeline(before, options.mode, checkpoint, store)
    store.delete_orphans(before)
    at = RunOf(options.cluster, options.pipeline, before, time.time_ns() // 1_000_000)
    if checkpoint is None or options.mode is AuditMode.KEYS:
        manifest = run_keys(spark, at, keys_request(options), checkpoint)
    else:
        manifest = run_counts(spark, at, counts_request(options), checkpoint)
    if before is not None and manifest.is_same(before):
        return f"nothing new; {_summary(before)}"
    store.publish(manifest.manifest, manifest.tables)
    return f"{manifest.done} in {time.monotonic() - began:.1f} s; {_summary(manifest.manifest)}"


def _refuse_incomplete(options: argparse.Namespace) -> None:
    if options.mode is AuditMode.COUNTS and not options.checkpoint:
        raise AuditError("--checkpoint is needed: by counts, the sink's ledger in it names what was written")
    tables, has_target = (options.source_table, options.target_table), options.target or options.target_table
    if options.mode is AuditMode.COUNTS and any(tables):
        raise AuditError("a table has no batches of Kafka to count: add --mode keys")
    inputs = [options.checkpoint, options.group, options.source_table]
    if options.mode is AuditMode.KEYS and sum(map(bool, inputs)) != 1:
        raise AuditError(
            "by keys, name one of these: the query's --checkpoint, the --group that reads the input, or the "
            "input's --source-table"
        )
    if options.group and not (options.source and has_target):
        raise AuditError(
            "with --group, name the input with --source and the output with --target or --target-table"
        )
    if options.source_table and not has_target:
        raise AuditError("with --source-table, name the output with --target or --target-table")
    if options.target and options.target_table:
        raise AuditError("name the output with --target or with --target-table: one of both")


def _refuse_other_pipeline(
    before: AuditManifest | None, mode: AuditMode, checkpoint: AuditedCheckpoint | None, store: AuditStore
) -> None:
    if before is None:
        return
    if before.mode is not mode:
        raise AuditError(f"{store.folder} was audited by {before.mode}: name another --pipeline.")
    query_id = checkpoint.query_id if checkpoint else ""
    if before.query_id != query_id:
        raise AuditError(
            f"{store.folder} is of query {before.query_id or '(none)'}, and this is {query_id or '(none)'}: "
            "name the checkpoint that belongs to this output, or another --pipeline."
        )


def counts_request(options: argparse.Namespace) -> CountsOptions:
    """Return the request of an audit by counts. Raises AuditError."""
    committed = options.source_isolation == "read_committed"
    return CountsOptions(
        kafka_connection(java_properties(options)), tuple(options.target), committed, options.one_to_one
    )


def keys_request(options: argparse.Namespace) -> KeysOptions:
    """Return the request of an audit by keys. Raises AuditError."""
    return KeysOptions(
        kafka_connection(java_properties(options)),
        java_properties(options),
        options.group or "",
        tuple(options.source),
        tuple(options.target),
        options.source_key,
        options.target_key,
        options.where,
        options.source_isolation == "read_committed",
        _with_options(options.source_table, options.source_option),
        _with_options(options.target_table, options.target_option),
    )


def _with_options(table: AuditedTable | None, options: Iterable[tuple[str, str]]) -> AuditedTable | None:
    return table and table._replace(options=dict(options))


def _summary(manifest: AuditManifest) -> str:
    through = manifest.proved_through
    proved = "no batch is proved" if through is None else f"proved through batch {through}"
    if manifest.mode is AuditMode.KEYS:
        proved = f"{manifest.readable:,} of {manifest.input:,} input records are in the output"
    lost = f"{manifest.missing:,} missing, {manifest.duplicated:,} duplicated"
    named = "".join(
        f"; {obstacle.where}: {obstacle.detail}, so {obstacle.consequence}"
        for obstacle in manifest.obstacles[:3]
    )
    return f"{manifest.verdict.value}: {proved}, {lost}{named}"


def run_triggered(spark: SparkSession, options: argparse.Namespace) -> Iterator[str]:
    """Audit once, or at each interval until the process ends; yield each result. Raises AuditError."""
    yield run_audit(spark, options)
    while options.trigger != ONCE:
        time.sleep(float(options.trigger))
        yield run_audit(spark, options)


def main(arguments: Sequence[str]) -> int:
    """Run the job; return the exit status."""
    options = argument_parser().parse_args(arguments)
    return run_job("audit", options.pipeline, lambda spark: run_triggered(spark, options))


def _trigger(text: str) -> str:
    """Return "once", or the seconds of an interval."""
    match = _TRIGGER.fullmatch(text)
    if text != ONCE and match is None:
        raise argparse.ArgumentTypeError(f'write once or "30 seconds", not {text!r}')
    return match[1] if match else ONCE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
