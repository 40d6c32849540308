"""The settings of librdkafka's clients: the cluster's properties, and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fenceline.authentication.java import STORE_KEYS
from fenceline.authentication.mechanisms import (
    MECHANISMS,
    TOKEN_CALLBACK,
    CannotAuthenticate,
    Properties,
    find_mistakes,
    mechanism_of,
)
from transaction_admin.authentication.tls import KEY, TRUST, check_store, read_store
from transaction_admin.authentication.tokens import tokens_of


def librdkafka_settings(properties: Properties) -> dict[str, Any]:
    """Return the settings for confluent-kafka's clients. Raises `CannotAuthenticate`.

    It calls a token function once: confluent-kafka would wait for ten seconds and hide the function's error.
    """
    for key, reason in find_mistakes(properties).items():
        raise CannotAuthenticate(key, reason)
    settings: dict[str, Any] = {key: value for key, value in properties.items() if key != TOKEN_CALLBACK}
    check_store(KEY, properties)
    if trusted := read_store(TRUST, properties):
        _, settings["ssl.ca.pem"] = trusted
    for key in set(STORE_KEYS) - {f"{KEY}.location", f"{KEY}.password"}:
        settings.pop(key, None)
    mechanism = mechanism_of(properties)
    if mechanism == "AWS_MSK_IAM" or (TOKEN_CALLBACK in properties and mechanism == "OAUTHBEARER"):
        settings["oauth_cb"] = _callback(properties)
    if mechanism:
        for key in ("sasl.mechanism", "sasl.mechanisms"):
            settings.pop(key, None)
        settings["sasl.mechanism"] = MECHANISMS[mechanism].wire
    return settings


def _callback(properties: Properties) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    """Return confluent-kafka's `oauth_cb`; the first token is fetched when it is made."""
    tokens = tokens_of(properties)
    tokens.current()

    def call(_: str) -> tuple[str, float, str, dict[str, str]]:
        text, expires, principal, extensions = tokens.current()
        return text, expires, principal, dict(extensions)

    return call
