"""Find the checkpoints of Flink's jobs under the configured roots and read them, on any store of fsspec.

It uses neither the database nor Celery. A root is a folder of jobs' checkpoints
(`execution.checkpointing.dir`), the folder of one job, a folder of savepoints or one savepoint. Every poll
searches it completely; an unreadable part is a gap with its path and a remedy, and does not affect the
others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from collectors.checkpoints.collector import Root
from collectors.checkpoints.store import CannotRead, CheckpointStore, FileEntry, Missing
from collectors.flink.job_folder import METADATA, JobFolder, checkpoint_number
from collectors.rate_limit import RecentDuration
from fenceline.engines.flink.records import FlinkJobObservation, UnreadCheckpoint
from fenceline.spark.paths import join_path

#: The share of time that a store may spend on us: one part in twenty.
_PACE = 20
#: Maximum depth of a search.
DEEPEST = 3
MOST_FOLDERS = 2_000
#: Prefixes of gap scopes that name a job's folder, or a root.
JOB, ROOT = "checkpoint:", "root:"
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


class _FlinkRootFolder:
    """One root: its store, and its jobs."""

    def __init__(self, root: Root) -> None:
        self._config = root
        self._store: CheckpointStore | None = None
        self._folders: dict[str, JobFolder] = {}
        #: By scope: why a part could not be read at the last poll.
        self.trouble: dict[str, str] = {}
        #: Why the root cannot be read at all.
        self.blind = ""
        #: Whether the last poll found all of its jobs.
        self.is_whole = False

    @property
    def path(self) -> str:
        return self._config.root.rstrip("/") or self._config.root

    @property
    def spent_s(self) -> float:
        return self._store.spent_s if self._store is not None else 0.0

    def poll(self) -> list[FlinkJobObservation]:
        """Search the root and read its jobs."""
        self.trouble, self.blind, self.is_whole = {}, "", False
        try:
            self._store = self._store or CheckpointStore(
                self._config.root, self._config.options, self._config.map
            )
            top = self._store.list_folder(self.path)
        except CannotRead as error:
            self.blind = str(error)
            return []
        self.is_whole = True
        kept: dict[str, JobFolder] = {}
        sightings = []
        for path, listed in self._jobs(self._store, top):
            kept[path] = self._folders.get(path) or JobFolder(self._store, path)
            if observation := self._observe(kept[path], listed):
                sightings.append(observation)
        self._folders = kept
        return sightings

    def _observe(self, folder: JobFolder, listed: Mapping[str, FileEntry]) -> FlinkJobObservation | None:
        try:
            observation = folder.poll(listed)
        except CannotRead as error:
            self._unseen(JOB + folder.path, str(error))
            return None
        newest = observation.checkpoints[0] if observation else None
        if isinstance(newest, UnreadCheckpoint):
            self.trouble[JOB + folder.path] = newest.reason
        return observation

    def _jobs(
        self, store: CheckpointStore, top: Mapping[str, FileEntry]
    ) -> Iterator[tuple[str, Mapping[str, FileEntry]]]:
        """Yield each folder with checkpoints, and each savepoint, with its listing."""
        waiting, seen = [(self.path, 0, top)], 1
        while waiting:
            path, depth, listed = waiting.pop(0)
            if METADATA in listed or any(checkpoint_number(name) is not None for name in listed):
                yield path, listed
                continue
            below = [name for name in sorted(listed) if listed[name].is_folder and name not in _OF_JOBS]
            if below and (depth == DEEPEST or seen + len(below) > MOST_FOLDERS):
                self._unseen(ROOT + self.path, _too_much(store, self.path, path))
                continue
            seen += len(below)
            waiting.extend(self._listed(store, [join_path(path, name) for name in below], depth + 1))

    def _listed(
        self, store: CheckpointStore, paths: Sequence[str], depth: int
    ) -> Iterator[tuple[str, int, Mapping[str, FileEntry]]]:
        for path in paths:
            try:
                yield path, depth, store.list_folder(path)
            except Missing:
                continue
            except CannotRead as error:
                self._unseen(JOB + path, str(error))

    def _unseen(self, scope: str, reason: str) -> None:
        self.trouble[scope], self.is_whole = reason, False


class FlinkCollector:
    """Polls the checkpoints of all Flink jobs of one cluster."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self._roots = [_FlinkRootFolder(root) for root in roots]
        self._due = time.monotonic()
        self._lately = RecentDuration()
        self._since: dict[str, int] = {}

    def wait_s(self) -> float:
        """Return the seconds until the next poll, 0 when it is due."""
        return max(0.0, self._due - time.monotonic())

    def poll(self, now_ms: int, *, every_s: float) -> ObservedFlinkJobs:
        """Read all jobs; the next poll is due after `every_s`, later if stores are slow."""
        began, before = time.monotonic(), self._spent_s()
        folders = {folder.path: folder for root in self._roots for folder in root.poll()}
        self._due = began + max(every_s, _PACE * self._lately.add(self._spent_s() - before))
        gaps = {ROOT + root.path: root.blind for root in self._roots if root.blind}
        for root in self._roots:
            gaps |= root.trouble
        self._since = {scope: self._since.get(scope, now_ms) for scope in gaps}
        reasons = [root.blind for root in self._roots]
        return ObservedFlinkJobs(
            list(folders.values()),
            [root.path for root in self._roots if root.is_whole],
            {scope: (self._since[scope], why) for scope, why in gaps.items()},
            "; ".join(reasons) if all(reasons) else "",
        )

    def _spent_s(self) -> float:
        return sum(root.spent_s for root in self._roots)


def _too_much(store: CheckpointStore, root: str, where: str) -> str:
    return (
        f"{store.display_path(root)} was not searched whole: at {store.display_path(where)} there are more "
        f"than {DEEPEST} levels or {MOST_FOLDERS:,} folders; name narrower roots"
    )
