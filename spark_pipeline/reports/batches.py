"""One micro-batch of the history job, from Kafka's rows to a published manifest, and the merge of old
parts: the job's output (layout: `fenceline.history.reports`).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from fenceline.history.reports import (
    APPLICATIONS,
    IDS,
    PROGRESS,
    STATE,
    STRANGE,
    TRANSITIONS,
    Manifest,
    ReportPart,
    folder_of,
    part_folder,
    part_name,
    read_manifest,
    write_manifest,
)
from fenceline.owners import Owner
from spark_pipeline.job import JobError, ManifestLog, OutputFolder
from spark_pipeline.reports.columns import DDL, SCHEMA
from spark_pipeline.reports.task import Start, fold_rows

if TYPE_CHECKING:
    import pyarrow as pa

#: Manifests to keep: the newest micro-batch's, and twenty before.
_KEPT = 21
#: Number of parts of one level that merge into one part of the next.
FAN = 16
#: Parts of this level are not merged: they hold some days of a job that runs once a minute.
HIGHEST = 3
_SUMMED = {
    IDS: ("day", "application", "transactional_id"),
    APPLICATIONS: ("day", "application"),
}
_MAPS = {"counts": "map<string,bigint>", "open_times": "map<int,bigint>", "marker_times": "map<int,bigint>"}


class HistoryError(JobError):
    """The job cannot continue; the text has the reason and the remedy."""


class ReportStore:
    """The output of one cluster."""

    def __init__(self, spark: SparkSession, output: str, cluster: str) -> None:
        self._files = OutputFolder(spark, f"{output.rstrip('/')}/{folder_of(cluster)}")
        #: Raises HistoryError for a manifest of a later Fenceline.
        self.log = ManifestLog(self._files, read_manifest, failure=HistoryError, kept=_KEPT)
        self.folder = self._files.url
        self.parts = f"{self.folder}/parts"

    def part_days(self, part: str) -> list[str]:
        """Return the days of a part's rows in ascending order; as text they sort like days."""
        folder = f"parts/{part_folder(part)}"
        tables = self._files.names(folder)
        names = {name for table in tables for name in self._files.names(f"{folder}/{table}")}
        # Rows without a day, such as state, are in `day=__HIVE_DEFAULT_PARTITION__`.
        return sorted(name[4:] for name in names if name.startswith("day=") and name[4:5].isdigit())

    def publish_manifest(self, manifest: Manifest) -> None:
        """Write a micro-batch's manifest; raises HistoryError if it exists already."""
        if not self.log.publish(manifest.batch, write_manifest(manifest)):
            raise HistoryError(
                f"another driver has written micro-batch {manifest.batch} to {self.folder}: two of them run "
                "on one checkpoint. Stop one."
            )

    def delete_parts(self, parts: Iterable[str]) -> None:
        """Delete parts that are in no manifest any more."""
        for part in parts:
            self._files.delete(f"parts/{part_folder(part)}")

    def delete_orphans(self, manifest: Manifest | None) -> None:
        """Delete the parts of attempts that never wrote a manifest.

        Raises HistoryError where there is no manifest, and yet parts of later micro-batches than the first:
        then the manifests themselves are missing.
        """
        first, parts = part_folder(part_name(0, "")), self._files.names("parts")
        if manifest is None and any(not name.startswith(first) for name in parts):
            raise HistoryError(
                f"{self.folder} has parts and no manifest: its folder log was deleted. Restore it, or give "
                "the job a new --output and --checkpoint."
            )
        named = {part.name for part in manifest.parts} | set(manifest.retired) if manifest else set()
        for folder in set(parts) - {part_folder(name) for name in named}:
            self._files.delete(f"parts/{folder}")

    def query_of(self, checkpoint: str) -> str:
        return self._files.read_elsewhere(f"{checkpoint.rstrip('/')}/metadata")


