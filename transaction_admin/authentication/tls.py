"""TLS for kafka-python's connections: one context from all of librdkafka's `ssl.` properties."""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fenceline.authentication.mechanisms import CannotAuthenticate, Properties
from transaction_admin.authentication.stores import KEY, TRUST, check_store, read_store

#: The properties that `tls_context` reads.
TLS = (
    "enable.ssl.certificate.verification",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.truststore.location",
    "ssl.truststore.password",
)


def tls_context(properties: Properties) -> ssl.SSLContext:
    """Return the context; raises `CannotAuthenticate` for unusable files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    wanted = properties.get("ssl.endpoint.identification.algorithm", "https").lower()
    context.check_hostname = wanted != "none"
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # As in librdkafka, only named authorities are trusted.
    named = {"ssl.ca.pem", f"{TRUST}.location"} & properties.keys()
    if properties.get("ssl.ca.location", "probe") == "probe" and not named:
        context.load_default_certs()
    for key, load in _LOADERS.items():
        if key in properties:
            _load(context, key, load, properties)
    return context


def _load(context: ssl.SSLContext, key: str, load: _Loader, properties: Properties) -> None:
    try:
        load(context, properties[key], properties)
    except (OSError, ValueError) as error:
        # ssl.SSLError is an OSError: "no certificate or crl found", "bad decrypt" and others.
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        also = _WITH_KEY.get(key, "")
        raise CannotAuthenticate(key, f"cannot be used ({reason}); check it{also}") from error


def _authorities(context: ssl.SSLContext, where: str, _: Properties) -> None:
    if where == "probe":
        return
    if os.path.isdir(where):
        context.load_verify_locations(capath=where)
    else:
        context.load_verify_locations(cafile=where)


def _revoked(context: ssl.SSLContext, where: str, _: Properties) -> None:
    context.load_verify_locations(cafile=where)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _certificate(context: ssl.SSLContext, where: str, properties: Properties) -> None:
    # Without a password OpenSSL would ask for it on the terminal.
    password = properties.get("ssl.key.password", "")
    context.load_cert_chain(where, properties.get("ssl.key.location"), password)


def _certificate_as_text(context: ssl.SSLContext, pem: str, properties: Properties) -> None:
    with _file(pem) as certificate, _file(properties.get("ssl.key.pem", pem)) as key:
        context.load_cert_chain(certificate, key, properties.get("ssl.key.password", ""))


def _trust_store(context: ssl.SSLContext, _: str, properties: Properties) -> None:
    if trusted := read_store(TRUST, properties):
        context.load_verify_locations(cadata=trusted.authorities)


def _key_store(context: ssl.SSLContext, _: str, properties: Properties) -> None:
    check_store(KEY, properties)
    passphrase = secrets.token_hex(16)
    if own := read_store(KEY, properties, passphrase):
        with _file(own.certificates + own.key) as both:
            context.load_cert_chain(both, password=passphrase)


@contextmanager
def _file(text: str) -> Iterator[str]:
    """Keep a text in a private file while it is loaded: `ssl` takes only files."""
    with tempfile.TemporaryDirectory(prefix="fenceline-") as folder:
        path = Path(folder, "one.pem")
        path.touch(mode=0o600)
        path.write_text(text)
        yield str(path)


_Loader = Callable[[ssl.SSLContext, str, Properties], None]
_LOADERS: Mapping[str, _Loader] = {
    "ssl.ca.location": _authorities,
    "ssl.ca.pem": lambda context, pem, _: context.load_verify_locations(cadata=pem),
    f"{TRUST}.location": _trust_store,
    "ssl.crl.location": _revoked,
    "ssl.certificate.location": _certificate,
    "ssl.certificate.pem": _certificate_as_text,
    f"{KEY}.location": _key_store,
    "ssl.cipher.suites": lambda context, names, _: context.set_ciphers(names),
}
#: Further problems of a certificate.
_WITH_KEY = {
    "ssl.certificate.location": ', "ssl.key.location" and "ssl.key.password"',
    "ssl.certificate.pem": ', "ssl.key.pem" and "ssl.key.password"',
    f"{KEY}.location": f' and "{KEY}.password"',
}
