"""The audit job: what each batch of a pipeline read, wrote, committed and left readable, proved at Kafka.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 --py-files fenceline-spark.zip \\
        spark_pipeline/audit.py --bootstrap-servers broker:9092 --cluster prod --pipeline orders \\
        --output s3a://data/fenceline-audit --checkpoint s3a://data/checkpoints/orders

`fenceline.audit.manifest` has the layout of the output, docs/audit.md what is proved and what is not.

A run goes on where the last manifest ends. Its manifest is created exclusively and last: what a run that was
killed had written counts for nothing, and the next one finds the same again.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from fenceline.audit.continuing import extend_manifest, next_positions
from fenceline.audit.manifest import PARTITIONS, AuditManifest, AuditMode
from spark_pipeline.arguments import add_kafka_arguments, folder_name
from spark_pipeline.audits.checkpoint import AuditedCheckpoint
from spark_pipeline.audits.counts import CountsOptions, Findings, audit_counts
from spark_pipeline.audits.errors import AuditError
from spark_pipeline.audits.store import AuditStore
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.options import PREFIX, translate_options

ONCE = "once"
_TRIGGER = re.compile(r"([1-9]\d{0,5}) seconds?")
_PARTITIONS_DDL = (
    "batch_id LONG, topic STRING, partition INT, written LONG, committed LONG, readable LONG, "
    "duplicated LONG, from_offset LONG, to_offset LONG"
)
_EXAMPLES = """examples:
  audit what has ended since the last run, then stop (run it again from cron):
    spark-submit … audit.py --bootstrap-servers broker:9092 --cluster prod --pipeline orders \\
        --output s3a://data/fenceline-audit --checkpoint s3a://data/checkpoints/orders
  for ever, each 30 seconds:
    spark-submit … audit.py … --trigger "30 seconds"
  with SASL; @FILE reads arguments from a file, one a line, so that no secret is in the process list:
    spark-submit … audit.py … --kafka security.protocol=SASL_SSL --kafka sasl.mechanism=PLAIN @secret.args

