"""The reader of what the history job left (`fenceline.reports`): Parquet on any store that fsspec knows.

Nothing here raises for what lies at the URL: whatever is wrong with it is a `ReportTrouble` in words, with
the path and what to do. Manifests are looked at again after some seconds; figures are kept until there is a
newer one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fenceline.facts import TransitionKind
from fenceline.paths import both, to_url
from fenceline.reports import (
    APPLICATIONS,
    IDS,
    Manifest,
    NewerFormat,
    NotAManifest,
    ReportFigures,
    batch_of,
    folder_of,
    manifest_name,
    part_folder,
    read_manifest,
    total,
)

#: How long an answer about the newest manifest is good, in seconds: the job itself looks once a minute.
LOOK_EVERY_S = 5.0
#: How many ids are ranked at most: some hundred MB; of more, those that were met first.
MOST_IDS = 1_000_000
_ROWS_AT_ONCE = 200_000
#: What is the matter where the job was not run yet.
NONE_YET = "No reports yet"
#: How many of the newest manifests are tried: a driver may have died while it wrote the last one.
_TRIED = 3
_MAPS = ("counts", "open_times", "marker_times")
_RANKED = ("commits", "aborts", "epochs")
Result = TypeVar("Result")


class ReportTrouble(NamedTuple):
    """Why there is nothing to show: in a few words, what is the matter, what to do."""

    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ReportStatus:
    """What is there of one cluster: a manifest, or why there is none."""

    manifest: Manifest | None = None
    trouble: ReportTrouble | None = None


class Day(NamedTuple):
    """An application's figures of one day, `2026-11-22`."""

    day: str
    application: str
    figures: ReportFigures


class BusyTransaction(NamedTuple):
    """A transactional id, and what happened to it in a range of days."""

    transactional_id: str
    application: str
    figures: ReportFigures


@dataclass(frozen=True, slots=True)
class Busiest:
    """The ids to which most happened; `number` of all of them, `whole` where all were ranked."""

    items: Sequence[BusyTransaction] = ()
    number: int = 0
    whole: bool = True


@dataclass(slots=True)
class _Cache:
    """Answers by what was asked; a lock, so that many requests at once look once."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    until: float = 0.0
    asked: tuple[str, str] = ("", "")
    standing: ReportStatus = field(default_factory=ReportStatus)


_cache = _Cache()


def standing(url: str, cluster: str) -> ReportStatus:
    """Return what the job has left of a cluster below `url`; what was found is good for some seconds."""
    with _cache.lock:
        if _cache.asked != (url, cluster) or time.monotonic() > _cache.until:
            _cache.standing = _look(url, cluster)
            _cache.asked, _cache.until = (url, cluster), time.monotonic() + LOOK_EVERY_S
        return _cache.standing


def forget() -> None:
    """Look again at once."""
    _cache.until = 0.0


def last_day(manifest: Manifest) -> str:
    """Return the newest day of which there are figures, "" where there is none."""
    return max((part.last_day for part in manifest.parts), default="")


def applications(url: str, manifest: Manifest, first: str, last: str) -> Sequence[Day] | ReportTrouble:
    """Return the figures of each application on each day from `first` to `last`, both included."""
    return _safely(url, manifest, lambda: _applications(url, _Key(manifest), first, last))


def busiest(
    url: str,
    manifest: Manifest,
    first: str,
    last: str,
    *,
    application: str = "",
    by: str = "commits",
    most: int,
) -> Busiest | ReportTrouble:
    """Return the ids with the most `commits`, `aborts` or `epochs` in a range of days."""
    asked = first, last, application, by, most
    return _safely(url, manifest, lambda: _busiest(url, _Key(manifest), *asked))


class _Key:
    """A manifest as a key of what was read by it: two of one micro-batch are the same."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._is = (manifest.cluster, manifest.query, manifest.batch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other._is == self._is

    def __hash__(self) -> int:
        return hash(self._is)


def _look(url: str, cluster: str) -> ReportStatus:
    where = both(url, to_url(url))
    try:
        fs, root = fsspec.core.url_to_fs(to_url(url))
        fs.invalidate_cache()
        folder = f"{root.rstrip('/')}/{folder_of(cluster)}"
        names = [str(each).rpartition("/")[2] for each in fs.ls(f"{folder}/log", detail=False)]
    except FileNotFoundError:
        return ReportStatus(trouble=_nothing_there(url, cluster))
    except Exception as error:  # Each store has its own; none may end as a page that fails.
        return ReportStatus(trouble=_unreadable(where, error))
    return _newest(fs, folder, where, cluster, sorted(filter(_is_manifest, names), reverse=True)[:_TRIED])


def _is_manifest(name: str) -> bool:
    return batch_of(name) is not None


def _newest(fs: Any, folder: str, where: str, cluster: str, names: Sequence[str]) -> ReportStatus:
    trouble = ReportTrouble(
        NONE_YET, f"{where}/{folder_of(cluster)}/log holds no manifest.", "Run the history job."
    )
    for name in names:
        path = f"{where}/{folder_of(cluster)}/log/{name}"
        try:
            found = read_manifest(fs.cat_file(f"{folder}/log/{name}").decode(errors="replace"))
        except NewerFormat as error:
            newer = "Update this Fenceline, or run the job with the version that runs here."
            return ReportStatus(
                trouble=ReportTrouble("Written by a newer Fenceline", f"{path}: {error}.", newer)
            )
        except NotAManifest as error:
            again = "Run the history job again: it goes on where it was."
            trouble = ReportTrouble("The manifest cannot be read", f"{path}: {error}.", again)
        except Exception as error:  # As above.
            trouble = _unreadable(path, error)
        else:
            return ReportStatus(found)
    return ReportStatus(trouble=trouble)


