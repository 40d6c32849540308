"""`offsets/` or `commits/` of one checkpoint: its listings, and the contents of its newest files."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from collectors.checkpoints.store import CheckpointStore, FileEntry
from fenceline.decode import checkpoint as decode
from fenceline.spark.paths import join_path
from fenceline.spark.records import Broken, CommitsEntry, Damage, FileSeen, OffsetsEntry

#: Maximum files of a log to read, the newest ones: Spark itself keeps 100.
MOST_READ = 200
MOST_FOREIGN = 8
#: Maximum unsaved entries while the database is unavailable.
_MOST_WAITING = 2_000

E = TypeVar("E", OffsetsEntry, CommitsEntry)


class LogListing(NamedTuple):
    """The files of a log by batch, and all other names."""

    files: Mapping[int, FileSeen]
    foreign: Sequence[str] = ()
    #: Whether the log's folder exists.
    has_folder: bool = True

    @property
    def newest_batch(self) -> int:
        """The newest batch; -1 without any."""
        return max(self.files, default=-1)


class Log(Generic[E]):
    """`offsets/` or `commits/`: its files, and the contents of the newest ones."""

    def __init__(self, name: str, decoded: Callable[[int, bytes], E | Broken]) -> None:
        self.name = name
        self._decoded: Callable[[int, bytes], E | Broken] = decoded
        self.files: dict[int, FileSeen] = {}
        self.foreign: tuple[str, ...] = ()
        self.has_folder = False
        #: Contents of the newest files.
        self._found: dict[int, E | Broken] = {}
        #: Unsaved contents.
        self.news: dict[int, E] = {}
        #: Number of files that the first poll skipped.
        self.skipped = 0
        #: Whether the last listing has new files, but none of the known ones.
        self.has_begun_anew = False

    @property
    def batch_ids(self) -> tuple[int, ...]:
        return tuple(sorted(self.files))

    def read_new(self, store: CheckpointStore, folder: str, listed: LogListing) -> None:
        """Take in a listing and read its new files."""
        files, self.has_folder = listed.files, listed.has_folder
        self.foreign = tuple(join_path(self.name, name) for name in sorted(listed.foreign)[:MOST_FOREIGN])
        new = sorted(number for number, entry in files.items() if self._is_new(number, entry))
        self.has_begun_anew = bool(new) and not files.items() & self.files.items()
        self.skipped += max(0, len(new) - MOST_READ)
        contents = self._read(store, folder, {number: files[number] for number in new[-MOST_READ:]})
        # A file deleted between listing and reading counts as gone, too.
        missing = set(new[-MOST_READ:]) - contents.keys()
        self.files = {number: entry for number, entry in files.items() if number not in missing}
        kept = {number: file for number, file in self._found.items() if number in self.files}
        self._found = dict(sorted((kept | contents).items())[-MOST_READ:])
        self.news |= {number: file for number, file in contents.items() if not isinstance(file, Broken)}
        for number in sorted(self.news)[:-_MOST_WAITING]:
            del self.news[number]
            self.skipped += 1

    def entry_of(self, number: int | None) -> E | Broken | None:
        """Return the decoded file of a batch; None if there is none, or it is too old."""
        return None if number is None else self._found.get(number)

    def written_ms(self, number: int | None) -> int | None:
        """Return the write time of a batch's file, by the store's clock."""
        seen = None if number is None else self.files.get(number)
        return seen.modified_ms if seen is not None else None

    def broken_files(self) -> tuple[Broken, ...]:
        """Return the unusable files, oldest first."""
        return tuple(file for _, file in sorted(self._found.items()) if isinstance(file, Broken))

    def _is_new(self, number: int, file: FileSeen) -> bool:
        return self.files.get(number) != file or is_denied(self._found.get(number))

    def _read(
        self, store: CheckpointStore, folder: str, files: Mapping[int, FileSeen]
    ) -> dict[int, E | Broken]:
        raw = store.read_files(
            join_path(folder, self.name), {str(number): entry for number, entry in files.items()}
        )
        return {int(name): self._of(int(name), data) for name, data in raw.items()}

    def _of(self, number: int, raw: bytes | Broken) -> E | Broken:
        if isinstance(raw, Broken):
            return raw._replace(path=f"{self.name}/{number}")
        return self._decoded(number, raw)


def is_denied(content: object) -> bool:
    """Whether to read an unchanged file again: changed permissions do not change its size or time."""
    return isinstance(content, Broken) and content.damage is Damage.DENIED


def batch_of(entry: FileEntry) -> int | None:
    """Return the batch of a log's file; None for folders and files of other names."""
    return None if entry.is_folder else decode.batch_of(entry.name)
