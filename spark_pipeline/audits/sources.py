"""What the audit compares by keys: tables (files, Delta and JDBC, or any other format that Spark reads), and
Kafka records between offsets, through Spark's own source.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fenceline.facts import TopicPartition
from spark_pipeline.audits import AuditError
from spark_pipeline.job import OutputFolder

#: Spark's exceptions, as Python sees them.
SPARK_ERRORS = (PySparkException, Py4JJavaError)
_JDBC = "jdbc"
#: Formats whose table is a folder of files.
_FILES = ("parquet", "orc", "json", "csv", "text", "avro")
#: Rows per fetch from a database: without it PostgreSQL's driver holds the whole table in memory.
_FETCH_ROWS = "10000"
_SPEC = re.compile(r"([a-z][\w.]*):(.+)", re.DOTALL)
#: A user with a password before the host (Oracle: `user/password@`), or a secret among the parameters. The
#: text after a host's colon is a port.
_SECRET = re.compile(
    r"//[^/@]*:(?!\d+(?:/|$))[^@]*@|(?:thin|oci8?):[^/@]+/[^@]+@|"
    r"(?:password|pwd|token|secret|apikey|credential)s?\w*=",
    re.IGNORECASE,
)
#: The part of a JDBC URL that manifests show: driver, host and database. Other parts may hold a secret.
_SHOWN = re.compile(r"jdbc:[a-z0-9]+(?::[a-z]+)*:(?://[\w.,:\[\]-]+)?/*[\w./-]*", re.IGNORECASE)
#: Folders of partitions at the end of a path, such as `/day=3`.
_PARTITIONS = re.compile(r"(/[^/=]+=[^/]*)+/?$")
#: For messages and help.
TABLE_EXAMPLES = "parquet:s3a://data/out, delta:/data/table or jdbc:postgresql://host/db#table"
_REMEDIES = (
    (
        r"DATA_SOURCE_NOT_FOUND|Failed to find( the)? data source|No suitable driver|ClassNotFound",
        "Add its jar with --packages or --jars, and name a JDBC driver's class as the option driver=CLASS",
    ),
    (
        r"DELTA_CONFIGURE_SPARK_SESSION",
        "Add --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
        "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ),
    (
        r"PATH_NOT_FOUND|DELTA_TABLE_NOT_FOUND|DELTA_MISSING|UNABLE_TO_INFER_SCHEMA",
        "Name the folder that the sink writes to",
    ),
)
_COLUMNS = (
    "key STRING, value STRING, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


class AuditedTable(NamedTuple):
    """A table, and the options with which Spark reads it; `table` is the name inside a database, else ""."""

    format: str
    url: str
    table: str
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return the name for manifests: without the parameters of a JDBC URL."""
        if self.format != _JDBC:
            return f"{self.format}:{self.url}"
        shown = _SHOWN.match(self.url)
        return f"{shown[0] if shown else _JDBC}#{self.table}"


def parse_table(text: str) -> AuditedTable:
    """Parse `FORMAT:URL`, or a JDBC URL that ends in `#TABLE`. For argparse."""
    match = _SPEC.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"write FORMAT:URL, such as {TABLE_EXAMPLES}")
    kind, url = match.groups()
    if _SECRET.search(url):
        raise argparse.ArgumentTypeError(
            "leave the password out of the URL: give user=… and password=… as options, in a file (@FILE)"
        )
    if kind != _JDBC:
        if re.search(r"[*?\[{]", url):
            raise argparse.ArgumentTypeError(
                "name one folder: for a pattern Spark ignores the sink's own log"
            )
        return AuditedTable(kind, url, "", {})
    address, _, table = text.rpartition("#")
    if not address or not table:
        raise argparse.ArgumentTypeError(
            "name the table behind the JDBC URL, as in jdbc:postgresql://host/db#table"
        )
    return AuditedTable(kind, address, table, {})


