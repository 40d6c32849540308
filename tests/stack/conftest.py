"""Run a stack of small processes, and end whatever a failing test leaves of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sandbox.ports import free_port
from tests.stack.postgres.server import Server
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
#: Marks every process of one test, whatever session it makes for itself.
TEST_MARKER = "FENCELINE_TEST_STACK"


class Running:
    """A supervisor in a process of its own, its output, and the processes that descend from it."""

    def __init__(self, folder: Path, marker: str = "") -> None:
        self.folder, self.port = folder, free_port()
        self._marker = marker or f"{os.getpid()}-{folder.parent.name}"
        self.lines: list[str] = []
        self.process: subprocess.Popen[str] | None = None

    def start(
        self, scenario: str = "whole", port: int | None = None, launcher: Sequence[str] = ()
    ) -> Running:
        """Start a scenario of parts.py, by a launcher where one is given."""
        command = [
            *launcher,
            sys.executable,
            "-m",
            "tests.stack.parts",
            str(self.folder),
            str(port or self.port),
            scenario,
        ]
        environment = {**os.environ, TEST_MARKER: self._marker, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()
        return self

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        self.lines.extend(line.rstrip() for line in iter(process.stdout.readline, ""))

    def lines_with(self, text: str) -> list[str]:
        """Return the lines that contain a text."""
        return [line for line in list(self.lines) if text in line]

    def wait_for(self, text: str, count: int = 1, deadline_s: float = 40) -> None:
        """Wait until so many lines contain a text."""
        wait_for(lambda: len(self.lines_with(text)) >= count, f"it says {text!r}", deadline_s)

    def pid(self, part: str) -> int:
        """Return the process of a part, from stack.json."""
        stack = json.loads((self.folder / "stack.json").read_text())
        return next(int(row["pid"]) for row in stack["parts"] if row["name"] == part)

    def end(self, number: signal.Signals) -> int:
        """Signal the supervisor; return its exit status once its output is read to the end."""
        assert self.process
        self.process.send_signal(number)
        return self.wait()

    def wait(self, deadline_s: float = 40) -> int:
        """Wait for the supervisor's own end."""
        assert self.process
        status = self.process.wait(deadline_s)
        self._reader.join(deadline_s)
        return status

    def family(self) -> list[int]:
        """Return every living process that came from this test."""
        sign = f"{TEST_MARKER}={self._marker}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and sign in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def clean(self) -> None:
        """End by pid whatever is left."""
        for pid in self.family():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if self.process:
            self.process.wait(20)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    """A PostgreSQL of the file's own, which its tests may kill."""
    with Server() as postgres:
        yield postgres


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Running]:
    """Return a stack in a temporary folder that has not been started."""
    running = Running(tmp_path / "data")
    yield running
    running.clean()
