"""A driver of its own that reports batches and then runs until it is killed.

python -m tests.spark.listener.driver URL SPOOL FIRST COUNT [LARGEST FILE]
"""

import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.options import ROOT


class Driver:
    """Such a process, from when it has reported its batches; killed, as the kernel would, at the end."""

    def __init__(self, url: str, spool: Path, first: int, count: int, largest: int = -1) -> None:
        arguments = [url, str(spool), str(first), str(count), str(largest)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.listener.driver", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.output = ""

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "told\n", self._error()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill it; `output` is then what it has printed."""
        if self._process.poll() is None:
            self._process.kill()
            self.output = self._error()

    def _error(self) -> str:
        return self._process.communicate()[1]


def main(url: str, spool: str, first: str, count: str, largest: str) -> None:
    """Report the batches, then wait for ever."""
    from spark_listener import FencelineListener
    from tests.spark.listener.events import QUICK, TOKEN, call_listener

    if int(largest) >= 0:
        # What a full disk does to a file, for this process alone.
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest), int(largest)))
    listener = FencelineListener(url, TOKEN, spool=spool, pace=QUICK)
    call_listener(listener, range(int(first), int(first) + int(count)))
    print("told", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
