"""Translate librdkafka's property names, which the configuration uses, to kafka-python's.

One table translates each property. Other properties are refused by name: a client that ignored half of a
cluster's security settings would connect to the wrong listener, or without encryption.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fenceline.authentication.java import SIGN_IN
from fenceline.authentication.mechanisms import CannotAuthenticate, Properties
from transaction_admin.authentication.kafka_python import sasl_settings
from transaction_admin.authentication.tls import TLS, tls_context


class CannotTranslate(Exception):
    """kafka-python has no equivalent of a property; the text is the key and the remedy."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f'no connection: "{key}" {reason}')
        self.key, self.reason = key, reason


class _BadValue(Exception):
    """An unusable value."""


def _number(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise _BadValue(f"must be a whole number, not {value!r}") from None


def _any_family(value: str) -> None:
    if value != "any":
        raise _BadValue(f"is {value!r}: admin connections take the family that the resolver gives")


#: librdkafka's name -> kafka-python's name, and the conversion of the value.
TABLE: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "bootstrap.servers": ("bootstrap_servers", str),
    "client.dns.lookup": ("client_dns_lookup", str),
    "client.id": ("client_id", str),
    "connections.max.idle.ms": ("connections_max_idle_ms", _number),
    "metadata.max.age.ms": ("metadata_max_age_ms", _number),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", _number),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", _number),
    "security.protocol": ("security_protocol", str.upper),
    "socket.connection.setup.timeout.ms": ("socket_connection_setup_timeout_ms", _number),
}
#: Checked, but without effect.
CHECKED: Mapping[str, Callable[[str], None]] = {"broker.address.family": _any_family}
#: Without effect on an admin connection: librdkafka's reading, buffers, logs and counters.
HARMLESS = (
    "api.version.",
    "check.crcs",
    "debug",
    "enable.metrics.push",
    "enable.sparse.connections",
    "fetch.",
    "group.",
    "internal.termination.signal",
    "log",
    "max.in.flight",
    "message.",
    "metadata.recovery.",
    "queued.",
    "receive.message.max.bytes",
    "session.timeout.ms",
    "socket.keepalive.enable",
    "socket.max.fails",
    "socket.nagle.disable",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "socket.timeout.ms",
    "statistics.interval.ms",
    "topic.",
)


def kafka_python(properties: Properties) -> dict[str, Any]:
    """Return kafka-python's settings for the same cluster and principal.

    Raises `CannotTranslate` for properties without an equivalent, and for unusable files.
    """
    settings: dict[str, Any] = {}
    for key, value in properties.items():
        try:
            if key in TABLE:
                name, convert = TABLE[key]
                settings[name] = convert(value)
            elif key in CHECKED:
                CHECKED[key](value)
            elif key not in (*TLS, *SIGN_IN) and not key.startswith(HARMLESS):
                raise _BadValue("has no like in kafka-python: remove it")
        except _BadValue as error:
            raise CannotTranslate(key, str(error)) from None
    try:
        settings |= sasl_settings(properties)
        if settings.get("security_protocol") in ("SSL", "SASL_SSL"):
            settings["ssl_context"] = tls_context(properties)
    except CannotAuthenticate as error:
        raise CannotTranslate(error.key, error.reason) from error
    return settings
