"""Bearer tokens: from the endpoint of an identity provider, from a user's function, from AWS's signer.

librdkafka requests tokens from an endpoint itself. kafka-python cannot, and gets them from this module.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from fenceline.authentication.mechanisms import (
    CLIENT_CREDENTIALS,
    GRANTS,
    TOKEN_CALLBACK,
    CannotAuthenticate,
    Properties,
    mechanism_of,
)

#: Seconds for an answer of the endpoint: a connection waits for it.
_TIMEOUT_S = 10.0
#: The used share of a token's lifetime: librdkafka requests a new one after four fifths of it.
_USED_SHARE = 0.75
_MOST_BYTES = 1024 * 1024
_ENDPOINT = CLIENT_CREDENTIALS[0]
_CLIENT = " and ".join(f'"{key}"' for key in CLIENT_CREDENTIALS[1:])
#: The properties that a token depends on.
_OURS = ("sasl.", "https.", "security.protocol")
_REGION = "AWS_DEFAULT_REGION"


class BearerToken(NamedTuple):
    """A bearer token in the form of confluent-kafka's `oauth_cb`."""

    text: str
    #: Seconds since 1970.
    expires: float
    principal: str = ""
    extensions: Mapping[str, str] = {}


class TokenCache:
    """Keeps a token until three quarters of its lifetime; thread-safe."""

    def __init__(self, fetch: Callable[[], BearerToken]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._token: BearerToken | None = None
        self._until = 0.0

    def current(self) -> BearerToken:
        """Return a valid token. Raises `CannotAuthenticate`."""
        with self._lock:
            now = time.time()
            if self._token is None or now >= self._until:
                self._token = self._fetch()
                self._until = now + (self._token.expires - now) * _USED_SHARE
            return self._token


def tokens_of(properties: Properties) -> TokenCache:
    """Return a client's tokens, shared by all clients with the same properties in this process.

    Raises `CannotAuthenticate`; so does the first token.
    """
    return _shared(tuple(sorted((key, value) for key, value in properties.items() if key.startswith(_OURS))))


@lru_cache(maxsize=100)
def _shared(properties: tuple[tuple[str, str], ...]) -> TokenCache:
    return TokenCache(_source(dict(properties)))


def forget_tokens() -> None:
    """Make the next client of each configuration request a new token."""
    _shared.cache_clear()


def _source(properties: Properties) -> Callable[[], BearerToken]:
    mechanism = mechanism_of(properties)
    if mechanism == "AWS_MSK_IAM":
        return _msk_source()
    if TOKEN_CALLBACK in properties:
        return _callback_source(properties[TOKEN_CALLBACK], properties.get("sasl.oauthbearer.config", ""))
    return _endpoint_source(properties)


def _callback_source(path: str, config: str) -> Callable[[], BearerToken]:
    function = _import(path)

    def fetch() -> BearerToken:
        try:
            answer = function(config)
        except Exception as error:
            raise CannotAuthenticate(
                TOKEN_CALLBACK, f"{path} raised {type(error).__name__}: {error}"
            ) from error
        return _checked(path, answer)

    return fetch


def _import(path: str) -> Callable[[str], Any]:
    module, _, name = path.partition(":")
    try:
        provider = getattr(import_module(module), name)
    except Exception as error:  # a module may raise any error while it is imported
        raise CannotAuthenticate(
            TOKEN_CALLBACK,
            f"cannot be imported here ({type(error).__name__}: {error}): install {module} where this runs",
        ) from error
    if not callable(provider):
        raise CannotAuthenticate(TOKEN_CALLBACK, f"{path} is a {type(provider).__name__}, no function")
    return provider  # type: ignore[no-any-return]


def _checked(path: str, answer: Any) -> BearerToken:
    """Return a function's result if it is a usable token."""
    try:
        token = BearerToken(*answer)
        fits = (
            isinstance(token.text, str)
            and float(token.expires) > 0
            and isinstance(dict(token.extensions), dict)
        )
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise CannotAuthenticate(
            TOKEN_CALLBACK,
            f"{path} returned a {type(answer).__name__}, not (token, seconds since 1970 when it expires)",
        )
    if token.expires <= time.time():
        raise CannotAuthenticate(TOKEN_CALLBACK, f"{path} returned a token that has expired")
    return token


def _endpoint_source(properties: Properties) -> Callable[[], BearerToken]:
    for key, usual in GRANTS.items():
        if properties.get(key, usual) != usual:
            raise CannotAuthenticate(
                key,
                f'is {properties[key]!r}: no like in kafka-python, name a function, "{TOKEN_CALLBACK}"',
            )
    url, client, secret = (properties[key] for key in CLIENT_CREDENTIALS)
    form = {"grant_type": "client_credentials"}
    if scope := properties.get("sasl.oauthbearer.scope"):
        form["scope"] = scope
    basic = base64.b64encode(f"{client}:{secret}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked in `_asked`
        url,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {basic}", "Accept": "application/json"},
    )
    extensions = dict(
        pair.split("=", 1)
        for pair in properties.get("sasl.oauthbearer.extensions", "").split(",")
        if "=" in pair
    )
    trust = _trust(properties) if url.lower().startswith("https:") else None

    def fetch() -> BearerToken:
        return _token(url, _asked(url, request, trust), extensions)

    return fetch


def _trust(properties: Properties) -> ssl.SSLContext:
    context = ssl.create_default_context()
    where, text = properties.get("https.ca.location", "probe"), properties.get("https.ca.pem")
    try:
        if where != "probe":
            context.load_verify_locations(cafile=where)
        if text:
            context.load_verify_locations(cadata=text)
    except OSError as error:
        raise CannotAuthenticate("https.ca.location", f"cannot be used ({error})") from error
    return context


def _asked(url: str, request: urllib.request.Request, trust: ssl.SSLContext | None) -> bytes:
    if not url.lower().startswith(("http://", "https://")):
        raise CannotAuthenticate(_ENDPOINT, f"is {url!r}: it begins with http:// or https://")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=trust) as answer:  # noqa: S310
            return answer.read(_MOST_BYTES)  # type: ignore[no-any-return]
    except urllib.error.HTTPError as error:
        reason = error.read(200).decode(errors="replace").strip() or error.reason
        raise CannotAuthenticate(
            _ENDPOINT,
            f"{url} gives no token ({error.code}: {reason}): check {_CLIENT}",
        ) from error
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "reason", None) or error)
        raise CannotAuthenticate(_ENDPOINT, f"{url} does not answer ({reason}): check it") from error


