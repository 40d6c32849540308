"""Processes of the sandbox: end whole trees, also after their supervisor was killed; write a part's output to
a file of bounded size, while the terminal shows only the lines of `make up`.

Every part runs in its own session and has MARKER in its environment. The session misses a grandchild with its
own session; the environment misses a server that overwrote it (redis does, to set its title). Together they
find all. psutil reads both, on Linux and on macOS.
"""

import contextlib
import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import IO

import psutil

MARKER = "FENCELINE_STACK"
#: Time between SIGTERM and SIGKILL after the supervisor's death.
ORPHAN_GRACE_S = 3.0
#: A log file is rotated at this size, so a part keeps at most twice of it.
ROTATE_BYTES = 4_000_000
#: Longer lines are split into pieces of this many bytes.
LINE_BYTES = 16_384
#: Colours and cursor movements: meaningless in a file, and after a prefix.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")

_terminal = threading.Lock()


def session_processes(sessions: Collection[int], marker: str) -> list[int]:
    """Return the living processes of these sessions, and of this marker or markers that begin with it.

    A part's marker is its stack's marker, "/" and its name. Our own process is never included.
    """
    return [
        process.pid
        for process in psutil.process_iter()
        if process.pid != os.getpid() and (_session(process) in sessions or _carries(process, marker))
    ]


def _session(process: psutil.Process) -> int:
    """Return the session of a process; 0 for an ended one or a zombie."""
    try:
        return 0 if process.status() == psutil.STATUS_ZOMBIE else os.getsid(process.pid)
    except (psutil.Error, OSError):
        return 0


def _carries(process: psutil.Process, marker: str) -> bool:
    try:
        value: str = process.environ().get(MARKER, "")
    except (psutil.Error, OSError):
        return False
    return value == marker or value.startswith(f"{marker}/")


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_all(find: Callable[[], list[int]], grace_s: float) -> None:
    """SIGTERM the processes of `find`, and SIGKILL the living ones after the grace, until none is left."""
    signal_all(find(), signal.SIGTERM)
    until = time.monotonic() + grace_s
    while pids := find():
        if time.monotonic() > until:
            signal_all(pids, signal.SIGKILL)
        time.sleep(0.05)


class ProcessGuard:
    """A process that outlives its supervisor to end the leftover processes.

    It is forked before any thread exists, reads sessions from a pipe, and acts when the pipe closes: by
    `close()` or by the supervisor's death.
    """

    def __init__(self, marker: str, remove: Iterable[Path] = ()) -> None:
        read_end, self._write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._write_end)
                _guard(read_end, marker, remove)
            finally:
                os._exit(0)
        os.close(read_end)

    def watch(self, session: int) -> None:
        """Register a session to end."""
        os.write(self._write_end, b"%d\n" % session)

    def close(self) -> None:
        """Let it end leftover processes, and wait for its end."""
        os.close(self._write_end)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _guard(read_end: int, marker: str, remove: Iterable[Path]) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with open(read_end, "rb") as pipe:
        sessions = {int(line) for line in pipe}
    for path in remove:
        path.unlink(missing_ok=True)
    end_all(lambda: session_processes(sessions, marker), ORPHAN_GRACE_S)


def print_line(line: str) -> None:
    """Print one line. A closed terminal is ignored."""
    with _terminal, contextlib.suppress(OSError, ValueError):
        print(line, flush=True)


class PartLog:
    """The log of one part, across its restarts."""

    def __init__(self, name: str, folder: Path, awaited: str = "") -> None:
        """`awaited` is what a line must contain to set `seen`."""
        self.name, self._awaited = name, awaited
        self.seen = threading.Event()
        self.path = folder / f"{name}.log"
        #: The last lines, for the report of its death.
        self.tail: deque[str] = deque(maxlen=6)
        self._complained = False

    def pump(self, stream: IO[bytes]) -> threading.Thread:
        """Copy a process's output until it ends, in a new thread; return the thread."""
        thread = threading.Thread(target=self._copy, args=(stream,), name=f"log-{self.name}", daemon=True)
        thread.start()
        return thread

    def _copy(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(LINE_BYTES):
                self.write(_ESCAPES.sub("", line.decode(errors="replace")).rstrip())

    def write(self, line: str) -> None:
        self.tail.append(line)
        if self._awaited and self._awaited in line:
            self.seen.set()
        try:
            self._append(line)
            self._complained = False
        except OSError as error:
            if not self._complained:
                print_line(f"cannot write {self.path}: {error.strerror}: the log continues here until then")
            self._complained = True
            print_line(f"{self.name}: {line}")

    def _append(self, line: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.path.stat().st_size >= ROTATE_BYTES:
                os.replace(self.path, self.path.with_suffix(".log.1"))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
