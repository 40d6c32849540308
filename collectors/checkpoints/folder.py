"""Polls one checkpoint: two listings a poll, and only files that are new or changed.

What is new is kept until it is saved (`mark_saved`): a save that fails loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from collectors.checkpoints.ledger_files import LedgerFiles
from collectors.checkpoints.log import MOST_FOREIGN, MOST_READ, Log, LogListing, batch_of, is_denied
from collectors.checkpoints.settling import Settling
from collectors.checkpoints.state_files import StateFiles
from collectors.checkpoints.store import CannotRead, CheckpointStore, FileEntry, Missing
from fenceline.decode import checkpoint as decode
from fenceline.decode import ledger as ledgers
from fenceline.paths import join_path
from fenceline.spark.records import (
    Broken,
    Checkpoint,
    CheckpointObservation,
    CommitsEntry,
    Damage,
    FileSeen,
    OffsetsEntry,
    Positions,
    StateOperator,
)


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

    def __init__(self, store: CheckpointStore, path: str) -> None:
        self.path = path
        self._store = store
        self._offsets: Log[OffsetsEntry] = Log(decode.OFFSETS, decode.decode_offsets)
        self._commits: Log[CommitsEntry] = Log(decode.COMMITS, decode.decode_commits)
        self._around = _Surroundings()
        self._read_before: dict[str, tuple[FileSeen, bytes | Broken]] = {}
        self._ledger = LedgerFiles(store, path)
        self._state = StateFiles(store, path)
        self._settling = Settling()

    def read_listing(self, listed: Mapping[str, FileEntry]) -> None:
        """Take in a listing of the folder itself, and read what lies beside the logs. Raises `CannotRead`."""
        seen = _Surroundings(
            has_ledger=ledgers.FOLDER in listed,
            foreign=decode.foreign_files(listed)[:MOST_FOREIGN],
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

    def poll(self, now_ms: int) -> CheckpointObservation:
        """Return what there is now, with what was not saved yet. Raises `CannotRead`.

        A changed restart verdict is reported when a second poll agrees (`collectors.checkpoints.settling`).
        """
        checkpoint = self._settling.settle_checkpoint(self._observe, self._observe_again)
        if checkpoint is None:
            raise CannotRead(self._too_fast())
        state = self._state.read(checkpoint, now_ms)
        finished = dict(sorted(self._commits.news.items()))
        times = {number: self._commits.written_ms(number) for number in finished}
        return CheckpointObservation(
            checkpoint=replace(checkpoint, state_broken=self._state.broken),
            ledger=self._ledger.read() if self._around.has_ledger else None,
            planned=tuple(each for _, each in sorted(self._offsets.news.items())),
            finished=tuple(finished.values()),
            committed_ms={number: at for number, at in times.items() if at is not None},
            state=state,
        )

    def mark_saved(self, observation: CheckpointObservation) -> None:
        """Forget what a saved poll returned as new."""
        for planned in observation.planned:
            self._offsets.news.pop(planned.batch_id, None)
        for finished in observation.finished:
            self._commits.news.pop(finished.batch_id, None)
        self._offsets.skipped = self._commits.skipped = 0
        self._state.mark_saved()

    def unread_reason(self) -> str:
        """Return why a part of the logs was not read since the last save; "" where all of it was."""
        if self._settling.is_stale:
            return self._too_fast()
        skipped = max(self._offsets.skipped, self._commits.skipped)
        if not skipped:
            return ""
        return (
            f"{self._store.display_path(self.path)} holds {skipped:,} older batches that were not read: "
            f"only the newest {MOST_READ} of a log are (Spark keeps 100: see "
            "spark.sql.streaming.minBatchesToRetain)"
        )

    def _too_fast(self) -> str:
        return (
            f"{self._store.display_path(self.path)} changes faster than its logs can be listed: no two "
            "listings agree, so what a restart would do is not known: let its query keep more batches "
            "(spark.sql.streaming.minBatchesToRetain)"
        )

    def _observe_again(self) -> Checkpoint:
        """Read everything anew: what lies beside the logs may be older than they are."""
        self.read_listing(self._store.list_folder(self.path))
        return self._observe()

    def _observe(self) -> Checkpoint:
        """List offsets before commits: then a batch that is done meanwhile is never taken for lost.

        Batch N + 1 is planned after batch N is done, so offsets that were listed first are at most one batch
        ahead. Commits may be ahead of them then; offsets are listed a second time to verify that.
        """
        planned, finished = self._log(decode.OFFSETS), self._log(decode.COMMITS)
        if not planned.files and not finished.files:
            # A checkpoint that was deleted meanwhile is not one without batches.
            self._store.list_folder(self.path)
        if finished.newest_batch > planned.newest_batch:
            again = self._log(decode.OFFSETS)
            if finished.newest_batch <= again.newest_batch:
                # What was planned after the commits were listed is left to the next poll.
                last = finished.newest_batch + 1
                until = {number: seen for number, seen in again.files.items() if number <= last}
                planned = again._replace(files=until)
        self._offsets.read_new(self._store, self.path, planned)
        self._commits.read_new(self._store, self.path, finished)
        return self._checkpoint()

    def _log(self, name: str) -> LogListing:
        try:
            entries = self._store.list_folder(join_path(self.path, name))
        except Missing:
            return LogListing({}, (), has_folder=False)
        batches = {each.name: batch_of(each) for each in entries.values()}
        files = {number: entries[name].seen for name, number in batches.items() if number is not None}
        return LogListing(files, [name for name, number in batches.items() if number is None])

    def _list(self, name: str) -> Mapping[str, FileEntry]:
        try:
            return self._store.list_folder(join_path(self.path, name))
        except Missing:
            return {}

    def _checkpoint(self) -> Checkpoint:
        planned, finished, around = self._offsets.batch_ids, self._commits.batch_ids, self._around
        newest = planned[-1] if planned else None
        before = planned[-2] if len(planned) > 1 else None
        done = finished[-1] if finished else None
        reported = {f"{decode.OFFSETS}/{newest}", f"{decode.OFFSETS}/{before}", f"{decode.COMMITS}/{done}"}
        broken = (*around.broken, *self._offsets.broken_files(), *self._commits.broken_files())
        return Checkpoint(
            path=self.path,
            query_id=around.query_id,
            identity=around.identity,
            offsets=planned,
            commits=finished,
            last_offsets=self._offsets.entry_of(newest),
            previous_offsets=self._offsets.entry_of(before),
            last_commit=self._commits.entry_of(done),
            offsets_ms=self._offsets.written_ms(newest),
            commits_ms=self._commits.written_ms(done),
            initial=around.initial,
            operators=around.operators,
            has_state=around.has_state,
            has_commits=self._commits.has_folder,
            broken=tuple(each for each in broken if each.path not in reported),
            foreign=(*around.foreign, *self._offsets.foreign, *self._commits.foreign)[:MOST_FOREIGN],
        )

    def _identity(self, entry: FileEntry | None) -> str | Broken:
        if entry is None or entry.is_folder:
            return Broken(decode.METADATA, Damage.MISSING, "there is no such file")
        raw = self._cached("", {decode.METADATA: entry}).get(decode.METADATA)
        if raw is None:
            return Broken(decode.METADATA, Damage.MISSING, "it was deleted while it was read")
        return raw if isinstance(raw, Broken) else decode.decode_metadata(raw)

    def _initial(self, listed: Mapping[str, FileEntry]) -> Mapping[str, Positions | Broken | None]:
        found: dict[str, Positions | Broken | None] = {}
        for source in _folders(self._below(listed, decode.SOURCES)):
            folder = f"{decode.SOURCES}/{source}"
            files = {name: each for name, each in self._list(folder).items() if name == "0"}
            for raw in self._cached(folder, files).values():
                found[source] = (
                    raw if isinstance(raw, Broken) else decode.decode_initial_offsets(f"{folder}/0", raw)
                )
        return found

    def _operators(self, listed: Mapping[str, FileEntry]) -> Mapping[int, StateOperator | Broken]:
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
            batches = {name: each for name, each in self._list(folder).items() if batch_of(each) is not None}
            files = {name: batches[name] for name in sorted(batches, key=int)[-1:]}
        for name, raw in self._cached(folder, files).items():
            return raw if isinstance(raw, Broken) else decode.decode_state_operator(f"{folder}/{name}", raw)
        return None

    def _below(self, listed: Mapping[str, FileEntry], name: str) -> Mapping[str, FileEntry]:
        entry = listed.get(name)
        return self._list(name) if entry is not None and entry.is_folder else {}

    def _cached(self, folder: str, files: Mapping[str, FileEntry]) -> Mapping[str, bytes | Broken]:
        """Read files that seldom change; those that have not changed are as they were read."""
        at = {name: join_path(folder, name) if folder else name for name in files}
        kept = {name: self._read_before.get(at[name]) for name in files}
        ready = {
            name: had[1]
            for name, had in kept.items()
            if had and had[0] == files[name].seen and not is_denied(had[1])
        }
        new = {name: each.seen for name, each in files.items() if name not in ready}
        for name, raw in self._store.read_files(
            join_path(self.path, folder) if folder else self.path, new
        ).items():
            ready[name] = raw._replace(path=at[name]) if isinstance(raw, Broken) else raw
            self._read_before[at[name]] = files[name].seen, ready[name]
        return ready


def is_checkpoint(store: CheckpointStore, path: str, listed: Mapping[str, FileEntry]) -> bool:
    """Whether a folder is a checkpoint: a log with a batch in it, or metadata with a query's id.

    Raises `CannotRead`.
    """
    for log in (decode.OFFSETS, decode.COMMITS):
        if log in listed and listed[log].is_folder:
            try:
                if _batches(store.list_folder(join_path(path, log))):
                    return True
            except Missing:
                continue
    entry = listed.get(decode.METADATA)
    if entry is None or entry.is_folder or entry.seen.size > 1_000:
        return False
    raw = store.read_files(path, {decode.METADATA: entry.seen}).get(decode.METADATA, b"")
    return isinstance(raw, bytes) and isinstance(decode.decode_metadata(raw), str)


def _batches(listed: Mapping[str, FileEntry]) -> set[int]:
    return {number for each in listed.values() if (number := batch_of(each)) is not None}


def _folders(listed: Mapping[str, FileEntry]) -> Iterable[str]:
    return sorted(name for name, each in listed.items() if each.is_folder)
