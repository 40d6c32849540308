"""One shard's tail without Celery: `python -m benchmarks.reader SHARD`, in an environment of `environment`.

Says `ready` once Django is, waits for a line, reads until it has seen everything that was there when it
began, and prints one line of JSON: seconds of reading, records, resident memory.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from sandbox.options import ROOT

NAME = "bench"


def environment(folder: Path, bootstrap: str, shards: int = 1) -> dict[str, str]:
    """Return the environment of a database of its own in `folder`, which is migrated; nothing else runs."""
    folder.mkdir(parents=True, exist_ok=True)
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
        # Nobody listens: a bell costs as little as one that nobody hears.
        "REDIS_URL": "redis://127.0.0.1:1/0",
    }
    subprocess.run([sys.executable, "manage.py", "prepare"], cwd=ROOT, env=found, check=True)
    return found


def read_all(folder: Path, bootstrap: str, shards: int = 1) -> dict[str, float]:
    """Read a whole topic into a new database with so many processes.

    Returns `seconds` from the first look to the last save, `records`, and the largest `rss_mb`.
    """
    variables = environment(folder, bootstrap, shards)
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
    began = time.monotonic()
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("go\n")
        reader.stdin.flush()
    found = [json.loads(reader.communicate()[0]) for reader in readers]
    return {
        "seconds": time.monotonic() - began,
        "records": sum(each["records"] for each in found),
        "rss_mb": max(each["rss_mb"] for each in found),
    }


def main(shard: int) -> None:
    """Be one reader."""
    import django

    django.setup()
    print("ready", flush=True)
    sys.stdin.readline()
    records = _read(shard)
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"records": records, "rss_mb": rss_mb}), flush=True)


def _read(shard: int) -> int:
    """Read one cluster to its end as its tail does; return how many records that were."""
    from collectors import tasks
    from dashboard import leases, slices
    from dashboard.models import Collector

    asked_ms = slices.now_ms()
    lease = leases.acquire(NAME, tasks.tail_name(shard), holder="bench", now_ms=asked_ms)
    assert lease is not None
    mine = Collector.objects.filter(name=lease.name)
    while (mine.get().seen_through_ms or 0) <= asked_ms:
        tasks.read(lease, time.monotonic() + 0.1)
    return mine.get().records


if __name__ == "__main__":
    main(int(sys.argv[1]))
