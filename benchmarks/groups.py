"""One poll of 500 consumer groups over 2,000 partitions: read, evaluated, and in the database.

Each group has committed for four partitions of its own. Between two polls the first hundred commit again, so
some rows change. The poll of the partitions comes on top.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from benchmarks.reader import NAME, reader_environment, run_redis
from sandbox.kafka import Broker
from sandbox.options import ROOT
from tests.brokers import create_topics
from tests.kafka.group_commits import commit_offsets

GROUPS, TOPICS, PARTITIONS, OF_GROUP, POLLS = 500, 20, 100, 4, 7


def run() -> dict[str, object]:
    """Measure on a broker and in a process of our own."""
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "kafka") as broker:
        for number in range(TOPICS):
            create_topics(broker.bootstrap, f"t{number}", partitions=PARTITIONS)
        _commit(broker.bootstrap, range(GROUPS), 0)
        with run_redis(Path(folder)) as url:
            variables = reader_environment(Path(folder) / "ours", broker.bootstrap, url)
            command = [sys.executable, "-m", "benchmarks.groups", broker.bootstrap]
            completed = subprocess.run(
                command, cwd=ROOT, env=variables, text=True, check=True, capture_output=True
            )
    first, *others = ([float(word) for word in line.split()] for line in completed.stdout.splitlines())
    asked, saved, requests = (median(each[n] for each in others) for n in range(3))
    return {
        "first poll, s": round(first[0] + first[1], 2),
        "a poll, s (<= 1.0 with that of partitions)": round(asked + saved, 2),
        "of it asking the brokers, s": round(asked, 2),
        "of it evaluating and saving, s": round(saved, 2),
        "requests a poll": round(requests),
    }


def _commit(bootstrap: str, groups: Iterable[int], offset: int) -> None:
    """Let groups commit an offset for each of their partitions."""

    def one(group: int) -> None:
        first = group * OF_GROUP % (TOPICS * PARTITIONS)
        topic, partition = divmod(first, PARTITIONS)
        commit_offsets(
            bootstrap, f"g{group}", f"t{topic}", **{f"p{partition + n}": offset for n in range(OF_GROUP)}
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, groups))


def main(bootstrap: str) -> None:
    """Poll so many times; print for each the seconds of asking and of saving, and the requests."""
    import django

    django.setup()
    from collectors.kafka.groups import GroupsCollector
    from dashboard.groups import store as group_store
    from dashboard.runtime import leases, loop
    from transaction_admin.kafka_reads import KafkaPythonReads

    lease = leases.acquire(NAME, group_store.NAME, holder="bench", now_ms=loop.now_ms())
    assert lease is not None
    properties = {"bootstrap.servers": bootstrap}
    collector = GroupsCollector(properties, KafkaPythonReads(properties))
    for number in range(POLLS):
        began = time.monotonic()
        rows = group_store.GroupRows(lease, loop.now_ms())
        found = collector.poll(loop.now_ms(), rows, every_s=0)
        asked = time.monotonic()
        group_store.save_groups(lease, found, rows, now_ms=loop.now_ms())
        assert len(found.groups) == GROUPS
        print(asked - began, time.monotonic() - asked, found.requests, flush=True)
        _commit(bootstrap, range(100), number + 1)
    collector.close()


if __name__ == "__main__":
    main(sys.argv[1])
