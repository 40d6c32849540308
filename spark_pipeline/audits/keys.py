"""One run of the audit by keys: match each input record with the output by an expression.

Both sides are rows (key, side, place); input and output are topics, or a table that Spark reads. The run
reads the consumer's position, then the output (a topic up to its end, or a table), then the input's end. In
this order the output holds a result for every input record below the position, and the input holds the source
of every output record. Batches that a sink commits in between belong to later input. An input table replaces
the position.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as f

from fenceline.audit.keys import ComparedTopics, KeyTotals, compared_obstacles
from fenceline.audit.manifest import (
    DUPLICATE_KEYS,
    DUPLICATES,
    LOSS_KEYS,
    LOSSES,
    AuditedKey,
    AuditedRange,
    AuditObstacle,
)
from fenceline.compat import SLOTS
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import Offsets
from spark_pipeline.audits import AuditError
from spark_pipeline.audits.cluster import FETCH_BYTES, TopicEnds, connect_reads, read_topics
from spark_pipeline.audits.sources import (
    SPARK_ERRORS,
    AuditedTable,
    first_line,
    read_records,
    read_table,
)
from transaction_admin.api import Unseen
from transaction_admin.kafka_reads import ClusterReads

#: Kinds of rows: an input record below the consumer's position, an input record after it, an output record.
_DUE, _LATER, _FOUND = "due", "later", "found"
#: Seconds to wait for the markers of transactions that were decided before the output's end was read.
_SETTLE_S, _SETTLE_POLL_S = 10.0, 0.2
#: An SQL condition that every record meets.
EVERY_RECORD = "true"
#: Maximum ranges and keys in a manifest, and characters of a key.
MOST_RANGES = 20
_MOST_CHARACTERS = 200
_NO_TOPICS = TopicEnds({}, {}, frozenset())
#: The place of a record; for a table only its name.
_PLACE = {"topic": "string", "partition": "int", "offset": "long", "timestamp_ms": "long"}


@dataclass(frozen=True, **SLOTS)
class KeysOptions:
    """The request of a run by keys. `properties` are librdkafka's, `java` those of Java clients."""

    properties: Mapping[str, str]
    java: Mapping[str, str]
    #: The consumer group that reads the input; "" for a query of Spark.
    group: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    #: Expressions of Spark SQL over a record's columns.
    source_key: str
    target_key: str
    #: An SQL condition: the input records that have an output.
    where: str
    committed_only: bool
    #: Instead of topics.
    source_table: AuditedTable | None = None
    target_table: AuditedTable | None = None

    @property
    def input_names(self) -> tuple[str, ...]:
        return (self.source_table.name,) if self.source_table else self.sources

    @property
    def output_names(self) -> tuple[str, ...]:
        return (self.target_table.name,) if self.target_table else self.targets


@dataclass(frozen=True, **SLOTS)
class KeyComparison:
    """The results of one run. `tables` has the differences: ranges of topics (`runs.RANGES_DDL`), or keys."""

    totals: KeyTotals
    compared: tuple[AuditedRange, ...]
    tables: Mapping[str, DataFrame]
    obstacles: tuple[AuditObstacle, ...]


def audit_keys(
    spark: SparkSession, options: KeysOptions, consumed: Mapping[TopicPartition, int]
) -> KeyComparison:
    """Compare all consumed input with the output. Raises AuditError."""
    try:
        table = _source_table(spark, options)
        targets, output = _target_rows(spark, options)
        if table is not None:
            return _compare(options, _NO_TOPICS, targets, {}, table.union(output))
        sources = read_topics(options.properties, options.sources)
        due = _due_ranges(sources, consumed)
        rows = _source_rows(spark, options, sources, due)
        return _compare(options, sources, targets, due, rows.union(output))
    except SPARK_ERRORS as error:
        raise AuditError(f"the records cannot be compared: {first_line(error)}") from error


def _compare(
    options: KeysOptions,
    sources: TopicEnds,
    targets: TopicEnds,
    due: Mapping[TopicPartition, tuple[int, int]],
    rows: DataFrame,
) -> KeyComparison:
    totals, differing = _count(rows)
    losses = _missing(rows, differing) if totals.missing else None
    duplicates = _duplicated(rows, differing) if totals.duplicated else None
    removed_ms = _removed_before_ms(options, targets) if losses is not None else 0
    if losses is not None and removed_ms:
        # A row of a table has no time: it may be older.
        older = f.coalesce(f.col("timestamp_ms") < removed_ms, f.lit(True))
        uncertain = losses.where(older).count()
        losses = losses.where(~older)
        totals = totals._replace(missing=totals.missing - uncertain, uncertain=uncertain)
    compacted, whole = targets.compacted | sources.compacted, not any(first for first, _ in due.values())
    topics = ComparedTopics(targets.offsets, compacted, whole)
    totals = topics.concluded(totals)
    return KeyComparison(
        totals,
        tuple(AuditedRange(*where, *span) for where, span in sorted(due.items()) if span[1] > span[0]),
        _named(options, losses if totals.missing else None, duplicates if totals.duplicated else None),
        tuple(compared_obstacles(topics, totals)),
    )