def _token(url: str, body: bytes, extensions: Mapping[str, str]) -> BearerToken:
    try:
        answer = json.loads(body)
        text = str(answer["access_token"])
        life = answer.get("expires_in")
        expires = time.time() + float(life) if life is not None else float(_claims(text)["exp"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotAuthenticate(
            _ENDPOINT,
            f"{url} answers without access_token, or without when it expires ({type(error).__name__})",
        ) from error
    return BearerToken(text, expires, "", extensions)


def _claims(token: str) -> Mapping[str, Any]:
    payload = token.split(".")[1]
    claims: Mapping[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return claims


def _msk_source() -> Callable[[], BearerToken]:
    """Return AWS's signer, for librdkafka."""
    region = msk_region()
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError:
        raise CannotAuthenticate(
            "sasl.mechanism", "AWS_MSK_IAM takes aws-msk-iam-sasl-signer-python: install fenceline[msk]"
        ) from None

    def fetch() -> BearerToken:
        try:
            text, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
        except Exception as error:  # botocore's own errors, of its many credential providers
            raise CannotAuthenticate(
                "sasl.mechanism", f"is AWS_MSK_IAM, and AWS's credentials fail ({error}): check AWS_PROFILE"
            ) from error
        return BearerToken(text, expires_ms / 1_000)

    return fetch


def msk_region() -> str:
    """Return the region that both clients sign for. Raises `CannotAuthenticate`, also without credentials."""
    try:
        from botocore.session import Session
    except ImportError:
        raise CannotAuthenticate(
            "sasl.mechanism", "is AWS_MSK_IAM, which takes botocore: install fenceline[msk]"
        ) from None
    try:
        region, signer = Session().get_config_variable("region"), Session().get_credentials()
    except Exception as error:  # botocore's own errors: a missing profile, a silent service
        raise CannotAuthenticate(
            "sasl.mechanism", f"is AWS_MSK_IAM, and AWS's settings fail: {error}"
        ) from error
    if not region:
        raise CannotAuthenticate("sasl.mechanism", f"is AWS_MSK_IAM, which takes a region: set {_REGION}")
    if signer is None:
        raise CannotAuthenticate(
            "sasl.mechanism", "is AWS_MSK_IAM, and AWS has no credentials: set AWS_PROFILE"
        )
    return str(region)
