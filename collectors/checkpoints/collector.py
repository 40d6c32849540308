"""Find checkpoints under the configured roots and poll them, on any store of fsspec.

It uses neither the database nor Celery. Its driver asks for `wait_s`, calls `poll`, saves the result and then
calls `mark_saved`. It searches roots for new and deleted checkpoints now and then, and lists known
checkpoints at every poll. An unreadable part is a gap with its path and a remedy; all other parts are still
read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from collectors.checkpoints.folder import CheckpointFolder, is_checkpoint
from collectors.checkpoints.store import CannotRead, CheckpointStore, FileEntry, Missing
from collectors.rate_limit import RecentDuration
from fenceline.decode.checkpoint import batch_of
from fenceline.spark.paths import join_path
from fenceline.spark.records import CheckpointObservation

#: The share of time that a store may spend on us: one part in twenty.
_PACE = 20
#: Minimum seconds between two searches of the roots, and their maximum depth.
SEARCH_EVERY_S = 5.0
DEEPEST = 6
MOST_FOLDERS = 2_000
#: Prefixes of gap scopes that name a checkpoint, or one of several roots.
QUERY, ROOT = "checkpoint:", "root:"


class Root(Protocol):
    """A root to search: a `[[checkpoints]]` of the configuration."""

    @property
    def root(self) -> str:
        """The folder, in the configuration's spelling."""

    @property
    def map(self) -> Mapping[str, str]:
        """The spelling of a prefix by Spark or Flink -> ours."""

    @property
    def options(self) -> Mapping[str, str]:
        """Options of fsspec."""


#: Names of folders without checkpoints: of Delta, Spark's file sink, Hudi, Hadoop's committers, snapshots,
#: notebooks.
_NO_PLACES = frozenset(
    {
        "_delta_log", "_change_data", "_symlink_format_manifest", "_spark_metadata", "_temporary", ".hoodie",
        ".snapshot", ".Trash", ".git", ".ipynb_checkpoints",
    }
)  # fmt: skip


class SkippedFolders(NamedTuple):
    """Folders of one name that were not searched."""

    #: The name; for partitions of tables `day=…`.
    name: str
    number: int
    #: The path of the first one, in its root's spelling.
    example: str


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


class _Searched:
    """One root: its store and its checkpoints, except those below narrower roots (`others`)."""

    def __init__(self, root: Root, others: Collection[str]) -> None:
        self._config, self._others = root, others
        self._store: CheckpointStore | None = None
        self.folders: dict[str, CheckpointFolder] = {}
        #: By scope: why the root, or a part of it, could not be searched.
        self.trouble: dict[str, str] = {}
        #: By name: the folders that the last search skipped.
        self.skipped: dict[str, SkippedFolders] = {}
        #: Why the root cannot be read at all.
        self.blind = ""
        self._due = time.monotonic()
        self._lately = RecentDuration()

    @property
    def path(self) -> str:
        return _path(self._config)

    @property
    def spent_s(self) -> float:
        return self._store.spent_s if self._store is not None else 0.0

    def is_due(self) -> bool:
        """Whether the next search is due."""
        return time.monotonic() >= self._due

    def search_soon(self) -> None:
        """Search at the next poll: a known checkpoint is missing."""
        self._due = time.monotonic()

    def search(self) -> set[str]:
        """Find checkpoints; return deleted ones. A folder that cannot be listed proves no deletion."""
        began, before = time.monotonic(), self.spent_s
        try:
            return self._search()
        finally:
            self._due = began + max(SEARCH_EVERY_S, _PACE * self._lately.add(self.spent_s - before))

    def _search(self) -> set[str]:
        self.trouble, self.skipped = {}, {}
        try:
            self._store = self._store or CheckpointStore(
                self._config.root, self._config.options, self._config.map
            )
            top = self._store.list_folder(self.path, hidden=True)
        except CannotRead as error:
            self.blind = str(error)
            return set()
        self.blind = ""
        checkpoints, unseen = self._walk(self._store, top)
        for path, listed in checkpoints.items():
            folder = self.folders.setdefault(path, CheckpointFolder(self._store, path))
            self._survey(folder, listed)
        gone = {path for path in self.folders if path not in checkpoints and not _is_below(path, unseen)}
        for path in gone:
            del self.folders[path]
        return gone

    def _survey(self, folder: CheckpointFolder, listed: Mapping[str, FileEntry]) -> None:
        try:
            folder.read_listing(listed)
        except CannotRead as error:
            self.trouble[QUERY + folder.path] = str(error)

    def _walk(
        self, store: CheckpointStore, top: Mapping[str, FileEntry]
    ) -> tuple[dict[str, Mapping[str, FileEntry]], set[str]]:
        """Return the checkpoints by path with their listings, and the folders that could not be listed."""
        checkpoints: dict[str, Mapping[str, FileEntry]] = {}
        unseen: set[str] = set()
        waiting, listed_folders = [(self.path, 0, top)], 1
        while waiting:
            path, depth, listed = waiting.pop(0)
            if self._is_one(store, path, listed, unseen):
                checkpoints[path] = listed
                continue
            below = self._to_search(store, path, listed)
            if below and (depth == DEEPEST or listed_folders + len(below) > MOST_FOLDERS):
                self.trouble[ROOT + self.path] = _too_much(
                    store.display_path(self.path), store.display_path(path)
                )
                unseen.update(below)
                continue
            listed_folders += len(below)
            waiting.extend(
                (folder, depth + 1, listing) for folder, listing in self._listed(store, below, unseen)
            )
        if not checkpoints and any(batch_of(name) is not None for name in top):
            reason = (
                f"{store.display_path(self.path)} is a part of a checkpoint: name the folder that "
                "holds checkpoints"
            )
            self.trouble[ROOT + self.path] = reason
        return checkpoints, unseen

    def _to_search(self, store: CheckpointStore, path: str, listed: Mapping[str, FileEntry]) -> Sequence[str]:
        """Return the subfolders that may hold checkpoints; count the skipped ones by name."""
        wanted = []
        for name in sorted(entry.name for entry in listed.values() if entry.is_folder):
            inside, skipped = join_path(path, name), _skipped_name(name)
            if inside in self._others:
                continue
            if not skipped:
                wanted.append(inside)
                continue
            skipped_folders = self.skipped.get(skipped) or SkippedFolders(skipped, 0, inside)
            self.skipped[skipped] = skipped_folders._replace(number=skipped_folders.number + 1)
        return wanted

    def _is_one(
        self, store: CheckpointStore, path: str, listed: Mapping[str, FileEntry], unseen: set[str]
    ) -> bool:
        if path in self.folders and listed:
            return True
        try:
            return is_checkpoint(store, path, listed)
        except CannotRead as error:
            self.trouble[QUERY + path] = str(error)
            unseen.add(path)
            return False

    def _listed(
        self, store: CheckpointStore, folders: Iterable[str], unseen: set[str]
    ) -> Iterator[tuple[str, Mapping[str, FileEntry]]]:
        for path in folders:
            try:
                yield path, store.list_folder(path, hidden=True)
            except Missing:
                continue
            except CannotRead as error:
                self.trouble[QUERY + path] = str(error)
                unseen.add(path)


