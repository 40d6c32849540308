"""The demo's webhook receiver, and its part of a stack: `python -m sandbox.receiver.server DATA PORT`.

`POST /hook` takes the messages of the channel demo-receiver. `GET /TOKEN/` lists them, and
`/TOKEN/messages.json` has the same for programs: the token keeps other users of the machine out. Secret and
token are files in DATA/secrets, made by `make up`. Messages are only in memory: a restart forgets them.

A signature is checked by Standard Webhooks, with the standard library alone:
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac
import html
import json
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from typing import Any

from sandbox import folder
from sandbox.options import ROOT
from sandbox.ports import HOST
from sandbox.supervisor import Part

#: The path that takes messages.
HOOK = "/hook"
#: Files of the stack's secrets: the signing secret, and the token of the list of messages.
SIGNING_SECRET, PAGE_TOKEN = "receiver_secret", "receiver_page"
READY_LINE = "receiver: listening"

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
_LARGEST_BODY = 2**20
_TIMEOUT_S = 10.0
_HERE = Path(__file__).parent
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


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


class ReceiverServer(ThreadingHTTPServer):
    """Listens only on the loopback address."""

    daemon_threads = True

    def __init__(self, data: Path, port: int) -> None:
        self.messages = MessageLog()
        self._secrets = data / "secrets"
        super().__init__((HOST, port), ReceiverHandler)

    def read_secret(self, name: str) -> str:
        """Return the present secret, so that a new one needs no restart; "" if it is unreadable."""
        try:
            return (self._secrets / name).read_text().strip()
        except (OSError, ValueError):
            return ""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log one line without a traceback: a client that hangs up is not our fault."""
        print(f"receiver: a connection broke off: {sys.exception()!r}", flush=True)


class ReceiverHandler(BaseHTTPRequestHandler):
    server: ReceiverServer
    timeout = _TIMEOUT_S
    server_version, sys_version = "demo-receiver", ""

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != HOOK:
            return self._send(404, f"messages go to {HOOK}\n")
        if not (length.isascii() and length.isdigit()) or int(length) > _LARGEST_BODY:
            return self._send(413, f"a message has a Content-Length of at most {_LARGEST_BODY} bytes\n")
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        secret = self.server.read_secret(SIGNING_SECRET)
        message = self.server.messages.take(headers, body, secret, now_ms=time.time_ns() // 1_000_000)
        print(message_line(message), flush=True)
        self._send(message.answer, f"demo receiver: {message.note}\n")

    def do_GET(self) -> None:
        """Show the messages to a client with the token."""
        token, slash, name = self.path.removeprefix("/").partition("/")
        expected = self.server.read_secret(PAGE_TOKEN)
        page = _PAGES.get(name) if slash else None
        if not expected or not hmac.compare_digest(token.encode(), expected.encode()) or page is None:
            return self._send(404, "nothing is at this address\n")
        make, kind = page
        self._send(200, make(self.server.messages), kind)

    def _send(self, status: int, text: str, kind: str = "text/plain") -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: each message has its own line, and paths contain the token."""


def message_line(message: ReceivedMessage) -> str:
    what = f"{message.message_id or 'a message without an id'}, attempt {message.attempt}"
    return f"receiver: {what}: signature {message.signature}; answered {message.answer} ({message.note})"


def _json(messages: MessageLog) -> str:
    return json.dumps({"messages": [asdict(message) for message in messages.newest_first]}, indent=1) + "\n"


def _html(messages: MessageLog) -> str:
    rows = "".join(map(_row, messages.newest_first))
    page = Template((_HERE / "page.html").read_text())
    return page.substitute(
        kept=MOST_KEPT, one_in=REFUSE_ONE_IN, rows=rows or '<tr><td colspan="5">No message yet.</td></tr>'
    )


def _row(message: ReceivedMessage) -> str:
    at = datetime.fromtimestamp(message.received_at_ms / 1_000, UTC)
    what = f"{message.status} {message.reason.replace('_', ' ')}: {message.summary}" if message.status else ""
    cells = {
        "Received": f"{at:%H:%M:%S} UTC",
        "Message": f"{message.message_id} {what}",
        "Attempt": str(message.attempt or "—"),
        "Signature": message.signature,
        "Answer": f"{message.answer}, {message.note}",
    }
    row = "".join(f'<td data-label="{label}">{html.escape(text)}</td>' for label, text in cells.items())
    tone = "refused" if message.answer == 503 else "invalid" if message.answer != 200 else "taken"
    return f'<tr class="{tone}">{row}</tr>\n'


#: The paths below the token: renderer and media type.
_PAGES: Mapping[str, tuple[Callable[[MessageLog], str], str]] = {
    "": (_html, "text/html"),
    "page.css": (lambda _: (_HERE / "page.css").read_text(), "text/css"),
    "messages.json": (_json, "application/json"),
}


@dataclass(frozen=True, slots=True)
class DemoReceiver:
    """The receiver of the stack whose folder is `data`: its port, its secrets, its page and its process."""

    data: Path
    port: int

    @property
    def page(self) -> str:
        """Return the address of its list of messages."""
        token = folder.stored_secret(self.data, PAGE_TOKEN)
        return f"http://{HOST}:{self.port}/{token}/"

    @property
    def signing_secret(self) -> str:
        """Return the signing secret in the form of Standard Webhooks, made once."""
        return folder.stored_secret(self.data, SIGNING_SECRET, _new_secret)

    def part(self) -> Part:
        """Return its process, which has none of Fenceline's secrets and stops after the senders."""
        command = [sys.executable, "-m", "sandbox.receiver.server", str(self.data), str(self.port)]
        own = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        return Part("receiver", command, own, ready_line=READY_LINE, stage=1, essential=False)


def _new_secret() -> str:
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def main(data: str, port: str) -> None:
    with ReceiverServer(Path(data), int(port)) as server:
        print(f"{READY_LINE} on http://{HOST}:{port}{HOOK}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:3])
