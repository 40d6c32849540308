"""Check the health of a worker: `python -m dashboard.runtime.lease_age tail-0` (or `pollers`).

A working worker renews its leases in the database every second. The exit status is 0 unless a lease expired
more than 30 s ago. A ping is not enough: a worker that answers may have stopped reading. The check loads only
the settings and a connection, no model, so it starts in a fraction of Django's time.
"""

import os
import sys
import warnings
from collections.abc import Iterable, Sequence

from django.conf import settings
from django.db import DatabaseError, connection

#: The most seconds between a lease's expiry and its next slice.
LATE_AFTER_S = 30.0
#: The leases of tail workers; `dashboard.runtime.collector_names` names each shard's.
_OF_TAILS = ("transaction_state", "consumer_offsets")
_EXPIRED_FOR_S = {
    "postgresql": "extract(epoch FROM now() - c.expires_at)",
    "sqlite": "(julianday('now') - julianday(c.expires_at)) * 86400",
}


def lease_ages() -> Sequence[tuple[float, str, str]]:
    """Return the seconds since the expiry of each lease, with its cluster and collector.

    They are by the database's clock, and negative while a lease is valid.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_EXPIRED_FOR_S[connection.vendor]}, k.name, c.name FROM dashboard_collector c "  # noqa: S608
            "JOIN dashboard_cluster k ON k.id = c.cluster_id WHERE k.configured"
        )
        return [(float(seconds), cluster, name) for seconds, cluster, name in cursor.fetchall()]


def is_of(worker: str, collector: str, shards: int) -> bool:
    """Whether a worker, `tail-N` or `pollers`, runs a collector."""
    if not collector.startswith(_OF_TAILS):
        return worker == "pollers"
    shard = collector.rpartition("-")[2] if shards > 1 else "0"
    return worker == f"tail-{shard}"


def lease_trouble(worker: str, ages: Iterable[tuple[float, str, str]], shards: int) -> str:
    """Return the problem of a worker's leases, or ""."""
    own = [age for age in ages if is_of(worker, age[2], shards)]
    if not own:
        return f"{worker}: no collector of it has ever run"
    expired_for_s, cluster, collector = max(own)
    if expired_for_s <= LATE_AFTER_S:
        return ""
    return f"{worker}: the lease of {cluster}/{collector} expired {expired_for_s:.0f} s ago"


def main(arguments: Sequence[str]) -> int:
    """Print the problem and return the exit status."""
    if len(arguments) != 1:
        print("usage: python -m dashboard.runtime.lease_age tail-0|pollers", file=sys.stderr)  # noqa: T201
        return 2
    # Django warns about the missing apps, which are not loaded on purpose.
    warnings.filterwarnings("ignore", "Accessing the database during app initialization")
    try:
        trouble = (
            lease_trouble(arguments[0], lease_ages(), settings.SHARDS) if settings.FENCELINE.clusters else ""
        )
    except DatabaseError as error:
        trouble = f"the database cannot be used: {error}"
    print(trouble or "ok")  # noqa: T201
    return 1 if trouble else 0


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    sys.exit(main(sys.argv[1:]))
