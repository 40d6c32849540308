"""Find checkpoints under the configured roots and poll them, on any store of fsspec.

It uses neither the database nor Celery. Its driver asks for `wait_s`, calls `poll`, saves the result and then
calls `mark_saved`. It searches roots for new and deleted checkpoints now and then, and lists known
checkpoints at every poll.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from collectors.checkpoints.folder import CheckpointFolder, is_checkpoint
from collectors.checkpoints.roots import (
    CHECKPOINT,
    ROOT,
    Root,
    SearchedRoot,
    blind_reason,
    root_path,
    total_spent_s,
)
from collectors.checkpoints.store import CannotRead, FileEntry, Missing
from collectors.polling import GapStarts, PollTimer
from fenceline.decode.checkpoint import batch_of
from fenceline.spark.paths import join_path
from fenceline.spark.records import CheckpointObservation

#: Minimum seconds between two searches of the roots.
SEARCH_EVERY_S = 5.0
#: Names of folders without checkpoints: of Delta, Spark's file sink, Hudi, Hadoop's committers, snapshots,
#: notebooks.
_NO_PLACES = frozenset(
    {
        "_delta_log", "_change_data", "_symlink_format_manifest", "_spark_metadata", "_temporary", ".hoodie",
        ".snapshot", ".Trash", ".git", ".ipynb_checkpoints",
    }
)  # fmt: skip


#: The name of folders, for partitions of tables `day=…`; their number; and the path of the first one, in its
#: root's spelling.
SkippedFolders = tuple[str, int, str]


class ObservedCheckpoints(NamedTuple):
    """The result of a poll of all roots."""

    observations: Sequence[CheckpointObservation]
    #: Known checkpoints that no longer exist.
    gone: Collection[str]
    #: Scope -> start and reason of a gap.
    gaps: Mapping[str, tuple[int, str]]
    #: Why nothing can be read at all; "" if some part can.
    blind: str
    #: By root: the folders that its last search skipped.
    skipped: Mapping[str, Sequence[SkippedFolders]] = {}


class _Searched(SearchedRoot):
    """One root with its checkpoints, except those below narrower roots (`others`)."""

    deepest, hidden = 6, True

    def __init__(self, root: Root, others: Collection[str]) -> None:
        super().__init__(root)
        self._others = others
        self.folders: dict[str, CheckpointFolder] = {}
        #: By name: the folders that the last search skipped.
        self.skipped: dict[str, SkippedFolders] = {}
        self.timer = PollTimer()

    def search(self) -> set[str]:
        """Find checkpoints; return deleted ones. A folder that cannot be listed proves no deletion."""
        began, before = time.monotonic(), self.spent_s
        try:
            return self._search()
        finally:
            self.timer.set_due(began, SEARCH_EVERY_S, self.spent_s - before)

    def _search(self) -> set[str]:
        self.skipped = {}
        top = self.list_top()
        if top is None:
            return set()
        checkpoints = dict(self.walk(top))
        if not checkpoints and any(batch_of(name) is not None for name in top):
            where = self.store.display_path(self.path)
            reason = f"{where} is a part of a checkpoint: name the folder that holds checkpoints"
            self.trouble[ROOT + self.path] = reason
        for path, listed in checkpoints.items():
            folder = self.folders.setdefault(path, CheckpointFolder(self.store, path))
            self._survey(folder, listed)
        gone = {path for path in self.folders if path not in checkpoints and not _is_below(path, self.unseen)}
        for path in gone:
            del self.folders[path]
        return gone

    def _survey(self, folder: CheckpointFolder, listed: Mapping[str, FileEntry]) -> None:
        try:
            folder.read_listing(listed)
        except CannotRead as error:
            self.trouble[CHECKPOINT + folder.path] = str(error)

    def folders_to_search(self, path: str, listed: Mapping[str, FileEntry]) -> Sequence[str]:
        """Return the subfolders that may hold checkpoints; count the skipped ones by name."""
        wanted = []
        for name in sorted(entry.name for entry in listed.values() if entry.is_folder):
            inside, skipped = join_path(path, name), _skipped_name(name)
            if inside in self._others:
                continue
            if not skipped:
                wanted.append(inside)
                continue
            _, number, example = self.skipped.get(skipped, (skipped, 0, inside))
            self.skipped[skipped] = skipped, number + 1, example
        return wanted

    def is_wanted(self, path: str, listed: Mapping[str, FileEntry]) -> bool:
        if path in self.folders and listed:
            return True
        try:
            return is_checkpoint(self.store, path, listed)
        except CannotRead as error:
            self.miss(path, str(error))
            return False


class CheckpointsCollector(PollTimer):
    """Polls all checkpoints of one cluster. `known` are the checkpoints of the last saved poll."""

    def __init__(self, roots: Sequence[Root], known: Iterable[str] = ()) -> None:
        super().__init__()
        by_path = {root_path(root): root for root in roots}
        self._roots = [_Searched(root, by_path.keys() - {path}) for path, root in by_path.items()]
        #: Saved checkpoints that are not known to be deleted.
        self._known = set(known)
        self._gone: set[str] = set()
        self._observations: Sequence[CheckpointObservation] = ()
        self._gap_starts = GapStarts()

    def poll(self, now_ms: int, *, every_s: float) -> ObservedCheckpoints:
        """Read all checkpoints; the next poll is due after `every_s`, later if stores are slow.

        New parts are returned again until `mark_saved` is called.
        """
        began, before = time.monotonic(), total_spent_s(self._roots)
        gaps: dict[str, str] = {}
        observations = [
            checkpoint for root in self._roots for checkpoint in self._observe(root, gaps, now_ms)
        ]
        self._observations = observations
        self.set_due(began, every_s, total_spent_s(self._roots) - before)
        skipped = {root.path: sorted(root.skipped.values()) for root in self._roots if root.skipped}
        return ObservedCheckpoints(
            observations,
            sorted(self._gone),
            self._gap_starts.date_gaps(gaps, now_ms),
            blind_reason(self._roots),
            skipped,
        )

    def mark_saved(self) -> None:
        """Forget the new parts of the last poll after they are saved."""
        folders = {path: folder for root in self._roots for path, folder in root.folders.items()}
        for observation in self._observations:
            path = observation.checkpoint.path
            if path in folders:
                folders[path].mark_saved(observation)
            self._known.add(path)
        self._known -= self._gone
        self._gone, self._observations = set(), ()

    def _observe(self, root: _Searched, gaps: dict[str, str], now_ms: int) -> Iterator[CheckpointObservation]:
        if not root.timer.wait_s():
            self._gone |= root.search()
            self._gone |= self._missed(root)
            self._gone -= root.folders.keys()
        if root.blind:
            gaps[ROOT + root.path] = root.blind
            gaps.update((CHECKPOINT + path, root.blind) for path in self._of(root))
            return
        gaps.update(root.trouble)
        for path, folder in root.folders.items():
            try:
                observation = folder.poll(now_ms)
            except Missing:
                root.timer.poll_soon()
                continue
            except CannotRead as error:
                gaps[CHECKPOINT + path] = str(error)
                continue
            if unread := folder.unread_reason():
                gaps[CHECKPOINT + path] = unread
            yield observation

    def _missed(self, root: _Searched) -> set[str]:
        """Return saved checkpoints that are missing in a completely searched root."""
        if root.blind or root.trouble:
            return set()
        return {path for path in self._of(root) if path not in root.folders}

    def _of(self, root: _Searched) -> set[str]:
        """Return the known checkpoints under a root, except those below a narrower root."""
        known = {path for path in self._known if _is_below(path, {root.path})}
        others = {other.path for other in self._roots if len(other.path) > len(root.path)}
        return {path for path in known if not _is_below(path, others)}


def _skipped_name(name: str) -> str:
    """Return the name of a skipped folder; "" for a folder that is searched."""
    if "=" in name:
        return f"{name.partition('=')[0]}=…"
    return name if name in _NO_PLACES or name.startswith(".spark-staging") else ""


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(join_path(folder, "")) for folder in folders)
