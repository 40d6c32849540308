"""Output of the history and audit jobs: stores, the newest manifest, and reports or why there are none."""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from fenceline.decode.typed import NewerFile, TornFile
from fenceline.history.reports import Manifest, ReportFigures, manifest_number


class ReportTrouble(NamedTuple):
    """Why there are no results: in a few words, the problem, and the remedy."""

    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ReportStatus:
    """The reports of one cluster: a manifest, or the reason for none."""

    manifest: Manifest | None = None
    trouble: ReportTrouble | None = None


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
