"""Merge many small parts into one in Spark: resolve revisions, add sums up."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from fenceline.history.reports import APPLICATIONS, IDS, STATE, TRANSITIONS, part_folder
from spark_pipeline.reports.columns import DDL, SCHEMA

#: Number of parts of one level that merge into one part of the next.
FAN = 16
#: Parts of this level are not merged: they hold some days of a job that runs once a minute.
HIGHEST = 3
_SUMMED = {
    IDS: ("day", "application", "transactional_id"),
    APPLICATIONS: ("day", "application"),
}
_MAPS = {"counts": "map<string,bigint>", "open_times": "map<int,bigint>", "marker_times": "map<int,bigint>"}


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
