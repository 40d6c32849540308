"""Busy processes, for tests on a loaded machine."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: A process ends by itself after so long, should nobody end it.
LONGEST_S = 900
_BUSY = f"import signal; signal.alarm({LONGEST_S})\nwhile True: pass"


@contextmanager
def cpu_load(processes: int) -> Iterator[None]:
    """Keep so many processes busy meanwhile, for a quarter of an hour at most."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
