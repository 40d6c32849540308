"""Lay out the rows of an Arrow batch for librdkafka, by their addresses in Arrow's own buffers.

Rows of key and value go to librdkafka together (`Messages`). Its call for many records has no partitions,
timestamps and headers: rows with these go one by one (`Fields`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, Union

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from spark_pipeline.sink.task.producer import (
    ANY_PARTITION,
    COPY,
    Message,
    ProducerError,
    TransactionalProducer,
    error_of,
)

#: rd_kafka_message_t, as an array.
_MESSAGE = np.dtype(Message)
#: rd_kafka_vu_t: a tag, and a union of the tags' values.
_FIELD = np.dtype(
    {
        "names": ["tag", "pointer", "i32", "i64", "size", "value", "value_size"],
        "formats": ["i4", "u8", "i4", "i8", "u8", "u8", "i8"],
        "offsets": [0, 8, 8, 8, 16, 16, 24],
        "itemsize": 72,
    }
)
#: rd_kafka_vtype_t.
_RKT, _PARTITION, _VALUE, _KEY, _MSGFLAGS, _TIMESTAMP, _HEADER = 2, 3, 4, 5, 7, 8, 9
#: The fields of each record; headers follow.
_EACH = (_RKT, _PARTITION, _VALUE, _KEY, _TIMESTAMP, _MSGFLAGS)
#: The producer sets the timestamp.
_NOW = 0
_ONE_BY_ONE = {"partition", "timestamp", "headers"}
#: The address of empty values: a null pointer would make a null value.
_EMPTY = ctypes.create_string_buffer(1)


class RowRefused(Exception):
    def __init__(self, error: ProducerError, partition: int = ANY_PARTITION) -> None:
        super().__init__(str(error))
        self.error, self.partition = error, partition


class Rows(Protocol):
    """Rows laid out for librdkafka."""

    def produce(self, producer: TransactionalProducer, topic: int, start: int) -> int:
        """Queue rows from number `start` on; return their number, smaller if the queue is full.

        Raises `RowRefused`.
        """


def find_unusable(batch: pa.RecordBatch, default_topic: str | None) -> tuple[int, str] | None:
    """Return the number (from 0) of the first row that cannot be a record, and why; None if all can."""
    if not default_topic and batch.column("topic").null_count:
        row = _first_null(batch.column("topic"))
        why = "has a null topic, and the sink no default one: set the option topic, or fill the column topic"
        return row, why
    if "headers" in batch.schema.names:
        names, _ = batch.column("headers").flatten().flatten()
        if names.null_count:
            ends = np.cumsum(_header_counts(batch))
            return int(np.searchsorted(ends, _first_null(names), "right")), "has a header without a name"
    return None


def split_by_topic(batch: pa.RecordBatch, default: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each topic of a batch with its rows, in their order."""
    if default and "topic" not in batch.schema.names:
        yield default, batch
        return
    topics = batch.column("topic")
    encoded = (pc.fill_null(topics, default) if default else topics).dictionary_encode()
    names = encoded.dictionary.to_pylist()
    for number, name in enumerate(names):
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(encoded.indices, number))


def lay_out(batch: pa.RecordBatch) -> Rows:
    """Return the rows of one topic; they keep the buffers that they point to alive."""
    return Fields(batch) if _ONE_BY_ONE & set(batch.schema.names) else Messages(batch)