class CheckpointsCollector:
    """Polls all checkpoints of one cluster. `known` are the checkpoints of the last saved poll."""

    def __init__(self, roots: Sequence[Root], known: Iterable[str] = ()) -> None:
        by_path = {_path(root): root for root in roots}
        self._roots = [_Searched(root, by_path.keys() - {path}) for path, root in by_path.items()]
        self._due = time.monotonic()
        self._lately = RecentDuration()
        #: Saved checkpoints that are not known to be deleted.
        self._known = set(known)
        self._gone: set[str] = set()
        self._observations: Sequence[CheckpointObservation] = ()
        self._since: dict[str, int] = {}

    def wait_s(self) -> float:
        """Return the seconds until the next poll, 0 when it is due."""
        return max(0.0, self._due - time.monotonic())

    def poll(self, now_ms: int, *, every_s: float) -> ObservedCheckpoints:
        """Read all checkpoints; the next poll is due after `every_s`, later if stores are slow.

        New parts are returned again until `mark_saved` is called.
        """
        began, before = time.monotonic(), self._spent_s()
        gaps: dict[str, str] = {}
        observations = [
            checkpoint for root in self._roots for checkpoint in self._observe(root, gaps, now_ms)
        ]
        self._observations = observations
        self._due = began + max(every_s, _PACE * self._lately.add(self._spent_s() - before))
        reasons = [root.blind for root in self._roots]
        blind = "; ".join(reasons) if reasons and all(reasons) else ""
        skipped = {root.path: sorted(root.skipped.values()) for root in self._roots if root.skipped}
        return ObservedCheckpoints(
            observations, sorted(self._gone), self._dated(gaps, now_ms), blind, skipped
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
        if root.is_due():
            self._gone |= root.search()
            self._gone |= self._missed(root)
            self._gone -= root.folders.keys()
        if root.blind:
            gaps[ROOT + root.path] = root.blind
            gaps.update((QUERY + path, root.blind) for path in self._of(root))
            return
        gaps.update(root.trouble)
        for path, folder in root.folders.items():
            try:
                observation = folder.poll(now_ms)
            except Missing:
                root.search_soon()
                continue
            except CannotRead as error:
                gaps[QUERY + path] = str(error)
                continue
            if unread := folder.unread_reason():
                gaps[QUERY + path] = unread
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

    def _dated(self, gaps: Mapping[str, str], now_ms: int) -> Mapping[str, tuple[int, str]]:
        self._since = {scope: self._since.get(scope, now_ms) for scope in gaps}
        return {scope: (self._since[scope], why) for scope, why in gaps.items()}

    def _spent_s(self) -> float:
        return sum(root.spent_s for root in self._roots)


def _path(root: Root) -> str:
    return root.root.rstrip("/") or root.root


def _skipped_name(name: str) -> str:
    """Return the name of a skipped folder; "" for a folder that is searched."""
    if "=" in name:
        return f"{name.partition('=')[0]}=…"
    return name if name in _NO_PLACES or name.startswith(".spark-staging") else ""


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(join_path(folder, "")) for folder in folders)


def _too_much(root: str, where: str) -> str:
    return (
        f"{root} was not searched whole: at {where} there are more than {DEEPEST} levels or {MOST_FOLDERS:,} "
        "folders; name narrower roots"
    )
