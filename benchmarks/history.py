"""The history job on 10,000,000 records of 100,000 ids, on one core and on two, and its offline replay.

The records are `seeding`'s: transactions of four records each, one in fifty ended by a timeout, written to
`__transaction_state` of a broker of our own. The job runs as its users run it, under spark-submit, with the
broker on the same machine; its seconds are its own, from the first read of the topic to the last manifest,
without the start of the JVM. Then every transition is compared with a replay of the same records, one by one.
`FENCELINE_RECORDS` is another number of records.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
from confluent_kafka import Consumer, TopicPartition

from benchmarks import seeding
from fenceline.reports import TRANSITIONS, folder_of
from sandbox.java import fetch_jars, find_java
from sandbox.options import ROOT
from tests.kafka.topic_records import RawRecord
from tests.spark.offline_replay import replay

RECORDS, IDS = int(os.environ.get("FENCELINE_RECORDS", "10_000_000")), 100_000
_COLUMNS = (
    "partition", "offset", "known_to", "transactional_id", "application", "kind", "confidence", "reason",
    "at_ms", "producer_id", "producer_epoch", "previous_epoch", "timeout_ms", "open_ms", "completed_ms",
    "gap_ms",
)  # fmt: skip


def run() -> dict[str, object]:
    """Measure on a broker of our own."""
    with tempfile.TemporaryDirectory() as name, seeding.run_broker(Path(name) / "kafka") as broker:
        began = time.monotonic()
        seeding.seed_records(broker.bootstrap, RECORDS, IDS)
        seeded = time.monotonic() - began
        one = submit_job(Path(name) / "one", broker.bootstrap, "local[1]")
        two = submit_job(Path(name) / "two", broker.bootstrap, "local[2]")
        compared = [compare_output(Path(name) / each, broker.bootstrap) for each in ("one", "two")]
    return {
        "records": RECORDS,
        "seeding, s": round(seeded),
        "local[1], s": round(one, 1),
        "local[1], records/s": round(RECORDS / one),
        "local[2], s": round(two, 1),
        "local[2], records/s": round(RECORDS / two),
        "transitions compared with the replay": compared[0],
        "transitions that differ": 0,
    }


def submit_job(folder: Path, bootstrap: str, master: str) -> float:
    """Run the job to the end of the topic; return its own seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    spark = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1", "spark.local.dir": str(folder / "tmp"),
        "spark.jars": ",".join(str(path) for path in fetch_jars("spark-connector", lambda line: None)),
        "spark.driver.extraJavaOptions":
            f"-Dlog4j2.configurationFile={(ROOT / 'sandbox' / 'log4j2.properties').as_uri()}",
    }  # fmt: skip
    settings = [word for key, value in spark.items() for word in ("--conf", f"{key}={value}")]
    command = [
        str(Path(sys.executable).with_name("spark-submit")), "--master", master, *settings,
        str(ROOT / "spark_pipeline" / "history.py"), "--bootstrap-servers", bootstrap, "--cluster", "bench",
        "--output", str(folder / "output"), "--checkpoint", str(folder / "checkpoint"),
    ]  # fmt: skip
    variables = os.environ | {
        "JAVA_HOME": str(find_java(folder).home), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    reported = re.search(r"history: ([\d,]+) records read in ([\d.]+) s", done.stdout)
    assert reported, done.stdout + done.stderr
    assert int(reported[1].replace(",", "")) >= RECORDS
    return float(reported[2])


def compare_output(folder: Path, bootstrap: str) -> int:
    """Hold the output to the replay, partition by partition; return how many transitions were alike."""
    parts = folder / "output" / folder_of("bench") / "parts"
    files = [str(path) for path in parts.glob(f"*/table={TRANSITIONS}/day=*/*.parquet")]
    written = ds.dataset(files, format="parquet")
    alike = 0
    for partition in range(seeding.PARTITIONS):
        rows = written.to_table(list(_COLUMNS), filter=ds.field("partition") == partition)
        found = {}
        for row in zip(*(column.to_pylist() for column in rows.sort_by("known_to").columns), strict=True):
            found[row[:2]] = row[3:]
        expected, _ = replay(_records(bootstrap, partition))
        output = {
            place: (name, application, *map(str, it[:3]), *it[3:11])
            for place, (name, application, it) in expected.items()
        }
        assert found == output, f"partition {partition} differs"
        alike += len(output)
    return alike


def _records(bootstrap: str, partition: int) -> Iterator[RawRecord]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    where = TopicPartition(seeding.TOPIC, partition, 0)
    _, end = consumer.get_watermark_offsets(where, timeout=30)
    consumer.assign([where])
    following = 0
    while following < end:
        for message in consumer.consume(10_000, 1):
            offset = message.offset()
            assert message.error() is None
            assert offset is not None
            following = offset + 1
            yield RawRecord(partition, offset, message.timestamp()[1], message.key(), message.value())
    consumer.close()
