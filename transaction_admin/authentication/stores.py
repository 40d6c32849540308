"""Convert PKCS12 stores of keys and certificates to PEM; refuse Java's own format with a command to convert
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fenceline.authentication.mechanisms import CannotAuthenticate, Properties

#: Magic bytes of Java's own stores: JKS, and JCEKS.
_JAVAS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
TRUST, KEY = "ssl.truststore", "ssl.keystore"


class Pem(NamedTuple):
    """A store's contents as text: a certificate with its chain, its key, and the authorities."""

    certificates: str
    key: str
    authorities: str


def read_store(store: str, properties: Properties, passphrase: str = "") -> Pem | None:
    """Return the contents of the key store or the trust store in the properties, None without one.

    The passphrase decrypts the key. Raises `CannotAuthenticate`.
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


_OWN_NAMES = {
    TRUST: 'name it "ssl.ca.location"',
    KEY: 'name it "ssl.certificate.location" and "ssl.key.location"',
}


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


def _pem(store: Any, passphrase: bytes) -> Pem:
    from cryptography.hazmat.primitives import serialization as form

    def text(*certificates: Any) -> str:
        return "".join(certificate.public_bytes(form.Encoding.PEM).decode() for certificate in certificates)

    others = [extra.certificate for extra in store.additional_certs]
    own = [store.cert.certificate] if store.cert else []
    key = ""
    if store.key is not None and passphrase:
        locked = form.BestAvailableEncryption(passphrase)
        key = store.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, locked).decode()
    return Pem(text(*own, *others), key, text(*others))
