"""Follow episodes, from an abort to the next commit, as a Celery task."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from django.conf import settings

from collectors.kafka.recoveries import Search, Topics, find_lost
from dashboard.models import Recovery
from dashboard.recoveries import evidence as recovery_evidence
from dashboard.recoveries import store as recovery_store
from dashboard.runtime import collector_store, leases, loop
from dashboard.tasks.aborted_commits import check_commits
from dashboard.tasks.slice import Polled, Warm, open_reads, poll_repeatedly
from fenceline.facts import TopicPartition, TransitionKind
from fenceline.losses.recoveries import LostRecords, TopicNow, deletion_reason, same_topic

_TICK_S = 1.0
#: The broker's own aborts raise the epoch, so the aborted transaction is the only one with its epoch.
_ALONE = frozenset({TransitionKind.TIMEOUT, TransitionKind.TAKEOVER, TransitionKind.ADMIN_FENCE})

#: Seconds between two requests about topics that may be deleted.
_TOPICS_S = 3.0

_reads = Warm(open_reads)
_topics: defaultdict[str, Topics] = defaultdict(Topics)


def follow_in_turns(lease: leases.Lease) -> loop.Turns:
    """Open, search and follow as the holder of `lease`, in turns."""
    topics_at = 0.0

    def poll() -> loop.Turns:
        nonlocal topics_at
        began = time.monotonic()
        limit_ms = settings.FENCELINE.limits.open_too_long_s * 1_000
        collector = recovery_store.update_recoveries(lease, limit_ms=limit_ms, now_ms=loop.now_ms())
        for row in recovery_store.waiting_for_a_search(lease.cluster_id):
            # Every search is its own turn, because there may be many.
            yield 0.0
            if (lost := _search(row, lease.cluster)) is not None:
                recovery_store.save_lost(lease, row, lost)
        cluster = lease.cluster
        check_commits(lease, _reads.get_or_make(cluster), _topics[cluster], loop.now_ms())
        if began >= topics_at:
            check_topics(lease)
            topics_at = began + _TOPICS_S
        collector_store.clear_error(collector, loop.now_ms())
        yield max(0.0, _TICK_S - (time.monotonic() - began))

    return poll_repeatedly(lease, poll, _reads.discard)


def check_topics(lease: leases.Lease) -> None:
    """Request the topics that open episodes wait for in vain: a deleted topic blocks no consumer."""
    waiting = recovery_store.waiting_for_topics(lease)
    if not waiting:
        return
    names = {name for _, topics in waiting.values() for name in topics}
    now = _topics[lease.cluster].fetch_topics(_reads.get_or_make(lease.cluster), names, loop.now_ms())
    for row, topics in waiting.values():
        known = recovery_evidence.written_topics(row)
        notes = {name: deletion_reason(known[name], now[name]) for name in topics & now.keys()}
        if any(notes.values()):
            recovery_store.save_deleted(lease, row, {name: note for name, note in notes.items() if note})


def _search(row: Recovery, cluster: str) -> list[LostRecords] | None:
    """Return the records that a recovery's transaction wrote, by partition; None to try again later.

    The topics are requested after the logs: if their ids are unchanged, the logs read were theirs.
    """
    wrote = recovery_evidence.wrote_to(row)
    if not wrote:
        return []
    reads = _reads.get_or_make(cluster)
    alone = TransitionKind(row.cause) in _ALONE
    who = row.producer_id, row.producer_epoch
    starts = recovery_evidence.search_starts(row).items()
    losses = {where: find_lost(reads, Search(where, start, *who, alone)) for where, start in starts}
    now = _topics[cluster].fetch_topics(reads, {where.topic for where in wrote}, loop.now_ms())
    if any(where.topic not in now for where in wrote):
        return None
    return list(_with_topics(row, wrote, losses, now))


def _with_topics(
    row: Recovery,
    wrote: Iterable[TopicPartition],
    losses: Mapping[TopicPartition, LostRecords],
    now: Mapping[str, TopicNow],
) -> Iterator[LostRecords]:
    known, pins = recovery_evidence.written_topics(row), recovery_evidence.held_offsets(row)
    for where in wrote:
        topic = known[where.topic]
        if note := deletion_reason(topic, now[where.topic]):
            yield LostRecords(*where, pins.get(where), None, None, False, note, deleted=True)
        elif where in losses:
            yield same_topic(losses[where], topic, now[where.topic])


polled = Polled("collectors.recoveries", recovery_store.NAME, follow_in_turns)
