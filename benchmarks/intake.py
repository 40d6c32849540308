"""Sustained intake: seed records at a steady rate, and measure how far a whole stack falls behind.

100,000 ids in random order, 4 records a transaction, 2 % notable. 60 s at 40,000 records a second with one
tail worker; then the highest rate that it holds; then the same with SHARDS=2. "Holds" means that the saved
positions were never more than 2 s of records behind the ends of the log. With the DATABASE_URL of a
PostgreSQL server the stack uses a new database there.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from benchmarks import seeding
from sandbox.kafka import Broker
from sandbox.options import ROOT
from tests import databases
from tests.deployment import Stack
from tests.waiting import wait_for

IDS, RATE, SECONDS, HELD_S = 100_000, 40_000, 60.0, 2.0
#: The rates to try for the maximum, and the seconds of each try.
STEPS, STEP_S = (50_000, 60_000, 70_000, 80_000, 90_000, 100_000, 120_000), 20.0
_READ = "SELECT sum(next_offset) FROM dashboard_position WHERE topic = '__transaction_state'"
_consumers: dict[str, Consumer] = {}
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def run() -> dict[str, object]:
    """Measure with one tail worker and with two."""
    figures: dict[str, object] = {}
    for shards in (1, 2):
        with tempfile.TemporaryDirectory() as folder, seeding.run_broker(Path(folder) / "kafka") as broker:
            seeding.seed_records(broker.bootstrap, IDS * seeding.RECORDS, IDS)
            with stack_for(Path(folder), broker, shards) as stack:
                wait_for(lambda: records_behind(stack, broker) == 0, "the start is read", 300)
                figures |= {f"SHARDS={shards}: {what}": figure for what, figure in _measure(stack, broker)}
    return figures


@contextmanager
def stack_for(folder: Path, broker: Broker, shards: int) -> Iterator[Stack]:
    """Run a stack that watches the broker without asking coordinators, which do not know seeded ids."""
    config = folder / "fenceline.toml"
    limits = "[limits]\nreconcile_every_s = 0\n"
    config.write_text(f'[clusters.bench]\n"bootstrap.servers" = "{broker.bootstrap}"\n{limits}')
    with Stack(folder, CONFIG=str(config), SHARDS=str(shards)) as stack:
        yield stack


def _measure(stack: Stack, broker: Broker) -> Iterator[tuple[str, object]]:
    held, lag, words = _hold(stack, broker, RATE, SECONDS)
    yield f"{RATE:,}/s for {SECONDS:.0f} s, seeded, records/s", round(held)
    yield f"{RATE:,}/s, furthest behind, s (<= {HELD_S})", round(lag, 2)
    for what, used in words.items():
        yield f"{RATE:,}/s, {what}", used
    highest = RATE if lag <= HELD_S else 0
    for rate in STEPS:
        seeded, lag, _ = _hold(stack, broker, rate, STEP_S)
        if lag > HELD_S or seeded < rate * 0.97:
            yield f"{rate:,}/s does not hold: seeded {seeded:,.0f}/s, behind, s", round(lag, 2)
            break
        highest = rate
    yield "highest rate held, records/s", highest


def _hold(stack: Stack, broker: Broker, rate: float, seconds: float) -> tuple[float, float, dict[str, str]]:
    """Seed at a rate; return the seeded records per second, the seconds behind, and the processes' usage."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.seeding",
        broker.bootstrap,
        str(IDS),
        str(rate),
        str(seconds),
    ]
    seeder = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert broker.process is not None
    pids = {"seeder": seeder.pid, "broker": broker.process.pid}
    pids |= {part: pid for part, pid in stack.pids().items() if part.startswith("worker-tail")}
    before, began = {name: process_usage(pid) for name, pid in pids.items()}, time.monotonic()
    lag, last, elapsed = 0.0, dict[str, Usage](), 0.0
    while seeder.poll() is None:
        lag = max(lag, records_behind(stack, broker) / rate)
        try:
            last, elapsed = {name: process_usage(pid) for name, pid in pids.items()}, time.monotonic() - began
        except OSError:
            break
        time.sleep(0.25)
    assert seeder.stdout is not None
    held = float(seeder.stdout.read())
    wait_for(lambda: records_behind(stack, broker) == 0, "the rest is read", 300)
    return held, lag, {name: last[name].since(before[name], elapsed) for name in last}


def records_behind(stack: Stack, broker: Broker) -> int:
    """Return the number of records between the saved positions and the ends of the log."""
    ends = _ends(broker.bootstrap)
    with databases.reading(stack.described()["database"]) as cursor:
        cursor.execute(_READ)
        (read,) = cursor.fetchone()
    return ends - int(read or 0)


def _ends(bootstrap: str) -> int:
    if bootstrap not in _consumers:
        _consumers[bootstrap] = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0}
        )
    asked = [TopicPartition(seeding.TOPIC, number, -1) for number in range(seeding.PARTITIONS)]
    return sum(position.offset for position in _consumers[bootstrap].offsets_for_times(asked, timeout=10))


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of processor time and MB written since the process began, and resident MB now."""

    cpu_s: float
    rss_mb: float
    written_mb: float

    def since(self, before: Self, seconds: float) -> str:
        """Return the usage per second since an earlier one, as text."""
        cpu = (self.cpu_s - before.cpu_s) / seconds
        written = (self.written_mb - before.written_mb) / seconds
        return f"{cpu:.0%} of a core, {written:.0f} MB/s written, {self.rss_mb:.0f} MB resident"


def process_usage(pid: int) -> Usage:
    """Return the usage of a running process. Raises OSError if it has ended."""
    proc = Path("/proc") / str(pid)
    fields = (proc / "stat").read_text().rpartition(") ")[2].split()
    written = next(
        int(line.split()[1]) for line in (proc / "io").read_text().splitlines() if line.startswith("write_b")
    )
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
    return Usage(cpu_s, int(fields[21]) * _PAGE / 1e6, written / 1e6)
