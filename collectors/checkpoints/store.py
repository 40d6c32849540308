"""Folders of any store that fsspec opens: listed, and their files read, with errors in words for an operator.

Listings are never cached: what counts is what is new. The time that answers take is measured, so that a slow
store is asked less often.
"""

from __future__ import annotations

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
from fenceline.paths import both_spellings, join_path, to_url
from fenceline.spark.records import Broken, Damage, FileSeen

T = TypeVar("T")

#: No file of a checkpoint that anybody reads here is larger: 100,000 partitions of Kafka take 3 MB.
LARGEST = 16_000_000
#: A folder is listed so often when its files vanish meanwhile.
_MOST_LISTINGS = 5
#: Keys of a file's modification time, which stores name differently and give in different types.
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


class CannotRead(Exception):
    """A folder cannot be listed, or its store not be opened; the text names it, the reason and the remedy."""


class Missing(CannotRead):
    """There is no such folder."""


class FileEntry(NamedTuple):
    """A file or a folder in a folder."""

    name: str
    is_folder: bool
    seen: FileSeen


class FileRange(NamedTuple):
    """A part of a file."""

    path: str
    start: int
    size: int


class CheckpointStore:
    """One root's store. Paths go in and come out in the spelling of the configuration."""

    def __init__(
        self, root: str, options: Mapping[str, str] | None = None, mapped: Mapping[str, str] | None = None
    ) -> None:
        """Open the store of `root`. Raises `CannotRead` for one that nobody here can open."""
        self.root = root.rstrip("/") or root
        self._mapped = mapped or {}
        #: Seconds that answers have taken so far.
        self.spent_s = 0.0
        self._files = self._attempt(self.root, lambda: self._open(dict(options or {})))

    def display_path(self, path: str) -> str:
        """Return a path for people, in both spellings where they differ."""
        return both_spellings(path, self._url(path))

    def list_folder(self, folder: str) -> Mapping[str, FileEntry]:
        """Return what is in a folder, by name, without what Spark leaves lying about.

        A file that is deleted meanwhile is left out. Raises `CannotRead`; `Missing` where there is no folder.
        """
        listing = self._list_here if isinstance(self._files, LocalFileSystem) else self._list
        with self._timed():
            found = self._attempt(folder, lambda: listing(folder))
        return {each.name: each for each in found}

    def read_files(self, folder: str, files: Mapping[str, FileSeen]) -> Mapping[str, bytes | Broken]:
        """Return the files of a folder by name; those that are gone by now are left out.

        What may not be read, or fails otherwise, is Broken by its path below `folder`.
        """
        ready: dict[str, bytes | Broken] = {}
        wanted: list[str] = []
        for name, seen in files.items():
            if seen.size == 0:
                ready[name] = b""
            elif seen.size > LARGEST:
                detail = f"it has {seen.size:,} bytes: no file of a checkpoint has so many"
                ready[name] = Broken(name, Damage.TORN, detail)
            else:
                wanted.append(name)
        with self._timed():
            found = self._read([join_path(folder, name) for name in wanted])
        for name, raw in zip(wanted, found, strict=True):
            if isinstance(raw, bytes):
                ready[name] = raw
            elif not isinstance(raw, FileNotFoundError):
                ready[name] = Broken(name, Damage.DENIED, _why(raw))
        return ready

    def read_ranges(self, wanted: Sequence[FileRange]) -> Sequence[bytes | str]:
        """Return parts of files, each its bytes, or why it cannot be read."""
        with self._timed():
            found: Sequence[Any] = self._files.cat_ranges(
                [self._inside(each.path) for each in wanted],
                [each.start for each in wanted],
                [each.start + each.size for each in wanted],
                on_error="return",
            )
        return [_why(each) if isinstance(each, Exception) else bytes(each) for each in found]

    def is_below_root(self, path: str) -> bool:
        """Return whether a path, as it is spelled anywhere, leads into this root."""
        return f"{self._url(path)}/".startswith(f"{self._url(self.root)}/")

    def _open(self, options: dict[str, str]) -> Any:
        files, _ = fsspec.core.url_to_fs(self._url(self.root), **options, use_listings_cache=False)
        return files

    def _list_here(self, folder: str) -> list[FileEntry]:
        """List a local folder: fsspec takes five times as long for it."""
        return _list_until_it_stays(lambda: self._scan(folder))

    def _scan(self, folder: str) -> list[FileEntry] | None:
        """List a local folder once. None: all of its files are gone by now, as a query was faster."""
        with os.scandir(self._inside(folder)) as inside:
            entries = [_local(each) for each in inside if not is_passing(each.name)]
        remaining = [each for each in entries if each is not None]
        return remaining if remaining or not entries else None

    def _list(self, folder: str) -> list[FileEntry]:
        path = self._inside(folder)
        rows = _list_until_it_stays(lambda: self._rows(path))
        # Stores of objects may list the folder itself, and a file lists itself.
        names = {path.rstrip("/"), "/" + path.strip("/")}
        inside = [row for row in rows if row["name"].rstrip("/") not in names]
        if not inside and any(row["type"] == "file" for row in rows):
            raise NotADirectoryError(folder)
        return [entry for row in inside if not is_passing((entry := _entry(row)).name)]

    def _rows(self, path: str) -> list[Mapping[str, Any]] | None:
        """Return a store's own listing. None: it asked about each file, and one was just deleted."""
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
        return [each if isinstance(each, (bytes, Exception)) else bytes(each) for each in whole]

    def _url(self, path: str) -> str:
        return to_url(path, mapped=self._mapped)

    def _inside(self, path: str) -> str:
        """Return a path as the store itself takes it."""
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
            # Every store has errors of its own; each ends here, and no checkpoint harms another one.
            raise CannotRead(f"{self.display_path(path)} cannot be read: {_why(error)}") from None

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.spent_s += time.monotonic() - began


def _list_until_it_stays(list_once: Callable[[], list[T] | None]) -> list[T]:
    """Repeat a listing that is None, as files vanished meanwhile. Raises OSError where they always do."""
    for _ in range(_MOST_LISTINGS):
        if (found := list_once()) is not None:
            return found
    raise OSError("its files vanish while they are listed")


def _local(found: os.DirEntry[str]) -> FileEntry | None:
    """Links count as files, so that no circle is walked. None: it was deleted since the folder was read."""
    try:
        stat = found.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    is_folder = found.is_dir(follow_symlinks=False)
    return FileEntry(found.name, is_folder, FileSeen(stat.st_size, stat.st_mtime_ns // 1_000_000))


def _entry(row: Mapping[str, Any]) -> FileEntry:
    name = str(row["name"]).rstrip("/").rpartition("/")[2]
    return FileEntry(
        name, row.get("type") == "directory", FileSeen(int(row.get("size") or 0), _modified_ms(row))
    )


def _modified_ms(row: Mapping[str, Any]) -> int | None:
    """Return when a file was written, by its store's clock; None where that is unknown."""
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
    """Return an error's cause and remedy, in one line."""
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
