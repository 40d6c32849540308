"""The rows of `spark_pipeline.exactly_once`: the input of its SQL, and the SQL's result for the sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as f

from spark_pipeline.exactly_once_arguments import Arguments

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: The name of the SQL's input table.
VIEW = "input"
#: Columns that the sink takes beside `value`; not `topic`, which `--to` names.
KNOWN = ("key", "value", "partition", "headers", "timestamp")
#: The columns of a Kafka record.
OF_KAFKA = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


class BadQuery(Exception):
    """The SQL is unusable; the text has the reason."""


def read_input(spark: SparkSession, chosen: Arguments) -> DataFrame | None:
    """Return the input topic's records from Spark's source; None if Spark lacks that source."""
    options = {
        **chosen.kafka_options(),
        "kafka.isolation.level": chosen.isolation_level,
        "subscribe": chosen.source,
        "startingOffsets": chosen.starting_offsets,
        "includeHeaders": "true",
    }
    options.update(chosen.source_options)
    if chosen.max_offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = str(chosen.max_offsets_per_trigger)
    try:
        return spark.readStream.format("kafka").options(**options).load()
    except AnalysisException as error:
        if "kafka" in str(error).lower() and "find" in str(error).lower():
            return None
        raise


def sql_columns(rows: DataFrame, chosen: Arguments) -> DataFrame:
    """Return the columns of the SQL's table: Kafka's, with key and value as text; for JSON its fields.

    With JSON, one column `kafka` holds Kafka's own columns, so that their names stay free for fields.
    """
    text = rows.withColumns({name: f.col(name).cast("string") for name in ("key", "value")})
    if chosen.value_format == "string":
        return text.select(*OF_KAFKA)
    try:
        parsed = text.withColumn("json", f.from_json("value", chosen.schema))
    except PySparkException as error:
        raise BadQuery(f"--schema {chosen.schema!r} is no list of columns: {_words(error)}") from None
    if "kafka" in (name.lower() for name in parsed.select("json.*").columns):
        raise BadQuery("--schema has a field named kafka, which is where Kafka's own columns are: rename it")
    return parsed.select("json.*", f.struct(*OF_KAFKA).alias("kafka"))


def for_sink(spark: SparkSession, rows: DataFrame, chosen: Arguments) -> DataFrame:
    """Return the SQL's result in the sink's columns; without SQL the unchanged records.

    With JSON, a result without a column `value` gets one from all columns that the sink does not take.
    """
    if not chosen.sql:
        return rows.select("key", "value", "headers")
    columns = sql_columns(rows, chosen)
    columns.createOrReplaceTempView(VIEW)
    try:
        rows = spark.sql(chosen.sql)
    except (AnalysisException, ParseException) as error:
        raise BadQuery(f"the SQL cannot run: {_words(error)} (its table is `{VIEW}` with the columns "
                       f"{', '.join(columns.columns)})") from None  # fmt: skip
    if not rows.isStreaming:
        raise BadQuery(f"the SQL does not read the topic: its rows must come from the table `{VIEW}`")
    return _packed(rows, chosen)


def _packed(rows: DataFrame, chosen: Arguments) -> DataFrame:
    others = [name for name in rows.columns if name not in KNOWN]
    if "value" not in rows.columns and chosen.value_format == "json" and others:
        kept = [name for name in KNOWN if name in rows.columns]
        rows = rows.select(*kept, f.to_json(f.struct(*others)).alias("value"))
    elif "value" not in rows.columns:
        raise BadQuery(
            f"the SQL's answer has no column `value` (it has {', '.join(rows.columns)}): name one with AS"
        )
    elif others:
        raise BadQuery(f"the sink knows no column {', '.join(others)}: it takes {', '.join(KNOWN)}")
    return _as_text(rows)


def _as_text(rows: DataFrame) -> DataFrame:
    """Cast a numeric or similar key and value to text: the sink takes text and bytes."""
    simple: dict[str, Column] = {
        name: f.col(name).cast("string")
        for name in ("key", "value")
        if name in rows.columns and rows.schema[name].dataType.typeName() not in ("string", "binary")
    }
    return rows.withColumns(simple) if simple else rows


def _words(error: PySparkException) -> str:
    """Return Spark's message without its class, plan and position."""
    text = str(error).strip().splitlines()[0].split(" SQLSTATE:")[0]
    return text.rstrip(". ;")
