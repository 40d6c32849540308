"""Stop a process for a while, and continue it whatever becomes of us: `python -m sandbox.scenes.paused
PID`.

    with paused(pid):
        ...                          # the process is there, and does nothing

Run as a program it stops the process, prints that, and continues it when its standard input ends: its parent
has closed it, or is gone, be it by SIGKILL. So no process stays stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.errors import SandboxError
from sandbox.options import ROOT

_STOPPED = b"stopped\n"


@contextmanager
def pause_process(pid: int) -> Iterator[None]:
    """Stop a process for as long as this lasts. Raises SandboxError where it cannot be stopped."""
    # In a session of its own: Ctrl-C is for us.
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
    """Stop a process until standard input ends; return the exit status."""
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
