"""The received messages of the demo, and the check of their signatures. Pure: instants are arguments.

A signature is checked by Standard Webhooks, with the standard library alone:
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac
import json
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Maximum messages to keep, and ids whose attempts are counted.
MOST_KEPT, _MOST_IDS = 50, 1_000
#: One message out of this number is refused once.
REFUSE_ONE_IN = 5
#: A signature is valid only this long: an older message may be a replay.
TOLERANCE_S = 300
_PREFIX = "whsec_"
#: Maximum length of a sender's text.
_LONGEST = 200
REFUSED = "refused on purpose, so that a retry is seen"


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """One request to the receiver, and its answer."""

    received_at_ms: int
    #: The header `webhook-id`: the same for every attempt.
    message_id: str
    #: The number of messages with this id so far; 0 for an invalid signature.
    attempt: int
    #: "valid", or the reason why it is invalid.
    signature: str
    #: "firing" or "resolved", the reason of the message, and its first alert in words; "" if missing.
    status: str
    reason: str
    summary: str
    body_bytes: int
    #: The HTTP status of the answer, and its text.
    answer: int
    note: str


class MessageLog:
    """The last messages with their counts; thread-safe."""

    def __init__(self) -> None:
        self._messages: deque[ReceivedMessage] = deque(maxlen=MOST_KEPT)
        self._attempts: dict[str, int] = {}
        self._new = 0
        self._lock = threading.Lock()

    @property
    def newest_first(self) -> Sequence[ReceivedMessage]:
        """Return the kept messages."""
        with self._lock:
            return list(reversed(self._messages))

    def take(self, headers: Mapping[str, str], body: bytes, secret: str, *, now_ms: int) -> ReceivedMessage:
        """Store a message and choose its answer; `headers` by their names in lower case."""
        problem = signature_problem(headers, body, secret, now_s=now_ms // 1_000)
        alerts = {} if problem else _described(body)
        message_id = headers.get("webhook-id", "")[:_LONGEST]
        with self._lock:
            attempt = 0 if problem else self._count_attempt(message_id)
            answer, note = self._answer(problem, attempt, alerts)
            message = ReceivedMessage(
                received_at_ms=now_ms,
                message_id=message_id,
                attempt=attempt,
                signature=problem or "valid",
                status=alerts.get("status", ""),
                reason=alerts.get("reason", ""),
                summary=alerts.get("summary", ""),
                body_bytes=len(body),
                answer=answer,
                note=note,
            )
            self._messages.append(message)
        return message

    def _count_attempt(self, message_id: str) -> int:
        self._attempts[message_id] = self._attempts.get(message_id, 0) + 1
        while len(self._attempts) > _MOST_IDS:
            del self._attempts[next(iter(self._attempts))]
        return self._attempts[message_id]

    def _answer(self, problem: str, attempt: int, alerts: Mapping[str, str]) -> tuple[int, str]:
        """Return status and text; a test of the channel is sent once, so it is never refused."""
        if problem:
            return 401, f"not taken: {problem}"
        if attempt == 1 and alerts.get("reason") != "test":
            self._new += 1
            if self._new % REFUSE_ONE_IN == 1:
                return 503, REFUSED
        return 200, "taken"


def signature_problem(headers: Mapping[str, str], body: bytes, secret: str, *, now_s: int) -> str:
    """Return the problem of a message's signature, "" for a valid and recent one."""
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    if missing := [name for name in names if not headers.get(name)]:
        return f"the header {missing[0]} is missing"
    message_id, timestamp, signatures = (headers[name] for name in names)
    if problem := _age_problem(timestamp, now_s):
        return problem
    wanted = _signature(secret, f"{message_id}.{timestamp}.".encode() + body)
    if not wanted:
        return f"the receiver's own secret is not {_PREFIX} and base64"
    fits = any(hmac.compare_digest(wanted, signature.encode()) for signature in signatures.split(" "))
    return "" if fits else "no signature fits the receiver's secret"


def _age_problem(timestamp: str, now_s: int) -> str:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 16):
        return "webhook-timestamp is not a number of seconds"
    age_s = now_s - int(timestamp)
    if abs(age_s) <= TOLERANCE_S:
        return ""
    return f"webhook-timestamp is {abs(age_s)} s {'old' if age_s > 0 else 'ahead'}, more than {TOLERANCE_S} s"


def _signature(secret: str, signed: bytes) -> bytes:
    """Return the signature of these bytes in the header's form; b"" for an unusable secret."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return b""
    return b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()) if key else b""


def _described(body: bytes) -> Mapping[str, str]:
    """Return the subject of a message; {} for a body that is not Alertmanager's webhook."""
    try:
        message = json.loads(body)
        alerts = message["alerts"]
        found = {"status": message["status"], "reason": message["notification_reason"]}
        return {name: str(text)[:_LONGEST] for name, text in (found | {"summary": _summary(alerts)}).items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}


def _summary(alerts: Sequence[Any]) -> str:
    """Return the first alert in words, and the number of the others."""
    words = alerts[0]["annotations"].get("summary") or alerts[0]["labels"]["alertname"]
    return f"{words[:_LONGEST]} (+{len(alerts) - 1} more)" if len(alerts) > 1 else words
