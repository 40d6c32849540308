"""The logs of one checkpoint: `offsets/` or `commits/` with the contents of the newest files, and the ledger
of the exactly-once sink beside them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from collectors.checkpoints.store import CheckpointStore, FileEntry
from fenceline.decode import checkpoint as decode
from fenceline.decode import ledger as ledgers
from fenceline.spark.paths import join_path
from fenceline.spark.records import Broken, CommitsEntry, Damage, FileSeen, LedgerState, OffsetsEntry

#: Maximum files of a log to read, the newest ones: Spark itself keeps 100.
MOST_READ = 200
MOST_FOREIGN = 8
#: Maximum unsaved entries while the database is unavailable.
_MOST_WAITING = 2_000

E = TypeVar("E", OffsetsEntry, CommitsEntry)
#: Maximum listings of the ledger in one poll while its sink purges old batches.
_MOST_LISTINGS = 5


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
        return {
            int(name): data._replace(path=f"{self.name}/{name}")
            if isinstance(data, Broken)
            else self._decoded(int(name), data)
            for name, data in raw.items()
        }


def is_denied(content: object) -> bool:
    """Whether to read an unchanged file again: changed permissions do not change its size or time."""
    return isinstance(content, Broken) and content.damage is Damage.DENIED


def batch_of(entry: FileEntry) -> int | None:
    """Return the batch of a log's file; None for folders and files of other names."""
    return None if entry.is_folder else decode.batch_of(entry.name)


class LedgerFiles:
    """The ledger's folder of the checkpoint at `path`."""

    def __init__(self, store: CheckpointStore, path: str) -> None:
        self._store, self._folder = store, join_path(path, ledgers.FOLDER)
        self._contents: dict[str, tuple[FileSeen, bytes | Broken]] = {}
        #: The last listing and contents, and the last consistent ledger.
        self._decoded: LedgerState | None = None
        self._state: LedgerState | None = None

    def read(self) -> LedgerState | None:
        """Return the present ledger; the last one while its sink purges faster than it can be listed.

        The sink purges a decision before its done file (`LedgerFolder.purge`). A listing with the decision
        but without its done file would show an open decision, so open decisions must also be in the next
        listing.
        """
        files = self._list()
        for _ in range(_MOST_LISTINGS):
            state = self._take(files)
            opened = {
                ledgers.decision_name(ledgers.Round(decision.batch_id, decision.round))
                for decision in state.open_decisions()
            }
            if not opened:
                break
            files = self._list()
            if opened <= files.keys():
                break
        else:
            return self._state
        self._state = state
        return state

    def _take(self, files: Mapping[str, FileSeen]) -> LedgerState:
        known = {
            name: kept
            for name, kept in self._contents.items()
            if files.get(name) == kept[0] and not is_denied(kept[1])
        }
        new = {name: entry for name, entry in files.items() if name not in known}
        if not new and len(known) == len(self._contents) and self._decoded is not None:
            return self._decoded
        read = self._store.read_files(self._folder, new)
        self._contents = known | {name: (new[name], raw) for name, raw in read.items()}
        self._decoded = self._decode()
        return self._decoded

    def _decode(self) -> LedgerState:
        raws = {name: raw for name, (_, raw) in self._contents.items()}
        state = ledgers.decode_folder(
            self._folder, {name: raw for name, raw in raws.items() if isinstance(raw, bytes)}
        )
        denied = (
            raw._replace(path=f"{ledgers.FOLDER}/{raw.path}")
            for raw in raws.values()
            if isinstance(raw, Broken)
        )
        return replace(state, broken=(*state.broken, *denied))

    def _list(self) -> Mapping[str, FileSeen]:
        return {name: entry.seen for name, entry in self._store.list_if_present(self._folder).items()}
