"""State stores by their files: the existing versions, and whether a restart can load the one that it needs.

To load version V Spark takes the newest snapshot up to V, or the empty state of version 0, and applies every
later delta (RocksDB: changelog) up to V, one per version: `HDFSBackedStateStoreProvider.loadMap`,
`RocksDB.load`. A restart after batch C loads version C + 1. If one file is missing, its first batch fails.
Pure.

Names of files in `state/<operator>/<partition>[/<store>]` tell their versions: `<V>.delta` and `<V>.snapshot`
belong to HDFSBackedStateStoreProvider, `<V>.changelog` and `<V>.zip` to RocksDBStateStoreProvider; with
`stateStore.checkpointFormatVersion` 2 an id follows: `<V>_<id>.zip`. Version V is the state after batch
V - 1. The files' contents, keys and values, are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fenceline.compat import SLOTS

_NAME = re.compile(r"([0-9]{1,18})(?:_([0-9A-Za-z-]+))?\.(delta|snapshot|changelog|zip)", re.ASCII)
#: Maximum named missing versions of a chain.
MOST_MISSING = 5
#: The single store of an operator; its files are in the partition's folder itself.
DEFAULT = "default"


class StateFile(NamedTuple):
    """One version of a store: all of it in a snapshot, else the changes of its batch."""

    version: int
    is_snapshot: bool
    #: "" if files have no ids (format 1).
    unique_id: str
    size: int


def decode_state_file(name: str, size: int) -> StateFile | None:
    """Parse a file's name; None for every other file: checksums, SST files, the schema."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    version, unique_id, kind = match.groups()
    return StateFile(int(version), kind in ("snapshot", "zip"), unique_id or "", size)


class StateChain(NamedTuple):
    """One store of one partition: its files, and the chain to the version that a restart loads."""

    partition: int
    store: str
    #: The existing versions; None without any file.
    oldest: int | None
    newest: int | None
    snapshots: int
    deltas: int
    #: The size of its files in bytes, without SST files of RocksDB, which its snapshots share.
    size: int
    #: The version that a restart loads; None without a committed batch: it loads none.
    needed: int | None
    #: The snapshot at its begin, 0 for the empty state.
    base: int | None
    #: The first versions without a file between the two, and the number of all.
    missing: tuple[int, ...] = ()
    missing_count: int = 0

    @property
    def replayed(self) -> int | None:
        """Return the number of deltas that a restart applies; None if it loads no version."""
        return None if self.needed is None or self.base is None else self.needed - self.base


@dataclass(frozen=True, **SLOTS)
class OperatorState:
    """The contents of `state/<operator>` of a checkpoint."""

    operator_id: int
    name: str
    chains: tuple[StateChain, ...]
    #: The listing of its last part, by our clock.
    read_ms: int
    #: Why a part of it is unknown; "" if all of it is known.
    unread: str = ""

    @property
    def broken(self) -> Sequence[StateChain]:
        """Return the chains that a restart cannot load."""
        return [chain for chain in self.chains if chain.missing_count]

    @property
    def broken_sentence(self) -> str:
        """Return the missing parts for a restart, "" if it is complete."""
        if not self.broken:
            return ""
        rest = len(self.broken) - 1
        more = f"; {rest:,} more of its partitions are broken" if rest else ""
        return f"operator {self.operator_id} ({self.name}), {broken_sentence(self.broken[0])}{more}"


def pack_chains(chains: Iterable[StateChain]) -> str:
    """Pack chains as compact JSON text: [[partition, store, oldest, newest, …], …]."""
    return json.dumps(list(chains), separators=(",", ":"))


def unpack_chains(packed: str) -> tuple[StateChain, ...]:
    chains = [StateChain(*row) for row in json.loads(packed)]
    return tuple(chain._replace(missing=tuple(chain.missing)) for chain in chains)


def broken_sentence(chain: StateChain) -> str:
    """Return the missing part of a chain that a restart cannot load, in a sentence."""
    named = ", ".join(f"{version:,}" for version in chain.missing)
    more = chain.missing_count - len(chain.missing)
    missing = f"versions {named}" if chain.missing_count > 1 else f"version {named}"
    rest = f" and {more:,} more are" if more else " are" if chain.missing_count > 1 else " is"
    store = "" if chain.store == DEFAULT else f" of store {chain.store}"
    return f"partition {chain.partition}{store}: {missing}{rest} missing to load version {chain.needed:,}"


def chain_of(
    partition: int, store: str, files: Iterable[StateFile], needed: int | None, unique_id: str = ""
) -> StateChain:
    """Return a store's chain; `unique_id` is that of its newest committed version, "" for files without ids.

    The ids of earlier versions are unknown (each file names the one before it): any of their files counts.
    """
    all_files = list(files)
    versions = [file.version for file in all_files]
    fitting = [file for file in all_files if file.version != needed or unique_id in ("", file.unique_id)]
    snapshots = {file.version for file in fitting if file.is_snapshot}
    deltas = {file.version for file in fitting if not file.is_snapshot}
    base = None if needed is None else max((version for version in snapshots if version <= needed), default=0)
    missing = [] if needed is None or base is None else _missing(deltas, base, needed)
    return StateChain(
        partition,
        store,
        min(versions, default=None),
        max(versions, default=None),
        sum(file.is_snapshot for file in all_files),
        sum(not file.is_snapshot for file in all_files),
        sum(file.size for file in all_files),
        needed,
        base,
        tuple(missing[:MOST_MISSING]),
        len(missing),
    )


def used_chains(chains: Sequence[StateChain]) -> tuple[StateChain, ...]:
    """Return the chains without unused partitions of an operator.

    A global one (`globalLimit`) runs only in partition 0, regardless of the number in its metadata: if no
    other partition has a file, no other is needed.
    """
    is_global = all(chain.newest is None for chain in chains if chain.partition)
    return tuple(chain for chain in chains if not (is_global and chain.partition))


def _missing(deltas: set[int], base: int, needed: int) -> Sequence[int]:
    """Return the versions after `base` up to `needed` without a delta.

    If there is none, and no snapshot either, the whole chain back to the empty state would be listed: then
    only the newest version counts.
    """
    if not base and not deltas:
        return [needed]
    return [version for version in range(base + 1, needed + 1) if version not in deltas]


def store_id(state_ids: Mapping[str, Any], operator_id: int, partition: int, store: int) -> str:
    """Return the id of a store's newest committed files from `commits/N`; "" if it lists none.

    `state_ids` is `stateUniqueIds`: by operator, then by partition, one id per store.
    """
    try:
        unique_id = state_ids[str(operator_id)][partition][store]
    except (KeyError, IndexError, TypeError):
        return ""
    return unique_id if isinstance(unique_id, str) else ""
