"""Check the health of a worker: `python -m dashboard.runtime.lease_age tail-0` (or `pollers`).

A working worker renews its leases in the database every second. The exit status is 0 unless a lease expired
more than 30 s ago. A ping is not enough: a worker that answers may have stopped reading. The check loads only
the settings and a connection, no model, so it starts in a fraction of Django's time.
"""

import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

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


class LeaseAge(NamedTuple):
    """A collector's lease, and the seconds since its expiry (negative while it is valid)."""

    expired_for_s: float
    cluster: str
    collector: str


def lease_ages() -> Sequence[LeaseAge]:
    """Return every lease of a configured cluster, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_EXPIRED_FOR_S[connection.vendor]}, k.name, c.name FROM dashboard_collector c "  # noqa: S608
            "JOIN dashboard_cluster k ON k.id = c.cluster_id WHERE k.configured"
        )
        return [LeaseAge(float(seconds), cluster, name) for seconds, cluster, name in cursor.fetchall()]


def is_of(worker: str, collector: str, shards: int) -> bool:
    """Whether a worker, `tail-N` or `pollers`, runs a collector."""
    if not collector.startswith(_OF_TAILS):
        return worker == "pollers"
    shard = collector.rpartition("-")[2] if shards > 1 else "0"
    return worker == f"tail-{shard}"


def lease_trouble(worker: str, ages: Iterable[LeaseAge], shards: int) -> str:
    """Return the problem of a worker's leases, or ""."""
    own = [age for age in ages if is_of(worker, age.collector, shards)]
    if not own:
        return f"{worker}: no collector of it has ever run"
    oldest = max(own)
    if oldest.expired_for_s <= LATE_AFTER_S:
        return ""
    where = f"{oldest.cluster}/{oldest.collector}"
    return f"{worker}: the lease of {where} expired {oldest.expired_for_s:.0f} s ago"


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
