"""The sink's columns: those of Spark's own sink, and timestamps. Convert rows to Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_pipeline.sink.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Column -> its allowed types, in Spark's spelling.
TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}


def refuse_wrong(schema: StructType, topic: str | None) -> None:
    """Raise `Refused` unless the sink can write rows of this schema."""
    reasons = []
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in types.items():
        if name not in TYPES:
            reasons.append(f"column {name} is none of {', '.join(TYPES)}: drop it or rename it")
        elif kind not in TYPES[name]:
            reasons.append(f"column {name} is {kind}, it must be {' or '.join(TYPES[name])}: cast it")
    if "value" not in types:
        reasons.append("column value is missing")
    if "topic" not in types and topic is None:
        reasons.append("there is neither a column topic nor the option topic")
    if reasons:
        raise Refused("the sink cannot write these rows: " + "; ".join(reasons))


def without_headers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select([name for name in batch.schema.names if name != "headers"])


#: Rows per Arrow batch where Spark gives them one by one.
_CHUNK = 10_000


def from_rows(rows: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    """Yield Arrow batches of Spark's rows; the rows have the sink's columns."""
    while chunk := list(islice(rows, _CHUNK)):
        names = [name for name in chunk[0].asDict() if name in TYPES]
        yield pa.RecordBatch.from_arrays([_column(name, chunk) for name in names], names=names)


def _column(name: str, rows: Sequence[Any]) -> pa.Array:
    kind, read = _ARROW[name]
    return pa.array((None if row[name] is None else read(row[name]) for row in rows), kind, size=len(rows))


def _as_bytes(value: str | bytes | bytearray) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _microseconds(value: datetime) -> int:
    # Spark's timestamps are in the local time zone, without naming it.
    return int(value.timestamp() * 1000) * 1000


#: Column -> its Arrow type, and the conversion from one of Spark's rows.
_ARROW: Mapping[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "key": (pa.binary(), _as_bytes),
    "value": (pa.binary(), _as_bytes),
    "topic": (pa.string(), str),
    "partition": (pa.int32(), int),
    "headers": (
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        lambda headers: [header.asDict() for header in headers],
    ),
    "timestamp": (pa.timestamp("us", "UTC"), _microseconds),
}
