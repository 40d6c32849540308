"""Episodes, from an abort to the next commit, as a Celery task."""

from __future__ import annotations

import time

from celery import shared_task
from django.conf import settings

from collectors.recoveries import Search, find_lost
from collectors.tasks.slice import ANSWER_S, POLL_TTL, POLLERS, RETRY_S, Warm, goes_on, report, wait
from dashboard import aftermath, leases, save_recoveries, slices, store
from dashboard.models import Recovery
from fenceline.facts import Kind
from fenceline.recoveries import Lost
from transaction_admin.api import CannotAdminister
from transaction_admin.kafka_reads import KafkaPythonReads
from transaction_admin.properties import CannotTranslate

_TICK_S = 1.0
#: The broker's own aborts raise the epoch: no other one of the producer has the same.
_ALONE = frozenset({Kind.TIMEOUT, Kind.TAKEOVER, Kind.ADMIN_FENCE})

_reads = Warm(lambda properties: KafkaPythonReads(properties, ANSWER_S))


def start() -> None:
    """Send a first slice where nobody follows episodes."""
    slices.start_missing(recover, save_recoveries.NAME, POLLERS)


@shared_task(name="collectors.recoveries")
def recover(cluster: str, previous: int | None = None) -> None:
    """Follow a cluster's episodes for one slice; `previous`: the last slice's token."""
    if cluster in settings.FENCELINE.clusters:
        slices.run(
            recover, cluster, save_recoveries.NAME, follow, queue=POLLERS, previous=previous, ttl=POLL_TTL
        )


def follow(lease: leases.Lease, end: float) -> None:
    """Open, search and follow as the holder of `lease` until `time.monotonic()` passes `end`."""
    while goes_on(end):
        began = time.monotonic()
        limit_ms = settings.FENCELINE.limits.open_too_long_s * 1_000
        save_recoveries.tick(lease, limit_ms=limit_ms, now_ms=slices.now_ms())
        try:
            for row in save_recoveries.waiting_for_a_search(lease):
                if not goes_on(end):
                    return
                save_recoveries.save_lost(lease, row, _search(row, lease.cluster))
            store.clear_error(lease, slices.now_ms())
        except (CannotAdminister, CannotTranslate) as blind:
            report(lease, str(blind))
            _reads.cool(lease.cluster)
            wait(lease, RETRY_S, end)
        wait(lease, max(0.0, _TICK_S - (time.monotonic() - began)), end)


def _search(row: Recovery, cluster: str) -> list[Lost]:
    """Return what the transaction of an episode had written, partition by partition."""
    starts = aftermath.starts(row)
    if not starts:
        return []
    reads = _reads.of(cluster)
    alone = Kind(row.cause) in _ALONE
    who = row.producer_id, row.producer_epoch
    return [find_lost(reads, Search(where, start, *who, alone)) for where, start in starts.items()]
