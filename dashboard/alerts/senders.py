"""Try to send one message: build the request for each kind of channel, sign it, and interpret the answer.

This module does not use the database: it turns a message into a `SendOutcome`. Stored texts are redacted.
Secrets and signatures are Standard Webhooks':
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import email.utils
import hmac
import json
import logging
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any

from dashboard.alerts import apprise_channels, ssrf
from dashboard.alerts import http as alert_http
from fenceline.alerts import redact

log = logging.getLogger(__name__)

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
    digests = (hmac.digest(secret_key(secret), signed, "sha256") for secret in keys)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


WEBHOOK, ALERTMANAGER, APPRISE = "webhook", "alertmanager", "apprise"
_API = "/api/v2/alerts"
#: Maximum stored headers of an answer, and maximum characters of each.
_HEADERS_KEPT, _HEADER_KEPT = 20, 200
_SHOWN, _LONGEST_ERROR = 200, 1_000
_SECRET_HEADERS = ("authorization", "set-cookie", "cookie", "proxy-authorization", "www-authenticate")


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message and its channel's settings, without the database."""

    kind: str
    url: str
    #: The signing secrets, newest first.
    secrets: tuple[str, ...]
    message_id: str
    group_key: str
    #: The payload for the kind (`payload.channel_payload`).
    payload: Any
    timeout_s: float


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """The outcome of one attempt; `retry`: whether a later one may succeed."""

    delivered: bool
    retry: bool = False
    retry_after_s: float | None = None
    #: Redacted text; "" when delivered.
    error: str = ""
    #: An entry of `Delivery.tries`, redacted.
    tried: dict[str, Any] = field(default_factory=dict)


def send_once(message: OutgoingMessage, guard: ssrf.TargetGuard) -> SendOutcome:
    """Send a message once; every error becomes an outcome, never an exception."""
    hide = redact.Redactor(message.url, message.secrets)
    began, at_ms = time.monotonic(), time.time_ns() // 1_000_000
    tried: dict[str, Any] = {
        "at_ms": at_ms,
        "request": {"url": redact.redact_url(message.url), "headers": {}},
    }
    try:
        answer = _send(message, guard, at_ms, tried)
        outcome = outcome_of_status(answer, message.url)
        tried |= _kept(answer, hide)
    except alert_http.NotSent as error:
        outcome = SendOutcome(False, retry=error.retry, error=str(error))
        tried["address"] = error.address
    except (BadSecret, ssrf.TargetRefused) as error:
        outcome = SendOutcome(False, error=str(error))
    except Exception as error:
        log.exception("message %s: an error of ours", message.message_id)
        what = f"An error of ours ({type(error).__name__}): see the worker's log."
        outcome = SendOutcome(False, retry=True, error=what)
    words = redact.clean_line(hide.redact(outcome.error), _LONGEST_ERROR)
    tried |= {"ms": round((time.monotonic() - began) * 1_000), "error": words}
    return replace(outcome, error=words, tried=tried)


def _send(
    message: OutgoingMessage, guard: ssrf.TargetGuard, at_ms: int, tried: dict[str, Any]
) -> alert_http.HttpAnswer:
    if message.kind == APPRISE:
        return apprise_channels.send_message(
            message.url, message.payload, message.group_key, timeout_s=message.timeout_s, guard=guard
        )
    headers = {"Content-Type": "application/json", "User-Agent": alert_http.USER_AGENT}
    target = ssrf.parse_target(message.url)
    # ASCII, so that every text can be encoded.
    body = json.dumps(message.payload, separators=(",", ":")).encode()
    if message.kind == WEBHOOK:
        headers |= signature_headers(message, at_ms // 1_000, body)
    else:
        target = alertmanager_target(target)
    tried["request"]["headers"] = headers
    return alert_http.send_request(target, body, headers, timeout_s=message.timeout_s, guard=guard)


def signature_headers(message: OutgoingMessage, at_s: int, body: bytes) -> dict[str, str]:
    """Return Standard Webhooks' headers; the timestamp is this try's, the id the message's."""
    return {
        "webhook-id": message.message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": signature_header(message.secrets, message.message_id, at_s, body),
    }


def alertmanager_target(target: ssrf.Target) -> ssrf.Target:
    """Return an Alertmanager's URL for alerts, from its own address with its route prefix, if any."""
    path, mark, query = target.path.partition("?")
    if not path.endswith(_API):
        path = path.rstrip("/") + _API
    return ssrf.Target(target.scheme, target.host, target.port, path + mark + query, target.login)


def outcome_of_status(answer: alert_http.HttpAnswer, url: str) -> SendOutcome:
    """Return the meaning of an answer: 2xx is success, 429 and 5xx may be retried, others not."""
    status = answer.status
    if 200 <= status < 300:
        return SendOutcome(True)
    where, answered = redact.redact_url(url), _excerpt(answer)
    if 300 <= status < 400:
        to = redact.redact_url(_header(answer, "location") or "nowhere")
        remedy = "Redirects are not followed: give the channel that address."
        return SendOutcome(False, error=f"{where} answered {answered} and points to {to}. {remedy}")
    if status == 429 or status >= 500:
        text = f"{where} answered {answered}. Check the receiver."
        pause_s = retry_after_s(_header(answer, "retry-after"))
        return SendOutcome(False, retry=True, retry_after_s=pause_s, error=text)
    remedy = "correct the channel or the receiver, then send it again."
    return SendOutcome(False, error=f"{where} answered {answered}. It will not take this message: {remedy}")


def _excerpt(answer: alert_http.HttpAnswer) -> str:
    """Return the status and the beginning of the body, for a sentence."""
    body = redact.clean_line(answer.body.decode("utf-8", "replace").strip(), _SHOWN)
    return f"{answer.status} {redact.clean_line(answer.reason, 60)}".strip() + (
        f" (“{body}”)" if body else ""
    )


def _header(answer: alert_http.HttpAnswer, name: str) -> str:
    return next((value for key, value in answer.headers if key.lower() == name), "")


def retry_after_s(value: str) -> float | None:
    """Return the seconds of a `Retry-After`, from seconds or an HTTP date; None if unparsable."""
    if value.isascii() and value.isdigit():
        return float(min(int(value[:9]), 10**8))
    try:
        at = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError):
        return None
    return max(0.0, at.replace(tzinfo=at.tzinfo or UTC).timestamp() - time.time())


def _kept(answer: alert_http.HttpAnswer, hide: redact.Redactor) -> dict[str, Any]:
    return {
        "status": answer.status,
        "headers": _headers(answer.headers, hide),
        "body": hide.redact(redact.clean_line(answer.body.decode("utf-8", "replace"), alert_http.KEPT)),
        "address": answer.address,
    }


def _headers(headers: Sequence[tuple[str, str]], hide: redact.Redactor) -> dict[str, str]:
    kept = {}
    for name, value in headers[:_HEADERS_KEPT]:
        shown = redact.HIDDEN if name.lower() in _SECRET_HEADERS else redact.clean_line(value, _HEADER_KEPT)
        if name.lower() == "location":
            shown = redact.redact_url(value)
        kept[redact.clean_line(name, _HEADER_KEPT)] = hide.redact(shown)
    return kept
