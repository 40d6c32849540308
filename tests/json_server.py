"""A server on the loopback that answers JSON, for what stands in for a provider of identities."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class JsonHandler(BaseHTTPRequestHandler):
    """Answers with JSON, and logs nothing."""

    def answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class JsonServer:
    """Runs a handler in a thread inside its context; the handler finds it as `self.server.provider`."""

    def __init__(self, handler: type[JsonHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.provider = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
