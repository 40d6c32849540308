"""Proves the audit by keys of sinks that are no topic: files, Delta and databases, on a real Kafka and Spark.

A query with state writes batches into a sink. It loses some records and repeats others, which the audit
names; batches are written twice, as after a restart, and what an attempt left is there: neither counts.
"""

import argparse
import random
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fenceline.audit.manifest import (
    DUPLICATE_KEYS,
    LOSS_KEYS,
    LOSSES,
    AuditedKey,
    AuditManifest,
    AuditVerdict,
    ObstacleKind,
)
from sandbox.kafka import Broker
from spark_pipeline.audits import AuditError
from spark_pipeline.audits.cluster import TopicEnds, read_topics
from spark_pipeline.audits.sources import parse_table
from tests.cases import cases
from tests.spark.audits import delete_records, kinds
from tests.spark.queries import settings
from tests.spark.test_audit_keys import SEED, GroupPipeline, records
from tests.stack.postgres.server import Server

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PER_BATCH, SERIES = 4, 200
#: Delta's own queries are of a few rows here.
DELTA = {
    "spark.databricks.delta.requiredSparkConfsCheck.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
}
CREATE = "CREATE TABLE sent (id VARCHAR(20), copy INTEGER, PRIMARY KEY (id, copy))"


class FileSink:
    """Spark's own file sink."""

    def __init__(self, url: str, kind: str) -> None:
        self.url, self.kind = url, kind
        self.arguments = ["--target-table", f"{kind}:{url}", "--target-option", "header=true"]

    def start(self, rows: DataFrame) -> Any:
        return rows.writeStream.format(self.kind).options(path=self.url, header="true")

    def leave(self, spark: SparkSession, ids: Collection[str]) -> None:
        """Leave what an attempt that was killed leaves: the sink's log does not have it."""
        leave_file(spark, self.url, self.kind, ids)


def leave_file(spark: SparkSession, url: str, kind: str, ids: Collection[str]) -> None:
    """Put a file with rows into a folder."""
    rows = spark.createDataFrame([(key, 1) for key in ids], "id STRING, copy INT")
    rows.coalesce(1).write.format(kind).option("header", "true").save(f"{url}-attempt")
    path = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
    files = path(url).getFileSystem(spark._jsc.hadoopConfiguration())
    (written,) = (status.getPath() for status in files.globStatus(path(f"{url}-attempt/part-*")))
    assert files.rename(written, path(f"{url}/{written.getName()}"))


class BatchSink(ABC):
    """A sink of `foreachBatch` that is idempotent; every second batch is written twice."""

    arguments: Sequence[str]

    def start(self, rows: DataFrame) -> Any:
        def write(batch: DataFrame, batch_id: int) -> None:
            for _ in range(1 + batch_id % 2):
                self.write(batch, batch_id)

        return rows.writeStream.foreachBatch(write)

    @abstractmethod
    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch into the sink."""

    @abstractmethod
    def leave(self, spark: SparkSession, ids: Collection[str]) -> None:
        """Leave what an attempt that was killed leaves."""


class DeltaSink(BatchSink):
    """A Delta table that knows its last batch."""

    def __init__(self, url: str) -> None:
        self.url, self.arguments = url, ["--target-table", f"delta:{url}"]

    def write(self, batch: DataFrame, batch_id: int) -> None:
        writer = batch.coalesce(1).write.format("delta").mode("append")
        writer.options(txnAppId="sent", txnVersion=str(batch_id)).save(self.url)

    def leave(self, spark: SparkSession, ids: Collection[str]) -> None:
        leave_file(spark, self.url, "parquet", ids)


class DatabaseSink(BatchSink):
    """A table of a database, which takes back what an attempt that was killed wrote."""

    def leave(self, spark: SparkSession, ids: Collection[str]) -> None:
        """Leave nothing."""


class SqliteSink(DatabaseSink):
    """A table of SQLite with a primary key: a row that is there stays."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.arguments = [
            "--target-table",
            f"jdbc:sqlite:{file}#sent",
            "--target-option",
            "driver=org.sqlite.JDBC",
        ]
        with closing(sqlite3.connect(file)) as database:
            database.execute(CREATE)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        self.insert([tuple(row) for row in batch.collect()])

    def insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        with closing(sqlite3.connect(self.file)) as database, database:
            database.executemany("INSERT OR IGNORE INTO sent VALUES (?, ?)", rows)


