"""Small streaming queries of real Spark, and their checkpoints as a collector reads them."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from collectors.checkpoints.collector import CheckpointsCollector
from dashboard.config import CheckpointRoot
from fenceline.spark.records import CheckpointObservation
from tests.waiting import wait_for

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
PARTITIONS = "spark.sql.shuffle.partitions"
#: Nothing here takes longer than a few seconds; the machine may be busy.
DEADLINE_S = 180


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set a session's settings for a while."""
    before = {key: spark.conf.get(key, None) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


def numbers(spark: SparkSession, name: str = "", rows: int = 5) -> DataFrame:
    """Return a source whose batches have so many rows each: batch N has N * rows to (N + 1) * rows - 1."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    reader = reader.option("advanceMillisPerBatch", 10_000).option("numPartitions", 1)
    return (reader.name(name) if name else reader).load()


def counts(rows: DataFrame) -> DataFrame:
    """Return a count that is kept in state."""
    return rows.groupBy((f.col("value") % 3).alias("key")).count()


def noop(rows: DataFrame, folder: Path, mode: str = "append", **options: str) -> Any:
    """Return a writer that throws its rows away."""
    writer = rows.writeStream.format("noop").outputMode(mode).options(**options)
    return writer.option("checkpointLocation", str(folder))


def ran_to(query: StreamingQuery, batch: int) -> list[Mapping[str, Any]]:
    """Wait until a query has finished a batch, stop it, return its progress events as Spark's own JSON."""

    def finished() -> bool:
        failed = query.exception()
        if failed is not None:
            raise failed
        return any(event["batchId"] >= batch for event in query.recentProgress)

    try:
        wait_for(finished, f"batch {batch} is finished", DEADLINE_S)
        return list(query.recentProgress)
    finally:
        query.stop()


def trim(folder: Path, newest: int) -> None:
    """Take away what a query had begun after batch `newest` when it was stopped."""
    for log in ("offsets", "commits"):
        for file in (folder / log).iterdir():
            number = file.name.removeprefix(".").removesuffix(".crc")
            if not number.isdigit() or int(number) > newest:
                file.unlink()


def remove(folder: Path, *paths: str) -> None:
    """Remove files, with Hadoop's own checksums, and folders."""
    for each in paths:
        file = folder / each
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()
            (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def rewrite(folder: Path, path: str, text: str) -> None:
    """Write a file anew, without the checksum that Hadoop would compare."""
    remove(folder, path)
    (folder / path).write_text(text)


def poll_checkpoint(folder: Path) -> CheckpointObservation:
    """Return a first poll of one checkpoint."""
    looked = CheckpointsCollector([CheckpointRoot(str(folder), "sandbox")]).poll(0, every_s=1)
    assert not looked.blind, looked.blind
    assert not looked.gaps, looked.gaps
    (look,) = looked.observations
    return look
