"""The program `fenceline` as a process of its own: at a terminal, or with its output in a file."""

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import ioctl
from typing import NamedTuple

from tests.waiting import process_state, wait_for

PROGRAM = (sys.executable, "-m", "fenceline_client.main")
_SECONDS = 60


def hear_ctrl_c() -> None:
    """Let a child hear Ctrl-C, which a shell that runs tests in the background has its children ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Finished(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The only line on stderr."""
        (line,) = self.err.splitlines()
        assert line.startswith("fenceline: ")
        return line.removeprefix("fenceline: ")


class Terminal:
    """A program at a terminal: what it shows, and what is typed."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process, self._descriptor, self.text = process, descriptor, ""

    def wait_for(self, text: str) -> None:
        """Read until a text is shown; fail with what was shown where it does not come."""
        end = time.monotonic() + _SECONDS
        while text not in self.text:
            assert time.monotonic() < end, self.text
            assert self._read(end), self.text

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._descriptor, f"{text}\n".encode())

    def press_ctrl_c(self) -> None:
        """Interrupt the program once it waits: Python forgets a signal between a prompt and its read."""
        wait_for(lambda: process_state(self.process.pid) == "S", "the program waits for what is typed")
        self.process.send_signal(signal.SIGINT)

    def status(self) -> int:
        """Read to the end; return the exit status."""
        end = time.monotonic() + _SECONDS
        while self._read(end):
            assert time.monotonic() < end, self.text
        return self.process.wait(_SECONDS)

    def _read(self, end: float) -> bool:
        """Read what is shown next; return whether there was something."""
        ready, _, _ = select.select([self._descriptor], [], [], max(0, end - time.monotonic()))
        try:
            shown = os.read(self._descriptor, 65_536) if ready else b""
        except OSError:  # Linux says so when the last process has left the terminal.
            shown = b""
        self.text += shown.decode(errors="replace")
        return bool(shown)


@contextmanager
def terminal(*arguments: str, columns: int = 200, **environment: str) -> Iterator[Terminal]:
    """Run the program at a terminal of so many columns."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=_without_size(environment),
        start_new_session=True,
        preexec_fn=hear_ctrl_c,
    )
    os.close(follower)
    try:
        yield Terminal(process, leader)
    finally:
        process.kill()
        process.wait()
        os.close(leader)


def _without_size(environment: Mapping[str, str]) -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return {**inherited, "TERM": "xterm", **environment}
