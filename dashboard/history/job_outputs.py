"""Output of the history and audit jobs: stores, the newest manifest, and the history job's reports
(`fenceline.history.reports`), Parquet on any store of fsspec.

No function raises for content at the URL: every problem is a `ReportTrouble` in words, with the path and the
remedy. Manifests are read again after some seconds; figures are cached until there is a newer manifest.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import fsspec

from fenceline.decode.typed import NewerFile, TornFile
from fenceline.history.reports import (
    Manifest,
    ReportFigures,
    folder_of,
    manifest_number,
    read_manifest,
)
from fenceline.spark.paths import both_spellings, to_url


class ReportTrouble(NamedTuple):
    """Why there are no results: in a few words, the problem, and the remedy."""

    what: str
    why: str
    remedy: str


class Day(NamedTuple):
    """An application's figures of one day, such as `2026-11-22`."""

    day: str
    application: str
    figures: ReportFigures


class BusyTransaction(NamedTuple):
    """A transactional id, and its figures in a range of days."""

    transactional_id: str
    application: str
    figures: ReportFigures


@dataclass(frozen=True, slots=True)
class Busiest:
    """The ids with the most transitions; `number` of all ids, `whole` if all were ranked."""

    items: Sequence[BusyTransaction] = ()
    number: int = 0
    whole: bool = True


class ManifestKey:
    """A manifest as a cache key; two manifests of one micro-batch are equal."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._is = (manifest.cluster, manifest.query, manifest.batch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ManifestKey) and other._is == self._is

    def __hash__(self) -> int:
        return hash(self._is)


T = TypeVar("T")
#: Number of newest manifests to try.
_TRIED = 3


class JobOutput(NamedTuple):
    """The output of a job, in messages: its job, its key in the configuration, and two short troubles."""

    job: str
    key: str
    none_yet: str
    unreadable: str

    def trouble(self, where: str, error: Exception) -> ReportTrouble:
        """Return the trouble of a store that failed."""
        words = str(error).partition("\n")[0] or type(error).__name__
        remedy = f"Look whether {self.key} is right, and whether the dashboard's user may read there."
        if isinstance(error, ImportError):
            remedy = "Install fsspec's package for that store beside the dashboard, such as fenceline[s3]."
        elif isinstance(error, ValueError):
            remedy = f"Give {self.key} as file:///…, s3a://… or another URL that fsspec knows."
        return ReportTrouble(self.unreadable, f"{where}: {words}.", remedy)


def names_in(fs: Any, folder: str) -> Sequence[str]:
    """Return the names in a folder, sorted. Raises any error of the store."""
    return sorted(str(path).rstrip("/").rpartition("/")[2] for path in fs.ls(folder, detail=False))


def newest_manifest(
    fs: Any, log: str, where: str, names: Iterable[str], read: Callable[[str], T], output: JobOutput
) -> T | ReportTrouble:
    """Return the newest readable manifest among the sorted names in a log, at `where` for people.

    A driver may have died while writing the last one.
    """
    trouble = ReportTrouble(output.none_yet, f"{where} holds no manifest.", f"Run the {output.job} job.")
    numbered = [name for name in names if manifest_number(name) is not None]
    for path, name in ((f"{where}/{name}", name) for name in reversed(numbered[-_TRIED:])):
        try:
            return read(fs.cat_file(f"{log}/{name}").decode(errors="replace"))
        except NewerFile as error:
            update = "Update this Fenceline, or run the job with the version that runs here."
            return ReportTrouble("Written by a newer Fenceline", f"{path}: {error}.", update)
        except TornFile as error:
            again = f"Run the {output.job} job again: it goes on where it was."
            trouble = ReportTrouble("The manifest cannot be read", f"{path}: {error}.", again)
        except Exception as error:  # Every store has its own errors; none may fail a page.
            trouble = output.trouble(path, error)
    return trouble


def begin_reading(read: Callable[[], T]) -> Future[T]:
    """Read in a separate thread, so that no page waits long for a hanging store; `read` never raises."""
    answer = Future[T]()
    threading.Thread(target=lambda: answer.set_result(read()), name="read-store", daemon=True).start()
    return answer


#: The lifetime of the newest manifest's answer, in seconds; the job itself checks once a minute.
LOOK_EVERY_S = 5.0
#: The trouble of a job that has not run yet.
NONE_YET = "No reports yet"
_OUTPUT = JobOutput("history", "[history] url", NONE_YET, "The reports cannot be read")
#: The last answer by URL and cluster, with its end; the lock lets concurrent requests share one read.
_answers: dict[tuple[str, str], tuple[float, Manifest | ReportTrouble | None]] = {}
_lock = threading.Lock()


def report_status(url: str, cluster: str) -> Manifest | ReportTrouble | None:
    """Return the job's newest manifest for a cluster below `url`, or why there is none.

    An answer is valid for some seconds.
    """
    with _lock:
        until, status = _answers.get((url, cluster), (0.0, None))
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


def _look(url: str, cluster: str) -> Manifest | ReportTrouble | None:
    where = both_spellings(url, to_url(url))
    try:
        fs, root = fsspec.core.url_to_fs(to_url(url))
        fs.invalidate_cache()
        folder = f"{root.rstrip('/')}/{folder_of(cluster)}"
        names = names_in(fs, f"{folder}/log")
    except FileNotFoundError:
        return _nothing_there(url, cluster)
    except Exception as error:  # Every store has its own errors; none may fail a page.
        return _OUTPUT.trouble(where, error)
    log = f"{where}/{folder_of(cluster)}/log"
    return newest_manifest(fs, f"{folder}/log", log, names, read_manifest, _OUTPUT)


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


def _safely(url: str, manifest: Manifest, read: Callable[[], T]) -> T | ReportTrouble:
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
