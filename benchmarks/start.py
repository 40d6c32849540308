"""Starts: of a whole stack with `make up`, and of the intake on a topic with a million records.

`run_stack` is the time to a page with live data, at the first start and at the second. The virtual
environment and the jars exist already; other machines add the time of their downloads.

`run_cold` reads 1,000,000 records of 100,000 ids, beside Kafka's own console formatter on the same topic.
Ours runs from the first poll of a running worker until the database is complete, with events and histories.
Each record is a batch of its own, as the coordinator writes. The formatter runs from its start and prints
into /dev/null. Pairs run in turn; the medians are compared.
"""

import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import seeding
from benchmarks.reader import read_all
from sandbox.kafka import Broker
from tests.deployment import Stack
from tests.waiting import wait_for

RECORDS, IDS, PAIRS = 1_000_000, 100_000, 3
FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"


def run_stack() -> dict[str, object]:
    """Start twice on one folder: the first start makes everything, the second start reuses it."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            "first start to live data, s": _start(Path(folder)),
            "second start to live data, s (<= 20)": _start(Path(folder)),
        }


def _start(folder: Path) -> float:
    began = time.monotonic()
    with Stack(folder) as stack:
        before = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        wait_for(lambda: _is_live(stack, before), "a transaction of this start is shown", 120)
        return round(time.monotonic() - began, 1)


def _is_live(stack: Stack, before: str) -> bool:
    return any(row["updated_at"] > before for row in stack.api("transactions")["items"])


def run_cold() -> dict[str, object]:
    """Measure on a separate broker."""
    with tempfile.TemporaryDirectory() as folder, seeding.run_broker(Path(folder) / "kafka") as broker:
        seeding.seed_records(broker.bootstrap, RECORDS, IDS, batch_records=1)
        prints, ones, twos = [], [], []
        for pair in range(PAIRS):
            prints.append(_formatter(broker))
            ones.append(read_all(Path(folder) / f"one-{pair}", broker.bootstrap))
            twos.append(read_all(Path(folder) / f"two-{pair}", broker.bootstrap, shards=2))
        assert all(run["records"] > RECORDS for run in ones + twos)
    formatter = median(prints)
    one, two = (median(run["seconds"] for run in runs) for runs in (ones, twos))
    return {
        "formatter, s": round(formatter, 2),
        "cold start, one worker, s": round(one, 2),
        "cold start, SHARDS=2, s": round(two, 2),
        "one worker / formatter (<= 0.7)": round(one / formatter, 2),
        "SHARDS=2 / formatter (<= 0.45)": round(two / formatter, 2),
        "resident memory, one worker, MB": max(run["rss_mb"] for run in ones),
    }


def _formatter(broker: Broker) -> float:
    """Return the seconds in which the console consumer prints all records."""
    command = broker.tool_command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap,
        "--topic", seeding.TOPIC, "--from-beginning", "--formatter", FORMATTER,
        "--max-messages", str(RECORDS), heap="512m",
    )  # fmt: skip
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.monotonic() - began