def _nothing_there(url: str, cluster: str) -> ReportTrouble:
    where = both(url, to_url(url))
    try:
        fs, root = fsspec.core.url_to_fs(to_url(url))
        there = [str(each).rpartition("/")[2] for each in fs.ls(root, detail=False)]
    except FileNotFoundError:
        return ReportTrouble(NONE_YET, f"{where} does not exist.", "Run the history job.")
    except Exception as error:  # As above.
        return _unreadable(where, error)
    others = sorted(name.partition("=")[2] for name in there if name.startswith("cluster="))
    if others:
        names = ", ".join(others)
        why = f"{where} has reports of {names}, and none of {cluster}."
        return ReportTrouble(NONE_YET, why, f"Run the history job with --cluster {cluster}.")
    if there:
        why = f"{where} holds {len(there)} other files and folders, and nothing of the history job."
        return ReportTrouble(NONE_YET, why, "Name the job's --output as [history] url, or run it.")
    return ReportTrouble(NONE_YET, f"{where} is empty.", "Run the history job.")


def _unreadable(where: str, error: Exception) -> ReportTrouble:
    said = str(error).partition("\n")[0] or type(error).__name__
    remedy = "Look whether [history] url is right, and whether the dashboard's user may read there."
    if isinstance(error, ImportError):
        remedy = "Install fsspec's package for that store beside the dashboard, such as fenceline[s3]."
    elif isinstance(error, ValueError):
        remedy = "Give [history] url as file:///…, s3a://… or another URL that fsspec knows."
    return ReportTrouble("The reports cannot be read", f"{where}: {said}.", remedy)


def _safely(url: str, manifest: Manifest, read: Callable[[], Result]) -> Result | ReportTrouble:
    """Return what `read` does; where it fails, why."""
    where = f"{both(url, to_url(url))}/{folder_of(manifest.cluster)}/parts"
    try:
        return read()
    except FileNotFoundError as error:
        # Parts that were merged meanwhile are gone only at the next merge but one.
        forget()
        return ReportTrouble(
            "A part of the reports is missing",
            f"{where}: {error}.",
            "Reload. If it stays away, somebody deleted it: give the job a new --output and --checkpoint.",
        )
    except Exception as error:  # Foreign or damaged files, or a store that fails: each has its own.
        return _unreadable(where, error)


@lru_cache(maxsize=32)
def _applications(url: str, key: _Key, first: str, last: str) -> Sequence[Day]:
    columns = ["day", "application", "epochs", *_MAPS]
    found: dict[tuple[str, str], list[ReportFigures]] = {}
    for rows in _rows(url, key.manifest, APPLICATIONS, columns, first, last):
        for row in rows.to_pylist():
            found.setdefault((row["day"], row["application"]), []).append(_figures(row))
    days = [Day(*where, total(parts)) for where, parts in sorted(found.items())]
    return [each for each in days if each.figures.counts]


@lru_cache(maxsize=32)
def _busiest(url: str, key: _Key, first: str, last: str, application: str, by: str, most: int) -> Busiest:
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
    found: dict[str, list[ReportFigures]] = {name: [] for name in names}
    applications: dict[str, str] = {}
    for rows in _rows(url, manifest, IDS, columns, first, last, wanted):
        for row in rows.to_pylist():
            found[row["transactional_id"]].append(_figures(row))
            applications[row["transactional_id"]] = row["application"]
    return [BusyTransaction(name, applications[name], total(found[name])) for name in names]


def _rows(
    url: str, manifest: Manifest, table: str, columns: Sequence[str], first: str, last: str, only: Any = None
) -> Any:
    """Yield Arrow batches of a table's rows in a range of days, of the parts that count."""
    fs, root = fsspec.core.url_to_fs(to_url(url))
    folder = f"{root.rstrip('/')}/{folder_of(manifest.cluster)}/parts"
    days = (pc.field("day") >= first) & (pc.field("day") <= last)
    for part in manifest.parts:
        if not part.first_day or part.last_day < first or part.first_day > last:
            continue
        paths = fs.find(f"{folder}/{part_folder(part.name)}/table={table}")
        files = [path for path in paths if path.endswith(".parquet") and _in_range(path, first, last)]
        if not files and not fs.exists(f"{folder}/{part_folder(part.name)}"):
            raise FileNotFoundError(f"{folder}/{part_folder(part.name)}")
        by_day = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
        held = ds.dataset(files, filesystem=fs, format="parquet", partitioning=by_day) if files else None
        if held is not None:
            wanted = days if only is None else days & only
            yield from held.to_batches(columns=list(columns), filter=wanted, batch_size=_ROWS_AT_ONCE)


def _in_range(path: str, first: str, last: str) -> bool:
    day = path.rpartition("day=")[2].partition("/")[0]
    return first <= day <= last


def _figures(row: Mapping[str, Any]) -> ReportFigures:
    counts, opened, marked = (dict(row[name] or ()) for name in _MAPS)
    known = {TransitionKind(word): n for word, n in counts.items() if word in _KINDS}
    return ReportFigures(known, row["epochs"], opened, marked)


_KINDS = frozenset(str(kind) for kind in TransitionKind)


def manifest_path(url: str, manifest: Manifest) -> str:
    """Return where a manifest lies, for people."""
    return f"{url.rstrip('/')}/{folder_of(manifest.cluster)}/log/{manifest_name(manifest.batch)}"
