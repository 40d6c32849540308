"""Leases with fencing tokens: at most one collector of a name writes, even if several run.

A lease is a row of `Collector`, timed by the database's clock. Every new holder increments its token, and
every save checks the holder's token. So a holder that was paused past its expiry cannot write.
"""

import os
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from dashboard.models import Cluster, Collector

#: The validity of a lease without a renewal; holders renew every second.
TTL = timedelta(seconds=6)


_KEY_COLUMNS = ("pk", "cluster_id", "name", "token")
#: The end of a lease, by the database's clock, from its validity in seconds.
_EXPIRY = {
    "sqlite": "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', %s || ' seconds')",
    "postgresql": "STATEMENT_TIMESTAMP() + make_interval(secs => %s)",
}
#: When a lease was last renewed by this process (monotonic), by cluster and collector.
_renewed: dict[tuple[int, str], float] = {}


class LeaseLost(Exception):
    """Another collector holds the lease, or has moved the positions; nothing was saved."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write as collector `name` of a cluster, until `token` is outdated."""

    cluster: str
    cluster_id: int
    name: str
    token: int
    ttl: timedelta = TTL

    @property
    def shard(self) -> int:
        """Return the shard in the name of a tail's lease (`transaction_state-1`), else 0."""
        number = self.name.rpartition("-")[2]
        return int(number) if number.isdigit() else 0

    def is_unbroken_since(self, token: int) -> bool:
        """Whether this process has held the lease without interruption since `token`."""
        return self.token - token in (0, 1)


def holder_name() -> str:
    """Return `host:process/thread`, unique among hosts and containers.

    In a container the host is the container's id, which distinguishes first processes with the same number.
    """
    return f"{socket.gethostname()}:{os.getpid()}/{threading.get_ident():x}"


def unheld_clusters(*names: str) -> Mapping[str, Sequence[str]]:
    """Return the configured clusters without a valid lease of a collector, by collector."""
    live = Collector.objects.filter(name__in=names, expires_at__gt=Now())
    held = set(live.values_list("name", "cluster__name"))
    clusters = list(Cluster.objects.filter(configured=True).order_by("name").values_list("name", flat=True))
    return {name: [cluster for cluster in clusters if (name, cluster) not in held] for name in names}


def acquire(
    cluster: str, name: str, *, holder: str, now_ms: int, previous: int | None = None, ttl: timedelta = TTL
) -> Lease | None:
    """Take the lease of a collector if it is free or expired, or if its token is `previous`, our last one.

    Returns None while another holder's lease is valid. Expiry is by the database's clock; `now_ms` is only
    the creation time of a new collector.
    """
    row = Cluster.objects.get(name=cluster)
    fresh = Collector(cluster=row, name=name, expires_at=Now(), since_ms=now_ms)
    Collector.objects.bulk_create([fresh], ignore_conflicts=True)
    collectors = Collector.objects.filter(cluster=row, name=name)
    with transaction.atomic():
        free = collectors.filter(Q(expires_at__lte=Now()) | Q(token=previous if previous is not None else -1))
        if not free.update(token=F("token") + 1, holder=holder[:128], expires_at=Now() + ttl):
            return None
        _renewed[row.id, name] = time.monotonic()
        return Lease(cluster, row.id, name, collectors.get().token, ttl)


def renew(lease: Lease, *, read: int = 0, **columns: object) -> Collector:
    """Extend a lease, set columns of its collector's row, add `read` to its records, and return the row.

    Raises `LeaseLost` if another holder has the lease. Raw SQL, because collectors renew many times a second.
    """
    changes = "".join(f", {name} = %s" for name in columns)
    statement = (
        f"UPDATE dashboard_collector SET expires_at = {_EXPIRY[connection.vendor]}, "  # noqa: S608
        f"records = records + %s{changes} WHERE cluster_id = %s AND name = %s AND token = %s RETURNING *"
    )
    values = lease.ttl.total_seconds(), read, *columns.values(), lease.cluster_id, lease.name, lease.token
    rows = list(Collector.objects.raw(statement, values))
    if not rows:
        raise LeaseLost(f"{lease.cluster}/{lease.name}: token {lease.token} is outdated")
    _renewed[lease.cluster_id, lease.name] = time.monotonic()
    return rows[0]


def renew_waiting(waiting: Iterable[Lease]) -> None:
    """Extend in one write all leases that this process has not renewed for a twelfth of their validity.

    Nothing is written until one lease reaches a sixth. Rows locked by a save are skipped, because the save
    renews its own lease. A lost lease is skipped: the next save of its holder detects the loss.
    """
    now = time.monotonic()
    ages = {lease: now - _renewed.get((lease.cluster_id, lease.name), 0.0) for lease in waiting}
    if not any(age >= lease.ttl.total_seconds() / 6 for lease, age in ages.items()):
        return
    old = {lease for lease, age in ages.items() if age >= lease.ttl.total_seconds() / 12}
    with transaction.atomic():
        held = _lock_held(old)
        for ttl in {lease.ttl for lease in held}:
            keys = [key for lease, key in held.items() if lease.ttl == ttl]
            Collector.objects.filter(pk__in=keys).update(expires_at=Now() + ttl)
    _renewed.update({(lease.cluster_id, lease.name): now for lease in old})


def _lock_held(of: Collection[Lease]) -> Mapping[Lease, int]:
    """Lock the rows of the leases that are still ours and not locked; return their keys."""
    rows = Collector.objects.select_for_update(no_key=True, skip_locked=True).filter(
        cluster_id__in={lease.cluster_id for lease in of}, name__in={lease.name for lease in of}
    )
    keys = {(cluster, name, token): pk for pk, cluster, name, token in rows.values_list(*_KEY_COLUMNS)}
    named = {lease: keys.get((lease.cluster_id, lease.name, lease.token)) for lease in of}
    return {lease: key for lease, key in named.items() if key is not None}


def release(lease: Lease) -> None:
    """Release a lease, so that the next holder need not wait for its expiry."""
    collector_row(lease).filter(token=lease.token).update(expires_at=Now())


def collector_row(lease: Lease) -> QuerySet[Collector]:
    """Return the collector row of a lease, whoever its holder is."""
    return Collector.objects.filter(cluster_id=lease.cluster_id, name=lease.name)
