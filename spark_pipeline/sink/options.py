"""The sink's options: Kafka's own names with the prefix `kafka.`, in librdkafka's words.

One table has for each of Java's producer options what becomes of it. What cannot be translated is refused by
name: a producer that ignored half of its options would be another one than its user believes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from spark_pipeline.sink.errors import Refused

PREFIX = "kafka."

#: How records are sent unless options differ: a local queue that a task's memory can hold, and Java's
#: way to find the partition of a key, so that a key stays where Spark's own sink has put it.
DEFAULTS: Mapping[str, str] = {
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": "65536",
    "queue.buffering.max.messages": "500000",
}


class _Refusal(Exception):
    """Why an option cannot be taken."""


class Properties(NamedTuple):
    """One producer's options, in librdkafka's words."""

    #: How to reach and sign in to the cluster.
    connection: Mapping[str, str]
    #: How to send records.
    sending: Mapping[str, str]

    @property
    def producer_properties(self) -> dict[str, str]:
        """All of them, over our defaults."""
        return {**DEFAULTS, **self.connection, **self.sending}


Translate = Callable[[str], Mapping[str, str]]


def _as(name: str) -> Translate:
    return lambda value: {name: value}


def _only(*allowed: str, because: str) -> Translate:
    def check(value: str) -> Mapping[str, str]:
        if value.lower() not in allowed:
            raise _Refusal(f"is {value!r}: {because}")
        return {}

    return check


def _never(reason: str) -> Translate:
    def refuse(value: str) -> Mapping[str, str]:
        raise _Refusal(reason)

    return refuse


def _bytes_as_kbytes(value: str) -> Mapping[str, str]:
    return {"queue.buffering.max.kbytes": str(max(1, _whole(value) // 1024))}


def _buffer(name: str) -> Translate:
    # Java's -1 is the system's own size, librdkafka's 0.
    return lambda value: {name: str(max(0, _whole(value)))}


def _whole(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise _Refusal(f"must be a whole number, not {value!r}") from None


def _in_flight(value: str) -> Mapping[str, str]:
    if not 1 <= _whole(value) <= 5:
        raise _Refusal("must be 1 to 5: a transactional producer keeps the order of at most five")
    return {"max.in.flight.requests.per.connection": value}


def _endpoint(value: str) -> Mapping[str, str]:
    return {"ssl.endpoint.identification.algorithm": value.lower() or "none"}


_QUOTED = r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'"
_PAIR = re.compile(rf"(\w+)\s*=\s*(?:{_QUOTED}|([^\s\"';]+))")
_LOGIN = re.compile(rf"\s*([\w.]+)\s+required\b((?:{_QUOTED}|[^;\"'])*);?\s*", re.DOTALL)
_MODULES = ("PlainLoginModule", "ScramLoginModule")


def _jaas(value: str) -> Mapping[str, str]:
    found = _LOGIN.fullmatch(value)
    if found is None:
        raise _Refusal('is no `module required name="value" …;`')
    module = found[1].rsplit(".", 1)[-1]
    if module not in _MODULES:
        raise _Refusal(f"names {module}: the sink signs in by {' and '.join(_MODULES)}")
    pairs = {name: _unquoted(*values) for name, *values in _PAIR.findall(found[2])}
    if "username" not in pairs or "password" not in pairs:
        raise _Refusal("has no username and password")
    return {"sasl.username": pairs["username"], "sasl.password": pairs["password"]}


def _unquoted(double: str, single: str, plain: str) -> str:
    return plain or re.sub(r"\\(.)", r"\1", double or single)


_PEM = (
    "only PEM is read outside of Java: convert it once, `keytool -list -rfc -keystore {kind}.jks > ca.pem` "
    "for authorities or `openssl pkcs12 -in {kind}.p12 -out client.pem -nodes` for a key, and name the file "
    "here with {option}=PEM"
)
_TRUST = _PEM.format(kind="truststore", option="kafka.ssl.truststore.type")
_KEY = _PEM.format(kind="keystore", option="kafka.ssl.keystore.type")

_SAME = ("bootstrap.servers", "client.id", "client.dns.lookup", "connections.max.idle.ms",
         "metadata.max.age.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
         "socket.connection.setup.timeout.ms")  # fmt: skip
#: Java's names of how to reach a cluster -> librdkafka's.
CONNECTION: Mapping[str, Translate] = {
    **{name: _as(name) for name in _SAME},
    "security.protocol": lambda value: {"security.protocol": value.lower()},
    "sasl.mechanism": _as("sasl.mechanism"),
    "sasl.jaas.config": _jaas,
    "ssl.truststore.type": _only("pem", because=_TRUST),
    "ssl.truststore.location": _as("ssl.ca.location"),
    "ssl.truststore.certificates": _as("ssl.ca.pem"),
    "ssl.truststore.password": _never("protects a Java keystore: " + _TRUST),
    "ssl.keystore.type": _only("pem", because=_KEY),
    "ssl.keystore.location": lambda value: {"ssl.certificate.location": value, "ssl.key.location": value},
    "ssl.keystore.password": _never("protects a Java keystore: " + _KEY),
    "ssl.key.password": _as("ssl.key.password"),
    "ssl.endpoint.identification.algorithm": _endpoint,
    # librdkafka's own names.
    **{
        name: _as(name)
        for name in (
            "broker.address.family", "enable.ssl.certificate.verification", "sasl.mechanisms",
            "sasl.password", "sasl.username",
            "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.cipher.suites",
            "ssl.crl.location", "ssl.key.location",
        )
    },
}  # fmt: skip
#: Java's names of how to send -> librdkafka's.
SENDING: Mapping[str, Translate] = {
    "acks": _only("all", "-1", because="a transaction needs acknowledgements of all replicas in sync"),
    "enable.idempotence": _only("true", because="a transactional producer is always idempotent"),
    "batch.size": _as("batch.size"),
    "buffer.memory": _bytes_as_kbytes,
    "compression.type": _as("compression.type"),
    "compression.gzip.level": _as("compression.level"),
    "compression.lz4.level": _as("compression.level"),
    "compression.zstd.level": _as("compression.level"),
    "delivery.timeout.ms": _as("message.timeout.ms"),
    "linger.ms": _as("linger.ms"),
    "max.in.flight.requests.per.connection": _in_flight,
    "max.request.size": _as("message.max.bytes"),
    "receive.buffer.bytes": _buffer("socket.receive.buffer.bytes"),
    "request.timeout.ms": _as("socket.timeout.ms"),
    "retries": _as("message.send.max.retries"),
    "retry.backoff.max.ms": _as("retry.backoff.max.ms"),
    "retry.backoff.ms": _as("retry.backoff.ms"),
    "send.buffer.bytes": _buffer("socket.send.buffer.bytes"),
    "transaction.timeout.ms": _never("is the sink's own option: transaction_timeout_ms"),
    "transactional.id": _never("is made by the sink: choose how it begins with the option prefix"),
    "key.serializer": _never("does not apply: keys are text or bytes already"),
    "value.serializer": _never("does not apply: values are text or bytes already"),
    # librdkafka's own names.
    **{
        name: _as(name)
        for name in (
            "batch.num.messages", "compression.codec", "compression.level", "debug", "log_level",
            "message.max.bytes", "message.timeout.ms", "partitioner", "queue.buffering.max.kbytes",
            "queue.buffering.max.messages", "queue.buffering.max.ms", "socket.keepalive.enable",
            "socket.nagle.disable", "socket.timeout.ms", "sticky.partitioning.linger.ms",
        )
    },
}  # fmt: skip


def translate_options(options: Mapping[str, str]) -> Properties:
    """Return a producer's options from those with the prefix `kafka.`; raises `Refused` naming bad ones."""
    connection: dict[str, str] = {}
    sending: dict[str, str] = {}
    reasons: list[str] = []
    for key, value in options.items():
        name = key.removeprefix(PREFIX)
        table, into = (CONNECTION, connection) if name in CONNECTION else (SENDING, sending)
        try:
            if not key.startswith(PREFIX):
                raise _Refusal(f"is no option of the sink: Kafka's own begin with {PREFIX!r}")
            if name not in table:
                raise _Refusal(f"has no like in librdkafka, which the sink sends with: {_remedy(name)}")
            into.update(table[name](str(value)))
        except _Refusal as refusal:
            reasons.append(f'option "{key}" {refusal}')
    if "bootstrap.servers" not in connection:
        reasons.append('option "kafka.bootstrap.servers" is missing')
    reasons.extend(_javas_stores(options))
    if reasons:
        raise Refused("; ".join(reasons))
    return Properties(connection, sending)


def _remedy(name: str) -> str:
    nearest = get_close_matches(name, (*CONNECTION, *SENDING), 1, 0.8)
    return f'did you mean "{PREFIX}{nearest[0]}"?' if nearest else "remove it"


def _javas_stores(options: Mapping[str, str]) -> list[str]:
    """Return why stores that are Java's by default cannot be read."""
    pairs = ("truststore", _TRUST), ("keystore", _KEY)
    return [
        f'option "{PREFIX}ssl.{which}.location" names a Java keystore: {why}'
        for which, why in pairs
        if f"{PREFIX}ssl.{which}.location" in options and f"{PREFIX}ssl.{which}.type" not in options
    ]
