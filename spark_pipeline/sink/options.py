"""Translate the sink's Kafka options, Kafka's names with the prefix `kafka.`, to librdkafka's.

One table maps each of Java's producer options. Options without a translation are refused by name: a producer
that silently ignored them would not behave as its user believes.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

from fenceline.authentication.java import (
    CONNECTION,
    PREFIX,
    Translate,
    never_taken,
    only_value,
    resolve_stores,
    same_value,
)
from fenceline.authentication.mechanisms import BadOption, find_mistakes
from spark_pipeline.sink.errors import Refused

__all__ = ["CONNECTION", "PREFIX", "SENDING", "Properties", "translate_options"]

#: Defaults: a local queue that fits a task's memory, and Java's partitioner, so that a key keeps the
#: partition that Spark's own sink gave it.
DEFAULTS: Mapping[str, str] = {
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": "65536",
    "queue.buffering.max.messages": "500000",
}


class Properties(NamedTuple):
    """One producer's options, in librdkafka's names."""

    #: Connection and authentication.
    connection: Mapping[str, str]
    #: Settings for sending records.
    sending: Mapping[str, str]

    @property
    def producer_properties(self) -> dict[str, str]:
        """All options, with our defaults for absent ones."""
        return {**DEFAULTS, **self.connection, **self.sending}


def _buffer(name: str) -> Translate:
    # -1 means the system's own size in Java, 0 in librdkafka.
    return lambda value: {name: str(max(0, _whole(value)))}


def _whole(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise BadOption(f"must be a whole number, not {value!r}") from None


def _in_flight(value: str) -> Mapping[str, str]:
    if not 1 <= _whole(value) <= 5:
        raise BadOption("must be 1 to 5: a transactional producer keeps the order of at most five")
    return {"max.in.flight.requests.per.connection": value}


#: Java's names of settings for sending -> librdkafka's.
SENDING: Mapping[str, Translate] = {
    "acks": only_value("all", "-1", because="a transaction needs acknowledgements of all replicas in sync"),
    "enable.idempotence": only_value("true", because="a transactional producer is always idempotent"),
    "batch.size": same_value("batch.size"),
    "buffer.memory": lambda value: {"queue.buffering.max.kbytes": str(max(1, _whole(value) // 1024))},
    "compression.type": same_value("compression.type"),
    "compression.gzip.level": same_value("compression.level"),
    "compression.lz4.level": same_value("compression.level"),
    "compression.zstd.level": same_value("compression.level"),
    "delivery.timeout.ms": same_value("message.timeout.ms"),
    "linger.ms": same_value("linger.ms"),
    "max.in.flight.requests.per.connection": _in_flight,
    "max.request.size": same_value("message.max.bytes"),
    "receive.buffer.bytes": _buffer("socket.receive.buffer.bytes"),
    "request.timeout.ms": same_value("socket.timeout.ms"),
    "retries": same_value("message.send.max.retries"),
    "retry.backoff.max.ms": same_value("retry.backoff.max.ms"),
    "retry.backoff.ms": same_value("retry.backoff.ms"),
    "send.buffer.bytes": _buffer("socket.send.buffer.bytes"),
    "transaction.timeout.ms": never_taken("is the sink's own option: transaction_timeout_ms"),
    "transactional.id": never_taken("is made by the sink: choose how it begins with the option prefix"),
    "key.serializer": never_taken("does not apply: keys are text or bytes already"),
    "value.serializer": never_taken("does not apply: values are text or bytes already"),
    # librdkafka's own names.
    **{
        name: same_value(name)
        for name in (
            "batch.num.messages", "compression.codec", "compression.level", "debug", "log_level",
            "message.max.bytes", "message.timeout.ms", "partitioner", "queue.buffering.max.kbytes",
            "queue.buffering.max.messages", "queue.buffering.max.ms", "socket.keepalive.enable",
            "socket.nagle.disable", "socket.timeout.ms", "sticky.partitioning.linger.ms",
        )
    },
}  # fmt: skip


def translate_options(options: Mapping[str, str]) -> Properties:
    """Translate options with the prefix `kafka.`; raises `Refused` with the names of bad ones."""
    connection: dict[str, str] = {}
    sending: dict[str, str] = {}
    reasons: list[str] = []
    for key, value in options.items():
        name = key.removeprefix(PREFIX)
        table, into = (CONNECTION, connection) if name in CONNECTION else (SENDING, sending)
        try:
            if not key.startswith(PREFIX):
                raise BadOption(f"is no option of the sink: Kafka's own begin with {PREFIX!r}")
            if name not in table:
                raise BadOption(f"has no like in librdkafka, which the sink sends with: {_remedy(name)}")
            into.update(table[name](str(value)))
        except BadOption as refusal:
            reasons.append(f'option "{key}" {refusal}')
    if "bootstrap.servers" not in connection:
        reasons.append('option "kafka.bootstrap.servers" is missing')
    connection = resolve_stores(connection)
    if not reasons:
        reasons.extend(
            f'option "{PREFIX}{key}" {reason}' for key, reason in find_mistakes(connection).items()
        )
    if reasons:
        raise Refused("; ".join(reasons))
    return Properties(connection, sending)


def _remedy(name: str) -> str:
    nearest = get_close_matches(name, (*CONNECTION, *SENDING), 1, 0.8)
    return f'did you mean "{PREFIX}{nearest[0]}"?' if nearest else "leave it out"
