"""Real HTTP receivers of webhooks, with the manners that receivers have: slow, rude, broken, hostile."""

import ssl
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from standardwebhooks import Webhook

#: Answers one request: writes what it likes, or nothing, to `handler.wfile`.
Manner = Callable[["Handler"], None]


@dataclass(frozen=True)
class Received:
    """One request as it came."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def message_id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> Any:
        """Return the body's JSON if its signature is right and new, by the reference library."""
        return Webhook(secret).verify(self.body, dict(self.headers))


@dataclass
class Receiver:
    """A server on a free port. `manners` answer the first requests, one each, `usually` all others."""

    manners: list[Manner] = field(default_factory=list)
    usually: Manner = field(default_factory=lambda: answer(200))
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        self.received: list[Received] = []
        #: Set to let those go that `hold` keeps.
        self.released = threading.Event()
        self._server = _Server((self.host, 0), Handler)
        self._server.receiver = self
        if self.tls:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}/hook"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def took(self, request: Received) -> Manner:
        """Note a request and return how it is answered."""
        with self._server.lock:
            self.received.append(request)
            return self.manners.pop(0) if self.manners else self.usually


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver

    def __init__(self, *args: Any) -> None:
        self.lock = threading.Lock()
        super().__init__(*args)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that hang up are what is tested."""


class Handler(BaseHTTPRequestHandler):
    """Reads a request whole, then lets the receiver's manner answer."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        """Take any request with a body."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.close_connection = True
        self.server.receiver.took(Received(self.path, headers, body))(self)

    do_GET = do_PUT = do_DELETE = do_POST

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def answer(status: int, body: bytes = b"", **headers: str) -> Manner:
    """Answer as servers do; `retry_after="1"` is the header Retry-After."""

    def manner(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return manner


def raw(*pieces: bytes) -> Manner:
    """Answer these bytes, whatever they are, and close."""

    def manner(handler: Handler) -> None:
        for piece in pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()

    return manner


def hold(handler: Handler) -> None:
    """Answer nothing until the receiver is told to release those who wait."""
    handler.server.receiver.released.wait()


def drip(handler: Handler) -> None:
    """Answer a byte of a header now and then, for ever: each read succeeds."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not handler.server.receiver.released.wait(0.05):
        handler.wfile.write(b"x")


def flood(handler: Handler) -> None:
    """Answer a body without end."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while not handler.server.receiver.released.is_set():
        handler.wfile.write(b"y" * 65_536)


class Authority:
    """A certificate authority of the tests' own, made by openssl; as RFC 5280 wants it, which Python 3.13
    checks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificate = folder / "ca.pem"
        self._key = folder / "ca.key"
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-subj", "/CN=Tests", "-keyout", str(self._key), "-out", str(self.certificate),
        )  # fmt: skip

    def server(self, *names: str) -> ssl.SSLContext:
        """Return the context of a server that may call itself by these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue("receiver", *(f"DNS:{name}" for name in names)))
        return context

    def issue(self, subject: str, *names: str) -> tuple[Path, Path]:
        """Return the files of a certificate for these names (DNS:a, IP:127.0.0.1), and of its key."""
        stem = self._folder / names[0].replace("*", "any").replace(":", "-")
        key, request, certificate, more = (Path(f"{stem}.{end}") for end in ("key", "csr", "pem", "ext"))
        authority = "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        more.write_text(f"{authority}subjectAltName=" + ",".join(names))
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", f"/CN={subject}", "-keyout", str(key), "-out", str(request),
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-days", "2", "-in", str(request), "-CA", str(self.certificate),
            "-CAkey", str(self._key), "-CAcreateserial", "-extfile", str(more), "-out", str(certificate),
        )  # fmt: skip
        return certificate, key

    @staticmethod
    def _openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
