"""What a listener posts to: Fenceline's own web process, and a server with scripted answers."""

import gzip
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sandbox.options import ROOT
from sandbox.ports import HOST, free_port
from tests.spark.listener.events import TOKEN
from tests.waiting import port_answers, wait_for

DEADLINE_S = 120


class Dashboard:
    """Fenceline's web process on SQLite, with one cluster, `prod`. It is down until it is started."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self.database = folder / "fenceline.db"
        config = folder / "fenceline.toml"
        config.write_text('[clusters.prod]\n"bootstrap.servers" = "127.0.0.1:1"\n')
        self._environment = os.environ | {
            "SECRET_KEY": "only for tests",
            "DATABASE_URL": f"sqlite:///{self.database}",
            "FENCELINE_CONFIG": str(config),
            "FENCELINE_DATA": str(folder),
            "FENCELINE_INGEST_TOKEN": TOKEN,
            # Nobody is there to be told of changes.
            "REDIS_URL": f"redis://{HOST}:{free_port()}/0",
        }
        self._log = folder / "web.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._run("manage.py", "prepare")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start it unless it runs; return when it answers."""
        if self._process is not None:
            return
        command = [
            sys.executable, "-m", "uvicorn", "dashboard.asgi:application", "--host", HOST, "--port",
            str(self.port), "--no-access-log", "--log-level", "warning",
        ]  # fmt: skip
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )
        wait_for(lambda: port_answers(self.port), "the dashboard answers", DEADLINE_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log(self) -> str:
        return self._log.read_text()

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


class Posted(NamedTuple):
    """A request that a scripted server got."""

    token: str
    document: Any

    @property
    def numbers(self) -> list[int]:
        """The batches in it."""
        return [each["progress"]["batchId"] for each in self.document["events"] if each["kind"] == "progress"]


#: Status, headers and body of an answer.
Reply = tuple[int, dict[str, str], bytes]
TAKEN: Reply = (200, {}, b'{"accepted": 0, "duplicates": 0, "refused": []}')


def problem(status: int, detail: str = "no", **headers: str) -> Reply:
    body = json.dumps({"title": "no", "status": status, "detail": detail}).encode()
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, body


class Scripted:
    """A server that keeps what it gets and answers what `reply` returns; down until it is started."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self.reply: Callable[[Posted], Reply] = lambda posted: TAKEN
        #: What it was sent, and what of it was taken.
        self.posted: list[Posted] = []
        self.taken: list[Posted] = []
        self.paths: list[str] = []
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    @property
    def numbers(self) -> list[int]:
        """The batches that were taken, in their order."""
        return [number for posted in self.taken for number in posted.numbers]

    def start(self) -> None:
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                scripted.paths.append(f"GET {self.path}")

            def do_POST(self) -> None:
                scripted.paths.append(f"POST {self.path}")
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                token = self.headers["Authorization"].removeprefix("Bearer ")
                posted = Posted(token, json.loads(body))
                scripted.posted.append(posted)
                status, headers, answer = scripted.reply(posted)
                if status == 200 and b"accepted" in answer:
                    scripted.taken.append(posted)
                with suppress(OSError):
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server((HOST, self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class Silent:
    """A server that takes connections and never answers."""

    def __enter__(self) -> Self:
        self._socket = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._socket.close()
