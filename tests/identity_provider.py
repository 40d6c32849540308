"""An identity provider on the loopback: tokens for a client's id and secret, and the keys that prove them."""

import base64
import json
import math
import ssl
import time
import urllib.parse
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.json_server import JsonHandler, JsonServer

AUDIENCE = "kafka"
CLIENTS = {"collector": "rightful"}


class IdentityProvider(JsonServer):
    """Issues signed tokens at `token_url` to `CLIENTS`; brokers fetch its keys from `keys_url`."""

    def __init__(self, life_s: float = 300, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(_Handler)
        #: How long a token lives that is issued now.
        self.life_s = life_s
        #: Clients that tokens were issued to, one by one.
        self.issued: list[str] = []
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._scheme = "https" if tls else "http"
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    @property
    def keys_url(self) -> str:
        return f"{self.url}/keys"

    def token(self, subject: str, *, life_s: float | None = None, audience: str = AUDIENCE) -> str:
        """Return a signed token."""
        now = int(time.time())
        head = {"alg": "RS256", "typ": "JWT", "kid": "one"}
        life = self.life_s if life_s is None else life_s
        claims = {
            "sub": subject,
            "aud": audience,
            "iat": now,
            "exp": math.ceil(time.time() + life),
            "scope": "kafka",
        }
        signed = b".".join(_base64(json.dumps(each).encode()) for each in (head, claims))
        signature = self._key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        return (signed + b"." + _base64(signature)).decode()

    def keys(self) -> dict[str, Any]:
        """Return what proves the tokens (RFC 7517)."""
        public = self._key.public_key().public_numbers()
        numbers = {name: _base64(value.to_bytes(256 if name == "n" else 3)).decode()
                   for name, value in (("n", public.n), ("e", public.e))}  # fmt: skip
        return {"keys": [{"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", **numbers}]}


def _base64(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


class _Handler(JsonHandler):
    def do_GET(self) -> None:
        self.answer(200, self.server.provider.keys())  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        provider: IdentityProvider = self.server.provider  # type: ignore[attr-defined]
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        basic = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        client, _, secret = basic.partition(":")
        if form.get("grant_type") != ["client_credentials"] or CLIENTS.get(client) != secret:
            self.answer(401, {"error": "invalid_client"})
            return
        provider.issued.append(client)
        self.answer(200, {"access_token": provider.token(client), "expires_in": int(provider.life_s)})
