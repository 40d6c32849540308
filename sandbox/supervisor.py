"""Run a list of parts: start each after its dependencies, restart dead parts, leave no process behind.

    parts = [
        Part("redis", redis.command(folder, port), ready=lambda: redis.is_ready(port), stage=0),
        Part("migrate", [python, "manage.py", "migrate"], once=True),
        Part("web", ["uvicorn", …], ready=…, after=("redis", "migrate"), stage=2),
    ]
    status = Supervisor(parts, logs=data / "logs").run()

A part starts when all parts in `after` are ready. A dead part restarts at once, and with a pause from the
third death within 30 s on; 10 s of readiness reset the count. SIGINT, SIGTERM and SIGHUP stop everything, the
highest stage first; a second signal kills at once. After a SIGKILL the guard ends all parts
(docs/design/web.md §5).
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, cast

from sandbox import SandboxError
from sandbox.processes import (
    MARKER,
    PartLog,
    ProcessGuard,
    end_all,
    print_line,
    session_processes,
    signal_all,
)

#: Maximum seconds without a line on the terminal during the start.
REPORT_EVERY_S = 5.0
FORGIVE_AFTER_S = 10.0
WINDOW_S = 30.0
LONGEST_PAUSE_S = 30.0
#: Number of deaths of an essential part before its first readiness that end the start.
GIVE_UP_AFTER = 5


@dataclass(frozen=True, slots=True)
class Part:
    """One process of the stack. `command` may be a callable that returns the argument list."""

    name: str
    command: Sequence[str] | Callable[[], Sequence[str]]
    #: Added to the supervisor's own environment.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Called several times a second until it is true. Without this and `ready_line`, a running part is ready.
    ready: Callable[[], bool] | None = None
    #: The part is ready once it has printed a line with this text.
    ready_line: str = ""
    after: tuple[str, ...] = ()
    #: Parts of the highest stage stop first, parts of stage 0 last.
    stage: int = 1
    #: The part runs to its end and is then ready; its failure ends the start.
    once: bool = False
    #: Whether the start fails if the part never becomes ready.
    essential: bool = True
    stop_within_s: float = 10.0
    #: After this time the terminal names an unready part; the start keeps waiting for it.
    slow_after_s: float = 60.0


class Backoff:
    """The pause before a restart, from the recent deaths."""

    def __init__(self) -> None:
        self._deaths: list[float] = []
        self._pause_s = 0.0

    def record_death(self, now_s: float, ready_for_s: float) -> float:
        """Record a death and return the pause in seconds: 0, 0, then 2, 4, … 30."""
        if ready_for_s >= FORGIVE_AFTER_S:
            self._deaths, self._pause_s = [], 0.0
        self._deaths = [*(t for t in self._deaths if now_s - t <= WINDOW_S), now_s]
        if not self._pause_s and len(self._deaths) < 3:
            return 0.0
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2 or 2.0)
        return self._pause_s


class Supervisor:
    """Runs parts until it is stopped, or a start fails permanently."""

    def __init__(
        self,
        parts: Sequence[Part],
        logs: Path,
        *,
        on_ready: Callable[[list[str]], None] = lambda waiting: None,
        on_change: Callable[[dict[str, int]], None] = lambda running: None,
        remove_after: Sequence[Path] = (),
        parent: int = 0,
    ) -> None:
        """`on_change` gets {part: pid} at each start and death; `remove_after` is deleted at the end.

        `on_ready` is called when all essential parts are ready, with the names of unready parts, and again
        when all are ready. With `parent`, our parent's process id, it stops when the parent has died.
        """
        self._marker = uuid.uuid4().hex
        self._keepers = {part.name: _Keeper(part, logs, self) for part in parts}
        self._on_ready, self._on_change = on_ready, on_change
        self._remove_after = remove_after
        self._signals, self._parent = 0, parent
        self._changing = threading.Lock()
        self._began_at = self._reported_at = 0.0
        self.stopping = threading.Event()
        self.failure = ""

    def run(self) -> int:
        """Run until stopped; return the exit status. Call it from the main thread, before others start."""
        self._guard = ProcessGuard(self._marker, self._remove_after)
        before = {
            n: signal.signal(n, self._signalled) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        self._began_at = self._reported_at = time.monotonic()
        for keeper in self._keepers.values():
            keeper.thread.start()
        try:
            self._attend()
        finally:
            self.stopping.set()
            self._stop()
            self._guard.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        return 1 if self.failure else 0

    def wait_for(self, names: Sequence[str]) -> bool:
        """Wait until these parts are ready; return False if the stack stops before."""
        for name in names:
            while not self._keepers[name].is_ready.wait(0.05):
                if self.stopping.is_set():
                    return False
        return not self.stopping.is_set()

    def give_up(self, reason: str) -> None:
        """Stop everything because of one part."""
        self.failure = self.failure or reason
        self.stopping.set()

    def part_environment(self, part: Part) -> dict[str, str]:
        return {**os.environ, **part.environment, MARKER: f"{self._marker}/{part.name}"}

    def note_started(self, process: subprocess.Popen[bytes]) -> None:
        """Record a new process, first of all for the guard."""
        self._guard.watch(process.pid)
        self.report_parts()

    def note_ready(self, name: str, verb: str, after_s: float) -> None:
        """Print the number of ready parts, and the newest one."""
        self._reported_at = time.monotonic()
        count = len(self._keepers) - len(self._waiting())
        print_line(f"[{count:2}/{len(self._keepers)}] {name} is {verb} ({after_s:.1f} s)")

    def report_parts(self) -> None:
        with self._changing:
            running = {name: k.process.pid for name, k in self._keepers.items() if k.process}
            self._on_change(running)

    def part_leftovers(self, part: Part, session: int) -> list[int]:
        """Return the running processes of a part, in its own and its children's sessions."""
        return session_processes({session}, f"{self._marker}/{part.name}")

    def _attend(self) -> None:
        """Watch for readiness, and for the end."""
        awaited = {keeper.part.name for keeper in self._keepers.values() if keeper.part.essential}
        is_starting = True
        while not self._signals and not self.stopping.is_set() and self._parent in (0, os.getppid()):
            waiting = self._waiting()
            if awaited and awaited.isdisjoint(waiting):
                awaited, is_starting = set(waiting), False
                self._on_ready(waiting)
            elif is_starting:
                self._report_waiting(waiting)
            time.sleep(0.05)

    def _waiting(self) -> list[str]:
        return [name for name, keeper in self._keepers.items() if not keeper.is_ready.is_set()]

    def _report_waiting(self, waiting: list[str]) -> None:
        now = time.monotonic()
        if now > self._reported_at + REPORT_EVERY_S:
            self._reported_at = now
            print_line(f"starting {', '.join(waiting)} ({now - self._began_at:.0f} s)")

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        # Only count: setting an Event here could wait for a lock that the interrupted code holds.
        self._signals += 1

    def _stop(self) -> None:
        if self.failure:
            print_line(self.failure)
        print_line("stopping …")
        for stage in sorted({keeper.part.stage for keeper in self._keepers.values()}, reverse=True):
            self._stop_stage([k for k in self._keepers.values() if k.part.stage == stage])
        print_line("stopped")

    def _stop_stage(self, keepers: list[_Keeper]) -> None:
        for keeper in keepers:
            keeper.terminate()
        asked = time.monotonic()
        while any(keeper.thread.is_alive() for keeper in keepers):
            for keeper in keepers:
                if self._signals > 1 or time.monotonic() > asked + keeper.part.stop_within_s:
                    keeper.kill()
            time.sleep(0.05)


