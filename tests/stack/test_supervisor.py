"""The supervisor restarts stopped parts, names what fails, and leaves no process behind however it ends.

Every process here is real: parts.py runs servers, parents of daemons and a part that ignores SIGTERM.
"""

import os
import re
import signal
import sys

import pytest

from sandbox.supervisor import Backoff, exit_reason
from tests.stack.conftest import Running
from tests.waiting import wait_for


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_it_leaves_no_process_behind(stack: Running, number: signal.Signals) -> None:
    stack.start().wait_for("all is ready")
    # Supervisor, guard, server and its daemon, worker and its child, and the one that ignores SIGTERM.
    wait_for(lambda: len(stack.family()) == 7, "every part and its children run")
    status = stack.end(number)
    assert status == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    wait_for(lambda: not stack.family(), "nothing is left")
    wait_for(lambda: not (stack.folder / "stack.json").exists(), "stack.json is gone")


def test_it_ends_with_the_process_that_started_it(stack: Running) -> None:
    """As `make`, killed by the kernel or from another terminal."""
    wait = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    stack.start("with-parent", launcher=(sys.executable, "-c", wait)).wait_for("all is ready")
    assert stack.process
    stack.process.kill()
    wait_for(lambda: not stack.family(), "nothing is left")
    assert stack.lines_with("stopped")


def test_it_stops_the_lowest_stage_last(stack: Running) -> None:
    stack.start().wait_for("all is ready")
    server = stack.pid("server")
    os.kill(stack.process.pid, signal.SIGTERM)  # type: ignore[union-attr]
    # `stubborn`, of a higher stage, takes a second to die; the server must outlive it.
    wait_for(lambda: stack.lines_with("stopping"), "it is stopping")
    assert server in stack.family()
    assert stack.wait() == 0


def test_it_names_a_part_that_dies_and_restarts_it_at_once(stack: Running) -> None:
    stack.start().wait_for("all is ready")
    first = stack.pid("worker")
    os.kill(first, signal.SIGKILL)
    stack.wait_for("worker died (killed by SIGKILL)")
    assert "restarting at once; its output: waiting" in stack.lines_with("worker died")[0]
    wait_for(lambda: stack.lines_with("worker is ready")[1:], "the worker is ready again")
    wait_for(lambda: stack.pid("worker") != first, "the worker is another process")
    # The child of the killed process went with it: the family is as large as before.
    wait_for(lambda: len(stack.family()) == 7, "every part and its children run")


def test_it_backs_off_from_the_third_death_on(stack: Running) -> None:
    stack.start("crash-loop").wait_for("broken died", count=3)
    pauses = [
        re.search(r"restarting (at once|in \d+ s)", line) for line in stack.lines_with("broken died")[:3]
    ]
    assert [found and found[1] for found in pauses] == ["at once", "at once", "in 2 s"]
    # It is not essential: the rest starts and stays up.
    stack.wait_for("all is ready")


def test_it_names_what_it_still_waits_for(stack: Running) -> None:
    stack.start("slow").wait_for("starting broken (")
    assert not stack.lines_with("all is ready")


@pytest.mark.parametrize(
    ("deaths", "pauses"),
    [
        # (seconds since the start, seconds it had been ready)
        ([(0, 0), (1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (32, 0), (62, 0)], [0, 0, 2, 4, 8, 16, 30, 30]),
        # Three deaths, but never three within 30 s.
        ([(0, 0), (20, 0), (40, 0), (60, 0)], [0, 0, 0, 0]),
        # Ten seconds of readiness forgive; nine do not.
        ([(0, 0), (1, 0), (2, 0), (14, 10), (15, 0), (16, 0)], [0, 0, 2, 0, 0, 2]),
        ([(0, 0), (1, 0), (2, 0), (13, 9)], [0, 0, 2, 4]),
    ],
)
def test_it_pauses_for_the_documented_times(deaths: list[tuple[float, float]], pauses: list[float]) -> None:
    backoff = Backoff()
    assert [backoff.record_death(now, ready_for) for now, ready_for in deaths] == pauses


@pytest.mark.parametrize(
    ("scenario", "line"),
    [
        (
            "setup-fails",
            r"prepare died \(exit status 3\) .* its output: no such database; all of it: .*\.log",
        ),
        ("never-ready", r"broken died \(exit status 3\) .* its output: no such database"),
        ("no-program", r"missing: cannot start /nonexistent/program: No such file or directory"),
    ],
)
def test_it_gives_up_with_one_line_and_a_status(stack: Running, scenario: str, line: str) -> None:
    assert stack.start(scenario).wait() == 1
    assert re.search(line, stack.lines_with("parts: ")[0])
    assert not stack.lines_with("Traceback")
    wait_for(lambda: not stack.family(), "nothing is left")


def test_it_refuses_a_second_stack_on_the_same_folder(stack: Running) -> None:
    stack.start().wait_for("all is ready")
    second = Running(stack.folder, stack._marker).start()
    assert second.wait() == 1
    assert f"another stack runs on {stack.folder} (process {stack.process.pid})" in second.lines[-1]  # type: ignore[union-attr]
    assert len(stack.family()) == 7


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


def test_it_refuses_a_taken_port(stack: Running) -> None:
    stack.start().wait_for("all is ready")
    other = Running(stack.folder.with_name("other"), stack._marker).start(port=stack.port)
    assert other.wait() == 1
    assert other.lines == [
        f"parts: port {stack.port} (the server) is not usable: Address already in use: choose another"
    ]


def test_it_writes_each_parts_log(stack: Running) -> None:
    stack.start().wait_for("all is ready")
    stack.end(signal.SIGTERM)
    assert (stack.folder / "logs" / "worker.log").read_text() == "waiting\n"
    assert not stack.lines_with("waiting")
    assert [line[:5] for line in stack.lines_with(" is ready (")] == ["[ 1/3", "[ 2/3", "[ 3/3"]


def test_it_reports_how_a_process_ended() -> None:
    assert [exit_reason(n) for n in (0, 3, -9, -15, -99)] == [
        "exit status 0",
        "exit status 3",
        "killed by SIGKILL",
        "killed by SIGTERM",
        "killed by signal 99",
    ]
