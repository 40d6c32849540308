"""Find the transactions that commit groups' offsets, by the header of the batch that holds a commit.

A record of `__consumer_offsets` names group, topic and offset. Only its batch header shows whether a
transaction wrote it, and its producer. Each group is examined once per topic and then rarely: the committer
depends on the application's code.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from fenceline.facts import TopicPartition
from fenceline.kafka.applications import application_of
from fenceline.kafka.group_observation import LoggedCommit
from transaction_admin.api import CONSUMER_OFFSETS, Unseen
from transaction_admin.kafka_reads import ClusterReads

#: Headers per poll, and bytes of the log for each: a batch always comes whole.
_AT_ONCE, _BYTES = 10, 512
#: How long an answer is valid, and how often to search for due groups.
_STANDS_S, _LIST_EVERY_S = 600.0, 5.0


class CommitterRows(Protocol):
    """The database's knowledge of commits and producers (`dashboard.groups.store.GroupRows`)."""

    def commits_beside_transactions(self) -> Sequence[LoggedCommit]:
        """Return the newest commit of each group and topic in partitions that transactions name."""

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """Return the known ids that have these producer ids."""


class CommitterReader:
    """Finds committers, a few at a time. It keeps the due groups and the instants of requests."""

    def __init__(self, reads: ClusterReads) -> None:
        self._reads = reads
        self._due: list[LoggedCommit] = []
        self._listed_s = 0.0
        self._asked_s: dict[tuple[str, str], float] = {}

    def read_committers(self, ours: CommitterRows) -> Mapping[tuple[str, str], str | None]:
        """Return, by group and topic, the application whose transactions commit the offsets.

        "" for commits outside of transactions; None if no transactional id of the producer is known.
        """
        self._list_due(ours)
        producers = dict(self._producers())
        transactional = {producer for producer in producers.values() if producer is not None}
        names = dict(ours.transactional_ids(transactional)) if transactional else {}
        if transactional - names.keys():
            names |= self._reads.transactional_ids(transactional - names.keys())
        return {key: _application(producer, names) for key, producer in producers.items()}

    def _list_due(self, ours: CommitterRows) -> None:
        now_s = time.monotonic()
        if self._due or now_s - self._listed_s < _LIST_EVERY_S:
            return
        self._listed_s = now_s
        listed = ours.commits_beside_transactions()
        known = {owner[:2] for owner in listed}
        self._asked_s = {key: at for key, at in self._asked_s.items() if key in known}
        self._due = [
            owner for owner in listed if now_s - self._asked_s.get(owner[:2], -_STANDS_S) >= _STANDS_S
        ]

    def _producers(self) -> Iterator[tuple[tuple[str, str], int | None]]:
        """Yield groups and topics with the producer of their newest commit, None outside transactions.

        A missing commit was overwritten by a newer one: the group is due again.
        """
        due, self._due = self._due[:_AT_ONCE], self._due[_AT_ONCE:]
        for partition in due:
            where = TopicPartition(CONSUMER_OFFSETS, partition.log_partition)
            answer = self._reads.batch_headers(where, partition.log_offset, most_bytes=_BYTES)
            if isinstance(answer, Unseen):
                continue
            for batch in answer.batches:
                if batch.first <= partition.log_offset <= batch.last and not batch.marker:
                    self._asked_s[partition[:2]] = time.monotonic()
                    yield partition[:2], batch.producer_id if batch.transactional else None


def _application(producer: int | None, names: Mapping[int, str]) -> str | None:
    if producer is None:
        return ""
    name = names.get(producer)
    return None if name is None else application_of(name).application