@dataclass
class History:
    """The function for `foreachBatch`; `tasks` fold in parallel.

    A micro-batch is done when its manifest exists. If the driver dies before Spark commits the batch, Spark
    repeats it with the same records, and this function skips it. Files of an attempt without a manifest do
    not count. So every record counts once, whichever process dies.
    """

    store: ReportStore
    cluster: str
    topic: str
    checkpoint: str
    tasks: int
    #: The owners that name applications.
    owners: Sequence[Owner] = ()
    #: The last published manifest; None before the first micro-batch.
    manifest: Manifest | None = field(init=False)
    _query: str = field(init=False, default="")
    _swept: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.manifest = self.store.log.newest()

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Fold a micro-batch once. Raises HistoryError if checkpoint and output belong to different runs."""
        self._query = self._query or json.loads(self.store.query_of(self.checkpoint))["id"]
        before = self.manifest
        if not self._is_next(before, batch):
            return
        if not self._swept:
            # Only once the output is known to be ours: another driver may be writing to it.
            self.store.delete_orphans(before)
            self._swept = True
        due = merge_due(before.parts if before else ())
        made = self._write(rows, batch, before, snapshot=bool(due))
        after = self._extended(rows.sparkSession, before, made, batch)
        if due and before:
            after = self._merged(rows.sparkSession, after, due, batch)
        self.store.publish_manifest(after)
        self.manifest = after
        if before and due:
            self.store.delete_parts(before.retired)

    def _is_next(self, before: Manifest | None, batch: int) -> bool:
        known = -1 if before is None else before.batch
        is_own = before is None or before.query == self._query
        if is_own and batch == known:
            return False
        if is_own and batch == known + 1:
            return True
        held = f"micro-batches up to {known} of query {before.query}" if before else "no manifest"
        raise HistoryError(
            f"{self.store.folder} holds {held}, and checkpoint {self.checkpoint} is at micro-batch {batch} "
            f"of query {self._query}: one of them is of another run. Name the checkpoint that belongs to "
            "this output, or give both a new folder: the job then reads the topic from its start."
        )

    def _write(self, rows: DataFrame, batch: int, before: Manifest | None, *, snapshot: bool) -> str:
        """Fold and write the micro-batch's part; return its name."""
        start = Start(owners=self.owners)
        if before:
            start = Start(before.positions, before.holes, snapshot, self.owners)
        known = None
        if before is not None and before.state:
            rows_before = read_rows(rows.sparkSession, self.store.parts, before.state)
            known = rows_before.where(f.col("table") == STATE)
        made = part_name(batch, uuid.uuid4().hex[:8])
        self._save(fold_batches(rows, known, start, self.tasks), made)
        return made

    def _save(self, rows: DataFrame, part: str) -> None:
        rows.write.partitionBy("table", "day").parquet(f"{self.store.parts}/{part_folder(part)}")

    def _extended(self, spark: SparkSession, before: Manifest | None, made: str, batch: int) -> Manifest:
        """Return the manifest with the figures of the new part."""
        at_ms = time.time_ns() // 1_000_000
        old = before or Manifest(self.cluster, self.topic, self._query, batch, at_ms)
        positions, holes, records = dict(old.positions), dict(old.holes), old.records
        undecoded, strange = dict(old.undecoded), dict(old.strange)
        reported = (f.col("table") == PROGRESS) | (f.col("table") == STRANGE)
        for row in read_rows(spark, self.store.parts, [made]).where(reported).collect():
            if row["table"] == PROGRESS:
                positions[row["partition"]] = row["offset"]
                records += row["n"]
                if row["known_to"] is not None:
                    holes[row["partition"]] = row["known_to"]
            else:
                undecoded[row["reason"]] = undecoded.get(row["reason"], 0) + row["n"]
                strange.setdefault(row["reason"], (row["partition"], row["offset"], row["detail"]))
        return replace(
            old, batch=batch, at_ms=at_ms, positions=positions, holes=holes, records=records,
            undecoded=undecoded, strange=strange, parts=(*old.parts, self._part(made, 0)),
            state=(*old.state, made),
        )  # fmt: skip

    def _part(self, name: str, level: int) -> ReportPart:
        days = self.store.part_days(name)
        return ReportPart(name, level, days[0] if days else "", days[-1] if days else "")

    def _merged(
        self, spark: SparkSession, manifest: Manifest, due: Sequence[ReportPart], batch: int
    ) -> Manifest:
        """Merge the due parts with the newest part, which has the whole state."""
        newest = manifest.parts[-1]
        gone = [*(part.name for part in due), newest.name]
        rows = read_rows(spark, self.store.parts, gone[:-1]).where(f.col("table") != STATE)
        rows = rows.unionByName(read_rows(spark, self.store.parts, gone[-1:]))
        made = part_name(batch, uuid.uuid4().hex[:8])
        self._save(merge_rows(rows), made)
        kept = tuple(part for part in manifest.parts if part.name not in gone)
        level = max(part.level for part in due) + 1
        merged = self._part(made, level)
        return replace(manifest, parts=(*kept, merged), state=(made,), retired=tuple(gone))


