"""Decode the files of a Spark checkpoint to facts of `fenceline.spark.records`, or to Broken with the damage.

`decode_metadata` reads one line of JSON with the query's id. `offsets/N` and `commits/N` begin with a line
`vN`, followed by a line of JSON and, in offsets, a line per source (Spark's OffsetSeqLog and CommitLog).
Unknown keys are ignored, because Spark adds keys with every version. An unknown version is NEWER. A truncated
file, or text of another format, is TORN. Nothing here raises, whatever the bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fenceline.decode.ledger import FOLDER as LEDGER
from fenceline.facts import TopicPartition
from fenceline.spark.records import (
    Broken,
    CommitsEntry,
    Damage,
    OffsetsEntry,
    Positions,
    SourceOffset,
    StateOperator,
)

METADATA, OFFSETS, COMMITS, SOURCES, STATE = "metadata", "offsets", "commits", "sources", "state"
#: The names that Spark and our sink write into a checkpoint.
OURS = frozenset({METADATA, OFFSETS, COMMITS, SOURCES, STATE, LEDGER})
#: The newest known version of each log: Spark 4.2's (its commit log has version 3, for sinks by name).
NEWEST_OFFSETS, NEWEST_COMMITS, NEWEST_OPERATOR = 2, 3, 2

_VERSION = re.compile(r"v([1-9][0-9]{0,8})")
_BATCH = re.compile(r"0|[1-9][0-9]{0,18}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: Kafka's valid topic names.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LONGEST, _MOST_PARTITIONS = 2**63 - 1, 2**31 - 1


class _Bad(Exception):
    """Ends the reading of one file; caught in this module."""

    def __init__(self, damage: Damage, detail: str) -> None:
        super().__init__(detail)
        self.damage, self.detail = damage, detail


def batch_of(name: str) -> int | None:
    """Return the batch id in the name of a log file; None for other names, like Spark."""
    return int(name) if _BATCH.fullmatch(name) and int(name) <= _LONGEST else None


def is_passing(name: str) -> bool:
    """Whether a name is a temporary file, checksum or marker of Spark or Hadoop."""
    return name.startswith(".") or name.endswith((".crc", ".tmp", "_$folder$")) or name == "__tmp_path_dir"


def foreign_files(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in a checkpoint's folder that neither Spark nor our sink writes, sorted."""
    return tuple(sorted(name for name in names if name not in OURS and not is_passing(name)))


def decode_metadata(raw: bytes) -> str | Broken:
    """Decode `metadata` to the query's id, a UUID."""
    try:
        document = _json(_text(raw).strip(), "it")
        query_id = document.get("id") if isinstance(document, dict) else None
        if not isinstance(query_id, str) or not _UUID.fullmatch(query_id):
            raise _Bad(Damage.TORN, "it names no query id")
        return query_id
    except _Bad as bad:
        return Broken(METADATA, bad.damage, bad.detail)


def decode_offsets(batch_id: int, raw: bytes) -> OffsetsEntry | Broken:
    """Decode `offsets/N`, the plan of a batch. Continuous processing leaves its second line empty."""
    try:
        version, lines = _lines(raw, NEWEST_OFFSETS)
        if not lines:
            raise _Bad(Damage.TORN, "it ends after its first line")
        planned = _mapping(lines[0], "its second line") if lines[0].strip() else {}
        control = planned.get("controlBatchInfo")
        return OffsetsEntry(
            batch_id=batch_id,
            version=version,
            sources=_sources(version, lines[1:]),
            watermark_ms=_number(planned.get("batchWatermarkMs")),
            planned_ms=_number(planned.get("batchTimestampMs")),
            conf=_conf(planned.get("conf")),
            control=_control(control) if control else "",
            source_info=_mappings(planned.get("sourceMetadataInfo")),
        )
    except _Bad as bad:
        return Broken(f"{OFFSETS}/{batch_id}", bad.damage, bad.detail)


def decode_commits(batch_id: int, raw: bytes) -> CommitsEntry | Broken:
    """Decode `commits/N`, which Spark writes after a batch. Spark accepts a file without a second line."""
    try:
        version, lines = _lines(raw, NEWEST_COMMITS)
        done = _mapping(lines[0], "its second line") if lines and lines[0].strip() else {}
        ids = done.get("stateUniqueIds")
        return CommitsEntry(
            batch_id=batch_id,
            version=version,
            next_watermark_ms=_number(done.get("nextBatchWatermarkMs")),
            state_ids=_clean(ids) if isinstance(ids, dict) else {},
        )
    except _Bad as bad:
        return Broken(f"{COMMITS}/{batch_id}", bad.damage, bad.detail)


def decode_initial_offsets(path: str, raw: bytes) -> Positions | Broken | None:
    """Decode a Kafka source's initial offsets from `sources/<i>/0`; None for the file of another source.

    Kafka's file begins with a zero byte, for compatibility with Spark 2.1 (SPARK-19517); then `v1` and the
    offsets.
    """
    if not raw.startswith(b"\0"):
        return None if raw else Broken(path, Damage.EMPTY, "it is empty")
    try:
        _, lines = _lines(raw[1:], 1)
        positions = parse_positions(lines[0]) if lines else None
        if positions is None:
            raise _Bad(Damage.TORN, "it holds no offsets of Kafka")
        return positions
    except _Bad as bad:
        return Broken(path, bad.damage, bad.detail)


