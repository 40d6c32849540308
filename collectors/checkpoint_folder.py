"""One checkpoint, looked at again and again: two listings a look, and only files that are new or changed.

What was read newly stays at hand until it is saved (`settle`): a save that fails loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from collectors.stores import Entry, Missing, Store
from fenceline.decode import checkpoint as decode
from fenceline.decode import ledger as ledgers
from fenceline.paths import join
from fenceline.spark import (
    Broken,
    Checkpoint,
    CheckpointLook,
    CommitsEntry,
    Damage,
    FileSeen,
    LedgerState,
    OffsetsEntry,
    Positions,
    StateOperator,
)

#: Of a longer log the newest so many are read: Spark itself keeps 100.
MOST_READ = 200
_MOST_FOREIGN = 8
#: Entries that wait to be saved while the database does not take them.
_MOST_WAITING = 2_000

E = TypeVar("E", OffsetsEntry, CommitsEntry)


class _Listing(NamedTuple):
    """The files of a log by batch, and the names of all others."""

    files: dict[int, FileSeen]
    foreign: list[str]

    @property
    def newest(self) -> int:
        """The newest batch; -1 without any."""
        return max(self.files, default=-1)


class _Log(Generic[E]):
    """`offsets/` or `commits/`: which files are there, and what the newest say."""

    def __init__(self, name: str, decoded: Callable[[int, bytes], E | Broken]) -> None:
        self.name = name
        self._decoded: Callable[[int, bytes], E | Broken] = decoded
        self.files: dict[int, FileSeen] = {}
        self.foreign: tuple[str, ...] = ()
        #: What was read, of the newest files.
        self._found: dict[int, E | Broken] = {}
        #: What was read and is not saved yet.
        self.news: dict[int, E] = {}
        #: How many files of the first look were passed over.
        self.skipped = 0

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(sorted(self.files))

    def take(self, store: Store, folder: str, listed: _Listing) -> None:
        """Take in a listing and read what is new in it."""
        files = listed.files
        self.foreign = tuple(join(self.name, name) for name in sorted(listed.foreign)[:_MOST_FOREIGN])
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

    def at(self, number: int | None) -> E | Broken | None:
        """Return what the file of a batch says; None where there is none, or it is an old one."""
        return None if number is None else self._found.get(number)

    def written_ms(self, number: int | None) -> int | None:
        """Return when the file of a batch was written, by the store's clock."""
        seen = None if number is None else self.files.get(number)
        return seen.modified_ms if seen is not None else None

    def broken(self) -> tuple[Broken, ...]:
        """Return the files that cannot be used, oldest first."""
        return tuple(each for _, each in sorted(self._found.items()) if isinstance(each, Broken))

    def _is_new(self, number: int, seen: FileSeen) -> bool:
        return self.files.get(number) != seen or _is_denied(self._found.get(number))

    def _read(self, store: Store, folder: str, files: Mapping[int, FileSeen]) -> dict[int, E | Broken]:
        raw = store.read(join(folder, self.name), {str(number): seen for number, seen in files.items()})
        return {int(name): self._of(int(name), each) for name, each in raw.items()}

    def _of(self, number: int, raw: bytes | Broken) -> E | Broken:
        if isinstance(raw, Broken):
            return raw._replace(path=f"{self.name}/{number}")
        return self._decoded(number, raw)


class _Surroundings(NamedTuple):
    """What lies beside the two logs, and changes seldom."""

    query_id: str | None = None
    identity: Broken | None = None
    initial: Mapping[str, Positions] = {}
    operators: tuple[StateOperator, ...] = ()
    has_state: bool = False
    has_ledger: bool = False
    broken: tuple[Broken, ...] = ()
    foreign: tuple[str, ...] = ()


