"""A Redis of one's own: it listens on a Unix socket in a private folder, and its one user has a password.

    server = redis.Server(folder)
    subprocess.Popen(server.command())      # ready once server.is_ready(); clients take server.url

Nothing is kept on disk, and no client may run what reaches the machine or the whole server (CONFIG, SAVE,
MODULE, DEBUG, SHUTDOWN, REPLICAOF …): Redis's own categories `admin` and `dangerous` are denied.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import shutil
import socket
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from sandbox.errors import SandboxError
from sandbox.folder import make_private, plain_errors, short_path, write_private
from sandbox.java import Progress, fetch_jars
from sandbox.ports import HOST

USER = "fenceline"
#: Celery's and Channels' commands are in it; `eval` too, which kombu's locks are made of.
ALLOWED = "~* &* +@all -@admin -@dangerous"
#: From here on a server knows every word of the configuration below.
OLDEST = (7, 0)
SOCKET = "redis.sock"
_SYSTEMS = {"linux": "linux", "darwin": "darwin"}
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class Server:
    """One server: its folder, the password of its user, and a TCP port on the loopback address (0: none)."""

    folder: Path
    password: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    port: int = 0
    progress: Progress = print

    @property
    def socket(self) -> Path:
        """Where it listens: in its folder, or where that path is too long in a private one elsewhere."""
        return short_path(self.folder / SOCKET)

    @property
    def url(self) -> str:
        """What REDIS_URL is to be."""
        return f"unix://{USER}:{self.password}@{quote(str(self.socket))}?db=0"

    def command(self) -> list[str]:
        """Write the configuration; return the argument list, which holds no secret. Raises SandboxError."""
        make_private(self.folder)
        make_private(self.socket.parent)
        program = find_redis(self.folder, self.progress)
        path = self.folder / "redis.conf"
        with plain_errors(path):
            write_private(path, self._configuration())
        return [program, str(path)]

    def is_ready(self) -> bool:
        """Whether the server lets us in and answers PING within a second."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(str(self.socket))
                connection.sendall(f"AUTH {USER} {self.password}\r\nPING\r\n".encode())
                with connection.makefile("rb") as replies:
                    return replies.readline() == b"+OK\r\n" and replies.readline() == b"+PONG\r\n"
        except OSError:
            return False

    def _configuration(self) -> str:
        lines = {
            "port": str(self.port),
            "bind": HOST,
            "unixsocket": _quoted(self.socket),
            "unixsocketperm": "700",
            "dir": _quoted(self.folder),
            "save": '""',
            "appendonly": "no",
            "user default": "off",
            f"user {USER}": f"on >{self.password} {ALLOWED}",
        }
        return "".join(f"{name} {value}\n" for name, value in lines.items())


def _quoted(path: Path) -> str:
    """Write a path as Redis reads words with blanks in them."""
    return json.dumps(str(path), ensure_ascii=False)


def find_redis(folder: Path, progress: Progress = print) -> str:
    """Return a redis-server: PATH's where it is new enough, else the locked jar's, unpacked into `folder`.

    Raises SandboxError where there is neither.
    """
    if (found := shutil.which("redis-server")) and _version(found) >= OLDEST:
        return found
    return str(_unpack(folder, platform_tag(sys.platform, platform.machine()), progress))


def platform_tag(system: str, machine: str) -> str:
    """Return what the jar calls a platform, from sys.platform and platform.machine(). Raises SandboxError."""
    try:
        return f"{_SYSTEMS[system]}-{_MACHINES[machine.lower()]}"
    except KeyError:
        raise SandboxError(
            f"no redis-server comes for {system} on {machine}: install Redis {OLDEST[0]} or newer on PATH, "
            "or name a server with REDIS_URL="
        ) from None


def _version(program: str) -> tuple[int, ...]:
    """Return major and minor of a redis-server; nothing where it does not run."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"\bv=(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else ()


def _unpack(folder: Path, tag: str, progress: Progress) -> Path:
    (jar,) = fetch_jars("redis", progress)
    with plain_errors(folder), zipfile.ZipFile(jar) as archive:
        name = next(name for name in archive.namelist() if name.endswith(f"-{tag}"))
        target = folder / name
        if not (target.exists() and target.stat().st_size == archive.getinfo(name).file_size):
            partial = folder / f".{name}.{os.getpid()}"
            partial.write_bytes(archive.read(name))
            partial.chmod(0o700)
            partial.replace(target)
    return target
