"""Pause a process for a while, and resume it even if we die: `python -m sandbox.scenes.paused PID`.

    with pause_process(pid):
        ...                          # the process exists, and does nothing

Run as a program it pauses the process, prints that, and resumes the process when its own standard input ends:
its parent has closed it, or has died, even by SIGKILL. So no process stays paused.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox import SandboxError
from sandbox.options import ROOT

_STOPPED = b"stopped\n"


@contextmanager
def pause_process(pid: int) -> Iterator[None]:
    """Pause a process while the context is open. Raises SandboxError if it cannot be paused."""
    # In its own session: Ctrl-C must not reach it.
    guard = subprocess.Popen(
        [sys.executable, "-m", "sandbox.scenes.paused", str(pid)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with guard:
        # Leaving closes its standard input and waits for its end.
        if guard.stdout is None or guard.stdout.readline() != _STOPPED:
            raise SandboxError(f"process {pid} cannot be stopped: look at the stack's parts again")
        yield


def main(pid: int) -> int:
    """Pause a process until standard input ends; return the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        os.kill(pid, signal.SIGSTOP)
        try:
            os.write(sys.stdout.fileno(), _STOPPED)
            sys.stdin.buffer.read()
        finally:
            os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
