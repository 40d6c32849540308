"""One run of the audit, by counts or by keys: turn its results into a manifest and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

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
from fenceline.compat import SLOTS
from fenceline.formatting import count_noun
from spark_pipeline.audits.checkpoint import (
    AuditedCheckpoint,
    ConsumedInput,
    consumed_by_group,
    consumed_by_query,
)
from spark_pipeline.audits.counts import CountsOptions, Findings, audit_counts
from spark_pipeline.audits.keys import (
    EVERY_RECORD,
    KeyComparison,
    KeysOptions,
    audit_keys,
    first_keys,
    first_ranges,
)

#: Missing ranges of the input; `certain` where exactly these records are missing.
RANGES_DDL = "topic STRING, partition INT, from_offset LONG, to_offset LONG, certain BOOLEAN"
_PARTITIONS_DDL = (
    "batch_id LONG, topic STRING, partition INT, written LONG, committed LONG, readable LONG, "
    "duplicated LONG, from_offset LONG, to_offset LONG"
)


class RunOf(NamedTuple):
    """The identity of a run: cluster and pipeline, the manifest before, and the driver's clock."""

    cluster: str
    pipeline: str
    before: AuditManifest | None
    at_ms: int

    def manifest(self, mode: AuditMode, query_id: str) -> AuditManifest:
        """Return this run's empty manifest; by counts it has the results of all earlier runs."""
        if self.before is not None and mode is AuditMode.COUNTS:
            return replace(self.before, run=self.before.run + 1, at_ms=self.at_ms)
        run = self.before.run + 1 if self.before else 1
        return AuditManifest(self.cluster, self.pipeline, mode, run, self.at_ms, query_id)


@dataclass(frozen=True, **SLOTS)
class AuditRun:
    """A run's manifest, the tables of its own part, and a summary in words."""

    manifest: AuditManifest
    tables: Mapping[str, DataFrame]
    done: str

    def is_same(self, before: AuditManifest) -> bool:
        """Whether its results equal those of the previous run."""
        now = self.manifest
        parts = before.parts if now.mode is AuditMode.KEYS else now.parts
        return replace(now, run=before.run, at_ms=before.at_ms, parts=parts) == before


def run_counts(
    spark: SparkSession, run: RunOf, options: CountsOptions, checkpoint: AuditedCheckpoint
) -> AuditRun:
    """Audit the batches that have ended since the last run. Raises AuditError."""
    findings = audit_counts(spark, checkpoint, options, run.before)
    old = run.manifest(AuditMode.COUNTS, checkpoint.query_id)
    after = extend_manifest(old, findings.judged, findings.waiting, findings.obstacles)
    topics = {where.topic for where in findings.output.ranges}
    manifest = replace(
        after,
        sources=tuple(sorted({*old.sources, *findings.sources})),
        targets=tuple(sorted({*old.targets, *topics})),
        positions=next_positions(findings.index, findings.output, after.next_batch or 0, findings.topic_ids),
    )
    done = f"{len(findings.judged):,} batches audited"
    return AuditRun(manifest, _count_tables(spark, findings), done)


def _count_tables(spark: SparkSession, findings: Findings) -> Mapping[str, DataFrame]:
    rows = [row for batch in findings.judged for row in batch.rows]
    losses = [(*loss, True) for batch in findings.judged for loss in batch.losses]
    tables = {}
    if rows:
        tables[PARTITIONS] = spark.createDataFrame(rows, _PARTITIONS_DDL)
    if losses:
        tables[LOSSES] = spark.createDataFrame(losses, RANGES_DDL)
    return tables


def run_keys(
    spark: SparkSession, run: RunOf, options: KeysOptions, checkpoint: AuditedCheckpoint | None
) -> AuditRun:
    """Compare all input consumed so far with the output. Raises AuditError."""
    if checkpoint is not None:
        consumed = consumed_by_query(checkpoint)
        named = tuple(sorted({where.topic for where in consumed.positions}))
        targets = () if options.target_table else options.targets or checkpoint.targets()
        options = replace(options, sources=named, targets=targets)
    elif options.group:
        consumed = consumed_by_group(options.properties, options.group, options.sources)
    else:
        consumed = ConsumedInput({})
    comparison = audit_keys(spark, options, consumed)
    done = f"{count_noun(comparison.totals.due, 'record')} compared"
    return AuditRun(_keys_manifest(run, options, consumed, comparison), comparison.tables, done)


def _keys_manifest(
    run: RunOf, options: KeysOptions, consumed: ConsumedInput, comparison: KeyComparison
) -> AuditManifest:
    totals, tables = comparison.totals, comparison.tables
    whole = not (comparison.obstacles or totals.missing or totals.duplicated)
    return replace(
        run.manifest(AuditMode.KEYS, consumed.query_id),
        sources=options.input_names,
        targets=options.output_names,
        proved_through=consumed.batch if whole else None,
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
