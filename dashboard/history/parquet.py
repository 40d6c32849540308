"""Reads the history job's output (`fenceline.history.reports`): Parquet on any store of fsspec.

No function raises for content at the URL: every problem is a `ReportTrouble` in words, with the path and the
remedy. Manifests are read again after some seconds; figures are cached until there is a newer manifest.
"""

import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import TypeVar

import fsspec

from dashboard.history.job_outputs import (
    Busiest,
    Day,
    JobOutput,
    ManifestKey,
    ReportStatus,
    ReportTrouble,
    names_in,
    newest_manifest,
)
from fenceline.history.reports import (
    Manifest,
    folder_of,
    read_manifest,
)
from fenceline.spark.paths import both_spellings, to_url

#: The lifetime of the newest manifest's answer, in seconds; the job itself checks once a minute.
LOOK_EVERY_S = 5.0
#: The trouble of a job that has not run yet.
NONE_YET = "No reports yet"
_OUTPUT = JobOutput("history", "[history] url", NONE_YET, "The reports cannot be read")
Result = TypeVar("Result")


#: The last answer by URL and cluster, with its end; the lock lets concurrent requests share one read.
_answers: dict[tuple[str, str], tuple[float, ReportStatus]] = {}
_lock = threading.Lock()


def report_status(url: str, cluster: str) -> ReportStatus:
    """Return the job's results for a cluster below `url`; an answer is valid for some seconds."""
    with _lock:
        until, status = _answers.get((url, cluster), (0.0, ReportStatus()))
        if time.monotonic() > until:
            status = _look(url, cluster)
            # Only one is kept, because a request may name any cluster.
            _answers.clear()
            _answers[url, cluster] = time.monotonic() + LOOK_EVERY_S, status
        return status


def clear_cache() -> None:
    """Discard all answers, so that the next request reads again."""
    _answers.clear()


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
        names = names_in(fs, f"{folder}/log")
    except FileNotFoundError:
        return ReportStatus(trouble=_nothing_there(url, cluster))
    except Exception as error:  # Every store has its own errors; none may fail a page.
        return ReportStatus(trouble=_OUTPUT.trouble(where, error))
    log = f"{where}/{folder_of(cluster)}/log"
    newest = newest_manifest(fs, f"{folder}/log", log, names, read_manifest, _OUTPUT)
    return ReportStatus(newest) if isinstance(newest, Manifest) else ReportStatus(trouble=newest)


def _nothing_there(url: str, cluster: str) -> ReportTrouble:
    where = both_spellings(url, to_url(url))
    try:
        fs, root = fsspec.core.url_to_fs(to_url(url))
        there = names_in(fs, root)
    except FileNotFoundError:
        return ReportTrouble(NONE_YET, f"{where} does not exist.", "Run the history job.")
    except Exception as error:  # For the same reason as above.
        return _OUTPUT.trouble(where, error)
    others = sorted(name.partition("=")[2] for name in there if name.startswith("cluster="))
    if others:
        names = ", ".join(others)
        why = f"{where} has reports of {names}, and none of {cluster}."
        return ReportTrouble(NONE_YET, why, f"Run the history job with --cluster {cluster}.")
    if there:
        why = f"{where} holds {len(there)} other files and folders, and nothing of the history job."
        return ReportTrouble(NONE_YET, why, "Name the job's --output as [history] url, or run it.")
    return ReportTrouble(NONE_YET, f"{where} is empty.", "Run the history job.")


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
        return _OUTPUT.trouble(where, error)


def _arrow() -> ModuleType:
    """Return the reader of rows, imported now, because most processes never read reports."""
    return import_module("dashboard.history.arrow_rows")
