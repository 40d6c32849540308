"""Write the output of a part to a file of bounded size; the terminal shows only the lines of `make up`."""

import contextlib
import os
import re
import threading
from collections import deque
from pathlib import Path
from typing import IO

#: A log file is rotated at this size, so a part keeps at most twice of it.
ROTATE_BYTES = 4_000_000
#: Longer lines are split into pieces of this many bytes.
LINE_BYTES = 16_384
#: Colours and cursor movements: meaningless in a file, and after a prefix.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")

_terminal = threading.Lock()


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
