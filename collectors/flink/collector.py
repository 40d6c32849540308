"""Find the checkpoints of Flink's jobs under the configured roots and read them, on any store of fsspec.

It uses neither the database nor Celery. A root is a folder of jobs' checkpoints
(`execution.checkpointing.dir`), the folder of one job, a folder of savepoints or one savepoint. Every poll
searches it completely; an unreadable part is a gap with its path and a remedy, and does not affect the
others.
"""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from collectors.checkpoints.roots import CHECKPOINT, ROOT, Root, SearchedRoot, blind_reason, total_spent_s
from collectors.checkpoints.store import CannotRead, FileEntry
from collectors.flink.job_folder import METADATA, JobFolder, checkpoint_number
from collectors.gaps import GapStarts
from collectors.rate_limit import PollTimer
from fenceline.engines.flink.records import FlinkJobObservation, UnreadCheckpoint
from fenceline.spark.paths import join_path

#: Folders of a job without checkpoints.
_OF_JOBS = frozenset({"shared", "taskowned"})


class ObservedFlinkJobs(NamedTuple):
    """The result of a poll of all roots."""

    observations: Sequence[FlinkJobObservation]
    #: Completely searched roots: a known job that is in no observation of them is deleted.
    searched: Sequence[str]
    #: Scope -> start and reason of a gap.
    gaps: Mapping[str, tuple[int, str]]
    #: Why nothing can be read at all; "" if some part can.
    blind: str


class _FlinkRootFolder(SearchedRoot):
    """One root with its jobs."""

    deepest = 3

    def __init__(self, root: Root) -> None:
        super().__init__(root)
        self._folders: dict[str, JobFolder] = {}

    def poll(self) -> list[FlinkJobObservation]:
        """Search the root and read its jobs."""
        top = self.list_top()
        if top is None:
            return []
        kept: dict[str, JobFolder] = {}
        sightings = []
        for path, listed in self.walk(top):
            kept[path] = self._folders.get(path) or JobFolder(self.store, path)
            if observation := self._observe(kept[path], listed):
                sightings.append(observation)
        self._folders = kept
        return sightings

    def _observe(self, folder: JobFolder, listed: Mapping[str, FileEntry]) -> FlinkJobObservation | None:
        try:
            observation = folder.poll(listed)
        except CannotRead as error:
            self.miss(folder.path, str(error))
            return None
        newest = observation.checkpoints[0] if observation else None
        if isinstance(newest, UnreadCheckpoint):
            self.trouble[CHECKPOINT + folder.path] = newest.reason
        return observation

    def is_wanted(self, path: str, listed: Mapping[str, FileEntry]) -> bool:
        """Whether a folder has checkpoints, or is a savepoint."""
        return METADATA in listed or any(checkpoint_number(name) is not None for name in listed)

    def folders_to_search(self, path: str, listed: Mapping[str, FileEntry]) -> Sequence[str]:
        """Return the subfolders, except those of jobs without checkpoints."""
        names = (name for name in sorted(listed) if listed[name].is_folder and name not in _OF_JOBS)
        return [join_path(path, name) for name in names]


class FlinkCollector(PollTimer):
    """Polls the checkpoints of all Flink jobs of one cluster."""

    def __init__(self, roots: Sequence[Root]) -> None:
        super().__init__()
        self._roots = [_FlinkRootFolder(root) for root in roots]
        self._gap_starts = GapStarts()

    def poll(self, now_ms: int, *, every_s: float) -> ObservedFlinkJobs:
        """Read all jobs; the next poll is due after `every_s`, later if stores are slow."""
        began, before = time.monotonic(), total_spent_s(self._roots)
        folders = {folder.path: folder for root in self._roots for folder in root.poll()}
        self.set_due(began, every_s, total_spent_s(self._roots) - before)
        gaps = {ROOT + root.path: root.blind for root in self._roots if root.blind}
        for root in self._roots:
            gaps |= root.trouble
        return ObservedFlinkJobs(
            list(folders.values()),
            [root.path for root in self._roots if not (root.blind or root.unseen)],
            self._gap_starts.date_gaps(gaps, now_ms),
            blind_reason(self._roots),
        )
