"""The data folder of one stack: made, checked, locked; its secrets, its ports, its description.

No other user of the machine may read it: the folder is 0700, modes from older versions are tightened, and
`make up` runs with a umask of 077.
"""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from sandbox import SandboxError
from sandbox.ports import free_port, is_free

#: Minimum free space: for Kafka's first segments, logs and the database. The jars are elsewhere.
NEEDED_BYTES = 300_000_000
#: Names that stacks create in it. Other names are not touched: the folder may hold a user's files.
MADE = (
    ".probe", "beat*", "fenceline.db*", "fenceline.toml", "java-*", "kafka", "lock", "logs", "ports.json",
    "redis", "scene-request", "scenes.json", "secrets", "spark", "stack.json",
)  # fmt: skip
#: Bytes of a Unix socket's path that every system takes (Linux 107, macOS 103).
LONGEST_SOCKET = 103
#: How long a new start waits for the guard of a killed stack.
TAKE_OVER_S = 10.0


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's errors at `path` into SandboxErrors of one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SandboxError(f"{path}: the disk is full: free some space and start again") from None
        raise SandboxError(f"{path}: {error.strerror}: make it writable or choose another folder") from None


def make_folder(data: Path, needed_bytes: int = NEEDED_BYTES) -> None:
    """Make the folder; check that it is writable and has space. Raises SandboxError."""
    make_private(data)
    with plain_errors(data):
        (data / "logs").mkdir(exist_ok=True)
        probe = data / ".probe"
        probe.write_bytes(b"\0" * 65_536)
        probe.unlink()
        free = shutil.disk_usage(data).free
    if free < needed_bytes:
        raise SandboxError(
            f"{data}: the disk is almost full ({free / 1e6:.0f} MB free, {needed_bytes / 1e6:.0f} needed): "
            "free some and start again"
        )


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may enter, or tighten an existing one. Raises SandboxError.

    A folder of another user, or of all users like /tmp, is refused.
    """
    with plain_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        # Another user could change the target of a link.
        if {status.st_uid, folder.lstat().st_uid} != {os.geteuid()} or status.st_mode & stat.S_ISVTX:
            raise SandboxError(
                f"{folder}: this folder is not yours alone: choose another with FENCELINE_DATA="
            )
        _close(folder, status.st_mode)


def tighten_modes(data: Path) -> None:
    """Remove the rights of group and others on an older stack's files. Raises SandboxError."""
    with plain_errors(data):
        for top in (path for pattern in MADE for path in data.glob(pattern)):
            _close(top, top.lstat().st_mode)
            for folder, folders, files in os.walk(top):
                for path in (Path(folder, name) for name in (*folders, *files)):
                    _close(path, path.lstat().st_mode)


def _close(path: Path, mode: int) -> None:
    if mode & 0o077 and not stat.S_ISLNK(mode):
        path.chmod(stat.S_IMODE(mode) & ~0o077)


def short_path(path: Path) -> Path:
    """Return a path for a Unix socket: the given path, or a shorter one in the temporary folder."""
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        return path
    name = hashlib.sha256(os.fsencode(path.parent)).hexdigest()[:16]
    short = Path(tempfile.gettempdir(), f"fenceline-{os.geteuid()}-{name}", path.name)
    if len(os.fsencode(short)) > LONGEST_SOCKET:
        raise SandboxError(f"{path}: too long for a socket: choose a shorter folder with FENCELINE_DATA=")
    return short


@contextmanager
def lock_folder(data: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Lock the folder for one stack at a time; the guard inherits the lock and keeps it until its end."""
    with plain_errors(data):
        file = (data / "lock").open("a+")
    with file:
        _take(file.fileno(), data, report)
        with plain_errors(data):
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        yield


def _take(descriptor: int, data: Path, report: Callable[[str], None]) -> None:
    until, reported = time.monotonic() + TAKE_OVER_S, False
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = (data / "lock").read_text().strip()
        is_running = owner.isdigit() and psutil.pid_exists(int(owner))
        if is_running or time.monotonic() > until:
            raise SandboxError(
                f"another stack runs on {data} (process {owner}): stop it with Ctrl-C or `kill {owner}`, "
                "or choose another folder with FENCELINE_DATA="
            )
        if not reported:
            report("a killed stack is still being cleared away …")
            reported = True
        time.sleep(0.1)


def stored_secret(
    data: Path,
    name: str,
    make_value: Callable[[], str] = lambda: secrets.token_urlsafe(16),
) -> str:
    """Return the secret of this name, made once and readable by its owner only."""
    path = data / "secrets" / name
    with plain_errors(path):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            write_private(path, make_value() + "\n")
        return path.read_text().strip()


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically, with mode 0600: readers see the whole old text or the whole new text."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(partial, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
    partial.replace(path)


def assign_ports(data: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Return a port per name: the last start's port if it is still free, so that clients find it again."""
    path = data / "ports.json"
    with plain_errors(path):
        try:
            before = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            before = {}
        chosen = {name: _usable(before.get(name)) for name in names}
        write_private(path, json.dumps({**before, **chosen}))
    return chosen


def _usable(port: object) -> int:
    return port if isinstance(port, int) and is_free(port) else free_port()


def write_stack(data: Path, stack: Mapping[str, object], running: Mapping[str, int]) -> None:
    """Write stack.json. Private: a database URL may hold a password."""
    parts = [{"name": name, "pid": pid} for name, pid in running.items()]
    with plain_errors(data):
        write_private(data / "stack.json", json.dumps({**stack, "parts": parts}, indent=2) + "\n")