def read_table(
    spark: SparkSession, table: AuditedTable, select: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """Return the result of `select` over the present rows of a table. Raises AuditError.

    The rows are cached: the comparison uses them several times, and the sink may commit in between. One read
    is one snapshot: one version of Delta, one list of files or one log of Spark's file sink, one query of a
    database. If an executor dies with cached rows, Spark fails; it does not read the table again.
    """
    columns: list[str] = []
    try:
        rows = _load(spark, table)
        columns = rows.columns
        return select(rows).localCheckpoint(eager=True)
    except SPARK_ERRORS as error:
        raise AuditError(f"{table.name} cannot be read: {_with_remedy(error, columns)}.") from error


def _load(spark: SparkSession, table: AuditedTable) -> DataFrame:
    reader = spark.read.format(table.format)
    if table.format == _JDBC:
        options = {"fetchsize": _FETCH_ROWS, **table.options, "url": table.url, "dbtable": table.table}
        return reader.options(**options).load()
    if table.format in _FILES:
        _refuse_part(spark, table)
    return reader.options(**table.options).load(table.url)


def _refuse_part(spark: SparkSession, table: AuditedTable) -> None:
    """Raise AuditError where Spark would read files of a folder that may not belong to the table."""
    whole = _PARTITIONS.sub("", table.url)
    folder = OutputFolder(spark, whole)
    if folder.names("_delta_log"):
        raise AuditError(
            f"{table.name} is a Delta table, whose folder also has files of old versions: name delta:{whole}"
        )
    if whole != table.url and folder.names("_spark_metadata"):
        raise AuditError(
            f"{table.name} is a partition in the folder of a file sink, whose log Spark then ignores: "
            f"name {table.format}:{whole}"
        )


def first_line(error: Exception) -> str:
    """Return the failure in one line: Spark wraps the report of a driver or a file system."""
    # The following lines hold a plan or advice.
    reason = re.split(r"\n\s*\n|;\n", _innermost(error))[0]
    return " ".join(reason.split()).rstrip(".")


def _innermost(error: Exception) -> str:
    # PySpark's own exceptions replace that of the JVM, which stays their context.
    raised = error if isinstance(error, Py4JJavaError) else error.__context__
    if not isinstance(raised, Py4JJavaError):
        return str(error).strip()
    thrown: Any = raised.java_exception
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    named = str(thrown.toString())
    return named if "ClassNotFound" in named else str(thrown.getMessage() or named).strip()


def _with_remedy(error: Exception, columns: list[str]) -> str:
    reason = first_line(error)
    remedies = (remedy for pattern, remedy in _REMEDIES if re.search(pattern, reason))
    known = f"Its columns: {', '.join(columns)}" if "UNRESOLVED_COLUMN" in reason else ""
    return f"{reason}. {known or next(remedies, 'Check the table, its options, and the rights of its user')}"


#: Records of each partition, from the first offset to before the second.
RecordRanges = Mapping[TopicPartition, tuple[int, int]]


def read_records(
    spark: SparkSession, java: Mapping[str, str], ranges: RecordRanges, *, committed_only: bool
) -> DataFrame:
    """Return records with key and value as text, invalid UTF-8 unchanged. `java` has properties of Java
    clients.
    """
    if not ranges:
        return spark.createDataFrame([], _COLUMNS)
    starts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    ends: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), (first, end) in ranges.items():
        starts[topic][str(partition)], ends[topic][str(partition)] = first, end
    options = {
        **{f"kafka.{name}": value for name, value in java.items()},
        "kafka.isolation.level": "read_committed" if committed_only else "read_uncommitted",
        "assign": json.dumps({topic: [int(offset) for offset in bounds] for topic, bounds in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
    }
    rows = spark.read.format("kafka").options(**options).load()
    text = {name: f.col(name).cast("string") for name in ("key", "value")}
    return rows.withColumns(text).select(
        "key", "value", "topic", "partition", "offset", "timestamp", "headers"
    )