class _Keeper:
    """Keeps one part alive, in its own thread."""

    def __init__(self, part: Part, logs: Path, supervisor: Supervisor) -> None:
        self.part, self._supervisor = part, supervisor
        self.log = PartLog(part.name, logs, part.ready_line)
        self.process: subprocess.Popen[bytes] | None = None
        self.is_ready = threading.Event()
        self.thread = threading.Thread(target=self._keep, name=part.name)
        self._backoff = Backoff()
        self._ready_at = 0.0
        self._early_deaths = 0
        self._starting = threading.Lock()

    def terminate(self) -> None:
        """Ask the part to end. It holds the lock, so that no process starts afterwards."""
        with self._starting:
            if self.process and self.process.poll() is None:
                self.process.terminate()

    def kill(self) -> None:
        """Kill the part and its whole session."""
        if process := self.process:
            signal_all(self._supervisor.part_leftovers(self.part, process.pid), signal.SIGKILL)

    def _keep(self) -> None:
        if not self._supervisor.wait_for(self.part.after):
            return
        try:
            while (process := self._start()) and not self._run(process):
                pass
        except (SandboxError, OSError) as error:
            reason = f"{self.part.name}: {error}"
            if self.part.essential:
                self._supervisor.give_up(reason)
            else:
                print_line(f"{reason} (everything else runs on without it)")
        finally:
            self.process = None

    def _start(self) -> subprocess.Popen[bytes] | None:
        """Start the part; return None if the stack is stopping."""
        command = self.part.command() if callable(self.part.command) else self.part.command
        with self._starting:
            if self._supervisor.stopping.is_set():
                return None
            process = self._spawn(list(command))
            self.process = process
        self._supervisor.note_started(process)
        return process

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._supervisor.part_environment(self.part),
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"cannot start {command[0]}: {error.strerror}: install or repair it") from None

    def _run(self, process: subprocess.Popen[bytes]) -> bool:
        """Watch one process from its start to its end; return whether the part is finished permanently."""
        born = time.monotonic()
        self.log.seen.clear()
        pump = self.log.pump(cast(IO[bytes], process.stdout))
        if not self.part.once:
            self._wait_until_ready(process, born)
        status = process.wait()
        # A surviving grandchild would hold ports, folders and this pipe.
        end_all(lambda: self._supervisor.part_leftovers(self.part, process.pid), grace_s=2)
        pump.join(5)
        return self._ended(status, born)

    def _wait_until_ready(self, process: subprocess.Popen[bytes], born: float) -> None:
        slow_said = False
        while process.poll() is None:
            if self._looks_ready():
                self._ready_at = time.monotonic()
                self.is_ready.set()
                self._supervisor.note_ready(self.part.name, "ready", self._ready_at - born)
                return
            if time.monotonic() - born > self.part.slow_after_s and not slow_said:
                slow_said = True
                print_line(
                    f"{self.part.name} is not ready after {self.part.slow_after_s:.0f} s: see {self.log.path}"
                )
            if self._supervisor.stopping.wait(0.1):
                return

    def _looks_ready(self) -> bool:
        if self.part.ready_line:
            return self.log.seen.is_set()
        return self.part.ready is None or self.part.ready()

    def _ended(self, status: int, born: float) -> bool:
        self.process = None
        if self._supervisor.stopping.is_set():
            return True
        self._supervisor.report_parts()
        if self.part.once and status == 0:
            self.is_ready.set()
            self._supervisor.note_ready(self.part.name, "done", time.monotonic() - born)
            return True
        return self._died(status, born)

    def _died(self, status: int, born: float) -> bool:
        """Report the death, then pause; return whether to leave the part dead."""
        now = time.monotonic()
        ready_for_s = now - self._ready_at if self._ready_at > born else 0.0
        ever_ready = self.is_ready.is_set()
        self._early_deaths += not ever_ready
        what = f"{self.part.name} died ({exit_reason(status)}) after {now - born:.0f} s"
        output = " / ".join(line for line in self.log.tail if line)[-600:]
        if self.part.once or (self.part.essential and self._early_deaths >= GIVE_UP_AFTER):
            self._supervisor.give_up(f"{what}; its output: {output or 'none'}; all of it: {self.log.path}")
            return True
        pause_s = self._backoff.record_death(now, ready_for_s)
        then = f"restarting in {pause_s:.0f} s" if pause_s else "restarting at once"
        print_line(f"{what}, {then}; its output: {output or 'none'}")
        return self._supervisor.stopping.wait(pause_s)


def exit_reason(status: int) -> str:
    """Describe the end of a process, from subprocess's return code."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
