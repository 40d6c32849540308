"""Standard Webhooks: secrets, and the header that proves that a body is ours and new. Pure except for new
secrets.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable

PREFIX = "whsec_"
#: Bytes of a secret that the specification permits.
_SHORTEST, _LONGEST = 24, 64
_NEW_BYTES = 32


class BadSecret(ValueError):
    """A secret that cannot sign; the text is the problem and the remedy, never the secret."""


def new_secret() -> str:
    """Return a new random secret: `whsec_` and 32 random bytes in base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_NEW_BYTES)).decode()


def secret_key(secret: str) -> bytes:
    """Return the signing key in a `whsec_…` secret; raises `BadSecret`."""
    if not secret.startswith(PREFIX):
        raise BadSecret(f"The secret does not begin with {PREFIX}: take a new one.")
    try:
        raw = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadSecret(f"The secret is not base64 behind {PREFIX}: take a new one.") from error
    if not _SHORTEST <= len(raw) <= _LONGEST:
        wanted = f"Standard Webhooks asks for {_SHORTEST} to {_LONGEST}"
        raise BadSecret(f"The secret has {len(raw)} bytes, {wanted}: take a new one.")
    return raw


def signature_header(keys: Iterable[str], message_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: a signature for each secret, so that secrets can be rotated.

    `timestamp_s` is the instant of this try, as in `webhook-timestamp`. Raises `BadSecret`.
    """
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return " ".join(f"v1,{_signature(secret_key(secret), signed)}" for secret in keys)


def _signature(raw: bytes, signed: bytes) -> str:
    return base64.b64encode(hmac.new(raw, signed, hashlib.sha256).digest()).decode()