The principal needs READ and DESCRIBE on input and output topics, and DESCRIBE on transactional ids to name
other writers.
"""


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        "audit.py",
        description="Prove, batch by batch, that each input record is readable in the output exactly once.",
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter, fromfile_prefix_chars="@",
    )  # fmt: skip
    say = made.add_argument
    add_kafka_arguments(made)
    say("--cluster", required=True, type=folder_name, help="its name in fenceline.toml")
    say("--pipeline", required=True, type=folder_name, help="the query's name, or one of your choice")
    say("--output", required=True, metavar="URL", help="a folder; the dashboard reads it")
    say(
        "--checkpoint",
        required=True,
        metavar="URL",
        help="the query's own checkpointLocation; it is only read",
    )
    say("--target", action="append", default=[], metavar="TOPIC",
        help="an output topic; by default those that the ledger names; repeatable")  # fmt: skip
    say("--source-isolation", default="read_committed", choices=("read_committed", "read_uncommitted"),
        help="how the query reads its input (kafka.isolation.level)")  # fmt: skip
    say("--one-to-one", action="store_true", help="the query neither drops nor adds records")
    say("--trigger", default=ONCE, type=_trigger, help='once (the default), or an interval: "30 seconds"')
    return made


def run_audit(spark: SparkSession, options: argparse.Namespace) -> str:
    """Audit once; return what was found, in one sentence. Raises AuditError."""
    began = time.monotonic()
    store = AuditStore(spark, options.output, options.cluster, options.pipeline)
    checkpoint = AuditedCheckpoint(spark, options.checkpoint)
    before = store.newest_manifest()
    _refuse_other_query(before, checkpoint, store)
    store.delete_orphans(before)
    found = audit_counts(spark, checkpoint, _counts_options(options), before)
    manifest = _manifest(options, checkpoint, before, found)
    if before is not None and _same(before, manifest):
        return f"nothing new; {_summary(before)}"
    rows = [row for each in found.judged for row in each.rows]
    if rows:
        frame = spark.createDataFrame(rows, _PARTITIONS_DDL).coalesce(1)
        part = store.write_part(manifest.run, [(PARTITIONS, frame)])
        manifest = replace(manifest, parts=(*manifest.parts, part))
    store.publish(manifest)
    took = time.monotonic() - began
    return f"{len(found.judged):,} batches audited in {took:.1f} s; {_summary(manifest)}"


def _counts_options(options: argparse.Namespace) -> CountsOptions:
    java = {**dict(options.kafka), "bootstrap.servers": options.bootstrap_servers}
    try:
        properties = translate_options({f"{PREFIX}{name}": value for name, value in java.items()})
    except Refused as error:
        raise AuditError(str(error)) from error
    committed = options.source_isolation == "read_committed"
    return CountsOptions(properties.connection, tuple(options.target), committed, options.one_to_one)


def _refuse_other_query(
    before: AuditManifest | None, checkpoint: AuditedCheckpoint, store: AuditStore
) -> None:
    if before is not None and before.query_id != checkpoint.query_id:
        raise AuditError(
            f"{store.folder} is of query {before.query_id}, and checkpoint {checkpoint.path} of query "
            f"{checkpoint.query_id}: name the checkpoint that belongs to this output, or another --pipeline."
        )


def _manifest(
    options: argparse.Namespace, checkpoint: AuditedCheckpoint, before: AuditManifest | None, found: Findings
) -> AuditManifest:
    at_ms = time.time_ns() // 1_000_000
    old = before or AuditManifest(
        options.cluster, options.pipeline, AuditMode.COUNTS, 0, at_ms, checkpoint.query_id
    )
    after = extend_manifest(old, found.judged, found.waiting, found.obstacles)
    topics = {where.topic for where in found.output.ranges}
    return replace(
        after,
        run=old.run + 1,
        at_ms=at_ms,
        sources=tuple(sorted({*old.sources, *found.sources})),
        targets=tuple(sorted({*old.targets, *topics})),
        positions=next_positions(found.index, found.output, after.next_batch or 0, found.topic_ids),
    )


def _same(before: AuditManifest, after: AuditManifest) -> bool:
    """Whether a run has found nothing that its predecessor has not."""
    return replace(after, run=before.run, at_ms=before.at_ms) == before


def _summary(manifest: AuditManifest) -> str:
    through = manifest.proved_through
    proved = "no batch is proved yet" if through is None else f"proved through batch {through}"
    lost = f"{manifest.missing:,} missing, {manifest.duplicated:,} duplicated"
    named = "".join(
        f"; {each.where}: {each.detail}, so {each.consequence}" for each in manifest.obstacles[:3]
    )
    return f"{manifest.verdict.value}: {proved}, {lost}{named}"


def run_triggered(spark: SparkSession, options: argparse.Namespace) -> None:
    """Audit once, or at each interval until the process ends. Raises AuditError."""
    _print(run_audit(spark, options))
    while options.trigger != ONCE:
        time.sleep(float(options.trigger))
        _print(run_audit(spark, options))


def main(arguments: Sequence[str]) -> int:
    """Run the job; return the exit status."""
    options = argument_parser().parse_args(arguments)
    spark = SparkSession.builder.appName(f"fenceline audit of {options.pipeline}").getOrCreate()
    try:
        run_triggered(spark, options)
    except AuditError as error:
        print(f"audit: {error}", file=sys.stderr, flush=True)  # noqa: T201 - a command speaks
        return 1
    finally:
        spark.stop()
    return 0


def _print(text: str) -> None:
    print(f"audit: {text}", flush=True)  # noqa: T201 - a command speaks


def _trigger(text: str) -> str:
    """Return "once", or the seconds of an interval."""
    found = _TRIGGER.fullmatch(text)
    if text != ONCE and found is None:
        raise argparse.ArgumentTypeError(f'write once or "30 seconds", not {text!r}')
    return found[1] if found else ONCE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
