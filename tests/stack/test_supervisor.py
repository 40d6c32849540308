"""The supervisor restarts stopped parts, names what fails, and leaves no process behind however it ends.

Every process here is real: parts.py runs servers, parents of daemons and a part that ignores SIGTERM.
"""

import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping

import pytest

from sandbox.supervisor import Backoff, exit_reason
from tests.cases import cases
from tests.stack.conftest import Running
from tests.waiting import wait_for

#: Scenarios of parts.py whose supervisor gives up, and why.
GIVE_UP = {
    "setup-fails": r"prepare died \(exit status 3\) .* its output: no such database; all of it: .*\.log",
    "never-ready": r"broken died \(exit status 3\) .* its output: no such database",
    "no-program": r"missing: cannot start /nonexistent/program: No such file or directory",
}
TROUBLED = (*GIVE_UP, "slow", "crash-loop")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A stack whose supervisor nothing ends."""
    running = Running(tmp_path_factory.mktemp("whole") / "data")
    running.start().wait_for("all is ready")
    yield running
    running.clean()


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Running]]:
    """A stack of each scenario in which something fails: they start together, since each takes seconds."""
    stacks = {
        name: Running(tmp_path_factory.mktemp(name) / "data", f"{os.getpid()}-{name}") for name in TROUBLED
    }
    for name, running in stacks.items():
        running.start(name)
    yield stacks
    for running in stacks.values():
        running.clean()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_it_stops_the_lowest_stage_last_and_leaves_no_process_behind(
    stack: Running, number: signal.Signals
) -> None:
    stack.start().wait_for("all is ready")
    # Supervisor, guard, server and its daemon, worker and its child, and the one that ignores SIGTERM.
    wait_for(lambda: len(stack.family()) == 7, "every part and its children run")
    server = stack.pid("server")
    assert stack.process
    stack.process.send_signal(number)
    if number != signal.SIGKILL:
        # `stubborn`, of a higher stage, takes a second to die; the server must outlive it.
        wait_for(lambda: stack.lines_with("stopping"), "it is stopping")
        assert server in stack.family()
    assert stack.wait() == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    wait_for(lambda: not stack.family(), "nothing is left")
    wait_for(lambda: not (stack.folder / "stack.json").exists(), "stack.json is gone")
    assert (stack.folder / "logs" / "worker.log").read_text() == "waiting\n"
    assert not stack.lines_with("waiting")
    assert [line[:5] for line in stack.lines_with(" is ready (")] == ["[ 1/3", "[ 2/3", "[ 3/3"]


def test_it_ends_with_the_process_that_started_it(stack: Running) -> None:
    """As `make`, killed by the kernel or from another terminal."""
    wait = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    stack.start("with-parent", launcher=(sys.executable, "-c", wait)).wait_for("all is ready")
    assert stack.process
    stack.process.kill()
    wait_for(lambda: not stack.family(), "nothing is left")
    assert stack.lines_with("stopped")


def test_it_refuses_a_second_stack_on_the_same_folder(whole: Running) -> None:
    assert whole.process
    second = Running(whole.folder, whole._marker).start()
    assert second.wait() == 1
    assert f"another stack runs on {whole.folder} (process {whole.process.pid})" in second.lines[-1]
    assert len(whole.family()) == 7


def test_it_refuses_a_taken_port(whole: Running) -> None:
    other = Running(whole.folder.with_name("other"), whole._marker).start(port=whole.port)
    assert other.wait() == 1
    assert other.lines == [
        f"parts: port {whole.port} (the server) is not usable: Address already in use: choose another"
    ]


def test_it_names_a_part_that_dies_and_restarts_it_at_once(whole: Running) -> None:
    first = whole.pid("worker")
    os.kill(first, signal.SIGKILL)
    whole.wait_for("worker died (killed by SIGKILL)")
    assert "restarting at once; its output: waiting" in whole.lines_with("worker died")[0]
    wait_for(lambda: whole.lines_with("worker is ready")[1:], "the worker is ready again")
    wait_for(lambda: whole.pid("worker") != first, "the worker is another process")
    # The child of the killed process went with it: the family is as large as before.
    wait_for(lambda: len(whole.family()) == 7, "every part and its children run")


def test_it_backs_off_from_the_third_death_on(troubled: Mapping[str, Running]) -> None:
    stack = troubled["crash-loop"]
    stack.wait_for("broken died", count=3)
    pauses = [
        re.search(r"restarting (at once|in \d+ s)", line) for line in stack.lines_with("broken died")[:3]
    ]
    assert [found and found[1] for found in pauses] == ["at once", "at once", "in 2 s"]
    # It is not essential: the rest starts and stays up.
    stack.wait_for("all is ready")


def test_it_names_what_it_still_waits_for(troubled: Mapping[str, Running]) -> None:
    troubled["slow"].wait_for("starting broken (")
    assert not troubled["slow"].lines_with("all is ready")


@cases(
    # (seconds since the start, seconds it had been ready)
    ([(0, 0), (1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (32, 0), (62, 0)], [0, 0, 2, 4, 8, 16, 30, 30]),
    # Three deaths, but never three within 30 s.
    ([(0, 0), (20, 0), (40, 0), (60, 0)], [0, 0, 0, 0]),
    # Ten seconds of readiness forgive; nine do not.
    ([(0, 0), (1, 0), (2, 0), (14, 10), (15, 0), (16, 0)], [0, 0, 2, 0, 0, 2]),
    ([(0, 0), (1, 0), (2, 0), (13, 9)], [0, 0, 2, 4]),
)
def test_it_pauses_for_the_documented_times(deaths: list[tuple[float, float]], pauses: list[float]) -> None:
    backoff = Backoff()
    assert [backoff.record_death(now, ready_for) for now, ready_for in deaths] == pauses


@pytest.mark.parametrize(("scenario", "line"), GIVE_UP.items())
def test_it_gives_up_with_one_line_and_a_status(
    troubled: Mapping[str, Running], scenario: str, line: str
) -> None:
    stack = troubled[scenario]
    assert stack.wait() == 1
    assert re.search(line, stack.lines_with("parts: ")[0])
    assert not stack.lines_with("Traceback")
    wait_for(lambda: not stack.family(), "nothing is left")


def test_it_waits_for_the_guard_of_a_killed_stack(stack: Running) -> None:
    stack.start().wait_for("all is ready")
    assert stack.process
    stack.process.kill()
    stack.process.wait(20)
    # `stubborn` keeps the guard, and with it the lock, busy for three seconds.
    again = Running(stack.folder, stack._marker).start(port=stack.port)
    again.wait_for("a killed stack is still being cleared away")
    again.wait_for("all is ready")
    assert again.end(signal.SIGTERM) == 0


def test_it_reports_how_a_process_ended() -> None:
    assert [exit_reason(n) for n in (0, 3, -9, -15, -99)] == [
        "exit status 0",
        "exit status 3",
        "killed by SIGKILL",
        "killed by SIGTERM",
        "killed by signal 99",
    ]
