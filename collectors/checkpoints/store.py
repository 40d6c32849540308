"""List folders and read files on any fsspec store, with errors in words for an operator.

Listings are never cached, because new files matter. The duration of answers is measured, to poll a slow store
less often.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from fenceline.decode.checkpoint import is_passing
from fenceline.formatting import error_line
from fenceline.spark.paths import both_spellings, join_path, to_url
from fenceline.spark.records import Broken, Damage, FileSeen

T = TypeVar("T")

#: Maximum bytes of a checkpoint's file: 100,000 partitions of Kafka take 3 MB.
LARGEST = 16_000_000
#: Maximum listings of a folder while its files vanish.
_MOST_LISTINGS = 5
#: Keys of a file's modification time: stores use different names and types.
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


class CannotRead(Exception):
    """A folder or its store cannot be opened; the text has the name, the reason and the remedy."""


class Missing(CannotRead):
    """The folder does not exist."""


class FileEntry(NamedTuple):
    name: str
    is_folder: bool
    seen: FileSeen


class FileRange(NamedTuple):
    path: str
    start: int
    size: int


class CheckpointStore:
    """One root's store. All paths are in the configuration's spelling."""

    def __init__(
        self, root: str, options: Mapping[str, str] | None = None, mapped: Mapping[str, str] | None = None
    ) -> None:
        """Open the store of `root`. Raises `CannotRead` if it cannot be opened here."""
        self.root = root.rstrip("/") or root
        self._mapped = mapped or {}
        #: Total seconds of answers so far.
        self.spent_s = 0.0
        self._files = self._attempt(
            self.root,
            lambda: fsspec.core.url_to_fs(self._url(root), **(options or {}), use_listings_cache=False)[0],
        )

    def display_path(self, path: str) -> str:
        """Return a path for people, in both spellings if they differ."""
        return both_spellings(path, self._url(path))

    def list_folder(self, folder: str, *, hidden: bool = False) -> Mapping[str, FileEntry]:
        """Return the entries of a folder by name, without Spark's temporary files.

        With `hidden` it includes folders whose names begin with a dot. Files deleted meanwhile are omitted.
        Raises `CannotRead`; `Missing` if the folder does not exist.
        """
        listing = self._list_here if isinstance(self._files, LocalFileSystem) else self._list
        with self._timed():
            entries = self._attempt(folder, lambda: listing(folder))
        return {
            entry.name: entry
            for entry in entries
            if not is_passing(entry.name) or (hidden and entry.is_folder and entry.name.startswith("."))
        }

    def list_if_present(self, folder: str) -> Mapping[str, FileEntry]:
        """Return the same; nothing for a folder that does not exist. Raises `CannotRead`."""
        try:
            return self.list_folder(folder)
        except Missing:
            return {}

    def read_files(self, folder: str, files: Mapping[str, FileSeen]) -> Mapping[str, bytes | Broken]:
        """Return the files of a folder by name, without files deleted meanwhile.

        A file that is unreadable, or fails otherwise, is Broken with its path below `folder`.
        """
        ready: dict[str, bytes | Broken] = {}
        wanted: list[str] = []
        for name, entry in files.items():
            if entry.size == 0:
                ready[name] = b""
            elif entry.size > LARGEST:
                detail = f"it has {entry.size:,} bytes, and {LARGEST:,} are read at most"
                ready[name] = Broken(name, Damage.DENIED, detail)
            else:
                wanted.append(name)
        with self._timed():
            contents = self._read([join_path(folder, name) for name in wanted])
        for name, raw in zip(wanted, contents, strict=True):
            if isinstance(raw, bytes):
                ready[name] = raw
            elif not isinstance(raw, FileNotFoundError):
                ready[name] = Broken(name, Damage.DENIED, _why(raw))
        return ready

    def read_ranges(self, wanted: Sequence[FileRange]) -> Sequence[bytes | str]:
        """Return parts of files: their bytes, or why they cannot be read."""
        with self._timed():
            answers: Sequence[Any] = self._files.cat_ranges(
                [self._inside(part.path) for part in wanted],
                [part.start for part in wanted],
                [part.start + part.size for part in wanted],
                on_error="return",
            )
        return [_why(answer) if isinstance(answer, Exception) else bytes(answer) for answer in answers]

    def is_below_root(self, path: str) -> bool:
        """Return whether a path, in any spelling, leads into this root."""
        return f"{self._url(path)}/".startswith(f"{self._url(self.root)}/")

    def _list_here(self, folder: str) -> list[FileEntry]:
        """List a local folder directly: fsspec takes five times as long."""
        return _list_until_it_stays(lambda: self._scan(folder))

    def _scan(self, folder: str) -> list[FileEntry] | None:
        """List a local folder once; None if all of its files vanished meanwhile."""
        # A folder whose files are all replaced during a listing may look empty.
        entries = self._local_entries(folder) or self._local_entries(folder)
        remaining = [entry for entry in entries if entry is not None]
        return remaining if remaining or not entries else None

    def _local_entries(self, folder: str) -> list[FileEntry | None]:
        with os.scandir(self._inside(folder)) as inside:
            return [_local(entry) for entry in inside if not _is_passing_file(entry)]

    def _list(self, folder: str) -> list[FileEntry]:
        path = self._inside(folder)
        rows = _list_until_it_stays(lambda: self._rows(path))
        # Object stores may list the folder itself, and a file lists itself.
        names = {path.rstrip("/"), "/" + path.strip("/")}
        inside = [row for row in rows if row["name"].rstrip("/") not in names]
        if not inside and any(row["type"] == "file" for row in rows):
            raise NotADirectoryError(folder)
        return [_entry(row) for row in inside]

    def _rows(self, path: str) -> list[Mapping[str, Any]] | None:
        """Return a store's own listing; None if a file was deleted while the store examined each file."""
        try:
            rows: list[Mapping[str, Any]] = self._files.ls(path, detail=True)
        except FileNotFoundError:
            if not self._files.isdir(path):
                raise
            return None
        return rows

    def _read(self, paths: Sequence[str]) -> Sequence[bytes | Exception]:
        inside = [self._inside(path) for path in paths]
        if not inside:
            return []
        whole: Sequence[Any] = self._files.cat_ranges(
            inside, [0] * len(inside), [LARGEST] * len(inside), on_error="return"
        )
        return [content if isinstance(content, (bytes, Exception)) else bytes(content) for content in whole]

    def _url(self, path: str) -> str:
        return to_url(path, mapped=self._mapped)

    def _inside(self, path: str) -> str:
        """Return a path in the store's own form."""
        inside: str = self._files._strip_protocol(self._url(path))
        return inside

    def _attempt(self, path: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except FileNotFoundError:
            raise Missing(f"{self.display_path(path)} does not exist: check the path") from None
        except NotADirectoryError:
            raise CannotRead(
                f"{self.display_path(path)} is a file: name the folder that holds checkpoints"
            ) from None
        except Exception as error:
            # Every store has its own errors; they end here, so that no checkpoint harms another one.
            raise CannotRead(f"{self.display_path(path)} cannot be read: {_why(error)}") from None

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.spent_s += time.monotonic() - began


def _list_until_it_stays(list_once: Callable[[], list[T] | None]) -> list[T]:
    """Repeat a listing that is None because files vanished. Raises OSError if they always do."""
    for _ in range(_MOST_LISTINGS):
        if (entries := list_once()) is not None:
            return entries
    raise OSError("its files vanish while they are listed")


def _is_passing_file(entry: os.DirEntry[str]) -> bool:
    return is_passing(entry.name) and not entry.is_dir(follow_symlinks=False)


def _local(entry: os.DirEntry[str]) -> FileEntry | None:
    """Return an entry; None if it was deleted since the listing. Links count as files, to avoid cycles."""
    try:
        stat = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    is_folder = entry.is_dir(follow_symlinks=False)
    return FileEntry(entry.name, is_folder, FileSeen(stat.st_size, stat.st_mtime_ns // 1_000_000))


def _entry(row: Mapping[str, Any]) -> FileEntry:
    name = str(row["name"]).rstrip("/").rpartition("/")[2]
    return FileEntry(
        name, row.get("type") == "directory", FileSeen(int(row.get("size") or 0), _modified_ms(row))
    )


def _modified_ms(row: Mapping[str, Any]) -> int | None:
    """Return a file's write time by its store's clock; None if unknown."""
    for key in _TIMES:
        value = row.get(key)
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                continue
        if isinstance(value, datetime):
            return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1_000)
        if isinstance(value, (int, float)):
            return int(value * 1_000)
    return None


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "it is not there any more: check that nothing else removes files of checkpoints"
    if isinstance(error, PermissionError):
        return "permission denied: let the user that runs the dashboard list and read it"
    if isinstance(error, ImportError):
        return f"its store needs a package that is not installed ({error}): install it beside the dashboard"
    text = error_line(error)
    if isinstance(error, ValueError) and "rotocol" in text:
        return f"no store is known by that scheme ({text}): correct the URL, or map its prefix"
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    return f"{text} ({type(error).__name__}): check the store and the options of its [[checkpoints]]"
