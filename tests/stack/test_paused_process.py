"""A process that is paused does nothing, and resumes whatever becomes of the process that paused it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import SandboxError
from sandbox.scenes.paused import pause_process
from tests.waiting import process_state, wait_for

ROOT = Path(__file__).resolve().parents[2]
PAUSER = (
    "import sys, time\n"
    "from sandbox.scenes.paused import pause_process\n"
    "with pause_process(int(sys.argv[1])): time.sleep(600)"
)


@pytest.fixture
def sleeper() -> Iterator[int]:
    """Return the pid of a process that only sleeps."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process.pid
        process.kill()


def fail(pid: int) -> None:
    """Fail while a process is paused."""
    with pause_process(pid):
        wait_for(lambda: process_state(pid) == "T", "the kernel has stopped it")
        raise KeyboardInterrupt


def test_a_paused_process_resumes_afterwards_and_after_a_failure(sleeper: int) -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fail(sleeper)
        assert process_state(sleeper) != "T"


def test_a_paused_process_resumes_when_its_pauser_is_killed(sleeper: int) -> None:
    with subprocess.Popen([sys.executable, "-c", PAUSER, str(sleeper)], cwd=ROOT) as pauser:
        wait_for(lambda: process_state(sleeper) == "T", "it is paused")
        pauser.kill()
    wait_for(lambda: process_state(sleeper) != "T", "it goes on")


def test_a_process_that_is_gone_cannot_be_paused() -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    with pytest.raises(SandboxError, match=f"process {gone.pid} cannot be stopped"), pause_process(gone.pid):
        pass
