"""TLS for clients of Kafka: kafka-python's context from all of librdkafka's `ssl.` properties; stores as PEM.

PKCS12 stores of keys and certificates are converted; Java's own format is refused with a command to convert
it.
"""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fenceline.authentication.mechanisms import CannotAuthenticate, Properties

#: Magic bytes of Java's own stores: JKS, and JCEKS.
_JAVAS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
TRUST, KEY = "ssl.truststore", "ssl.keystore"
#: How to name a store that is PEM.
_OWN_NAMES = {
    TRUST: 'name it "ssl.ca.location"',
    KEY: 'name it "ssl.certificate.location" and "ssl.key.location"',
}
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
#: Further problems of a certificate.
_WITH_KEY = {
    "ssl.certificate.location": ', "ssl.key.location" and "ssl.key.password"',
    "ssl.certificate.pem": ', "ssl.key.pem" and "ssl.key.password"',
    f"{KEY}.location": f' and "{KEY}.password"',
}


def read_store(store: str, properties: Properties, passphrase: str = "") -> tuple[str, str] | None:
    """Return the key store or the trust store in the properties as text, None without one.

    The first text has a certificate with its chain and its key, the second one the authorities. The
    passphrase decrypts the key. Raises `CannotAuthenticate`.
    """
    where = properties.get(f"{store}.location")
    if where is None:
        return None
    content = _content(store, where)
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise CannotAuthenticate(
            f"{store}.location",
            f"takes the package cryptography: install fenceline[pkcs12], or {_as_pem(store, where)}",
        ) from None
    password = properties.get(f"{store}.password", "").encode() or None
    try:
        return _pem(pkcs12.load_pkcs12(content, password), passphrase.encode())
    except ValueError as error:
        raise CannotAuthenticate(
            f"{store}.location", f'names {where}, which "{store}.password" does not open as PKCS12 ({error})'
        ) from None


def check_store(store: str, properties: Properties) -> None:
    """Raise `CannotAuthenticate` for an unreadable store, or one that only Java reads."""
    if where := properties.get(f"{store}.location"):
        _content(store, where)
        if store == KEY and f"{KEY}.password" not in properties:
            raise CannotAuthenticate(f"{KEY}.password", f"is missing, and {where} is a key store")


def _content(store: str, where: str) -> bytes:
    key = f"{store}.location"
    try:
        content = Path(where).read_bytes()
    except (OSError, ValueError) as error:
        raise CannotAuthenticate(
            key, f"cannot be read ({getattr(error, 'strerror', None) or error}): check {where}"
        ) from None
    if content.startswith(_JAVAS):
        raise CannotAuthenticate(
            key, f"names {where}, a Java key store, which only Java reads: {_as_pkcs12(where)}"
        )
    if content.startswith(b"-----BEGIN"):
        raise CannotAuthenticate(
            key, f'names {where}, which is PEM: set "{store}.type" to PEM, or {_OWN_NAMES[store]}'
        )
    return content


def _as_pkcs12(where: str) -> str:
    name = f"{Path(where).stem}.p12"
    return (
        f"convert it once, `keytool -importkeystore -srckeystore {where} -destkeystore {name} "
        f"-deststoretype PKCS12`, and name {name} here"
    )


def _as_pem(store: str, where: str) -> str:
    keys = "-nokeys" if store == TRUST else "-nodes"
    command = f"openssl pkcs12 -in {where} -out {Path(where).stem}.pem {keys}"
    return f"convert it once, `{command}`, and {_OWN_NAMES[store]}"


def _pem(store: Any, passphrase: bytes) -> tuple[str, str]:
    from cryptography.hazmat.primitives import serialization as form

    def text(*certificates: Any) -> str:
        return "".join(certificate.public_bytes(form.Encoding.PEM).decode() for certificate in certificates)

    others = [extra.certificate for extra in store.additional_certs]
    own = [store.cert.certificate] if store.cert else []
    key = ""
    if store.key is not None and passphrase:
        locked = form.BestAvailableEncryption(passphrase)
        key = store.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, locked).decode()
    return text(*own, *others) + key, text(*others)


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
        _, authorities = trusted
        context.load_verify_locations(cadata=authorities)


def _key_store(context: ssl.SSLContext, _: str, properties: Properties) -> None:
    check_store(KEY, properties)
    passphrase = secrets.token_hex(16)
    if own := read_store(KEY, properties, passphrase):
        certificate, _ = own
        with _file(certificate) as both:
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
