"""End whole families of processes, also when whoever started them was killed.

Every part runs in its own session and carries MARKER in its environment. A session alone misses a
grandchild that made its own; the environment alone misses a server that overwrote its own (redis does,
to set its title). Together they find all. psutil reads both, on Linux and on macOS.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import psutil

MARKER = "FENCELINE_STACK"
#: How long processes get between SIGTERM and SIGKILL when their supervisor is gone.
ORPHAN_GRACE_S = 3.0


def session_processes(sessions: Collection[int], marker: str) -> list[int]:
    """Return the living processes of these sessions, and those whose marker is this one or begins with it.

    A part's marker is its stack's with "/" and its name. Our own process is never among them.
    """
    return [
        process.pid
        for process in psutil.process_iter()
        if process.pid != os.getpid() and (_session(process) in sessions or _carries(process, marker))
    ]


def _session(process: psutil.Process) -> int:
    """Return the session of a process; 0 when it is gone or a zombie, which nothing can end."""
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
    """Send a signal to each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_all(find: Callable[[], list[int]], grace_s: float) -> None:
    """SIGTERM what `find` returns, and SIGKILL what is still there after the grace, until nothing is."""
    signal_all(find(), signal.SIGTERM)
    until = time.monotonic() + grace_s
    while pids := find():
        if time.monotonic() > until:
            signal_all(pids, signal.SIGKILL)
        time.sleep(0.05)


class ProcessGuard:
    """A process that outlives its supervisor just long enough to end what that leaves behind.

    Forked before any thread exists. It learns sessions over a pipe and acts when the pipe closes, be it by
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
        """Tell it of a session to end."""
        os.write(self._write_end, b"%d\n" % session)

    def close(self) -> None:
        """Let it end what is left, and wait for that."""
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
