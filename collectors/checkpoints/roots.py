"""Search configured roots for folders with checkpoints, of Spark or of Flink, on any store of fsspec.

An unreadable part is a gap with its path and a remedy; all other parts are still searched.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from collectors.checkpoints.store import CannotRead, CheckpointStore, FileEntry, Missing

MOST_FOLDERS = 2_000
#: Prefixes of gap scopes that name a folder with checkpoints, or one of several roots.
CHECKPOINT, ROOT = "checkpoint:", "root:"


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


class SearchedRoot(ABC):
    """One root: its store, and the parts that its last search could not read."""

    #: Maximum depth of a search, and whether it includes folders whose names begin with a dot.
    deepest: int
    hidden = False

    def __init__(self, root: Root) -> None:
        self._config = root
        self.path = root_path(root)
        self._store: CheckpointStore | None = None
        #: By scope: why the root, or a part of it, could not be read.
        self.trouble: dict[str, str] = {}
        #: Folders that could not be listed, or were not searched.
        self.unseen: set[str] = set()
        #: Why the root cannot be read at all.
        self.blind = ""

    @property
    def store(self) -> CheckpointStore:
        """Return the store, opened at its first use. Raises `CannotRead`."""
        if self._store is None:
            self._store = CheckpointStore(self._config.root, self._config.options, self._config.map)
        return self._store

    @property
    def spent_s(self) -> float:
        """Return the total seconds of the store's answers so far."""
        return self._store.spent_s if self._store is not None else 0.0

    def list_top(self) -> Mapping[str, FileEntry] | None:
        """Begin a search: return the root's listing, None if it cannot be read (`blind`)."""
        self.trouble, self.unseen, self.blind = {}, set(), ""
        try:
            return self.store.list_folder(self.path, hidden=self.hidden)
        except CannotRead as error:
            self.blind = str(error)
            return None

    def walk(self, top: Mapping[str, FileEntry]) -> Iterator[tuple[str, Mapping[str, FileEntry]]]:
        """Yield each wanted folder with its listing, from the listing of the root on."""
        waiting, listed_folders = [(self.path, 0, top)], 1
        while waiting:
            path, depth, listed = waiting.pop(0)
            if self.is_wanted(path, listed):
                yield path, listed
                continue
            below = self.folders_to_search(path, listed)
            if below and (depth == self.deepest or listed_folders + len(below) > MOST_FOLDERS):
                self.trouble[ROOT + self.path] = self._too_much(path)
                self.unseen.update(below)
                continue
            listed_folders += len(below)
            waiting.extend((folder, depth + 1, listing) for folder, listing in self._listed(below))

    def miss(self, path: str, reason: str) -> None:
        self.trouble[CHECKPOINT + path] = reason
        self.unseen.add(path)

    @abstractmethod
    def is_wanted(self, path: str, listed: Mapping[str, FileEntry]) -> bool:
        """Whether a folder has checkpoints; a search does not continue below it."""

    @abstractmethod
    def folders_to_search(self, path: str, listed: Mapping[str, FileEntry]) -> Sequence[str]:
        """Return the paths of subfolders that may have checkpoints below them."""

    def _listed(self, folders: Iterable[str]) -> Iterator[tuple[str, Mapping[str, FileEntry]]]:
        for path in folders:
            try:
                yield path, self.store.list_folder(path, hidden=self.hidden)
            except Missing:
                continue
            except CannotRead as error:
                self.miss(path, str(error))

    def _too_much(self, where: str) -> str:
        root, where = self.store.display_path(self.path), self.store.display_path(where)
        return (
            f"{root} was not searched whole: at {where} there are more than {self.deepest} levels or "
            f"{MOST_FOLDERS:,} folders; name narrower roots"
        )


def root_path(root: Root) -> str:
    """Return the path of a root without a slash at its end."""
    return root.root.rstrip("/") or root.root


def total_spent_s(roots: Iterable[SearchedRoot]) -> float:
    """Return the seconds of all stores' answers so far."""
    return sum(root.spent_s for root in roots)


def blind_reason(roots: Iterable[SearchedRoot]) -> str:
    """Return why nothing can be read at all; "" if some root can."""
    reasons = [root.blind for root in roots]
    return "; ".join(reasons) if all(reasons) else ""
