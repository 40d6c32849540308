"""Poll one checkpoint: list it twice, and read only new or changed files.

New parts are kept until `mark_saved`: a failed save loses nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from collectors.checkpoints.log import (
    MOST_FOREIGN,
    MOST_READ,
    LedgerFiles,
    Log,
    LogListing,
    batch_of,
    is_denied,
)
from collectors.checkpoints.settling import Settling
from collectors.checkpoints.state_files import StateFiles
from collectors.checkpoints.store import LARGEST, CannotRead, CheckpointStore, FileEntry, Missing
from fenceline.decode import checkpoint as decode
from fenceline.decode import ledger as ledgers
from fenceline.decode.checkpoint import COMMITS, OFFSETS
from fenceline.spark.paths import join_path
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

#: Restarts of one poll, and polls for which a recreated query may lack its identity.
_MOST_BEGINNINGS, _MOST_UNNAMED = 3, 3


class _Replaced(Exception):
    """The logs belong to another query than the identity read before them."""


class _Surroundings(NamedTuple):
    """The files beside the two logs, which rarely change."""

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
        self._around = _Surroundings()
        #: The query whose batches the logs hold, None before the logs are read; and the query before it.
        self._logs_id: str | None = None
        self._former_id: str | None = None
        self._unnamed = 0
        self._begin()

    def _begin(self) -> None:
        """Read everything again except the identity: another query may have begun here."""
        self._former_id, self._logs_id = self._logs_id or self._former_id, None
        self._offsets: Log[OffsetsEntry] = Log(OFFSETS, decode.decode_offsets)
        self._commits: Log[CommitsEntry] = Log(COMMITS, decode.decode_commits)
        self._read_before: dict[str, tuple[FileSeen, bytes | Broken]] = {}
        self._ledger = LedgerFiles(self._store, self.path)
        self._state = StateFiles(self._store, self.path)
        self._settling = Settling()

    def read_listing(self, listed: Mapping[str, FileEntry]) -> None:
        """Read the files beside the logs, from a listing of the folder. Raises `CannotRead`."""
        identity = self._identity(listed.get(decode.METADATA))
        initial, operators = self._initial(listed), self._operators(listed)
        named, numbered = initial.items(), operators.items()
        bad = [content for _, content in (*named, *numbered) if isinstance(content, Broken)]
        self._around = _Surroundings(
            query_id=identity if isinstance(identity, str) else None,
            identity=identity if isinstance(identity, Broken) else None,
            initial={name: content for name, content in named if isinstance(content, Mapping)},
            operators=tuple(operator for _, operator in numbered if isinstance(operator, StateOperator)),
            has_state=bool(self._below(listed, decode.STATE)),
            has_ledger=ledgers.FOLDER in listed,
            broken=tuple(bad),
            foreign=decode.foreign_files(listed)[:MOST_FOREIGN],
        )

    def poll(self, now_ms: int) -> CheckpointObservation:
        """Return the present checkpoint with its unsaved parts. Raises `CannotRead`.

        A changed restart verdict is reported once a second poll agrees (`collectors.checkpoints.settling`).
        """
        checkpoint = self._settled()
        if checkpoint is None:
            raise CannotRead(self._too_fast())
        state = self._state.read(checkpoint, now_ms)
        finished = dict(sorted(self._commits.news.items()))
        times = {number: self._committed_ms(number) for number in finished}
        return CheckpointObservation(
            checkpoint=replace(checkpoint, state_broken=self._state.broken),
            ledger=self._ledger.read() if self._around.has_ledger else None,
            planned=tuple(batch for _, batch in sorted(self._offsets.news.items())),
            finished=tuple(finished.values()),
            committed_ms={number: at for number, at in times.items() if at is not None},
            state=state,
        )

    def mark_saved(self, observation: CheckpointObservation) -> None:
        """Forget the new parts of a poll after they are saved."""
        for planned in observation.planned:
            self._offsets.news.pop(planned.batch_id, None)
        for finished in observation.finished:
            self._commits.news.pop(finished.batch_id, None)
        self._offsets.skipped = self._commits.skipped = 0
        self._state.mark_saved()

    def unread_reason(self) -> str:
        """Return why a part of the logs has not been read since the last save; "" if all of it was."""
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

    def _committed_ms(self, number: int) -> int | None:
        """Return the instant of a batch's commit; a copied file may be newer than the next batch's plan."""
        written_ms, after = self._commits.written_ms(number), self._offsets.entry_of(number + 1)
        if written_ms is None or not isinstance(after, OffsetsEntry) or after.planned_ms is None:
            return written_ms
        return min(written_ms, after.planned_ms)

    def _too_fast(self) -> str:
        return (
            f"{self._store.display_path(self.path)} changes faster than its logs can be listed: no two "
            "listings agree, so what a restart would do is not known: let its query keep more batches "
            "(spark.sql.streaming.minBatchesToRetain)"
        )

    def _settled(self) -> Checkpoint | None:
        for _ in range(_MOST_BEGINNINGS):
            try:
                return self._settling.settle_checkpoint(self._observe, self._observe_again)
            except _Replaced:
                self._begin()
        raise CannotRead(self._too_fast())

    def _observe_again(self) -> Checkpoint:
        """Read everything again: the files beside the logs may be older than the logs."""
        self.read_listing(self._store.list_folder(self.path))
        return self._observe()

    def _observe(self) -> Checkpoint:
        """List offsets before commits, so that a batch that ends meanwhile never looks lost.

        Batch N + 1 is planned after batch N is done, so offsets that were listed first are at most one batch
        ahead. Commits may then be ahead of offsets; a second listing of the offsets verifies that.
        """
        planned, finished = self._log(OFFSETS), self._log(COMMITS)
        if not planned.files and not finished.files:
            # A checkpoint deleted meanwhile must not look like one without batches.
            self._store.list_folder(self.path)
        if finished.newest_batch > planned.newest_batch:
            offsets_again = self._log(OFFSETS)
            if finished.newest_batch <= offsets_again.newest_batch:
                # The next poll reads batches planned after the listing of commits.
                last = finished.newest_batch + 1
                until = {number: entry for number, entry in offsets_again.files.items() if number <= last}
                planned = offsets_again._replace(files=until)
        self._offsets.read_new(self._store, self.path, planned)
        self._commits.read_new(self._store, self.path, finished)
        if self._offsets.has_begun_anew or self._commits.has_begun_anew:
            self._verify_identity()
        return self._checkpoint()

    def _verify_identity(self) -> None:
        """Read the identity after logs without older entries. Raises `_Replaced` or `CannotRead`.

        So batches are never attributed to a query that was just deleted here.
        """
        before = self._around.query_id
        self._read_before.pop(decode.METADATA, None)
        self.read_listing(self._store.list_folder(self.path))
        now = self._around.query_id
        if now is None and self._former_id is not None and self._unnamed < _MOST_UNNAMED:
            self._unnamed += 1
            self._begin()
            raise CannotRead(f"{self._store.display_path(self.path)} was made anew and has no metadata yet")
        if now != before or self._logs_id not in (None, now):
            raise _Replaced
        self._logs_id, self._unnamed = now, 0

    def _log(self, name: str) -> LogListing:
        try:
            entries = self._store.list_folder(join_path(self.path, name))
        except Missing:
            return LogListing({}, (), has_folder=False)
        batches = {entry.name: batch_of(entry) for entry in entries.values()}
        files = {number: entries[name].seen for name, number in batches.items() if number is not None}
        return LogListing(files, [name for name, number in batches.items() if number is None])

    def _list(self, name: str) -> Mapping[str, FileEntry]:
        return self._store.list_if_present(join_path(self.path, name))

    def _checkpoint(self) -> Checkpoint:
        planned, finished, around = self._offsets.batch_ids, self._commits.batch_ids, self._around
        newest = planned[-1] if planned else None
        before = planned[-2] if len(planned) > 1 else None
        done = finished[-1] if finished else None
        reported = {f"{OFFSETS}/{newest}", f"{OFFSETS}/{before}", f"{COMMITS}/{done}"}
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
            broken=tuple(file for file in broken if file.path not in reported),
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
        positions: dict[str, Positions | Broken | None] = {}
        for source in _folders(self._below(listed, decode.SOURCES)):
            folder = f"{decode.SOURCES}/{source}"
            # A larger file is the log of a file source: Kafka's files hold only some offsets.
            files = {
                name: entry
                for name, entry in self._list(folder).items()
                if name == "0" and entry.seen.size <= LARGEST
            }
            for raw in self._cached(folder, files).values():
                positions[source] = (
                    raw if isinstance(raw, Broken) else decode.decode_initial_offsets(f"{folder}/0", raw)
                )
        return positions

    def _operators(self, listed: Mapping[str, FileEntry]) -> Mapping[int, StateOperator | Broken]:
        operators: dict[int, StateOperator | Broken] = {}
        for name in _folders(self._below(listed, decode.STATE)):
            number = decode.batch_of(name)
            if number is not None and (read := self._operator(number)) is not None:
                operators[number] = read
        return dict(sorted(operators.items()))

    def _operator(self, number: int) -> StateOperator | Broken | None:
        """Read an operator's metadata: one file, or in version 2 one per batch that changed it."""
        folder = f"{decode.STATE}/{number}/_metadata"
        files = {name: entry for name, entry in self._list(folder).items() if name == "metadata"}
        if not files:
            folder += "/v2"
            batches = {
                name: entry for name, entry in self._list(folder).items() if batch_of(entry) is not None
            }
            files = {name: batches[name] for name in sorted(batches, key=int)[-1:]}
        for name, raw in self._cached(folder, files).items():
            return raw if isinstance(raw, Broken) else decode.decode_state_operator(f"{folder}/{name}", raw)
        return None

    def _below(self, listed: Mapping[str, FileEntry], name: str) -> Mapping[str, FileEntry]:
        entry = listed.get(name)
        return self._list(name) if entry is not None and entry.is_folder else {}

    def _cached(self, folder: str, files: Mapping[str, FileEntry]) -> Mapping[str, bytes | Broken]:
        """Read files that rarely change; skip unchanged ones."""
        at = {name: join_path(folder, name) if folder else name for name in files}
        kept = {name: self._read_before.get(at[name]) for name in files}
        ready = {
            name: had[1]
            for name, had in kept.items()
            if had and had[0] == files[name].seen and not is_denied(had[1])
        }
        new = {name: entry.seen for name, entry in files.items() if name not in ready}
        for name, raw in self._store.read_files(
            join_path(self.path, folder) if folder else self.path, new
        ).items():
            ready[name] = raw._replace(path=at[name]) if isinstance(raw, Broken) else raw
            self._read_before[at[name]] = files[name].seen, ready[name]
        return ready


def is_checkpoint(store: CheckpointStore, path: str, listed: Mapping[str, FileEntry]) -> bool:
    """Whether a folder is a checkpoint: it has a log with a batch, or metadata with a query's id.

    Raises `CannotRead`.
    """
    for log in (OFFSETS, COMMITS):
        if log in listed and listed[log].is_folder:
            entries = store.list_if_present(join_path(path, log)).values()
            if any(batch_of(entry) is not None for entry in entries):
                return True
    entry = listed.get(decode.METADATA)
    if entry is None or entry.is_folder or entry.seen.size > 1_000:
        return False
    raw = store.read_files(path, {decode.METADATA: entry.seen}).get(decode.METADATA, b"")
    return isinstance(raw, bytes) and isinstance(decode.decode_metadata(raw), str)


def _folders(listed: Mapping[str, FileEntry]) -> Iterable[str]:
    return sorted(name for name, entry in listed.items() if entry.is_folder)
