"""A history job's output, written as the job writes it, for pages and API: real tasks, and no Spark."""

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fenceline.facts import TransactionRecord
from fenceline.history.reports import (
    PROGRESS,
    STRANGE,
    Manifest,
    ReportPart,
    folder_of,
    manifest_name,
    part_folder,
    part_name,
    write_manifest,
)
from spark_pipeline.reports import task
from spark_pipeline.reports.columns import SCHEMA
from tests.transaction_state_records import encode_key, encode_value
from tests.unit.random_histories import START_MS, RandomHistory

#: Some days after that.
NOW_MS = START_MS + 4 * 86_400_000


def history_report(folder: Path, cluster: str = "prod") -> Manifest:
    """Write two micro-batches of random histories over three days; return the manifest."""
    rows = [_records_of(f"{name}-{number}") for name in ("orders", "payments") for number in range(12)]
    records = [record for life in rows for record in life]
    manifest, start = Manifest(cluster, "__transaction_state", "q-1", -1, NOW_MS), task.Start()
    half = len(records) // 2
    for batch, some in enumerate((records[:half], records[half:])):
        offsets = range(batch * half, batch * half + len(some))
        found = list(task.fold_rows(start, [_input(some, offsets)]))
        manifest = _write(folder / folder_of(cluster), manifest, batch, pa.Table.from_batches(found))
        start = task.Start(manifest.positions, manifest.holes)
    return manifest


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """A report, and the folder that it is in."""
    folder = tmp_path_factory.mktemp("report")
    return folder, history_report(folder)


@pytest.fixture
def manifest(place: Path, report: tuple[Path, Manifest]) -> Manifest:
    """The manifest of a report that is in the folder of the test's configuration."""
    shutil.copytree(report[0], place, dirs_exist_ok=True)
    return report[1]


def _records_of(name: str) -> list[tuple[bytes, bytes | None]]:
    walk = RandomHistory(name, random.Random(name))
    found = []
    for step in range(150):
        walk.now_ms = max(walk.now_ms, START_MS + step * 3 * 86_400_000 // 150)
        for record in walk.step():
            alive = isinstance(record, TransactionRecord)
            found.append((encode_key(name), encode_value(record) if alive else None))
    return [*found, (encode_key(name), b"\x00\x63")]


def _input(records: list[tuple[bytes, bytes | None]], offsets: range) -> pa.RecordBatch:
    size = len(records)
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * size, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "key": [key for key, _ in records],
            "value": pa.array([value for _, value in records], pa.binary()),
            "at_ms": pa.array([START_MS] * size, pa.int64()),
            "is_record": [True] * size,
        }
    )


def _write(folder: Path, before: Manifest, batch: int, found: pa.Table) -> Manifest:
    """Write a part as Spark's partitionBy does, and the manifest with it."""
    name = part_name(batch, "test")
    days: set[str] = set()
    for table in set(found["table"].to_pylist()):
        of_table = found.filter(pa.compute.equal(found["table"], table))
        for day in set(of_table["day"].to_pylist()):
            mine = of_table if day is None else of_table.filter(pa.compute.equal(of_table["day"], day))
            days |= {day} - {None}
            where = (
                folder
                / "parts"
                / part_folder(name)
                / f"table={table}"
                / f"day={day or '__HIVE_DEFAULT_PARTITION__'}"
            )
            where.mkdir(parents=True)
            columns = [column for column in SCHEMA.names if column not in ("table", "day")]
            pq.write_table(mine.select(columns), where / "part-0.parquet")
    told = {row["table"]: row for row in found.to_pylist() if row["table"] in (PROGRESS, STRANGE)}
    undecoded = dict(before.undecoded)
    if STRANGE in told:
        row = told[STRANGE]
        undecoded[row["reason"]] = undecoded.get(row["reason"], 0) + row["n"]
    manifest = Manifest(
        before.cluster, before.topic, before.query, batch, NOW_MS, {0: told[PROGRESS]["offset"]},
        records=before.records + told[PROGRESS]["n"], undecoded=undecoded,
        strange=dict.fromkeys(undecoded, (0, 7, "value version 99")),
        parts=(*before.parts, ReportPart(name, 0, min(days), max(days))),
    )  # fmt: skip
    path = folder / "log" / manifest_name(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(write_manifest(manifest))
    return manifest
