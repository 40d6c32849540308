"""Reads the rows of the history job's reports with Arrow. Raises any error of a store or a damaged file.

A separate module that is imported only when reports are read: Arrow imports pandas, which is 60 MB and a
quarter of the start of each process.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from dashboard.history.job_outputs import Busiest, BusyTransaction, Day, ManifestKey
from fenceline.facts import TransitionKind
from fenceline.history.reports import (
    APPLICATIONS,
    IDS,
    Manifest,
    ReportFigures,
    folder_of,
    part_folder,
    sum_figures,
)
from fenceline.spark.paths import to_url

#: Maximum ranked ids, which take some hundred MB; of more, the first ones in the files are ranked.
MOST_IDS = 1_000_000
_ROWS_AT_ONCE = 200_000
_MAPS = ("counts", "open_times", "marker_times")
_RANKED = ("commits", "aborts", "epochs")


@lru_cache(maxsize=32)
def daily_figures(url: str, key: ManifestKey, first: str, last: str) -> Sequence[Day]:
    """Return the figures of each application on each day, both days included."""
    columns = ["day", "application", "epochs", *_MAPS]
    by_day: dict[tuple[str, str], list[ReportFigures]] = {}
    for rows in _rows(url, key.manifest, APPLICATIONS, columns, first, last):
        for row in rows.to_pylist():
            by_day.setdefault((row["day"], row["application"]), []).append(_figures(row))
    days = [Day(*where, sum_figures(parts)) for where, parts in sorted(by_day.items())]
    return [day for day in days if day.figures.counts]


@lru_cache(maxsize=32)
def busiest_ids(
    url: str, key: ManifestKey, first: str, last: str, application: str, by: str, most: int
) -> Busiest:
    """Return the ids with the highest sum of the column `by`, at most `most` of them."""
    only = pc.field("application") == application if application else None
    columns = ["transactional_id", "application", *_RANKED]
    ranked, whole = None, True
    for rows in _rows(url, key.manifest, IDS, columns, first, last, only):
        table = pa.Table.from_batches([rows])
        ranked = _summed(table if ranked is None else pa.concat_tables([ranked, table]))
        if len(ranked) > MOST_IDS:
            ranked, whole = ranked.slice(0, MOST_IDS), False
    if ranked is None or not len(ranked):
        return Busiest()
    top = ranked.sort_by([(by, "descending"), ("transactional_id", "ascending")]).slice(0, most)
    names = [
        name for name, n in zip(*(top[c].to_pylist() for c in ("transactional_id", by)), strict=True) if n
    ]
    items = _detailed(url, key.manifest, first, last, names, only) if names else ()
    return Busiest(items, len(ranked), whole)


def _summed(rows: pa.Table) -> pa.Table:
    sums = rows.group_by(["transactional_id", "application"]).aggregate([(name, "sum") for name in _RANKED])
    return sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])


def _detailed(
    url: str, manifest: Manifest, first: str, last: str, names: Sequence[str], only: Any
) -> Sequence[BusyTransaction]:
    """Return the figures of some ids, in their order."""
    mine = pc.field("transactional_id").isin(names)
    wanted = mine if only is None else mine & only
    columns = ["transactional_id", "application", "epochs", *_MAPS]
    by_id: dict[str, list[ReportFigures]] = {name: [] for name in names}
    applications: dict[str, str] = {}
    for rows in _rows(url, manifest, IDS, columns, first, last, wanted):
        for row in rows.to_pylist():
            by_id[row["transactional_id"]].append(_figures(row))
            applications[row["transactional_id"]] = row["application"]
    return [BusyTransaction(name, applications[name], sum_figures(by_id[name])) for name in names]


def _rows(
    url: str, manifest: Manifest, table: str, columns: Sequence[str], first: str, last: str, only: Any = None
) -> Any:
    """Yield Arrow batches of a table's rows in a range of days, from the parts that may match."""
    fs, root = fsspec.core.url_to_fs(to_url(url))
    folder = f"{root.rstrip('/')}/{folder_of(manifest.cluster)}/parts"
    days = (pc.field("day") >= first) & (pc.field("day") <= last)
    for part in manifest.parts:
        if not part.first_day or part.last_day < first or part.first_day > last:
            continue
        paths = fs.find(f"{folder}/{part_folder(part.name)}/table={table}")
        files = [path for path in paths if path.endswith(".parquet") and first <= _day_of(path) <= last]
        if not files and not fs.exists(f"{folder}/{part_folder(part.name)}"):
            raise FileNotFoundError(f"{folder}/{part_folder(part.name)}")
        by_day = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
        if files:
            held = ds.dataset(files, filesystem=fs, format="parquet", partitioning=by_day)
            wanted = days if only is None else days & only
            yield from held.to_batches(columns=list(columns), filter=wanted, batch_size=_ROWS_AT_ONCE)


def _day_of(path: str) -> str:
    return path.rpartition("day=")[2].partition("/")[0]


def _figures(row: Mapping[str, Any]) -> ReportFigures:
    counts, opened, marked = (dict(row[name] or ()) for name in _MAPS)
    known = {TransitionKind(word): n for word, n in counts.items() if word in _KINDS}
    return ReportFigures(known, row["epochs"], opened, marked)


_KINDS = frozenset(str(kind) for kind in TransitionKind)
