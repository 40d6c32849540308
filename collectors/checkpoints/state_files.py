"""List `state/` of one checkpoint: a few folders per poll, the whole of it in rounds.

A round begins at most every half minute: Spark's own maintenance of state runs once a minute. A listing that
misses a file is repeated at once, and must show the same.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from collectors.checkpoints.store import CannotRead, CheckpointStore, FileEntry
from fenceline.decode.checkpoint import STATE
from fenceline.spark.paths import join_path
from fenceline.spark.records import Checkpoint, CommitsEntry, StateOperator
from fenceline.spark.state_chains import (
    DEFAULT,
    OperatorState,
    StateChain,
    StateFile,
    chain_of,
    decode_state_file,
    store_id,
    used_chains,
)

ROUND_EVERY_S = 30.0
#: Partitions per poll, and maximum partitions of an operator.
_AT_ONCE, MOST_PARTITIONS = 20, 1_000
#: Folders of a partition that are not stores.
_NO_STORES = frozenset({"SSTs", "_metadata"})

Stores = Mapping[str, Sequence[StateFile]]


class _Place(NamedTuple):
    """A partition of an operator."""

    operator: StateOperator
    partition: int


class StateFiles:
    """The state of the checkpoint at `path`. Results of a round are returned until `mark_saved`."""

    def __init__(self, store: CheckpointStore, path: str) -> None:
        self._store, self._path = store, path
        self._due = time.monotonic()
        self._left: list[_Place] = []
        self._operators: Sequence[StateOperator] = ()
        self._chains: dict[int, list[StateChain]] = {}
        self._unread: dict[int, str] = {}
        self._news: tuple[OperatorState, ...] = ()
        #: The state that a restart cannot load, by the last round; "" if it is complete.
        self.broken = ""

    def read(self, checkpoint: Checkpoint, now_ms: int) -> tuple[OperatorState, ...]:
        """Continue a round; return the last round's results, () after they are saved."""
        if not self._left and checkpoint.operators and time.monotonic() >= self._due:
            self._begin(checkpoint.operators)
        if self._left:
            places, self._left = self._left[:_AT_ONCE], self._left[_AT_ONCE:]
            for place in places:
                self._read_partition(place, checkpoint)
            if not self._left:
                self._news = tuple(self._found(now_ms))
                self.broken = "; ".join(filter(None, (operator.broken_sentence for operator in self._news)))
        return self._news

    def mark_saved(self) -> None:
        """Forget the returned results after they are saved."""
        self._news = ()

    def _begin(self, operators: Sequence[StateOperator]) -> None:
        self._due = time.monotonic() + ROUND_EVERY_S
        self._operators, self._chains, self._unread = operators, {}, {}
        for operator in operators:
            number = max((partitions for _, partitions in operator.stores), default=0)
            self._chains[operator.operator_id] = []
            self._left += [_Place(operator, partition) for partition in range(min(number, MOST_PARTITIONS))]
            if number > MOST_PARTITIONS:
                reason = f"partitions {MOST_PARTITIONS:,} to {number - 1:,} are not listed"
                self._unread[operator.operator_id] = reason

    def _read_partition(self, place: _Place, checkpoint: Checkpoint) -> None:
        number = place.operator.operator_id
        try:
            chains = self._read_chains(place, checkpoint)
            if any(chain.missing_count for chain in chains):
                chains = self._read_chains(place, checkpoint)
        except CannotRead as error:
            self._unread.setdefault(number, str(error))
        else:
            self._chains[number] += chains

    def _read_chains(self, place: _Place, checkpoint: Checkpoint) -> list[StateChain]:
        finished = checkpoint.newest_finished
        needed = None if finished is None else finished + 1
        commit = checkpoint.last_commit
        ids = commit.state_ids if isinstance(commit, CommitsEntry) else {}
        names = [name for name, _ in place.operator.stores]
        return [
            chain_of(place.partition, name, files, needed, store_id(ids, *self._where(place, names, name)))
            for name, files in sorted(self._stores(place).items())
        ]

    def _where(self, place: _Place, names: Sequence[str], name: str) -> tuple[int, int, int]:
        position = names.index(name) if name in names else 0
        return place.operator.operator_id, place.partition, position

    def _stores(self, place: _Place) -> Stores:
        """Return the files of each store of a partition; without any, an empty default store."""
        folder = join_path(self._path, f"{STATE}/{place.operator.operator_id}/{place.partition}")
        listed = self._store.list_if_present(folder)
        below = [entry for entry in listed.values() if entry.is_folder and entry.name not in _NO_STORES]
        stores = {
            entry.name: _files(self._store.list_if_present(join_path(folder, entry.name))) for entry in below
        }
        own = _files(listed)
        return {DEFAULT: own, **stores} if own or not stores else stores

    def _found(self, now_ms: int) -> Iterator[OperatorState]:
        for operator in self._operators:
            number = operator.operator_id
            chains = used_chains(self._chains[number])
            yield OperatorState(number, operator.name, chains, now_ms, self._unread.get(number, ""))


def _files(listed: Mapping[str, FileEntry]) -> Sequence[StateFile]:
    files = (
        decode_state_file(entry.name, entry.seen.size) for entry in listed.values() if not entry.is_folder
    )
    return [file for file in files if file is not None]