def decode_state_operator(path: str, raw: bytes) -> StateOperator | Broken:
    """Decode a stateful operator from `state/<op>/_metadata/metadata`, or `…/_metadata/v2/<batch>`."""
    try:
        _, lines = _lines(raw, NEWEST_OPERATOR)
        document = _mapping("\n".join(lines), "what follows its first line")
        info, stores = document.get("operatorInfo"), document.get("stateStoreInfo")
        number = _number(info.get("operatorId")) if isinstance(info, dict) else None
        if not isinstance(info, dict) or number is None or not isinstance(stores, list):
            raise _Bad(Damage.TORN, "it names no operator")
        return StateOperator(number, _clean(str(info.get("operatorName", ""))), _stores(stores))
    except _Bad as bad:
        return Broken(path, bad.damage, bad.detail)


def parse_positions(raw: str | None) -> Positions | None:
    """Parse Kafka's offsets from a source's JSON: topic -> partition -> the next offset to read.

    None for other kinds of sources. A negative offset means the earliest (-2) or the latest (-1).
    """
    try:
        document = _json(raw, "it") if raw and raw.startswith("{") else None
    except _Bad:
        return None
    if not isinstance(document, dict) or not all(
        isinstance(offsets, dict) and offsets for offsets in document.values()
    ):
        return None
    rows = [(topic, name, offset) for topic, offsets in document.items() for name, offset in offsets.items()]
    if not rows or not all(_is_kafkas(*row) for row in rows):
        return None
    return {TopicPartition(topic, int(name)): offset for topic, name, offset in rows}


def _lines(raw: bytes, newest: int) -> tuple[int, list[str]]:
    """Return a log file's version and its remaining lines."""
    first, *rest = _text(raw).split("\n")
    if rest and not rest[-1]:
        del rest[-1]
    version = _VERSION.fullmatch(first.strip())
    if version is None:
        raise _Bad(Damage.TORN, f"it begins with {first[:20]!r} and not with a version such as v1")
    if int(version[1]) > newest:
        raise _Bad(Damage.NEWER, f"it is of version v{version[1]}: known are v1 to v{newest}")
    return int(version[1]), [line.removesuffix("\r") for line in rest]


def _text(raw: bytes) -> str:
    if not raw:
        raise _Bad(Damage.EMPTY, "it is empty")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise _Bad(Damage.TORN, f"it is no UTF-8 text at byte {error.start}") from None
    if "\0" in text:
        raise _Bad(Damage.TORN, f"it has a zero byte at character {text.index(chr(0))}")
    return text


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _Bad(Damage.TORN, f"{what} is no whole JSON: it ends with {text[-20:]!r}") from None


def _mapping(text: str, what: str) -> dict[str, Any]:
    document = _json(text, what)
    if not isinstance(document, dict):
        raise _Bad(Damage.TORN, f"{what} is no JSON object")
    return document


def _sources(version: int, lines: Sequence[str]) -> tuple[SourceOffset, ...]:
    if version == 1:
        return tuple(_source(str(number), line) for number, line in enumerate(lines))
    named = [line.partition(":") for line in lines]
    for name, colon, _ in named:
        if not colon:
            raise _Bad(Damage.TORN, f"a source's line has no name before a colon: {name[:20]!r}")
    return tuple(_source(name, line) for name, _, line in named)


def _source(name: str, line: str) -> SourceOffset:
    if line == "-":
        return SourceOffset(name, None)
    if not line:
        raise _Bad(Damage.TORN, f"the line of source {name} is empty")
    if line[0] in "{[":
        _json(line, f"the line of source {name}")
    return SourceOffset(name, line, parse_positions(line))


def _is_kafkas(topic: str, name: str, offset: object) -> bool:
    partition = batch_of(name)
    return (
        _TOPIC.fullmatch(topic) is not None
        and partition is not None
        and partition <= _MOST_PARTITIONS
        and _number(offset) is not None
    )


def _number(value: object) -> int | None:
    """Return an integer of at most eight bytes; None for any other value."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and -_LONGEST <= value <= _LONGEST else None  # type: ignore[operator, return-value]


def _conf(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        return {}
    return {_clean(key): _clean(setting) for key, setting in value.items() if isinstance(setting, str)}


def _control(value: object) -> str:
    kind = value.get("operationType") if isinstance(value, dict) else None
    return _clean(kind) if isinstance(kind, str) else "unknown"


def _mappings(value: object) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, dict):
        return {}
    return {_clean(key): _clean(mapping) for key, mapping in value.items() if isinstance(mapping, dict)}


def _stores(items: Sequence[Any]) -> tuple[tuple[str, int], ...]:
    rows = [item for item in items if isinstance(item, dict)]
    return tuple(
        (_clean(str(row.get("storeName", ""))), _number(row.get("numPartitions")) or 0) for row in rows
    )


def _clean(value: Any) -> Any:
    """Make the text in decoded JSON storable in every database: no NUL, no lone surrogate."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode().replace("\0", r"\x00")
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
