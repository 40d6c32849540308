"""An OpenID Connect provider on the loopback, that answers rightly or wrongly as a test wants it to."""

import base64
import hashlib
import time
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from joserfc.jws import JWSRegistry

from tests.json_server import JsonHandler, JsonServer

CLIENT, SECRET = "fenceline", "a secret of the client"


@cache
def _first_key() -> RSAKey:
    """Return the key that every provider begins with: making one takes 50 ms."""
    return RSAKey.generate_key(2048, {"kid": "one"})


class OpenIdProvider(JsonServer):
    """One provider: `claims` are those of whoever signs in; the other attributes are what it does wrong."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.claims: dict[str, Any] = {"sub": "u-1", "preferred_username": "ada", "groups": ["sre"]}
        #: Claims that stand in place of the right ones; None leaves one out.
        self.wrong: dict[str, Any] = {}
        self.key = self.signs_with = _first_key()
        self.algorithm = "RS256"
        #: What its description says of itself beside the usual.
        self.described: dict[str, Any] = {}
        #: Of the claims, what it tells by its userinfo endpoint alone.
        self.told_later: tuple[str, ...] = ()
        self.codes: dict[str, dict[str, str]] = {}

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def authorize(self, url: str) -> str:
        """Sign a user in at the address that a browser was sent to; return where it goes back to."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def description(self) -> dict[str, Any]:
        paths = {"authorization": "authorize", "token": "token", "userinfo": "userinfo", "end_session": "end"}
        return {
            "issuer": self.issuer,
            **{f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in paths.items()},
            "jwks_uri": f"{self.issuer}/keys",
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
            **self.described,
        }

    def tokens(self, form: dict[str, str]) -> dict[str, Any] | None:
        """Return the tokens for a code, once, to whoever has its verifier; None for anybody else."""
        asked = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if asked is None or base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return None
        return {"access_token": "access", "token_type": "Bearer", "id_token": self._id_token(asked["nonce"])}

    def _id_token(self, nonce: str) -> str:
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 60, "nonce": nonce}
        told = {name: value for name, value in self.claims.items() if name not in self.told_later}
        claims = {name: value for name, value in (usual | told | self.wrong).items() if value is not None}
        key = self.signs_with if self.algorithm == "RS256" else OctKey.import_key(SECRET)
        every = JWSRegistry(algorithms=["RS256", "HS256", "none"])
        return jwt.encode({"alg": self.algorithm, "kid": "one"}, claims, key, registry=every)


class _Handler(JsonHandler):
    def do_GET(self) -> None:
        provider: OpenIdProvider = self.server.provider  # type: ignore[attr-defined]
        answers = {
            "/.well-known/openid-configuration": provider.description(),
            "/keys": {"keys": [provider.key.as_dict(private=False)]},
            "/userinfo": provider.claims,
        }
        self.answer(200 if self.path in answers else 404, answers.get(self.path))

    def do_POST(self) -> None:
        provider: OpenIdProvider = self.server.provider  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        tokens = provider.tokens(form)
        self.answer(200 if tokens else 400, tokens or {"error": "invalid_grant"})
