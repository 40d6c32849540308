"""Search committed transactions for records that an abort marker, or a deleted topic, removed.

This is a part of the recoveries collector. Without a suspected transaction it sends no requests, except small
ones in quiet clusters.
"""

from collections.abc import Iterator

from collectors.kafka.recoveries import MOST_REQUESTS, CommitSearch, Topics, find_lost_before_commit
from dashboard.recoveries import aborted_commits
from dashboard.recoveries.commit_watch import CommitWatch, EndedCommit, searches
from dashboard.runtime.leases import Lease
from dashboard.tasks.slice import PerCluster
from fenceline.losses.recoveries import LostRecords, WrittenTopic, deletion_reason
from transaction_admin.kafka_reads import ClusterReads

#: Per poll: the most suspected transactions to search, and the most partitions of other transactions. Other
#: partitions get one request each; further ones are not read.
_SUSPECTED, _PARTITIONS = 2, 10
#: The most suspected partitions of a transaction to search at length, so that a poll ends before its lease.
_MOST_DEEP = 8

watches: PerCluster[CommitWatch] = PerCluster(lambda cluster: CommitWatch())


def check_commits(lease: Lease, reads: ClusterReads, topics: Topics, now_ms: int) -> None:
    """Follow open transactions, and search the committed ones. Raises `AdminUnavailable`."""
    watch = watches.get_or_make(lease.cluster)
    watch.follow(lease.cluster_id, now_ms)
    _note_deleted(watch, reads, topics, now_ms)
    for _ in range(min(_SUSPECTED, len(watch.suspected))):
        _check(lease, reads, watch.suspected.popleft())
    left = _PARTITIONS
    while watch.others and left > 0:
        ended = watch.others.popleft()
        left -= len(ended.watched.floors)
        if left >= 0:
            _check(lease, reads, ended)
    watch.others.clear()


def _note_deleted(watch: CommitWatch, reads: ClusterReads, topics: Topics, now_ms: int) -> None:
    """Note the deleted topics of open transactions."""
    changed = watch.changed_topics(now_ms)
    now = topics.fetch_topics(reads, set(changed), now_ms)
    for name, topic in now.items():
        for watched in changed[name]:
            written = WrittenTopic(name, watched.topic_ids.get(name, ""))
            if note := deletion_reason(written, topic):
                watched.deleted[name] = note, now_ms


def _check(lease: Lease, reads: ClusterReads, ended: EndedCommit) -> None:
    lost = [*_lost(reads, ended), *aborted_commits.deleted_records(ended)]
    if lost:
        aborted_commits.save_aborted_commit(lease, ended, sorted(lost))


def _lost(reads: ClusterReads, ended: EndedCommit) -> Iterator[LostRecords]:
    deep = set(sorted(ended.watched.suspected)[:_MOST_DEEP])
    for where, floor, first in searches(ended):
        search = CommitSearch(where, ended.transaction, floor, first)
        lost = find_lost_before_commit(reads, search, requests=MOST_REQUESTS if where in deep else 1)
        if lost is not None and lost.records:
            yield lost
