"""A query whose drivers are killed: its rows, its processes, and the output that must be there in the end."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Producer

from sandbox.processes import signal_all
from spark_pipeline.sink import Step
from tests.brokers import create_topics
from tests.spark.conftest import ROOT, environment
from tests.spark.kills.driver_run import RUN_FILE, DriverRun, Point, open_transactions, read_events, session
from tests.spark.topic_records import read_messages
from tests.waiting import wait_for

#: How long a run may take on a busy machine.
RUN_S = 600
PARTITIONS = 3


class DriverProcess:
    """A process in a session of its own that has started Spark, or is about to, and waits for its run."""

    def __init__(self, folder: Path, more: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "run.json"
        self.log = folder / "driver.log"
        command = [
            sys.executable,
            "-m",
            "tests.spark.kills.driver",
            str(folder),
            json.dumps(dict(more or {})),
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # Executors of a local cluster keep their files there.
                env={
                    **os.environ,
                    **environment(folder),
                    RUN_FILE: str(self.path),
                    "SPARK_WORKER_DIR": str(folder / "work"),
                },
            )

    def begin(self, run: DriverRun) -> None:
        """Start a run."""
        run.save(str(self.path))
        assert self.process.stdin is not None
        self.process.stdin.write(f"{self.path}\n".encode())
        self.process.stdin.flush()

    def wait(self, seconds: float = RUN_S) -> int:
        """Wait for its end, and end what is left of its session; return its status, negative by signal."""
        try:
            return self.process.wait(seconds)
        finally:
            self.kill()

    def kill(self) -> None:
        """End its whole session."""
        signal_all(session(self.process.pid), signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)


@dataclass
class KilledQuery:
    """A query that is killed again and again: `with KilledQuery(bootstrap, folder, dice) as query`."""

    bootstrap: str
    folder: Path
    dice: random.Random
    adapter: str = "foreach_batch"
    stateful: bool = False
    #: Settings of the session beside the harness's own.
    conf: Mapping[str, str] = field(default_factory=dict)
    number: int = 0
    produced: int = 0
    spare: DriverProcess | None = None

    def __post_init__(self) -> None:
        self.name = f"kills-{self.dice.randrange(16**6):06x}"
        create_topics(self.bootstrap, f"{self.name}-in", f"{self.name}-out", partitions=PARTITIONS)
        self.producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self.spare:
            self.spare.kill()

    def next_run(self, point: str = "", *, survive: int = 0, **more: Any) -> DriverRun:
        """Return the next run: it dies at `point`, `survive` batches after the one that it begins with."""
        self.number += 1
        commits = self.folder / "checkpoint" / "commits"
        done = [int(each.name) for each in commits.glob("*") if each.name.isdigit()]
        return DriverRun(
            number=self.number,
            bootstrap=self.bootstrap,
            source=f"{self.name}-in",
            target=f"{self.name}-out",
            prefix=self.name,
            folder=str(self.folder),
            adapter=self.adapter,
            stateful=self.stateful,
            limit=self.dice.randrange(60, 600),
            point=point,
            at_batch=max(done, default=-1) + 1 + survive,
            **more,
        )

    def produce(self, amount: int) -> None:
        """Write so many new numbers to the input, each once, to partitions at random."""
        for number in range(self.produced, self.produced + amount):
            self.producer.produce(
                f"{self.name}-in", key=str(number), partition=self.dice.randrange(PARTITIONS)
            )
            self.producer.poll(0)
        assert self.producer.flush(30) == 0
        self.produced += amount

    def driver(self) -> DriverProcess:
        """Return a driver, the spare one if there is one."""
        ready, self.spare = self.spare, None
        return ready or self.start_driver()

    def start_driver(self) -> DriverProcess:
        """Start one more."""
        return DriverProcess(self.folder / f"driver-{self.dice.randrange(16**6):06x}", self.conf)

    def run_until_killed(self, point: Point, *, survive: int | None = None, **more: Any) -> DriverRun:
        """Run until the driver is killed at `point`, with enough input until then; start the next driver."""
        survive = self.dice.randrange(3) if survive is None else survive
        run = self.next_run(point, survive=survive, **more)
        # One batch more than it needs: recovery may finish the first one without a step to die at.
        self.produce(run.limit * (survive + 1) + self.dice.randrange(run.limit))
        driver = self.driver()
        driver.begin(run)
        # A driver that starts beside it would slow down the recovery that is measured.
        wait_for(lambda: self.recovered(run) or driver.process.poll() is not None, "it has recovered", RUN_S)
        self.spare = self.start_driver()
        status = driver.wait()
        assert status == -signal.SIGKILL, f"{status}: {self.events()[-3:]}, see {driver.log}"
        assert self.died(run), f"not where it should: {self.events()[-3:]}"
        return run

    def recovered(self, run: DriverRun) -> bool:
        """Whether that run has ended what was left before it."""
        return any(each["run"] == run.number for each in self.events_of(Step.OPENED.name))

    def died(self, run: DriverRun) -> bool:
        """Whether that run ended at its point."""
        deaths = [each for each in self.events_of("died") if each["run"] == run.number]
        return bool(deaths) and all(each["point"] == run.point for each in deaths)

    def run_to_end(self, **more: Any) -> DriverRun:
        """Run until everything is read and written."""
        run = self.next_run(**more)
        driver = self.driver()
        driver.begin(run)
        status = driver.wait()
        assert status == 0, f"{status}: {self.events()[-3:]}, see {driver.log}"
        return run

    def events(self) -> list[dict[str, Any]]:
        """Return the events of all runs."""
        return self.events_of("")

    def events_of(self, what: str) -> list[dict[str, Any]]:
        """Return the events of this name, of all runs."""
        return read_events(self.folder / "events.jsonl", what)

    def resume(self) -> None:
        """Continue a process that has stopped itself."""
        os.kill(self.events_of("paused")[-1]["pid"], signal.SIGCONT)

    def recoveries(self, since: str = "started") -> list[float]:
        """Return, per run but the first, the seconds from an event until all before it was ended."""
        return list(recovery_times(self.events(), since))

    def check(self) -> None:
        """Compare the committed output with the input: each once, with the right value, and nothing open."""
        rows = committed_records(self.bootstrap, f"{self.name}-out")
        wrong = wrong_counts(rows, self.produced) if self.stateful else wrong_rows(rows, self.produced)
        assert not wrong, wrong
        wait_for(lambda: not open_transactions(self.bootstrap, self.name), "nothing is left open")


def recovery_times(events: list[dict[str, Any]], since: str) -> Iterator[float]:
    """Yield the seconds of `KilledQuery.recoveries`."""
    begun: dict[int, float] = {}
    for each in events:
        if each["what"] == since and each["run"] > 1:
            begun.setdefault(each["run"], each["at"])
        elif each["what"] == Step.OPENED.name and each["run"] in begun:
            yield each["at"] - begun.pop(each["run"])


def wrong_rows(rows: list[tuple[str, str]], amount: int) -> str:
    """Return what is wrong with a stateless query's output; "" where each number is there once and right."""
    found = Counter(key for key, _ in rows)
    lost = [number for number in range(amount) if str(number) not in found]
    doubled = [key for key, times in found.items() if times > 1]
    false = [row for row in rows if not row[0].isdigit() or row[1] != str(int(row[0]) * 7919 + 13)]
    strange = [key for key in found if not key.isdigit() or int(key) >= amount]
    return _listed(lost=lost, doubled=doubled, false=false, strange=strange)


