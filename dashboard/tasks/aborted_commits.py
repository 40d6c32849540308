"""Searches committed transactions for records that an abort marker, or a deleted topic, took out of them.

Part of the recoveries collector: it adds no request while nothing is suspected, except small ones in quiet
clusters.
"""

from __future__ import annotations

from collections.abc import Iterator

from collectors.kafka.aborted_commits import MOST_REQUESTS, CommitSearch, find_lost_before_commit
from collectors.kafka.recoveries import Topics
from dashboard.recoveries import aborted_commits
from dashboard.recoveries.commit_watch import CommitWatch, EndedCommit, searches
from dashboard.runtime.leases import Lease
from dashboard.tasks.slice import PerCluster
from fenceline.losses.recoveries import LostRecords, WrittenTopic, deletion_reason
from transaction_admin.reads import ClusterReads

#: Of one poll: suspected transactions that are searched, and partitions of others. These are read with one
#: request each, and those beyond are not read.
_SUSPECTED, _PARTITIONS = 2, 10
#: Suspected partitions of one transaction that are searched at length: a poll ends before its lease does.
_MOST_DEEP = 8

watches: PerCluster[CommitWatch] = PerCluster(lambda cluster: CommitWatch())


def check_commits(lease: Lease, reads: ClusterReads, topics: Topics, now_ms: int) -> None:
    """Follow open transactions, and search those that were committed. Raises `AdminUnavailable`."""
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
    """Note of open transactions which of the topics that they wrote to are gone."""
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
