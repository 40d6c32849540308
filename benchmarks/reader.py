"""One shard's tail of `__transaction_state` without Celery: `python -m benchmarks.reader SHARD`.

It runs in the environment that `_reader_environment` returns.

Prints `ready` once Django is loaded, waits for a line, reads all records that existed at its begin, and
prints one line of JSON: seconds of reading, records, resident memory.
"""

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sandbox import redis
from sandbox.options import ROOT
from tests.waiting import wait_for

NAME = "bench"


@contextmanager
def _run_redis(folder: Path) -> Iterator[str]:
    """Run a Redis for change notifications, without subscribers; yield its URL."""
    server = redis.Server(folder / "redis")
    process = subprocess.Popen(server.command(), stdout=subprocess.DEVNULL)
    try:
        wait_for(server.is_ready, "redis answers")
        yield server.url
    finally:
        process.terminate()
        process.wait()


def _reader_environment(folder: Path, bootstrap: str, redis_url: str, shards: int) -> dict[str, str]:
    """Migrate a new database in `folder`; return its environment."""
    config = folder / "fenceline.toml"
    config.write_text(
        f'[clusters.{NAME}]\n"bootstrap.servers" = "{bootstrap}"\n[limits]\nreconcile_every_s = 0\n'
    )
    found = os.environ | {
        "DATABASE_URL": f"sqlite:///{folder / 'fenceline.db'}",
        "SECRET_KEY": "only for benchmarks",
        "FENCELINE_DATA": str(folder),
        "FENCELINE_CONFIG": str(config),
        "DJANGO_SETTINGS_MODULE": "dashboard.settings",
        "SHARDS": str(shards),
        "REDIS_URL": redis_url,
    }
    subprocess.run([sys.executable, "manage.py", "prepare"], cwd=ROOT, env=found, check=True)
    return found


def read_all(folder: Path, bootstrap: str, shards: int = 1) -> dict[str, float]:
    """Read a whole topic into a new database with a number of processes.

    Returns `seconds` from the first poll to the last save, `records`, and the largest `rss_mb`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _run_redis(folder) as url:
        return _read_all(_reader_environment(folder, bootstrap, url, shards), shards)


def _read_all(variables: Mapping[str, str], shards: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.reader"]
    readers = [
        subprocess.Popen(
            [*command, str(shard)], cwd=ROOT, env=variables, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        for shard in range(shards)
    ]  # fmt: skip
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    began = time.time()
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("go\n")
        reader.stdin.flush()
    found = [json.loads(reader.communicate()[0]) for reader in readers]
    return {
        "seconds": max(run["ended"] for run in found) - began,
        "records": sum(run["records"] for run in found),
        "rss_mb": max(run["rss_mb"] for run in found),
    }


def main(shard: int) -> None:
    """Run one reader."""
    import django

    django.setup()
    # A worker imports them too.
    importlib.import_module("dashboard.tasks.schedule")
    print("ready", flush=True)
    sys.stdin.readline()
    ended, records = _read(shard)
    # The largest resident memory; `getrusage` would count that of the parent before the fork, too.
    words = Path("/proc/self/status").read_text().split()
    rss_mb = int(words[words.index("VmHWM:") + 1]) // 1024
    print(json.dumps({"ended": ended, "records": records, "rss_mb": rss_mb}), flush=True)


def _read(shard: int) -> tuple[float, int]:
    """Read one cluster to its end as its tail does; return the instant of the end, and the records.

    The tail then waits for new records: that is not counted.
    """
    from dashboard.models import Collector
    from dashboard.runtime import leases, loop
    from dashboard.tasks import tails

    asked_ms = loop.now_ms()
    lease = leases.acquire(NAME, tails.tail_name(shard), holder="bench", now_ms=asked_ms)
    assert lease is not None
    mine, ended = Collector.objects.filter(name=lease.name), []

    def stop_at_the_end() -> None:
        while (mine.get().seen_through_ms or 0) <= asked_ms:
            time.sleep(0.02)
        ended.append(time.time())
        loop.stop_requested.set()

    threading.Thread(target=stop_at_the_end, daemon=True).start()
    tails.read_until(lease, time.monotonic() + 600)
    return ended[0], mine.get().records


if __name__ == "__main__":
    main(int(sys.argv[1]))