def wrong_counts(rows: list[tuple[str, str]], amount: int) -> str:
    """Return what is wrong with a running count's output: versions without a hole, sums that add up."""
    from tests.spark.kills.driver import GROUPS

    found: dict[str, list[tuple[int, int, int]]] = {}
    for key, value in rows:
        version, added, total = map(int, value.split())
        found.setdefault(key, []).append((version, added, total))
    holes, sums = [], []
    for key, updates in found.items():
        updates.sort()
        if [version for version, _, _ in updates] != list(range(1, len(updates) + 1)):
            holes.append((key, [version for version, _, _ in updates]))
        running = 0
        for version, added, total in updates:
            running += added
            if running != total:
                sums.append((key, version))
    ends = {key: updates[-1][2] for key, updates in found.items()}
    true = Counter(str(number % GROUPS) for number in range(amount))
    return _listed(holes=holes, sums=sums, ends=[] if ends == true else [ends, dict(true)])


def _listed(**wrong: list[Any]) -> str:
    return "; ".join(f"{len(each)} {name}: {each[:10]}" for name, each in wrong.items() if each)


def committed_records(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """Return key and value of every record of a topic that a read_committed consumer gets."""
    messages = read_messages(bootstrap, topic)
    return [((each.key() or b"").decode(), (each.value() or b"").decode()) for each in messages]
