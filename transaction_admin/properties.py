"""librdkafka's property names, which the configuration uses, in kafka-python's words.

One table translates each property. What is not in it is refused by name: a client that ignored half of a
cluster's security would connect to the wrong listener, or without encryption.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from typing import Any

#: Values of the configuration by librdkafka's names.
Properties = Mapping[str, str]


class CannotTranslate(Exception):
    """kafka-python has no equivalent of a property; the text is the key and the remedy."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f'no admin connection: "{key}" {reason}')
        self.key = key


class _BadValue(Exception):
    """A value that cannot be used."""


def _upper(value: str) -> str:
    return value.upper()


def _number(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise _BadValue(f"must be a whole number, not {value!r}") from None


def _mechanism(value: str) -> str:
    if value not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        raise _BadValue(f"is {value!r}: admin connections support PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512")
    return value


def _any_family(value: str) -> None:
    if value != "any":
        raise _BadValue(f"is {value!r}: admin connections take the family that the resolver gives")


#: librdkafka's name -> kafka-python's, and how the value changes.
TABLE: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "bootstrap.servers": ("bootstrap_servers", str),
    "client.dns.lookup": ("client_dns_lookup", str),
    "client.id": ("client_id", str),
    "connections.max.idle.ms": ("connections_max_idle_ms", _number),
    "metadata.max.age.ms": ("metadata_max_age_ms", _number),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", _number),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", _number),
    "sasl.mechanism": ("sasl_mechanism", _mechanism),
    "sasl.mechanisms": ("sasl_mechanism", _mechanism),
    "sasl.password": ("sasl_plain_password", str),
    "sasl.username": ("sasl_plain_username", str),
    "security.protocol": ("security_protocol", _upper),
    "socket.connection.setup.timeout.ms": ("socket_connection_setup_timeout_ms", _number),
}
#: These make one TLS context together (`_tls`).
TLS = (
    "enable.ssl.certificate.verification",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
)
#: Checked, and then of no effect.
CHECKED: Mapping[str, Callable[[str], None]] = {"broker.address.family": _any_family}
#: Of no effect on an admin connection: how librdkafka reads, buffers, logs and counts.
HARMLESS = (
    "api.version.",
    "check.crcs",
    "debug",
    "enable.sparse.connections",
    "fetch.",
    "group.",
    "internal.termination.signal",
    "log",
    "max.in.flight",
    "message.",
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
_SECURE = ("SSL", "SASL_SSL")


def kafka_python(properties: Properties) -> dict[str, Any]:
    """Return the settings of kafka-python's connections to the same cluster as the same principal.

    Raises `CannotTranslate` for what has no like there and for files that cannot be used.
    """
    settings: dict[str, Any] = {}
    for key, value in properties.items():
        try:
            if key in TABLE:
                name, convert = TABLE[key]
                settings[name] = convert(value)
            elif key in CHECKED:
                CHECKED[key](value)
            elif key not in TLS and not key.startswith(HARMLESS):
                raise _BadValue("has no like in kafka-python; remove it, or go without actions here")
        except _BadValue as error:
            raise CannotTranslate(key, str(error)) from None
    if settings.get("security_protocol") in _SECURE:
        settings["ssl_context"] = _tls(properties)
    return settings


def _tls(properties: Properties) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    wanted = properties.get("ssl.endpoint.identification.algorithm", "https").lower()
    context.check_hostname = wanted != "none"
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # As in librdkafka, a named authority is the only one that is trusted.
    if properties.get("ssl.ca.location", "probe") == "probe" and "ssl.ca.pem" not in properties:
        context.load_default_certs()
    for key, load in _LOADERS.items():
        if key in properties:
            _load(context, key, load, properties)
    return context


def _load(context: ssl.SSLContext, key: str, load: _Loader, properties: Properties) -> None:
    try:
        load(context, properties[key], properties)
    except (OSError, ValueError) as error:
        # ssl.SSLError is an OSError: "no certificate or crl found", "bad decrypt" and their like.
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        also = ', "ssl.key.location" and "ssl.key.password"' if key == "ssl.certificate.location" else ""
        raise CannotTranslate(key, f"cannot be used ({reason}); check it{also}") from error


def _authorities(context: ssl.SSLContext, where: str, _: Properties) -> None:
    if where == "probe":
        return
    if os.path.isdir(where):
        context.load_verify_locations(capath=where)
    else:
        context.load_verify_locations(cafile=where)


def _authorities_as_text(context: ssl.SSLContext, pem: str, _: Properties) -> None:
    context.load_verify_locations(cadata=pem)


def _revoked(context: ssl.SSLContext, where: str, _: Properties) -> None:
    context.load_verify_locations(cafile=where)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _certificate(context: ssl.SSLContext, where: str, properties: Properties) -> None:
    # Without any password OpenSSL would ask for one on the terminal.
    password = properties.get("ssl.key.password", "")
    context.load_cert_chain(where, properties.get("ssl.key.location"), password)


def _ciphers(context: ssl.SSLContext, names: str, _: Properties) -> None:
    context.set_ciphers(names)


_Loader = Callable[[ssl.SSLContext, str, Properties], None]
_LOADERS: Mapping[str, _Loader] = {
    "ssl.ca.location": _authorities,
    "ssl.ca.pem": _authorities_as_text,
    "ssl.crl.location": _revoked,
    "ssl.certificate.location": _certificate,
    "ssl.cipher.suites": _ciphers,
}