def _named(
    options: KeysOptions, losses: DataFrame | None, duplicates: DataFrame | None
) -> Mapping[str, DataFrame]:
    """Return the tables of the audit's output: offsets of topics, and keys of tables."""
    tables = {}
    if losses is not None:
        tables.update({LOSS_KEYS: _by_key(losses)} if options.source_table else {LOSSES: _ranges(losses)})
    if duplicates is not None:
        by_key = options.target_table is not None
        tables.update({DUPLICATE_KEYS: _by_key(duplicates)} if by_key else {DUPLICATES: _ranges(duplicates)})
    return tables


def first_ranges(found: DataFrame | None) -> tuple[AuditedRange, ...]:
    if found is None:
        return ()
    rows = found.orderBy("topic", "partition", "from_offset").limit(MOST_RANGES).collect()
    return tuple(AuditedRange(row.topic, row.partition, row.from_offset, row.to_offset) for row in rows)


def first_keys(found: DataFrame | None) -> tuple[AuditedKey, ...]:
    """Return the first keys of a table; long keys are shortened."""
    if found is None:
        return ()
    rows = found.orderBy("table", "key").limit(MOST_RANGES).collect()
    return tuple(AuditedKey(row.table, row.key[:_MOST_CHARACTERS], row.records) for row in rows)


def _settled_targets(options: KeysOptions) -> TopicEnds:
    """Return the output's offsets once readers can read up to the first reading, or after a timeout.

    The markers of a decided commit are written one by one: a group's committed offsets may be readable before
    the records are.
    """
    first = read_topics(options.properties, options.targets)
    deadline, now = time.monotonic() + _SETTLE_S, first
    while not _is_readable(first, now) and time.monotonic() < deadline:
        time.sleep(_SETTLE_POLL_S)
        now = read_topics(options.properties, options.targets)
    if not _is_readable(first, now):
        return now
    # Later records belong to later input: everything to compare is readable.
    offsets = {where: offsets._replace(high_watermark=offsets.lso) for where, offsets in now.offsets.items()}
    return TopicEnds(offsets, now.topic_ids, now.compacted)


def _is_readable(first: TopicEnds, now: TopicEnds) -> bool:
    return all(now.offsets[where].lso >= offsets.high_watermark for where, offsets in first.offsets.items())


def _due_ranges(
    sources: TopicEnds, consumed: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, tuple[int, int]]:
    ends = {}
    for where, now in sources.offsets.items():
        position = consumed.get(where, 0)
        if position > now.high_watermark:
            raise AuditError(
                f"{where} ends at {now.high_watermark:,}, and its consumer is at {position:,}: the topic was "
                "deleted and created again, or has lost records. What was consumed can no longer be compared."
            )
        ends[where] = now.log_start, max(now.log_start, position)
    return ends


def _source_rows(
    spark: SparkSession,
    options: KeysOptions,
    sources: TopicEnds,
    due: Mapping[TopicPartition, tuple[int, int]],
) -> DataFrame:
    ends = {
        where: now.lso if options.committed_only else now.high_watermark
        for where, now in sources.offsets.items()
    }
    ranges = {where: (first, max(first, ends[where])) for where, (first, _) in due.items()}
    rows = read_records(spark, options.java, ranges, committed_only=options.committed_only).where(
        options.where
    )
    positions = f.create_map(
        *(f.lit(value) for where, (_, end) in due.items() for value in (str(where), end))
    )
    place = f.concat_ws("-", "topic", f.col("partition").cast("string"))
    is_due = f.col("offset") < positions[place]
    return _keyed(rows, options.source_key, f.when(is_due, _DUE).otherwise(_LATER))


def _source_table(spark: SparkSession, options: KeysOptions) -> DataFrame | None:
    table = options.source_table
    if table is None:
        return None
    return read_table(
        spark,
        table,
        lambda rows: _table_rows(rows.where(options.where), options.source_key, _DUE, table.name),
    )


def _target_rows(spark: SparkSession, options: KeysOptions) -> tuple[TopicEnds, DataFrame]:
    """Return the records of the output; rows of a table have no offsets."""
    table = options.target_table
    if table is not None:
        return _NO_TOPICS, read_table(
            spark, table, lambda rows: _table_rows(rows, options.target_key, _FOUND, table.name)
        )
    targets = _settled_targets(options)
    ranges = {where: (now.log_start, max(now.log_start, now.lso)) for where, now in targets.offsets.items()}
    rows = read_records(spark, options.java, ranges, committed_only=True)
    return targets, _keyed(rows, options.target_key, f.lit(_FOUND))