class CheckpointFolder:
    """One checkpoint at `path`, in the spelling of its root."""

    def __init__(self, store: Store, path: str) -> None:
        self.path = path
        self._store = store
        self._offsets: _Log[OffsetsEntry] = _Log(decode.OFFSETS, decode.offsets)
        self._commits: _Log[CommitsEntry] = _Log(decode.COMMITS, decode.commits)
        self._around = _Surroundings()
        self._read_before: dict[str, tuple[FileSeen, bytes | Broken]] = {}
        self._ledger_files: dict[str, tuple[FileSeen, bytes | Broken]] = {}
        self._ledger: LedgerState | None = None

    def survey(self, listed: Mapping[str, Entry]) -> None:
        """Take in a listing of the folder itself, and read what lies beside the logs. Raises `CannotRead`."""
        seen = _Surroundings(
            has_ledger=ledgers.FOLDER in listed,
            foreign=decode.foreign(listed)[:_MOST_FOREIGN],
        )
        identity = self._identity(listed.get(decode.METADATA))
        initial, operators = self._initial(listed), self._operators(listed)
        named, numbered = initial.items(), operators.items()
        bad = [each for _, each in (*named, *numbered) if isinstance(each, Broken)]
        self._around = seen._replace(
            query_id=identity if isinstance(identity, str) else None,
            identity=identity if isinstance(identity, Broken) else None,
            initial={name: each for name, each in named if isinstance(each, Mapping)},
            operators=tuple(each for _, each in numbered if isinstance(each, StateOperator)),
            has_state=bool(self._below(listed, decode.STATE)),
            broken=tuple(bad),
        )

    def look(self) -> CheckpointLook:
        """Return what there is now, with what was not saved yet. Raises `CannotRead`."""
        self._look_at_logs()
        if self._around.has_ledger:
            self._look_at_ledger()
        finished = dict(sorted(self._commits.news.items()))
        times = {number: self._commits.written_ms(number) for number in finished}
        return CheckpointLook(
            checkpoint=self._checkpoint(),
            ledger=self._ledger,
            planned=tuple(each for _, each in sorted(self._offsets.news.items())),
            finished=tuple(finished.values()),
            committed_ms={number: at for number, at in times.items() if at is not None},
        )

    def settle(self, look: CheckpointLook) -> None:
        """Forget what a saved look has told newly."""
        for planned in look.planned:
            self._offsets.news.pop(planned.batch_id, None)
        for finished in look.finished:
            self._commits.news.pop(finished.batch_id, None)
        self._offsets.skipped = self._commits.skipped = 0

    def unread(self) -> str:
        """Return why a part of the logs was not read since the last save; "" where all of it was."""
        skipped = max(self._offsets.skipped, self._commits.skipped)
        if not skipped:
            return ""
        return (
            f"{self._store.told(self.path)} holds {skipped:,} older batches that were not read: only the "
            f"newest {MOST_READ} of a log are (Spark keeps 100: see spark.sql.streaming.minBatchesToRetain)"
        )

    def _look_at_logs(self) -> None:
        """List offsets before commits: then a batch that is done meanwhile is never taken for lost.

        Batch N + 1 is planned after batch N is done, so offsets that were listed first are at most one batch
        ahead. Commits may be ahead of them then; a second look at offsets tells whether that is so in truth.
        """
        planned, finished = self._log(decode.OFFSETS), self._log(decode.COMMITS)
        if not planned.files and not finished.files:
            # A checkpoint that was deleted meanwhile is not one without batches.
            self._store.entries(self.path)
        if finished.newest > planned.newest:
            again = self._log(decode.OFFSETS)
            if finished.newest <= again.newest:
                # What was planned after the commits were listed is for the next look.
                last = finished.newest + 1
                until = {number: seen for number, seen in again.files.items() if number <= last}
                planned = again._replace(files=until)
        self._offsets.take(self._store, self.path, planned)
        self._commits.take(self._store, self.path, finished)

    def _log(self, name: str) -> _Listing:
        found = _Listing({}, [])
        for entry in self._list(name).values():
            number = _batch(entry)
            if number is None:
                found.foreign.append(entry.name)
            else:
                found.files[number] = entry.seen
        return found

    def _list(self, name: str) -> Mapping[str, Entry]:
        try:
            return self._store.entries(join(self.path, name))
        except Missing:
            return {}

    def _checkpoint(self) -> Checkpoint:
        planned, finished, around = self._offsets.ids, self._commits.ids, self._around
        newest = planned[-1] if planned else None
        before = planned[-2] if len(planned) > 1 else None
        done = finished[-1] if finished else None
        told = {f"{decode.OFFSETS}/{newest}", f"{decode.OFFSETS}/{before}", f"{decode.COMMITS}/{done}"}
        broken = (*around.broken, *self._offsets.broken(), *self._commits.broken())
        return Checkpoint(
            path=self.path,
            query_id=around.query_id,
            identity=around.identity,
            offsets=planned,
            commits=finished,
            last_offsets=self._offsets.at(newest),
            previous_offsets=self._offsets.at(before),
            last_commit=self._commits.at(done),
            offsets_ms=self._offsets.written_ms(newest),
            commits_ms=self._commits.written_ms(done),
            initial=around.initial,
            operators=around.operators,
            has_state=around.has_state,
            broken=tuple(each for each in broken if each.path not in told),
            foreign=(*around.foreign, *self._offsets.foreign, *self._commits.foreign)[:_MOST_FOREIGN],
        )

    def _identity(self, entry: Entry | None) -> str | Broken:
        if entry is None or entry.is_folder:
            return Broken(decode.METADATA, Damage.MISSING, "there is no such file")
        raw = self._cached("", {decode.METADATA: entry}).get(decode.METADATA)
        if raw is None:
            return Broken(decode.METADATA, Damage.MISSING, "it was deleted while it was read")
        return raw if isinstance(raw, Broken) else decode.metadata(raw)

    def _initial(self, listed: Mapping[str, Entry]) -> Mapping[str, Positions | Broken | None]:
        found: dict[str, Positions | Broken | None] = {}
        for source in _folders(self._below(listed, decode.SOURCES)):
            folder = f"{decode.SOURCES}/{source}"
            files = {name: each for name, each in self._list(folder).items() if name == "0"}
            for raw in self._cached(folder, files).values():
                found[source] = raw if isinstance(raw, Broken) else decode.initial(f"{folder}/0", raw)
        return found

    def _operators(self, listed: Mapping[str, Entry]) -> Mapping[int, StateOperator | Broken]:
        found: dict[int, StateOperator | Broken] = {}
        for name in _folders(self._below(listed, decode.STATE)):
            number = decode.batch_of(name)
            if number is not None and (read := self._operator(number)) is not None:
                found[number] = read
        return dict(sorted(found.items()))

    def _operator(self, number: int) -> StateOperator | Broken | None:
        """Read an operator's metadata: one file, or in version 2 one of each batch that changed it."""
        folder = f"{decode.STATE}/{number}/_metadata"
        files = {name: each for name, each in self._list(folder).items() if name == "metadata"}
        if not files:
            folder += "/v2"
            batches = {name: each for name, each in self._list(folder).items() if _batch(each) is not None}
            files = {name: batches[name] for name in sorted(batches, key=int)[-1:]}
        for name, raw in self._cached(folder, files).items():
            return raw if isinstance(raw, Broken) else decode.operator(f"{folder}/{name}", raw)
        return None

    def _below(self, listed: Mapping[str, Entry], name: str) -> Mapping[str, Entry]:
        entry = listed.get(name)
        return self._list(name) if entry is not None and entry.is_folder else {}

    def _look_at_ledger(self) -> None:
        listed = self._list(ledgers.FOLDER)
        files = {name: each.seen for name, each in listed.items() if not decode.is_passing(name)}
        known = {
            name: kept
            for name, kept in self._ledger_files.items()
            if files.get(name) == kept[0] and not _is_denied(kept[1])
        }
        new = {name: seen for name, seen in files.items() if name not in known}
        if not new and len(known) == len(self._ledger_files) and self._ledger is not None:
            return
        read = self._store.read(join(self.path, ledgers.FOLDER), new)
        self._ledger_files = known | {name: (new[name], raw) for name, raw in read.items()}
        raws = {name: raw for name, (_, raw) in self._ledger_files.items()}
        whole = {name: raw for name, raw in raws.items() if isinstance(raw, bytes)}
        state = ledgers.decode_folder(join(self.path, ledgers.FOLDER), whole)
        denied = (
            each._replace(path=f"{ledgers.FOLDER}/{each.path}")
            for each in raws.values()
            if isinstance(each, Broken)
        )
        self._ledger = replace(state, broken=(*state.broken, *denied))

    def _cached(self, folder: str, files: Mapping[str, Entry]) -> Mapping[str, bytes | Broken]:
        """Read files that seldom change; those that have not changed are as they were read."""
        at = {name: join(folder, name) if folder else name for name in files}
        kept = {name: self._read_before.get(at[name]) for name in files}
        ready = {
            name: had[1]
            for name, had in kept.items()
            if had and had[0] == files[name].seen and not _is_denied(had[1])
        }
        new = {name: each.seen for name, each in files.items() if name not in ready}
        for name, raw in self._store.read(join(self.path, folder) if folder else self.path, new).items():
            ready[name] = raw._replace(path=at[name]) if isinstance(raw, Broken) else raw
            self._read_before[at[name]] = files[name].seen, ready[name]
        return ready


