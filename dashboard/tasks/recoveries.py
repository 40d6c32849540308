"""Follow episodes, from an abort to the next commit, and search committed transactions for records that an
abort marker, or a deleted topic, removed: one Celery task.

Without a suspected transaction the search sends no requests, except small ones in quiet clusters.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from django.conf import settings

from collectors.kafka.recoveries import (
    MOST_REQUESTS,
    Search,
    Topics,
    find_lost,
    find_lost_before_commit,
)
from dashboard.models import Recovery
from dashboard.recoveries import commit_watch
from dashboard.recoveries import evidence as recovery_evidence
from dashboard.recoveries import store as recovery_store
from dashboard.recoveries.commit_watch import CommitWatch, EndedCommit, searches
from dashboard.runtime import collector_store, leases, loop
from dashboard.runtime.leases import Lease
from dashboard.tasks.slice import PerCluster, Polled, Warm, open_reads, poll_repeatedly
from fenceline.facts import TopicPartition, TransitionKind
from fenceline.losses.recoveries import LostRecords, TopicNow, WrittenTopic, deletion_reason, same_topic
from transaction_admin.api import AdminUnavailable
from transaction_admin.kafka_reads import ClusterReads

#: Per poll: the most suspected transactions to search, and the most partitions of other transactions. Other
#: partitions get one request each; further ones are not read.
_SUSPECTED, _PARTITIONS = 2, 10
#: The most suspected partitions of a transaction to search at length, so that a poll ends before its lease.
_MOST_DEEP = 8
#: For how long found losses wait to be saved together: in a storm a hundred are found each second. A save
#: renews the lease, which the slow searches of one poll would outlast.
_SAVED_EVERY_S = 1.0

watches: PerCluster[CommitWatch] = PerCluster(lambda cluster: CommitWatch())


def check_commits(lease: Lease, reads: ClusterReads, topics: Topics, now_ms: int) -> None:
    """Follow open transactions, and search the committed ones. Raises `AdminUnavailable`."""
    watch = watches[lease.cluster]
    watch.follow(lease.cluster_id, now_ms)
    _note_deleted(watch, reads, topics, now_ms)
    for _ in range(min(_SUSPECTED, len(watch.suspected))):
        _check_commit(lease, reads, watch.suspected.popleft())
    left = _PARTITIONS
    while watch.others and left > 0:
        ended = watch.others.popleft()
        left -= len(ended.watched.floors)
        if left >= 0:
            _check_commit(lease, reads, ended)
    watch.others.clear()


def _note_deleted(watch: CommitWatch, reads: ClusterReads, topics: Topics, now_ms: int) -> None:
    changed = watch.changed_topics(now_ms)
    now = topics.fetch_topics(reads, set(changed), now_ms)
    for name, topic in now.items():
        for watched in changed[name]:
            written = WrittenTopic(name, watched.topic_ids.get(name, ""))
            if note := deletion_reason(written, topic):
                watched.deleted[name] = note, now_ms


def _check_commit(lease: Lease, reads: ClusterReads, ended: EndedCommit) -> None:
    lost = [*_lost_before_commit(reads, ended), *commit_watch.deleted_records(ended)]
    if lost:
        commit_watch.save_aborted_commit(lease, ended, sorted(lost))


def _lost_before_commit(reads: ClusterReads, ended: EndedCommit) -> Iterator[LostRecords]:
    deep = set(sorted(ended.watched.suspected)[:_MOST_DEEP])
    for where, floor, first in searches(ended):
        requests = MOST_REQUESTS if where in deep else 1
        lost = find_lost_before_commit(
            reads, where, ended.transaction, floor=floor, first_offset=first, requests=requests
        )
        if lost is not None and lost.records:
            yield lost


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
        yield from search_all(lease, recovery_store.waiting_for_a_search(lease.cluster_id))
        cluster = lease.cluster
        check_commits(lease, _reads[cluster], _topics[cluster], loop.now_ms())
        if began >= topics_at:
            check_topics(lease)
            topics_at = began + _TOPICS_S
        collector_store.clear_error(collector, loop.now_ms())
        yield max(0.0, _TICK_S - (time.monotonic() - began))

    return poll_repeatedly(lease, poll, _reads.discard)


def search_all(lease: leases.Lease, rows: Iterable[Recovery]) -> loop.Turns:
    """Search the losses of recoveries, each in a turn of its own, and save those of a second together.

    If a broker does not answer, what was found before is saved.
    """
    found: dict[Recovery, list[LostRecords]] = {}
    saved_at = time.monotonic()
    try:
        for row in rows:
            yield 0.0
            if (lost := _search(row, lease.cluster)) is not None:
                found[row] = lost
            if time.monotonic() >= saved_at + _SAVED_EVERY_S:
                recovery_store.save_lost(lease, found)
                found, saved_at = {}, time.monotonic()
    except AdminUnavailable:
        recovery_store.save_lost(lease, found)
        raise
    recovery_store.save_lost(lease, found)


def check_topics(lease: leases.Lease) -> None:
    """Request the topics that open episodes wait for in vain: a deleted topic blocks no consumer."""
    waiting = recovery_store.waiting_for_topics(lease)
    if not waiting:
        return
    names = {name for _, topics in waiting.values() for name in topics}
    now = _topics[lease.cluster].fetch_topics(_reads[lease.cluster], names, loop.now_ms())
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
    reads = _reads[cluster]
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
