"""Fenceline's reads of a cluster beyond transactions: offsets, producers, groups, batches.

Every answer includes partial failures: a missing broker or partition is `Unseen` in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Union

from fenceline.compat import SLOTS
from fenceline.decode.record_batches import RecordBatch
from fenceline.engines.streams import StreamsStore
from fenceline.facts import TopicPartition
from fenceline.kafka.groups import Committed, ShareProgress
from fenceline.kafka.partitions import Offsets, ProducerState
from fenceline.kafka.scope import Scope
from transaction_admin.api import Cost, Unseen


class Leader(NamedTuple):
    """The leader of a partition, and its replicas. `leader` is None while there is none."""

    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, **SLOTS)
class Topology:
    """Brokers by id (`host:port`), and the partitions of visible topics."""

    brokers: Mapping[int, str]
    controller: int | None
    partitions: Mapping[TopicPartition, Leader]
    #: Kafka's ids by topic: a topic that was deleted and created again has another id.
    topic_ids: Mapping[str, str]
    #: Requested or listed topics that could not be seen.
    unseen: tuple[Unseen, ...] = ()
    #: Requested topics that do not exist, according to a broker that would let us see them.
    missing: frozenset[str] = frozenset()

    def within(self, scope: Scope) -> Topology:
        """Return only the topics inside a scope."""
        return replace(
            self,
            partitions={
                where: leader for where, leader in self.partitions.items() if scope.has_topic(where.topic)
            },
            topic_ids={topic: ident for topic, ident in self.topic_ids.items() if scope.has_topic(topic)},
            unseen=tuple(part for part in self.unseen if scope.has_topic(part.what)),
        )


class GroupListed(NamedTuple):
    """A consumer group from its coordinator's list, in Kafka's words."""

    state: str
    #: Classic, Consumer, Share or Streams (KIP-848); Classic if the broker does not report it.
    kind: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, **SLOTS)
class GroupListing:
    """Groups by their escaped ids. Brokers silently omit groups that we may not DESCRIBE."""

    groups: Mapping[str, GroupListed]
    unseen: tuple[Unseen, ...]


class Unstable(NamedTuple):
    """A transactional commit of this partition is pending: UNSTABLE_OFFSET_COMMIT."""


#: By partition: the committed offset, that a commit is pending, or why it is unknown.
Commits = Mapping[TopicPartition, Union[Committed, Unstable, Unseen]]
#: By partition: a share group's progress, or why it is unknown.
ShareProgresses = Mapping[TopicPartition, Union[ShareProgress, Unseen]]


class Batches(NamedTuple):
    """Batch headers in order; `next` is the next offset to read, `end` the high watermark at that moment."""

    batches: tuple[RecordBatch, ...]
    next: int
    end: int
    #: The batches themselves; the last one may be truncated.
    data: bytes = b""
    #: The last stable offset at that moment, -1 if the broker did not tell.
    lso: int = -1
    #: Producer id and first offset of aborted transactions among them, only for a committed read.
    aborted: tuple[tuple[int, int], ...] = ()


class ClusterReads(Protocol):
    """Reads of one cluster. Every method raises `AdminUnavailable` if no request at all is answered.

    Requests are batched by broker, with a bounded number in flight; there is none per partition.
    """

    @property
    def cost(self) -> Cost:
        """The requests to brokers so far."""

    def describe_topology(self, topics: Collection[str] | None = None) -> Topology:
        """Return brokers, and leaders of the partitions of `topics`, of all visible topics if None."""

    def list_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Offsets | Unseen]:
        """Return log start, LSO and high watermark, never an LSO above the high watermark."""

    def describe_producers(
        self, partitions: Collection[TopicPartition], broker: int | None = None
    ) -> Mapping[TopicPartition, tuple[ProducerState, ...] | Unseen]:
        """Return the active producers from the leaders, or from one replica on `broker` (KIP-664)."""

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """Return the escaped transactional ids that have these producer ids, in any state.

        O(ids) on every broker: request few, rarely. A silent broker raises `AdminUnavailable`: a missing id
        must mean that no broker has it.
        """

    def list_groups(self) -> GroupListing:
        """Return every consumer group that coordinators list for us."""

    def committed_offsets(
        self,
        groups: Collection[str],
        *,
        require_stable: bool,
        named: Mapping[str, Collection[TopicPartition]] | None = None,
    ) -> Mapping[str, Commits | Unseen]:
        """Return the groups' committed offsets, many groups per request (OffsetFetch, KIP-709).

        With `require_stable`, a partition with a pending transactional commit is `Unstable`. For a group in
        `named` only those partitions are returned, for other groups every partition with a commit: a
        partition whose first commit is pending is only returned if it is named.
        """

    def share_progress(self, groups: Collection[str]) -> Mapping[str, ShareProgresses | Unseen]:
        """Return the progress of share groups (KIP-932)."""

    def streams_stores(self, groups: Collection[str]) -> Mapping[str, Sequence[StreamsStore] | Unseen]:
        """Return the state stores of Kafka Streams groups (StreamsGroupDescribe, KIP-1071)."""

    def group_setting(self, group: str, name: str) -> str | None:
        """Return a group's own setting (DescribeConfigs); None if it may not be seen."""

    def batch_headers(
        self, partition: TopicPartition, start: int, *, most_bytes: int, committed: bool = False
    ) -> Batches | Unseen:
        """Return headers of the batches from the batch with offset `start` on.

        Uncommitted ones as well, unless `committed`: then up to the LSO, with the index of aborted ones.
        """

    def batch_headers_from(
        self, starts: Mapping[TopicPartition, int], *, most_bytes: int
    ) -> Mapping[TopicPartition, Batches | Unseen]:
        """Return the same for many partitions, one request per leader, with `most_bytes` in its answer."""

    def broker_setting(self, name: str) -> str | None:
        """Return a broker's own setting (DescribeConfigs); None if it may not be seen."""

    def topic_settings(
        self, topics: Collection[str], names: Collection[str]
    ) -> Mapping[str, Mapping[str, str]]:
        """Return settings of topics by name, in one request, without topics that may not be described."""

    def log_sizes(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Unseen]:
        """Return the bytes of partitions on their leaders' disks (DescribeLogDirs, KIP-113)."""

    def close(self) -> None:
        """Close every connection."""
