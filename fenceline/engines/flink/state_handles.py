"""The location of a Flink operator's state: inside `_metadata`, or in a file beside it.

Keyed state and the state of channels are skipped. The layouts are those of Flink's
`MetadataV2V3SerializerBase` and `ChannelStateHandleSerializerV1` and `V2`, of Flink 1.20 to 2.1.
"""

from collections.abc import Callable
from typing import NamedTuple

from fenceline.engines.flink.data_input import DataInput, MalformedState

#: Codes of handles in `MetadataV2V3SerializerBase`.
_NULL, _BYTES, _FILE, _KEY_GROUPS, _OPERATOR_STATE, _INCREMENTAL, _RELATIVE = range(7)
_SAVEPOINT_KEY_GROUPS, _CHANGELOG, _CHANGELOG_BYTES, _CHANGELOG_FILE = range(7, 11)
_INCREMENTAL_V2, _KEY_GROUPS_V2, _CHANGELOG_FILE_V2, _CHANGELOG_V2 = range(11, 15)
_SEGMENT, _EMPTY_SEGMENT, _SEGMENT_OPERATOR_STATE = range(15, 18)
#: Codes of `ChannelStateHandleSerializerV2`: single channels, and merged ones.
_CHANNELS, _MERGED_CHANNELS = (1, 2), (3, 4)
#: A changelog handle contains others; none is written deeper than this.
_DEEPEST = 4


class FlinkStateFile(NamedTuple):
    """A part of a file with state."""

    #: In Flink's spelling: a URL or a path, or a name below the checkpoint's own folder.
    path: str
    relative: bool
    start: int
    size: int


class ListState(NamedTuple):
    """One list of an operator's state in one subtask: the location of its bytes, and its entries' starts."""

    name: str
    subtask: int
    offsets: tuple[int, ...]
    #: None for a list without any bytes.
    stored: bytes | FlinkStateFile | None
    #: The starts of all entries in the same bytes, sorted: each is the end of the entry before.
    begins: tuple[int, ...] = ()


def read_operator_state(source: DataInput, subtask: int, wanted: frozenset[str]) -> list[ListState]:
    """Read an operator state handle; return its wanted lists."""
    kind = source.read_byte()
    if kind == _NULL:
        return []
    if kind not in (_OPERATOR_STATE, _SEGMENT_OPERATOR_STATE):
        raise MalformedState("handle", f"code {kind} for an operator's state")
    offsets = {}
    for _ in range(source.read_count()):
        name = source.read_text()
        source.read_byte()
        offsets[name] = source.read_longs(source.read_int())
    if kind == _SEGMENT_OPERATOR_STATE:
        # Two folders of the file merging, and a flag for emptiness.
        source.read_text(), source.read_text(), source.read_byte()
    stored = read_stream(source)
    begins = tuple(sorted(offset for where in offsets.values() for offset in where))
    return [
        ListState(name, subtask, where, stored, begins) for name, where in offsets.items() if name in wanted
    ]


def read_stream(source: DataInput) -> bytes | FlinkStateFile | None:
    """Read a stream handle; return its bytes or their file."""
    kind = source.read_byte()
    if kind == _BYTES:
        source.read_text()
        return source.read_bytes()
    if kind == _FILE:
        size = source.read_long()
        return FlinkStateFile(source.read_text(), False, 0, size)
    if kind == _RELATIVE:
        return FlinkStateFile(source.read_text(), True, 0, source.read_long())
    if kind == _SEGMENT:
        start, size, _ = source.read_long(), source.read_long(), source.read_int()
        path, _ = source.read_text(), source.read_text()
        return FlinkStateFile(path, False, start, size)
    if kind == _KEY_GROUPS:
        _skip_key_groups(source)
        return None
    if kind in (_NULL, _EMPTY_SEGMENT):
        return None
    raise MalformedState("handle", f"code {kind} for a stream of state")


def skip_keyed_state(source: DataInput, depth: int = 0) -> None:
    kind = source.read_byte()
    if kind == _NULL:
        return
    skip = _KEYED.get(kind)
    if skip is None or depth > _DEEPEST:
        raise MalformedState("handle", f"code {kind} for keyed state")
    skip(source, kind, depth)


def skip_channel_state(source: DataInput, *, typed: bool) -> None:
    """Skip the handles of input channels, or of result partitions; `typed` from version 6 on."""
    for _ in range(source.read_count()):
        kind = source.read_byte() if typed else _CHANNELS[0]
        if kind in _CHANNELS:
            # Subtask, the channel's two numbers, offsets, and the size.
            source.take(12)
            source.read_longs(source.read_int())
            source.read_long()
            read_stream(source)
        elif kind in _MERGED_CHANNELS:
            source.take(12)
            read_stream(source)
            source.read_bytes()
        else:
            raise MalformedState("handle", f"code {kind} for a channel's state")


def _skip_key_groups(source: DataInput, kind: int = _KEY_GROUPS, depth: int = 0) -> None:
    source.read_int()
    source.read_longs(source.read_int())
    read_stream(source)
    if kind == _KEY_GROUPS_V2:
        source.read_text()


def _skip_incremental(source: DataInput, kind: int, depth: int) -> None:
    source.read_long()
    source.read_text()
    source.take(8 if kind == _INCREMENTAL else 16)
    read_stream(source)
    for _ in ("shared", "private"):
        for _ in range(source.read_count()):
            source.read_text()
            read_stream(source)
    if kind == _INCREMENTAL_V2:
        source.read_text()


def _skip_changelog(source: DataInput, kind: int, depth: int) -> None:
    source.take(16)
    for _ in ("materialized", "not yet"):
        for _ in range(source.read_count()):
            skip_keyed_state(source, depth + 1)
    source.take(8 if kind == _CHANGELOG else 16)
    source.read_text()


def _skip_changelog_bytes(source: DataInput, kind: int, depth: int) -> None:
    source.take(24)
    for _ in range(source.read_count()):
        source.read_int()
        source.read_bytes()
    source.read_text()


def _skip_changelog_file(source: DataInput, kind: int, depth: int) -> None:
    source.take(8)
    for _ in range(source.read_count()):
        source.read_long()
        read_stream(source)
    source.take(16)
    source.read_text()
    if kind == _CHANGELOG_FILE_V2:
        source.read_text()


_KEYED: dict[int, Callable[[DataInput, int, int], None]] = {
    _KEY_GROUPS: _skip_key_groups,
    _KEY_GROUPS_V2: _skip_key_groups,
    _SAVEPOINT_KEY_GROUPS: _skip_key_groups,
    _INCREMENTAL: _skip_incremental,
    _INCREMENTAL_V2: _skip_incremental,
    _CHANGELOG: _skip_changelog,
    _CHANGELOG_V2: _skip_changelog,
    _CHANGELOG_BYTES: _skip_changelog_bytes,
    _CHANGELOG_FILE: _skip_changelog_file,
    _CHANGELOG_FILE_V2: _skip_changelog_file,
}
