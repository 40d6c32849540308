"""Reads the history job's output (`fenceline.history.reports`): Parquet on any store of fsspec.

No function raises for content at the URL: every problem is a `ReportTrouble` in words, with the path and the
remedy. Manifests are read again after some seconds; figures are cached until there is a newer manifest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import fsspec

from dashboard.history.report_types import Busiest, Day, ManifestKey, ReportStatus, ReportTrouble
from dashboard.history.stores import newer_trouble, store_trouble
from fenceline.history.reports import (
    Manifest,
    NewerFormat,
    NotAManifest,
    folder_of,
    manifest_number,
    read_manifest,
)
from fenceline.spark.paths import both_spellings, to_url

#: The lifetime of the newest manifest's answer, in seconds; the job itself checks once a minute.
LOOK_EVERY_S = 5.0
#: The trouble of a job that has not run yet.
NONE_YET = "No reports yet"
#: Maximum newest manifests to try: a driver may have died while writing the last one.
_TRIED = 3
Result = TypeVar("Result")


@dataclass(slots=True)
class _Cache:
    """Answers by their key; a lock lets concurrent requests share one read."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    until: float = 0.0
    asked: tuple[str, str] = ("", "")
    standing: ReportStatus = field(default_factory=ReportStatus)


_cache = _Cache()


def report_status(url: str, cluster: str) -> ReportStatus:
    """Return the job's results for a cluster below `url`; an answer is valid for some seconds."""
    with _cache.lock:
        if _cache.asked != (url, cluster) or time.monotonic() > _cache.until:
            _cache.standing = _look(url, cluster)
            _cache.asked, _cache.until = (url, cluster), time.monotonic() + LOOK_EVERY_S
        return _cache.standing


def clear_cache() -> None:
    """Discard all answers, so that the next request reads again."""
    _cache.until = 0.0


def last_day(manifest: Manifest) -> str:
    """Return the newest day with figures, "" without any."""
    return max((part.last_day for part in manifest.parts), default="")


def application_days(url: str, manifest: Manifest, first: str, last: str) -> Sequence[Day] | ReportTrouble:
    """Return the figures of each application on each day from `first` to `last`, both included."""
    return _safely(url, manifest, lambda: _arrow().daily_figures(url, ManifestKey(manifest), first, last))


def busiest_ids(
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
    return _safely(url, manifest, lambda: _arrow().busiest_ids(url, ManifestKey(manifest), *asked))


def _look(url: str, cluster: str) -> ReportStatus:
    where = both_spellings(url, to_url(url))
    try:
        fs, root = fsspec.core.url_to_fs(to_url(url))
        fs.invalidate_cache()
        folder = f"{root.rstrip('/')}/{folder_of(cluster)}"
        names = [str(path).rpartition("/")[2] for path in fs.ls(f"{folder}/log", detail=False)]
    except FileNotFoundError:
        return ReportStatus(trouble=_nothing_there(url, cluster))
    except Exception as error:  # Every store has its own errors; none may fail a page.
        return ReportStatus(trouble=_unreadable(where, error))
    return _newest(fs, folder, where, cluster, sorted(filter(_is_manifest, names), reverse=True)[:_TRIED])


def _is_manifest(name: str) -> bool:
    return manifest_number(name) is not None


def _newest(fs: Any, folder: str, where: str, cluster: str, names: Sequence[str]) -> ReportStatus:
    trouble = ReportTrouble(
        NONE_YET, f"{where}/{folder_of(cluster)}/log holds no manifest.", "Run the history job."
    )
    for name in names:
        path = f"{where}/{folder_of(cluster)}/log/{name}"
        try:
            manifest = read_manifest(fs.cat_file(f"{folder}/log/{name}").decode(errors="replace"))
        except NewerFormat as error:
            return ReportStatus(trouble=newer_trouble(path, error))
        except NotAManifest as error:
            again = "Run the history job again: it goes on where it was."
            trouble = ReportTrouble("The manifest cannot be read", f"{path}: {error}.", again)
        except Exception as error:  # For the same reason as above.
            trouble = _unreadable(path, error)
        else:
            return ReportStatus(manifest)
    return ReportStatus(trouble=trouble)


def _nothing_there(url: str, cluster: str) -> ReportTrouble:
    where = both_spellings(url, to_url(url))
    try:
        fs, root = fsspec.core.url_to_fs(to_url(url))
        there = [str(path).rpartition("/")[2] for path in fs.ls(root, detail=False)]
    except FileNotFoundError:
        return ReportTrouble(NONE_YET, f"{where} does not exist.", "Run the history job.")
    except Exception as error:  # For the same reason as above.
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
    return store_trouble("The reports cannot be read", "[history] url", where, error)


def _safely(url: str, manifest: Manifest, read: Callable[[], Result]) -> Result | ReportTrouble:
    """Return the result of `read`, or the trouble of its failure."""
    where = f"{both_spellings(url, to_url(url))}/{folder_of(manifest.cluster)}/parts"
    try:
        return read()
    except FileNotFoundError as error:
        # Merged parts are deleted only at the second next merge.
        clear_cache()
        return ReportTrouble(
            "A part of the reports is missing",
            f"{where}: {error}.",
            "Reload. If it stays away, somebody deleted it: give the job a new --output and --checkpoint.",
        )
    except Exception as error:  # Foreign or damaged files, or a failing store: each has its own errors.
        return _unreadable(where, error)


def _arrow() -> ModuleType:
    """Return the reader of rows, imported now, because most processes never read reports."""
    return import_module("dashboard.history.arrow_rows")
