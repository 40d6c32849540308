"""Which columns the sink takes, those of Spark's own and timestamps, and how they become records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Optional

from spark_pipeline.sink.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: (topic, value, key, partition, timestamp in ms, headers) as `Producer.produce` takes them.
Record = tuple[
    Optional[str], Optional[bytes], Optional[bytes], int, int,
    "list[tuple[str, str | bytes | None]] | None",
]  # fmt: skip
#: Kafka picks the partition; the producer picks the timestamp.
ANY_PARTITION, NOW = -1, 0

#: Column -> the types it may have, as Spark writes them.
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
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in found.items():
        if name not in TYPES:
            reasons.append(f"column {name} is none of {', '.join(TYPES)}: drop it or rename it")
        elif kind not in TYPES[name]:
            reasons.append(f"column {name} is {kind}, it must be {' or '.join(TYPES[name])}: cast it")
    if "value" not in found:
        reasons.append("column value is missing")
    if "topic" not in found and topic is None:
        reasons.append("there is neither a column topic nor the option topic")
    if reasons:
        raise Refused("the sink cannot write these rows: " + "; ".join(reasons))


def from_arrow(batches: Iterable[Any], *, include_headers: bool = True) -> Iterator[Iterator[Record]]:
    """Yield the records of Arrow batches whose columns are those of the sink."""
    for batch in batches:
        columns = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
        if not include_headers:
            columns.pop("headers", None)
        yield zip(*(read(columns.get(name)) for name, read in _ARROW.items()))


#: How many rows are handed over at once where they come one by one.
_CHUNK = 10_000


def from_rows(rows: Iterator[Any], *, include_headers: bool = True) -> Iterator[Iterable[Record]]:
    """Yield the records of Spark's rows whose columns are those of the sink."""
    while chunk := list(islice(rows, _CHUNK)):
        yield (each if include_headers else (*each[:5], None) for each in map(_from_row, chunk))


def _from_row(row: Any) -> Record:
    fields = row.asDict()
    partition, stamp, headers = fields.get("partition"), fields.get("timestamp"), fields.get("headers")
    return (
        fields.get("topic"),
        _as_bytes(fields.get("value")),
        _as_bytes(fields.get("key")),
        ANY_PARTITION if partition is None else partition,
        NOW if stamp is None else int(stamp.timestamp() * 1000),
        None if headers is None else [(each["key"], _as_bytes(each["value"])) for each in headers],
    )


def _as_bytes(value: str | bytes | bytearray | None) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)


def _bytes(column: Any) -> Iterable[bytes | None]:
    import pyarrow as pa

    if column is None:
        return repeat(None)
    # Text is UTF-8 in Arrow as in Kafka: it is not decoded on its way.
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    values: list[bytes | None] = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
    return values


def _plain(default: Any) -> Callable[[Any], Iterable[Any]]:
    def read(column: Any) -> Iterable[Any]:
        if column is None:
            return repeat(default)
        return [default if each is None else each for each in column.to_pylist()]

    return read


def _milliseconds(column: Any) -> Iterable[int]:
    import pyarrow as pa

    if column is None:
        return repeat(NOW)
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_pylist()
    return [NOW if each is None else each // 1000 for each in micros]


def _headers(column: Any) -> Iterable[list[tuple[str, str | bytes | None]] | None]:
    if column is None:
        return repeat(None)
    return [
        None if each is None else [(pair["key"], pair["value"]) for pair in each]
        for each in column.to_pylist()
    ]


#: In the order of a `Record`.
_ARROW: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "topic": _plain(None),
    "value": _bytes,
    "key": _bytes,
    "partition": _plain(ANY_PARTITION),
    "timestamp": _milliseconds,
    "headers": _headers,
}