def fold_batches(records: DataFrame, known: DataFrame | None, start: Start, tasks: int) -> DataFrame:
    """Fold Kafka's rows onto the earlier state; return the results in `columns.SCHEMA`.

    One task gets all rows of a partition: its earlier state first, then the records by offset.
    """
    rows = records.select(
        "partition", "offset", "key", "value", f.expr("unix_millis(timestamp)").alias("at_ms"),
        f.lit(True).alias("is_record"),
    )  # fmt: skip
    if known is not None:
        state = known.select(
            "partition", f.col("known_to").alias("offset"), "key", f.col("state").alias("value"),
            f.lit(None).cast("bigint").alias("at_ms"), f.lit(False).alias("is_record"),
        )  # fmt: skip
        rows = rows.unionByName(state)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return fold_rows(start, batches)

    ordered = rows.repartition(tasks, "partition").sortWithinPartitions("partition", "is_record", "offset")
    return ordered.mapInArrow(task, DDL)


def merge_due(parts: Sequence[ReportPart]) -> list[ReportPart]:
    """Return the parts to merge with the next micro-batch's part; empty while there are few.

    The next part has level 0; a full level includes all lower levels.
    """
    due: list[ReportPart] = []
    for level in range(HIGHEST):
        held = [part for part in parts if part.level == level]
        # One more comes to them: the next part, or what the level below merges into.
        if len(held) + 1 < FAN:
            break
        due += held
    return due


def read_rows(spark: SparkSession, folder: str, parts: Sequence[str]) -> DataFrame:
    """Return all rows of parts below a folder, in `columns.SCHEMA`."""
    reader = spark.read.schema(DDL).option("basePath", folder)
    return reader.parquet(*(f"{folder}/{part_folder(part)}" for part in parts)).select(*SCHEMA.names)


def resolve_rows(rows: DataFrame, table: str) -> DataFrame:
    """Return a table's effective rows: the last revision of each transition, and one row per sum."""
    of_table = rows.where(f.col("table") == table)
    if table == TRANSITIONS:
        return _latest(of_table, ("partition", "offset"))
    if table == STATE:
        return _latest(of_table, ("partition", "key"))
    keys = _SUMMED[table]
    sums = [f.sum(name).alias(name) for name in ("commits", "aborts", "epochs")]
    return of_table.groupBy(*keys).agg(*sums, *(_added(name, kind) for name, kind in _MAPS.items()))


def merge_rows(rows: DataFrame) -> DataFrame:
    """Return the rows of all parts, in their schema. Rows of state must belong to one micro-batch."""
    tables = [_in_schema(resolve_rows(rows, table), table) for table in (TRANSITIONS, IDS, APPLICATIONS)]
    merged = tables[0]
    for table in (*tables[1:], rows.where(f.col("table") == STATE)):
        merged = merged.unionByName(table)
    return merged


def _latest(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    newest = f.max_by(f.struct(*SCHEMA.names), "known_to").alias("newest")
    return rows.groupBy(*keys).agg(newest).select("newest.*")


def _added(name: str, kind: str) -> Column:
    """Add maps; sums of 0 are left out."""
    return f.expr(
        f"map_filter(aggregate(collect_list({name}), cast(map() as {kind}), "
        "(total, each) -> map_zip_with(total, each, (k, a, b) -> coalesce(a, 0L) + coalesce(b, 0L))), "
        f"(k, n) -> n != 0) as {name}"
    )


def _in_schema(rows: DataFrame, table: str) -> DataFrame:
    if table == TRANSITIONS:
        return rows
    kinds = dict(part.split(" ", 1) for part in DDL.split(", "))
    given = set(rows.columns)
    return rows.select(
        *(
            f.lit(table).alias(name)
            if name == "table"
            else f.col(name)
            if name in given
            else f.lit(None).cast(kinds[f"`{name}`"]).alias(name)
            for name in SCHEMA.names
        )
    )