class PostgresSink(DatabaseSink):
    """A table of PostgreSQL with a primary key. The password is in a file of arguments."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        user, password, address = parts_of(url)
        self.arguments = [f"--target-table=jdbc:postgresql://{address}#sent", f"@{folder / 'secret.args'}"]
        (folder / "secret.args").write_text("\n".join(postgres_options(user, password)))
        with psycopg.connect(url, autocommit=True) as database:
            database.execute(CREATE)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        with psycopg.connect(self.url) as database, database.cursor() as cursor:
            rows = [tuple(row) for row in batch.collect()]
            cursor.executemany("INSERT INTO sent VALUES (%s, %s) ON CONFLICT DO NOTHING", rows)


def parts_of(url: str) -> tuple[str, str, str]:
    """Return user, password, and `host:port/database`."""
    match = re.fullmatch(r"postgres://(.+?):(.+?)@(.+)", url)
    assert match
    return match[1], match[2], match[3]


def postgres_options(user: str, password: str) -> list[str]:
    given = {"driver": "org.postgresql.Driver", "user": user, "password": password}
    return [f"--target-option={name}={value}" for name, value in given.items()]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> FileSink | BatchSink:
    kind = request.param
    if kind == "postgresql":
        return PostgresSink(request.getfixturevalue("postgres").new_database(), tmp_path)
    if kind == "hdfs":
        return FileSink(f"{request.getfixturevalue('hdfs_root')}/{tmp_path.name}", "parquet")
    made = {"delta": DeltaSink, "sqlite": lambda url: SqliteSink(Path(url))}
    return made[kind](str(tmp_path / "sent")) if kind in made else FileSink(str(tmp_path / "sent"), kind)


@pytest.fixture
def pipeline(kafka_42: Broker, tmp_path: Path) -> GroupPipeline:
    return GroupPipeline(kafka_42.bootstrap, tmp_path / "output")


def write_batches(
    spark: SparkSession, of: GroupPipeline, into: FileSink | BatchSink, checkpoint: Path,
    lost: Collection[str], doubled: Collection[str],
) -> None:  # fmt: skip
    """Run a query with state over all of the input; without `lost`, and with a second copy of `doubled`."""
    kafka = {"kafka.bootstrap.servers": of.bootstrap, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**kafka, maxOffsetsPerTrigger=str(PER_BATCH))
    ids = rows.option("subscribe", of.source).load().select(f.col("key").cast("string").alias("id"))
    copies = f.when(f.col("id").isin(*doubled), f.array(f.lit(1), f.lit(2))).otherwise(f.array(f.lit(1)))
    kept = (
        ids.where(~f.col("id").isin(*lost))
        .dropDuplicates(["id"])
        .select("id", f.explode(copies).alias("copy"))
    )
    query = into.start(kept).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(1_200)


def table(of: GroupPipeline, manifest: AuditManifest, name: str) -> list[tuple[str, int]]:
    """Return keys and their numbers of records in a table of the newest part."""
    return sorted((row["key"], row["records"]) for row in of.rows(manifest.parts[-1:], name))


@pytest.mark.parametrize(
    ("sink", "batches"),
    [
        ("parquet", 1),
        *(pytest.param(kind, 2, marks=pytest.mark.matrix) for kind in ("orc", "json", "csv", "postgresql")),
        *(
            pytest.param(kind, SERIES, marks=pytest.mark.matrix)
            for kind in ("parquet", "hdfs", "delta", "postgresql", "sqlite")
        ),
    ],
    indirect=["sink"],
)  # fmt: skip
def test_exactly_the_planted_losses_and_duplicates_of_a_sink_are_named(
    spark: SparkSession, pipeline: GroupPipeline, tmp_path: Path, sink: FileSink | BatchSink, batches: int
) -> None:
    dice = random.Random(SEED)
    numbers = range(batches * PER_BATCH)
    places = pipeline.produce(pipeline.source, records(numbers))
    planted = dice.sample(numbers, max(4, batches // 5))
    lost, doubled = planted[::2], sorted(f"k{each}" for each in planted[1::2])
    checkpoint = tmp_path / "checkpoint"
    pipeline.into = (*sink.arguments, "--target-key", "id", "--checkpoint", checkpoint.as_uri())
    with settings(spark, DELTA):
        write_batches(spark, pipeline, sink, checkpoint, [f"k{each}" for each in lost], doubled)
        sink.leave(spark, ["k0", *(f"k{each}" for each in lost)])
        commits = [int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()]
        assert max(commits) + 1 >= batches
        # Later input is not due.
        pipeline.produce(pipeline.source, records(range(len(numbers), len(numbers) + 2)))
        found = pipeline.run(spark)
        assert (found.verdict, found.input) == (AuditVerdict.VIOLATED, len(numbers))
        assert (found.missing, found.duplicated, found.obstacles) == (len(lost), len(doubled), ())
        assert pipeline.places(found, LOSSES) == {places[each] for each in lost}
        assert table(pipeline, found, DUPLICATE_KEYS) == [(key, 1) for key in doubled]
        assert found.duplicate_keys == tuple(AuditedKey(found.targets[0], key, 1) for key in doubled[:20])


def test_what_a_sink_commits_during_an_audit_belongs_to_the_next_one(
    spark: SparkSession, pipeline: GroupPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = pipeline.produce(pipeline.source, records(range(5)))
    pipeline.commit({0: 3, 1: 2})
    sink = SqliteSink(tmp_path / "sent")
    sink.insert([(f"k{number}", 1) for number in range(4)])

    def commit_and_read(*arguments: Any) -> TopicEnds:
        """Read the end of the input, as an audit does after the table; rows are there again by then."""
        sink.insert([(f"k{number}", 2) for number in range(4)])
        return read_topics(*arguments)

    pipeline.into = (*sink.arguments, "--target-key", "id")
    with monkeypatch.context() as patch:
        patch.setattr("spark_pipeline.audits.keys.read_topics", commit_and_read)
        found = pipeline.audit(spark)
    assert (found.readable, found.missing, found.duplicated) == (4, 1, 0)
    found = pipeline.audit(spark)
    assert (found.readable, found.missing, found.duplicated) == (4, 1, 4)
    assert pipeline.places(found, LOSSES) == {places[4]}
    assert table(pipeline, found, DUPLICATE_KEYS) == [(f"k{number}", 1) for number in range(4)]


def run_tables(spark: SparkSession, of: GroupPipeline, into: str, *more: str) -> AuditManifest:
    """Audit from one table of the test to another."""
    of.into = ("--target-table", into, "--target-key", "id")
    return of.run(spark, *more)


def test_an_input_that_is_a_table_has_its_losses_named_by_key(
    spark: SparkSession, pipeline: GroupPipeline, tmp_path: Path
) -> None:
    ids = [f"k{each}" for each in range(12)]
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("\n".join(["id", *ids]))
    target.write_text("\n".join(f'{{"id": "{each}"}}' for each in [*ids[2:], "k5", "k5", "odd"]))
    chosen = ("--source-option", "header=true", "--source-key", "id", "--where", "id != 'k1'")
    found = run_tables(spark, pipeline, f"json:{target}", "--source-table", f"csv:{source}", *chosen)
    assert (found.sources, found.targets) == ((f"csv:{source}",), (f"json:{target}",))
    assert (found.verdict, found.input, found.readable) == (AuditVerdict.VIOLATED, 11, 10)
    assert table(pipeline, found, LOSS_KEYS) == [("k0", 1)]
    assert found.loss_keys == (AuditedKey(f"csv:{source}", "k0", 1),)
    assert found.duplicate_keys == (AuditedKey(f"json:{target}", "k5", 2),)
    assert kinds(found) == {ObstacleKind.FOREIGN_RECORDS}
    again = ("--source-table", f"json:{target}", "--source-key", "id")
    assert run_tables(spark, pipeline, f"json:{target}", *again).verdict is AuditVerdict.PROVED


@pytest.mark.matrix
def test_rows_of_a_table_are_not_missing_in_a_topic_that_retention_has_cut(
    spark: SparkSession, pipeline: GroupPipeline, tmp_path: Path
) -> None:
    source = f"json:{tmp_path / 'in'}"
    (tmp_path / "in").write_text("\n".join(f'{{"id": "k{number}"}}' for number in range(6)))
    pipeline.produce(pipeline.target, records(range(6)))
    chosen = ("--source-table", source, "--source-key", "id")
    assert pipeline.run(spark, *chosen).verdict is AuditVerdict.PROVED
    delete_records(pipeline.bootstrap, pipeline.target, 0, before=2)
    found = pipeline.run(spark, *chosen)
    assert (found.verdict, found.missing, found.loss_keys) == (AuditVerdict.UNPROVED, 0, ())
    assert kinds(found) == {ObstacleKind.RETENTION}


def test_what_is_wrong_with_a_table_is_one_sentence(
    spark: SparkSession, pipeline: GroupPipeline, tmp_path: Path, postgres: Server
) -> None:
    pipeline.produce(pipeline.source, records(range(2)))
    pipeline.commit({0: 1, 1: 1})
    database = postgres.new_database()
    user, password, address = parts_of(database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(CREATE)
        connection.execute("CREATE ROLE weak LOGIN PASSWORD 'weak'")
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "part-0.parquet").write_text("not Parquet")
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "delta" / "_delta_log" / "0.json").touch()
    (tmp_path / "sink" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "sink" / "_spark_metadata" / "0").touch()
    parquet.write_table(pa.table({"id": ["0", "1"]}), tmp_path / "good")
    good, sent = f"parquet:{tmp_path}/good", f"jdbc:postgresql://{address}#sent"
    owner, weak = postgres_options(user, password), postgres_options("weak", "weak")
    for spec, more, text in (
        ("nonsense:/x", (), r"nonsense.*Add its jar with --packages"),
        (f"parquet:{tmp_path}/gone", (), r"Path does not exist.*Name the folder that the sink writes to"),
        (f"parquet:{tmp_path}/empty", (), r"Name the folder that the sink writes to"),
        (f"parquet:{tmp_path}/junk", (), r"junk cannot be read: .*not.*Parquet.*Check the table"),
        (f"parquet:{tmp_path}/delta", (), r"is a Delta table.*name delta:"),
        (f"parquet:{tmp_path}/sink/day=1", (), r"whose log Spark then ignores: name parquet:.*/sink$"),
        (f"delta:{tmp_path}/empty", (), r"configured with the Delta.*Add --conf spark.sql.extensions="),
        (good, ("--target-key", "name"), r"`name` cannot be resolved.*Its columns: id\."),
        (good, ("--target-key", "id ("), r"good cannot be read: "),
        ("jdbc:mysql://127.0.0.1/db#t", (), r"No suitable driver.*the option driver=CLASS"),
        ("jdbc:mysql://h/d#t", ("--target-option", "driver=no.Such"), r"NotFound.*: no.Such.*Add its jar"),
        ("jdbc:postgresql://127.0.0.1:1/db#t", owner, r"#t cannot be read: .*refused.*Check the table"),
        (sent.replace("#sent", "#gone"), owner, r"#gone cannot be read: .*\"gone\" does not exist"),
        (sent, postgres_options(user, "wrong"), r"#sent cannot be read: .*password authentication failed"),
        (sent, weak, r"#sent cannot be read: .*permission denied for table sent.*rights of its user"),
        (sent, ("--target", "t"), "one of both"),
        (sent, ("--mode", "counts", "--checkpoint", "c"), "add --mode keys"),
        (sent, ("--source-table", sent), "name one of these"),
    ):  # fmt: skip
        pipeline.into = ("--target-table", spec)
        with pytest.raises(AuditError, match=text) as raised:
            pipeline.audit(spark, *more)
        assert "\n" not in str(raised.value)
        assert password not in str(raised.value)
    pipeline.into = ()
    with pytest.raises(AuditError, match="--target or --target-table"):
        pipeline.run(spark, "--source-table", sent)


@cases(
    ("/data/out", "write FORMAT:URL, such as parquet:"),
    ("parquet:", "write FORMAT:URL"),
    ("parquet:/data/out/*", "for a pattern Spark ignores"),
    ("jdbc:postgresql://host/db", "name the table behind the JDBC URL"),
    ("jdbc:postgresql://host/db#", "name the table behind the JDBC URL"),
    ("jdbc:postgresql://host/db?user=me&password=secret#t", "leave the password out"),
    ("jdbc:mysql://me:secret@host/db#t", "leave the password out"),
    ("jdbc:oracle:thin:me/secret@host:1521/db#t", "leave the password out"),
    ("parquet:s3a://me:secret@bucket/out", "leave the password out"),
    ("parquet:s3a://me:sec/ret@bucket/out", "leave the password out"),
    ("jdbc:oracle:oci:me/secret@tns#t", "leave the password out"),
    ("jdbc:db2://h:50000/db:apiKey=secret#t", "leave the password out"),
)
def test_a_table_that_cannot_be_meant_is_refused(spec: str, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=text) as raised:
        parse_table(spec)
    assert "secret" not in str(raised.value)


def test_a_table_is_named_without_parameters() -> None:
    named = {
        "parquet:abfss://data@account/out": "parquet:abfss://data@account/out",
        "jdbc:postgresql://host/db?sslmode=require#public.t": "jdbc:postgresql://host/db#public.t",
        "jdbc:sqlserver://host;databaseName=db#t": "jdbc:sqlserver://host#t",
    }
    assert {spec: parse_table(spec).name for spec in named} == named