class Messages:
    """Rows of key and value, as an array of rd_kafka_message_t."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        key, value = _bytes_of(batch, "key"), _bytes_of(batch, "value")
        self._held = key, value
        self._array = np.zeros(batch.num_rows, _MESSAGE)
        self._array["payload"], self._array["len"] = value.pointers, value.sizes
        self._array["key"], self._array["key_len"] = key.pointers, key.sizes

    def produce(self, producer: TransactionalProducer, topic: int, start: int) -> int:
        left = self._array[start:]
        taken = producer.produce_batch(topic, left.ctypes.data, len(left))
        if taken < len(left):
            errors = left["err"]
            refused = errors[(errors != KafkaError.NO_ERROR) & (errors != KafkaError._QUEUE_FULL)]
            if refused.size:
                raise RowRefused(error_of(int(refused[0])))
        return taken


class Fields:
    """Rows with all fields of a record: an array of rd_kafka_vu_t per row."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        key, value, headers = _bytes_of(batch, "key"), _bytes_of(batch, "value"), _headers_of(batch)
        self._held = key, value, headers
        self._partitions = _partitions(batch)
        self._lengths = headers.counts + len(_EACH)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._array = np.zeros(int(self._lengths.sum()), _FIELD)
        for place, tag in enumerate(_EACH):
            self._array["tag"][self._starts + place] = tag
        self._fill(_PARTITION, i32=self._partitions)
        self._fill(_VALUE, pointer=value.pointers, size=value.sizes)
        self._fill(_KEY, pointer=key.pointers, size=key.sizes)
        self._fill(_TIMESTAMP, i64=_timestamps(batch))
        self._fill(_MSGFLAGS, i32=COPY)
        self._fill_headers(headers)

    def _fill(self, tag: int, **fields: Any) -> None:
        for name, values in fields.items():
            self._array[name][self._starts + _EACH.index(tag)] = values

    def _fill_headers(self, headers: _Headers) -> None:
        places = np.flatnonzero(self._array["tag"] == 0)
        self._array["tag"][places] = _HEADER
        self._array["pointer"][places] = headers.names.pointers
        self._array["value"][places] = headers.values.pointers
        self._array["value_size"][places] = headers.values.sizes

    def produce(self, producer: TransactionalProducer, topic: int, start: int) -> int:
        self._fill(_RKT, pointer=topic)
        first = self._array.ctypes.data
        addresses = (first + self._starts[start:] * _FIELD.itemsize).tolist()
        queue, number = producer.produce_one, 0
        try:
            for address, length in zip(addresses, self._lengths[start:].tolist()):
                if not queue(address, length):
                    break
                number += 1
        except ProducerError as error:
            raise RowRefused(error, int(self._partitions[start + number])) from error
        return number


class _Bytes(NamedTuple):
    """The addresses of a column's values: shape (rows,); a null has the pointer 0."""

    pointers: Any
    sizes: Any
    #: The column that owns the buffers.
    held: Any


class _Headers(NamedTuple):
    """The headers of all rows, one after another; `counts` has the number per row."""

    counts: Any
    names: _Bytes
    values: _Bytes


def _bytes_of(batch: pa.RecordBatch, name: str) -> _Bytes:
    return _addresses(batch.column(name)) if name in batch.schema.names else _nulls(batch.num_rows)


def _nulls(rows: int) -> _Bytes:
    return _Bytes(np.zeros(rows, "u8"), np.zeros(rows, "u8"), None)


def _addresses(column: Union[pa.StringArray, pa.BinaryArray]) -> _Bytes:
    """Return the addresses of a column's values. Text needs no decoding: Arrow and Kafka use UTF-8."""
    kind = "i8" if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type) else "i4"
    _, offsets, data = column.buffers()
    if not len(column):
        return _nulls(0)
    bounds = np.frombuffer(offsets, kind, len(column) + 1, column.offset * np.dtype(kind).itemsize).astype(
        "u8"
    )
    base = data.address if data is not None and data.address else ctypes.addressof(_EMPTY)
    pointers, sizes = bounds[:-1] + np.uint64(base), np.diff(bounds)
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        pointers[nulls] = sizes[nulls] = 0
    return _Bytes(pointers, sizes, column)


def _headers_of(batch: pa.RecordBatch) -> _Headers:
    if "headers" not in batch.schema.names:
        return _Headers(np.zeros(batch.num_rows, "i8"), _nulls(0), _nulls(0))
    names, values = batch.column("headers").flatten().flatten()
    # librdkafka reads a name up to its terminating zero byte.
    end, nothing = (pa.scalar(text, names.type) for text in ("\0", ""))
    ended = pc.binary_join_element_wise(names, nothing, end)
    return _Headers(_header_counts(batch), _addresses(ended), _addresses(values))


def _header_counts(batch: pa.RecordBatch) -> Any:
    lengths = pc.fill_null(pc.list_value_length(batch.column("headers")), 0)
    return lengths.to_numpy(zero_copy_only=False).astype("i8")


def _first_null(column: pa.Array) -> int:
    return int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))


def _partitions(batch: pa.RecordBatch) -> Any:
    if "partition" not in batch.schema.names:
        return np.full(batch.num_rows, ANY_PARTITION)
    return pc.fill_null(batch.column("partition"), ANY_PARTITION).to_numpy(zero_copy_only=False)


def _timestamps(batch: pa.RecordBatch) -> Any:
    """Return the milliseconds since 1970 of each row."""
    if "timestamp" not in batch.schema.names:
        return np.full(batch.num_rows, _NOW)
    column = batch.column("timestamp")
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return pc.fill_null(micros, _NOW).to_numpy(zero_copy_only=False) // 1000
