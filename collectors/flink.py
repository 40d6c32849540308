"""Find the checkpoints of Flink's jobs under the configured roots and read them, on any store of fsspec.

It uses neither the database nor Celery. A root is a folder of jobs' checkpoints
(`execution.checkpointing.dir`), the folder of one job, a folder of savepoints or one savepoint. Every poll
searches it completely; an unreadable part is a gap with its path and a remedy, and does not affect the
others.

A completed checkpoint never changes, so each is read once. An undecodable one may still be written: it counts
when the next poll finds the same size and time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from collectors.checkpoints.roots import CHECKPOINT, ROOT, Root, SearchedRoot, blind_reason, total_spent_s
from collectors.checkpoints.store import CannotRead, CheckpointStore, FileEntry, FileRange, Missing
from collectors.polling import GapStarts, PollTimer
from fenceline.engines.flink.metadata import CheckpointMetadata, FlinkStateFile, decode_checkpoint_metadata
from fenceline.engines.flink.records import FlinkCheckpoint, FlinkJobObservation, UnreadCheckpoint
from fenceline.engines.flink.sink_state import decode_sink_states
from fenceline.facts import Undecoded
from fenceline.spark.paths import join_path
from fenceline.spark.records import FileSeen

#: Folders of a job without checkpoints.
_OF_JOBS = frozenset({"shared", "taskowned"})
METADATA = "_metadata"
#: Maximum checkpoints of a job to read, those with the highest numbers.
MOST_CHECKPOINTS = 10
#: Maximum bytes of a `_metadata`, and of all state beside it.
LARGEST = 64_000_000
_CHECKPOINT = re.compile(r"chk-(\d+)")
_JOB_ID = re.compile(r"[0-9a-f]{32}")
_DAMAGED = "it is damaged or not yet complete: restore it from a copy, or restore the job from another one"
_Read = FlinkCheckpoint | UnreadCheckpoint


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
    deepest = 3

    def __init__(self, root: Root) -> None:
        super().__init__(root)
        self._folders: dict[str, JobFolder] = {}

    def poll(self) -> list[FlinkJobObservation]:
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


def checkpoint_number(name: str) -> int | None:
    """Return N of `chk-N`, None for other names."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


class JobFolder:
    """A folder of a job, from poll to poll."""

    def __init__(self, store: CheckpointStore, path: str) -> None:
        self._store, self.path = store, path
        #: Contents by the checkpoint's path and its `_metadata`'s listing.
        self._read: dict[tuple[str, FileSeen], _Read] = {}

    def poll(self, listed: Mapping[str, FileEntry]) -> FlinkJobObservation | None:
        """Return the present checkpoints, None if none is completed; `listed`: the folder's listing."""
        checkpoints = {
            (path, entry): self._checkpoint(path, entry) for path, entry in self._completed(listed)
        }
        settled = [
            entry
            for key, entry in checkpoints.items()
            if isinstance(entry, FlinkCheckpoint) or key in self._read
        ]
        self._read = checkpoints
        if not settled:
            return None
        name = self.path.rstrip("/").rpartition("/")[2]
        newest_first = tuple(sorted(settled, key=_age, reverse=True))
        return FlinkJobObservation(self.path, name if _JOB_ID.fullmatch(name) else "", newest_first)

    def _completed(self, listed: Mapping[str, FileEntry]) -> Iterator[tuple[str, FileSeen]]:
        """Yield the newest completed checkpoints in a folder, or the folder itself if it is a savepoint."""
        if METADATA in listed:
            yield self.path, listed[METADATA].seen
            return
        numbers = {number: name for name in listed if (number := checkpoint_number(name)) is not None}
        for number in sorted(numbers, reverse=True)[:MOST_CHECKPOINTS]:
            path = join_path(self.path, numbers[number])
            try:
                inside = self._store.list_folder(path)
            except Missing:
                # Subsumed since its folder was listed.
                continue
            if METADATA in inside:
                yield path, inside[METADATA].seen

    def _checkpoint(self, path: str, seen: FileSeen) -> _Read:
        known = self._read.get((path, seen))
        if isinstance(known, FlinkCheckpoint):
            return known
        try:
            return self._decoded(path, seen)
        except CannotRead as error:
            return UnreadCheckpoint(path, seen.modified_ms, str(error))

    def _decoded(self, path: str, seen: FileSeen) -> FlinkCheckpoint:
        """Read and decode a checkpoint. Raises `CannotRead`."""
        (raw,) = self._ranges([FileRange(join_path(path, METADATA), 0, seen.size)])
        metadata = decode_checkpoint_metadata(raw)
        if isinstance(metadata, Undecoded):
            raise self._undecoded(path, metadata)
        states = decode_sink_states(metadata, self._state_files(path, metadata))
        if isinstance(states, Undecoded):
            raise self._undecoded(path, states)
        return FlinkCheckpoint(
            path,
            metadata.checkpoint_id,
            metadata.version,
            metadata.is_savepoint,
            seen.modified_ms,
            *states,
        )

    def _state_files(self, path: str, metadata: CheckpointMetadata) -> Mapping[FlinkStateFile, bytes]:
        wanted = metadata.state_files()
        raw = self._ranges([self._range(path, file) for file in wanted]) if wanted else ()
        return dict(zip(wanted, raw, strict=True))

    def _range(self, checkpoint: str, file: FlinkStateFile) -> FileRange:
        path = join_path(checkpoint, file.path) if file.relative else file.path
        if not self._store.is_below_root(path):
            where = self._store.display_path(join_path(checkpoint, METADATA))
            raise CannotRead(
                f"{where} names state in {path}, outside of {self._store.root}: name a root that holds both, "
                "or map its prefix"
            )
        return FileRange(path, file.start, file.size)

    def _ranges(self, wanted: list[FileRange]) -> list[bytes]:
        """Return parts of files. Raises `CannotRead` for the first unreadable one."""
        size = sum(file.size for file in wanted)
        if size > LARGEST:
            raise CannotRead(
                f"{self._store.display_path(wanted[0].path)} and what it names have {size:,} bytes, and "
                f"{LARGEST:,} are read at most: its pending commits are not known"
            )
        states = []
        for file, raw in zip(wanted, self._store.read_ranges(wanted), strict=True):
            if isinstance(raw, str):
                raise CannotRead(f"{self._store.display_path(file.path)} cannot be read: {raw}")
            states.append(raw)
        return states

    def _undecoded(self, path: str, wrong: Undecoded) -> CannotRead:
        where = self._store.display_path(join_path(path, METADATA))
        is_newer = wrong.reason in ("version", "state_version", "committer")
        remedy = "update Fenceline, or report which Flink wrote it" if is_newer else _DAMAGED
        return CannotRead(f"{where} cannot be decoded ({wrong.reason}: {wrong.detail}): {remedy}")


def _age(read: _Read) -> tuple[int, int]:
    """Sort key, newest last: the time of writing, which holds even if a job restarts its numbers."""
    number = checkpoint_number(read.path.rpartition("/")[2])
    return read.completed_ms or 0, -1 if number is None else number