def looks_like_one(store: Store, path: str, listed: Mapping[str, Entry]) -> bool:
    """Whether a folder is a checkpoint: a log with a batch in it, or metadata with a query's id.

    Raises `CannotRead`.
    """
    for log in (decode.OFFSETS, decode.COMMITS):
        if log in listed and listed[log].is_folder:
            try:
                if _batches(store.entries(join(path, log))):
                    return True
            except Missing:
                continue
    entry = listed.get(decode.METADATA)
    if entry is None or entry.is_folder or entry.seen.size > 1_000:
        return False
    raw = store.read(path, {decode.METADATA: entry.seen}).get(decode.METADATA, b"")
    return isinstance(raw, bytes) and isinstance(decode.metadata(raw), str)


def _is_denied(found: object) -> bool:
    """Whether a file is to be tried again although it has not changed: who may read it is no part of it."""
    return isinstance(found, Broken) and found.damage is Damage.DENIED


def _batch(entry: Entry) -> int | None:
    return None if entry.is_folder else decode.batch_of(entry.name)


def _batches(listed: Mapping[str, Entry]) -> set[int]:
    return {number for each in listed.values() if (number := _batch(each)) is not None}


def _folders(listed: Mapping[str, Entry]) -> Iterable[str]:
    return sorted(name for name, each in listed.items() if each.is_folder)
