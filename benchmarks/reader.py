"""One tail worker without Celery: `python -m benchmarks.reader BOOTSTRAP FOLDER`, on a database of its own.

Reads until it has seen everything that was there when it began, and prints one line of JSON: seconds from
its first look, records, resident memory.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path


def main(bootstrap: str, folder: Path) -> None:
    """Make the database and read."""
    os.environ |= {
        "DATABASE_URL": f"sqlite:///{folder / 'fenceline.db'}",
        "SECRET_KEY": "only for benchmarks",
        "FENCELINE_DATA": str(folder),
        "DJANGO_SETTINGS_MODULE": "dashboard.settings",
        "REDIS_URL": os.environ.get("REDIS_URL", "redis://127.0.0.1:1/0"),
    }
    os.environ.pop("FENCELINE_CONFIG", None)
    import django

    django.setup()
    began = time.time()
    records = read(bootstrap)
    ended = time.time()
    print(
        json.dumps(
            {
                "reading_s": round(ended - began, 2),
                "records": records,
                "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


def read(bootstrap: str) -> int:
    """Read one cluster to its end as its tail does; return how many records that were."""
    from django.core.management import call_command
    from django.test import override_settings

    from collectors import tasks
    from dashboard import leases, slices, store
    from dashboard.config import ClusterConfig, Config
    from dashboard.models import Collector

    call_command("migrate", verbosity=0)
    cluster = ClusterConfig("bench", {"bootstrap.servers": bootstrap})
    store.sync_clusters([cluster.name])
    asked_ms = slices.now_ms()
    with override_settings(FENCELINE=Config(clusters={cluster.name: cluster})):
        lease = leases.acquire(cluster.name, tasks.tail_name(0), holder="bench", now_ms=asked_ms)
        assert lease is not None
        while (Collector.objects.get().seen_through_ms or 0) <= asked_ms:
            tasks.read(lease, time.monotonic() + 0.2)
    return Collector.objects.get().records


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
