"""The demo's webhook receiver: `python -m sandbox.receiver.server DATA PORT`.

`POST /hook` takes the messages of the channel demo-receiver. `GET /TOKEN/` lists them, and
`/TOKEN/messages.json` has the same for programs: the token keeps other users of the machine out. Secret and
token are files in DATA/secrets, made by `make up`. Messages are only in memory: a restart forgets them.
"""

import html
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from typing import Any

from sandbox.ports import HOST
from sandbox.receiver import HOOK, PAGE_TOKEN, READY_LINE, SIGNING_SECRET
from sandbox.receiver.messages import MOST_KEPT, REFUSE_ONE_IN, MessageLog, ReceivedMessage

_LARGEST_BODY = 2**20
_TIMEOUT_S = 10.0
_HERE = Path(__file__).parent
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


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
    """Answers one connection."""

    server: ReceiverServer
    timeout = _TIMEOUT_S
    server_version, sys_version = "demo-receiver", ""

    def do_POST(self) -> None:
        """Take one message."""
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
        if not expected or not compare_digest(token.encode(), expected.encode()) or page is None:
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
    """Return a message as one line of the log."""
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


def _css(messages: MessageLog) -> str:
    return (_HERE / "page.css").read_text()


_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
#: The paths below the token: renderer and media type.
_PAGES: Mapping[str, tuple[Callable[[MessageLog], str], str]] = {
    "": (_html, "text/html"),
    "page.css": (_css, "text/css"),
    "messages.json": (_json, "application/json"),
}


def main(data: str, port: str) -> None:
    """Serve until the process is ended."""
    with ReceiverServer(Path(data), int(port)) as server:
        print(f"{READY_LINE} on http://{HOST}:{port}{HOOK}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:3])
