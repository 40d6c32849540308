"""`offsets/` or `commits/` of one checkpoint: its listings, and what was read of its newest files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from collectors.checkpoints.store import CheckpointStore, FileEntry
from fenceline.decode import checkpoint as decode
from fenceline.paths import join_path
from fenceline.spark.records import Broken, CommitsEntry, Damage, FileSeen, OffsetsEntry

#: Of a longer log the newest so many are read: Spark itself keeps 100.
MOST_READ = 200
MOST_FOREIGN = 8
#: Entries that wait to be saved while the database does not take them.
_MOST_WAITING = 2_000

E = TypeVar("E", OffsetsEntry, CommitsEntry)


class LogListing(NamedTuple):
    """The files of a log by batch, and the names of all others."""

    files: Mapping[int, FileSeen]
    foreign: Sequence[str] = ()
    #: Whether the log's folder exists.
    has_folder: bool = True

    @property
    def newest_batch(self) -> int:
        """The newest batch; -1 without any."""
        return max(self.files, default=-1)


class Log(Generic[E]):
    """`offsets/` or `commits/`: which files are there, and what the newest hold."""

    def __init__(self, name: str, decoded: Callable[[int, bytes], E | Broken]) -> None:
        self.name = name
        self._decoded: Callable[[int, bytes], E | Broken] = decoded
        self.files: dict[int, FileSeen] = {}
        self.foreign: tuple[str, ...] = ()
        self.has_folder = False
        #: What was read, of the newest files.
        self._found: dict[int, E | Broken] = {}
        #: What was read and is not saved yet.
        self.news: dict[int, E] = {}
        #: How many files the first poll skipped.
        self.skipped = 0

    @property
    def batch_ids(self) -> tuple[int, ...]:
        return tuple(sorted(self.files))

    def read_new(self, store: CheckpointStore, folder: str, listed: LogListing) -> None:
        """Take in a listing and read what is new in it."""
        files, self.has_folder = listed.files, listed.has_folder
        self.foreign = tuple(join_path(self.name, name) for name in sorted(listed.foreign)[:MOST_FOREIGN])
        new = sorted(number for number, seen in files.items() if self._is_new(number, seen))
        self.skipped += max(0, len(new) - MOST_READ)
        found = self._read(store, folder, {number: files[number] for number in new[-MOST_READ:]})
        # What was deleted between listing and reading is as gone as what was before.
        missing = set(new[-MOST_READ:]) - found.keys()
        self.files = {number: seen for number, seen in files.items() if number not in missing}
        kept = {number: each for number, each in self._found.items() if number in self.files}
        self._found = dict(sorted((kept | found).items())[-MOST_READ:])
        self.news |= {number: each for number, each in found.items() if not isinstance(each, Broken)}
        for number in sorted(self.news)[:-_MOST_WAITING]:
            del self.news[number]
            self.skipped += 1

    def entry_of(self, number: int | None) -> E | Broken | None:
        """Return the decoded file of a batch; None where there is none, or it is an old one."""
        return None if number is None else self._found.get(number)

    def written_ms(self, number: int | None) -> int | None:
        """Return when the file of a batch was written, by the store's clock."""
        seen = None if number is None else self.files.get(number)
        return seen.modified_ms if seen is not None else None

    def broken_files(self) -> tuple[Broken, ...]:
        """Return the files that cannot be used, oldest first."""
        return tuple(each for _, each in sorted(self._found.items()) if isinstance(each, Broken))

    def _is_new(self, number: int, seen: FileSeen) -> bool:
        return self.files.get(number) != seen or is_denied(self._found.get(number))

    def _read(
        self, store: CheckpointStore, folder: str, files: Mapping[int, FileSeen]
    ) -> dict[int, E | Broken]:
        raw = store.read_files(
            join_path(folder, self.name), {str(number): seen for number, seen in files.items()}
        )
        return {int(name): self._of(int(name), each) for name, each in raw.items()}

    def _of(self, number: int, raw: bytes | Broken) -> E | Broken:
        if isinstance(raw, Broken):
            return raw._replace(path=f"{self.name}/{number}")
        return self._decoded(number, raw)


def is_denied(content: object) -> bool:
    """Whether a file is to be read again although it has not changed: its permissions are no part of it."""
    return isinstance(content, Broken) and content.damage is Damage.DENIED


def batch_of(entry: FileEntry) -> int | None:
    """Return the batch that a file of a log is of; None for folders and files of other names."""
    return None if entry.is_folder else decode.batch_of(entry.name)
