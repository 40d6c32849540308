"""Parse names of files in `state/<operator>/<partition>[/<store>]`: each file's part of a state store.

`<V>.delta` and `<V>.snapshot` belong to HDFSBackedStateStoreProvider, `<V>.changelog` and `<V>.zip` to
RocksDBStateStoreProvider; with `stateStore.checkpointFormatVersion` 2 an id follows: `<V>_<id>.zip`.
Version V is the state after batch V - 1. The files' contents, keys and values, are not read.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"([0-9]{1,18})(?:_([0-9A-Za-z-]+))?\.(delta|snapshot|changelog|zip)", re.ASCII)
_SNAPSHOTS = frozenset({"snapshot", "zip"})


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
    return StateFile(int(version), kind in _SNAPSHOTS, unique_id or "", size)
