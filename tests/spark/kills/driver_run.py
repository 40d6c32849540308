"""One run of a driver that is to be killed: what it reads and writes, and where it dies.

Used in the driver, in its Python workers and by the harness; each run is one JSON file for all of them.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from fenceline.facts import TransactionState
from sandbox.processes import session_processes, signal_all
from tests.waiting import wait_for
from transaction_admin.kafka_python import TransactionAdmin

#: Names the file of the run, for a worker that nothing else reaches.
RUN_FILE = "FENCELINE_TEST_LIFE"


class Point(StrEnum):
    """Where a run ends; all but WRITING are the sink's own steps."""

    BEFORE_WRITE = "BEFORE_WRITE"
    #: In a task, while others have written.
    WRITING = "WRITING"
    WRITTEN = "WRITTEN"
    PREPARED = "PREPARED"
    ENDING = "ENDING"
    ENDED = "ENDED"
    DONE = "DONE"


class TaskFault(StrEnum):
    """What the first attempt of a task does once some task has written; Spark then runs it again."""

    FAILS = "fails"
    KILLS_ITS_EXECUTOR = "kills its executor"
    #: It waits with its transaction open until a copy of it, elsewhere, is as far; then both go on.
    WAITS = "waits"


@dataclass(frozen=True, slots=True)
class DriverRun:
    """What one process is to do."""

    number: int
    bootstrap: str
    source: str
    target: str
    prefix: str
    folder: str
    #: "foreach_batch" or "data_source".
    adapter: str
    stateful: bool
    #: maxOffsetsPerTrigger.
    limit: int
    #: One of Point, or "" to finish all there is.
    point: str = ""
    #: The first batch in which it may die.
    at_batch: int = 0
    #: What one task does beside, in its first attempt; one of Mischief.
    fault: str = ""
    #: The sink's step at which the process that takes it stops itself, once.
    pause: str = ""
    #: None leaves it to the sink.
    transaction_timeout_ms: int | None = None

    @property
    def checkpoint(self) -> str:
        """Where the query keeps its own."""
        return str(Path(self.folder) / "checkpoint")

    @property
    def events(self) -> Path:
        """The file of the events of every run."""
        return Path(self.folder) / "events.jsonl"

    def save(self, path: str) -> None:
        """Write it to a file."""
        Path(path).write_text(json.dumps(asdict(self)))

    @staticmethod
    def load(path: str | None = None) -> DriverRun:
        """Read it from a file, the one that the environment names where none is given."""
        return DriverRun(**json.loads(Path(path or os.environ[RUN_FILE]).read_text()))

    def add_event(self, what: str, **more: Any) -> None:
        """Add a line to the events: one write, so that lines of several processes stay whole."""
        line = json.dumps({"run": self.number, "what": what, "at": time.time(), **more}) + "\n"
        descriptor = os.open(self.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def events_of(self, what: str) -> list[dict[str, Any]]:
        """Return the events of this name, of any run."""
        return read_events(self.events, what)

    def on_step(self, step: Any, batch: int) -> None:
        """The sink's hook: add an event of the step, and die at the chosen one."""
        self.add_event(step.name, batch=batch)
        if step.name == self.point and batch >= self.at_batch:
            self.die(batch)
        if step.name == self.pause and not self.events_of("paused"):
            self.add_event("paused", pid=os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)

    def has_fault(self, batch: int) -> bool:
        """Whether a task of this batch has the fault: waiting in each batch, others in one alone."""
        if self.fault == TaskFault.WAITS:
            return True
        return bool(self.fault) and batch == self.at_batch

    def die(self, batch: int) -> None:
        """End the whole session with SIGKILL: the JVM first, lest it sees its workers go; ourselves last."""
        self.add_event("died", point=self.point, batch=batch)
        pids = session()
        signal_all([pid for pid in pids if is_java(pid)], signal.SIGKILL)
        signal_all(pids, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def read_events(events: Path, what: str = "") -> list[dict[str, Any]]:
    """Return the lines of a file of events, those in these words."""
    lines = events.read_text().splitlines() if events.exists() else []
    return [each for each in map(json.loads, lines) if each["what"] == what or not what]


def on_step(step: Any, batch: int) -> None:
    """Be the hook of a sink that takes one by name, in a process of its own."""
    DriverRun.load().on_step(step, batch)


def session(number: int = 0) -> list[int]:
    """Return the living processes of a session, ours without a number; ourselves not among them."""
    return session_processes({number or os.getsid(0)}, "none")


def is_java(pid: int) -> bool:
    """Whether a process is a JVM."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def passing(run: DriverRun) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return what `mapInArrow` puts before the sink: rows pass, and in WRITING they kill the driver.

    A task dies once another one's transaction is open at the broker: records are written, and not yet
    reported. Alone, it dies after its last row.
    """

    def each(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        doomed = run.point == Point.WRITING and batch >= run.at_batch
        if doomed and context.partitionId() > 0:
            wait_for_open(run)
            run.die(batch)
        yield from batches
        if run.has_fault(batch) and context.partitionId() == 0:
            inject_fault(run, batch, context.attemptNumber())
        if doomed:
            wait_for_open(run)
            run.die(batch)

    return each


def inject_fault(run: DriverRun, batch: int, attempt: int) -> None:
    """Inject the run's fault, in a task that has passed its last row."""
    if attempt > 0:
        run.add_event("again", batch=batch, attempt=attempt)
        return
    wait_for_open(run)
    run.add_event(run.fault, batch=batch)
    if run.fault == TaskFault.WAITS:
        wait_for(
            lambda: any(each["batch"] == batch for each in run.events_of("again")), "a copy is there", 120
        )
        return
    if run.fault == TaskFault.FAILS:
        raise RuntimeError("this task fails after it has written, as the test wants it")
    # Above a worker is the daemon that forked it, above that the executor.
    os.kill(parent(os.getppid()), signal.SIGKILL)


def parent(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_for_open(run: DriverRun, seconds: float = 10) -> bool:
    """Wait until a transaction of the sink is open; False when none is after so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if open_transactions(run.bootstrap, run.prefix):
            return True
        time.sleep(0.02)
    return False


def open_transactions(bootstrap: str, prefix: str) -> list[str]:
    """Return the transactional ids with a prefix whose transaction is open."""
    return transactions(
        bootstrap,
        prefix,
        [TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT],
    )


def transactions(bootstrap: str, prefix: str, states: Collection[TransactionState]) -> list[str]:
    """Return the transactional ids with a prefix that are in one of these states."""
    admin = TransactionAdmin({"bootstrap.servers": bootstrap})
    try:
        listed = admin.list_transactions(states).entries
    finally:
        admin.close()
    return [name for name in listed if name.startswith(prefix)]
