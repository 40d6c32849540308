"""Another user of the machine: `python -m tests.stack.other_user`, started by root, runs as an unprivileged
user.

Takes JSON on its standard input: `paths`, `pids`, `ports` (TCP on 127.0.0.1) and `secrets`. Prints as JSON
which paths it can `read`, `write` or `connect` to, whose `environ` it can read, where a command line
(`cmdline`) or a readable file (`leaks`) holds a secret, and what each port answered to a line of Redis's
protocol (`redis`) and to an HTTP request without a sign-in (`http`, its status line).
"""

import json
import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOBODY = 65534


def can(attempt: Callable[[], object]) -> bool:
    """Whether it works, as far as the operating system is asked."""
    try:
        attempt()
    except OSError:
        return False
    return True


def read_path(path: str) -> object:
    """Read of a folder its list, of a file its first byte; raises OSError."""
    return os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)


def connect(path: str) -> None:
    """Connect to a Unix socket; raises OSError, also where the path is none."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def first_line(port: int, request: bytes) -> str:
    """Return the first line of the answer to a request, "" without one."""
    try:
        # Not create_connection: the names that it looks up need modules that nobody may load.
        with socket.socket() as client:
            client.settimeout(5)
            client.connect(("127.0.0.1", port))
            client.sendall(request)
            return client.makefile("rb").readline().decode(errors="replace").strip()
    except OSError:
        return ""


def command_line(pid: int) -> str:
    """Return what everybody may read of a process, "" once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def reachable(paths: list[str], pids: list[int], ports: list[int], secrets: list[str]) -> dict[str, Any]:
    """Try everything."""
    readable = [path for path in paths if can(lambda path=path: read_path(path))]
    texts = {path: Path(path).read_bytes() for path in readable if stat.S_ISREG(os.stat(path).st_mode)}
    lines = [command_line(pid) for pid in pids]
    return {
        "read": readable,
        "write": [path for path in paths if os.access(path, os.W_OK)],
        "connect": [path for path in paths if can(lambda path=path: connect(path))],
        "leaks": [path for path, text in texts.items() if any(secret.encode() in text for secret in secrets)],
        "environ": [pid for pid in pids if can(Path(f"/proc/{pid}/environ").read_bytes)],
        "cmdline": [line for line in lines if any(secret in line for secret in secrets)],
        "redis": {port: first_line(port, b"PING\r\n") for port in ports},
        "http": {
            port: first_line(port, b"GET /api/v1/clusters HTTP/1.0\r\nHost: localhost\r\n\r\n")
            for port in ports
        },
    }


if __name__ == "__main__":
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    print(json.dumps(reachable(**json.load(sys.stdin))))
