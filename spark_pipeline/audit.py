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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from fenceline.audit.continuing import extend_manifest, next_positions
from fenceline.audit.manifest import (
    DUPLICATE_KEYS,
    DUPLICATES,
    LOSS_KEYS,
    LOSSES,
    PARTITIONS,
    AuditManifest,
    AuditMode,
)
from fenceline.facts import TopicPartition
from fenceline.formatting import count_noun
from spark_pipeline.audits import AuditError
from spark_pipeline.audits.checkpoint import (
    AuditedCheckpoint,
    consumed_by_group,
    consumed_by_query,
)
from spark_pipeline.audits.cluster import kafka_connection
from spark_pipeline.audits.counts import CountsOptions, Findings, audit_counts
from spark_pipeline.audits.keys import (
    EVERY_RECORD,
    KeyComparison,
    KeysOptions,
    audit_keys,
    first_keys,
    first_ranges,
)
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
#: Missing ranges of the input; `certain` where exactly these records are missing.
RANGES_DDL = "topic STRING, partition INT, from_offset LONG, to_offset LONG, certain BOOLEAN"
_PARTITIONS_DDL = (
    "batch_id LONG, topic STRING, partition INT, written LONG, committed LONG, readable LONG, "
    "duplicated LONG, from_offset LONG, to_offset LONG"
)


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
    begun = _begun(options, before, checkpoint.query_id if checkpoint else "")
    if checkpoint is None or options.mode is AuditMode.KEYS:
        manifest, tables, done = _run_keys(spark, begun, keys_request(options), checkpoint)
    else:
        manifest, tables, done = _run_counts(spark, begun, before, counts_request(options), checkpoint)
    if before is not None and _is_same(manifest, before):
        return f"nothing new; {_summary(before)}"
    store.publish(manifest, tables)
    return f"{done} in {time.monotonic() - began:.1f} s; {_summary(manifest)}"


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


def _begun(options: argparse.Namespace, before: AuditManifest | None, query_id: str) -> AuditManifest:
    """Return this run's empty manifest; by counts it has the results of all earlier runs."""
    at_ms, run = time.time_ns() // 1_000_000, before.run + 1 if before else 1
    if before is not None and options.mode is AuditMode.COUNTS:
        return replace(before, run=run, at_ms=at_ms)
    return AuditManifest(options.cluster, options.pipeline, options.mode, run, at_ms, query_id)


def _is_same(now: AuditManifest, before: AuditManifest) -> bool:
    """Whether a run's results equal those of the previous one."""
    parts = before.parts if now.mode is AuditMode.KEYS else now.parts
    return replace(now, run=before.run, at_ms=before.at_ms, parts=parts) == before


#: A run's manifest, the tables of its own part, and a summary in words.
_AuditRun = tuple[AuditManifest, Mapping[str, DataFrame], str]


def _run_counts(
    spark: SparkSession,
    begun: AuditManifest,
    before: AuditManifest | None,
    options: CountsOptions,
    checkpoint: AuditedCheckpoint,
) -> _AuditRun:
    """Audit the batches that have ended since the last run. Raises AuditError."""
    findings = audit_counts(spark, checkpoint, options, before)
    after = extend_manifest(begun, findings.judged, findings.waiting, findings.obstacles)
    topics = {where.topic for where in findings.output.ranges}
    manifest = replace(
        after,
        sources=tuple(sorted({*begun.sources, *findings.sources})),
        targets=tuple(sorted({*begun.targets, *topics})),
        positions=next_positions(findings.index, findings.output, after.next_batch or 0, findings.topic_ids),
    )
    done = f"{len(findings.judged):,} batches audited"
    return manifest, _count_tables(spark, findings), done


def _count_tables(spark: SparkSession, findings: Findings) -> Mapping[str, DataFrame]:
    rows = [row for batch in findings.judged for row in batch.rows]
    losses = [(*loss, True) for batch in findings.judged for loss in batch.losses]
    tables = {}
    if rows:
        tables[PARTITIONS] = spark.createDataFrame(rows, _PARTITIONS_DDL)
    if losses:
        tables[LOSSES] = spark.createDataFrame(losses, RANGES_DDL)
    return tables


def _run_keys(
    spark: SparkSession, begun: AuditManifest, options: KeysOptions, checkpoint: AuditedCheckpoint | None
) -> _AuditRun:
    """Compare all input consumed so far with the output. Raises AuditError."""
    consumed: Mapping[TopicPartition, int] = {}
    batch = None
    if checkpoint is not None:
        consumed, batch = consumed_by_query(checkpoint)
        named = tuple(sorted({where.topic for where in consumed}))
        targets = () if options.target_table else options.targets or checkpoint.targets()
        options = replace(options, sources=named, targets=targets)
    elif options.group:
        consumed = consumed_by_group(options.properties, options.group, options.sources)
    comparison = audit_keys(spark, options, consumed)
    done = f"{count_noun(comparison.totals.due, 'record')} compared"
    return _keys_manifest(begun, options, batch, comparison), comparison.tables, done


def _keys_manifest(
    begun: AuditManifest, options: KeysOptions, batch: int | None, comparison: KeyComparison
) -> AuditManifest:
    totals, tables = comparison.totals, comparison.tables
    whole = not (comparison.obstacles or totals.missing or totals.duplicated)
    return replace(
        begun,
        sources=options.input_names,
        targets=options.output_names,
        proved_through=batch if whole else None,
        input=totals.due,
        readable=totals.found,
        duplicated=totals.duplicated,
        missing=totals.missing,
        obstacles=comparison.obstacles,
        condition="" if options.where == EVERY_RECORD else options.where,
        compared=comparison.compared,
        losses=first_ranges(tables.get(LOSSES)),
        duplicates=first_ranges(tables.get(DUPLICATES)),
        loss_keys=first_keys(tables.get(LOSS_KEYS)),
        duplicate_keys=first_keys(tables.get(DUPLICATE_KEYS)),
    )


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