def _keyed(rows: DataFrame, key: str, side: Column) -> DataFrame:
    placed = rows.withColumn("timestamp_ms", f.unix_millis("timestamp"))
    return placed.select(f.expr(key).cast("string").alias("key"), side.alias("side"), *_PLACE)


def _table_rows(rows: DataFrame, key: str, side: str, name: str) -> DataFrame:
    places = {**dict.fromkeys(_PLACE), "topic": name}
    return rows.select(
        f.expr(key).cast("string").alias("key"),
        f.lit(side).alias("side"),
        *(f.lit(places[column]).cast(kind).alias(column) for column, kind in _PLACE.items()),
    )


def _count(rows: DataFrame) -> tuple[KeyTotals, DataFrame]:
    """Return the number of records of each kind, and the keys with a different number of records."""
    sides = [f.count_if(f.col("side") == side).alias(side) for side in (_DUE, _LATER, _FOUND)]
    due, later, found, keyless = f.col(_DUE), f.col(_LATER), f.col(_FOUND), f.col("key").isNull()
    known = due + later
    nothing = f.lit(0)
    sums = {
        "due": due,
        "found": f.when(~keyless, f.least(due, found)),
        "missing": f.when(~keyless, f.greatest(due - found, nothing)),
        "duplicated": f.when(~keyless & (known > 0), f.greatest(found - known, nothing)),
        "foreign": f.when(~keyless & (known == 0), found),
        "keyless": f.when(keyless, known + found),
    }
    observed = Observation()
    keys = (
        rows.groupBy("key")
        .agg(*sides)
        .observe(observed, *(f.sum(column).alias(name) for name, column in sums.items()))
    )
    differs = ~keyless & ((found < due) | ((found > known) & (known > 0)))
    differing = keys.where(differs).persist(StorageLevel.MEMORY_AND_DISK)
    differing.count()
    return KeyTotals(uncertain=0, **{name: observed.get[name] or 0 for name in sums}), differing


def _missing(rows: DataFrame, differing: DataFrame) -> DataFrame:
    """Return the missing records; for a key with too few records its last ones, marked uncertain."""
    short = differing.where(f"{_FOUND} < {_DUE}")
    newest = Window.partitionBy("key").orderBy(f.desc("timestamp_ms"), f.desc("offset"), f.desc("partition"))
    lost = rows.where(f.col("side") == _DUE).join(f.broadcast(short), "key")
    lost = lost.withColumn("rank", f.row_number().over(newest))
    return lost.where(f"rank <= {_DUE} - {_FOUND}").withColumn("certain", f.col(_FOUND) == 0)


def _duplicated(rows: DataFrame, differing: DataFrame) -> DataFrame:
    """Return the duplicated records of the output: all but the first of each key."""
    more = differing.where(f"{_FOUND} > {_DUE} + {_LATER}")
    oldest = Window.partitionBy("key").orderBy("timestamp_ms", "offset", "partition")
    duplicates = rows.where(f.col("side") == _FOUND).join(f.broadcast(more), "key")
    duplicates = duplicates.withColumn("rank", f.row_number().over(oldest))
    return duplicates.where(f"rank > {_DUE} + {_LATER}").withColumn("certain", f.expr("true"))


def _ranges(records: DataFrame) -> DataFrame:
    """Return records as ranges of consecutive offsets."""
    in_order = Window.partitionBy("topic", "partition", "certain").orderBy("offset")
    run = f.col("offset") - f.row_number().over(in_order)
    runs = records.withColumn("run", run).groupBy("topic", "partition", "certain", "run")
    ends = runs.agg(f.min("offset").alias("from_offset"), (f.max("offset") + 1).alias("to_offset"))
    return ends.select("topic", "partition", "from_offset", "to_offset", "certain")


def _by_key(records: DataFrame) -> DataFrame:
    """Return the number of records of each key of a table."""
    return records.groupBy(f.col("topic").alias("table"), "key").agg(f.count("*").alias("records"))


def _removed_before_ms(options: KeysOptions, targets: TopicEnds) -> int:
    """Return the instant (ms) from which the output is complete; 0 if none of its records was ever deleted.

    An output record is not older than its input: input after this instant has its output, if there is one.
    """
    truncated = {where: now for where, now in targets.offsets.items() if now.log_start > 0}
    if not truncated:
        return 0
    with closing(connect_reads(options.properties)) as reads:
        return max(_oldest_ms(reads, where, now) for where, now in truncated.items())


def _oldest_ms(reads: ClusterReads, where: TopicPartition, now: Offsets) -> int:
    batches = reads.batch_headers(where, now.log_start, most_bytes=FETCH_BYTES)
    if isinstance(batches, Unseen):
        raise AuditError(f"{where} cannot be read: {batches.reason}")
    return batches.batches[0].max_timestamp_ms if batches.batches else time.time_ns() // 1_000_000
