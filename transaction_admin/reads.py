"""What `ClusterReads` returns: offsets, producers, groups, batches.

Every answer includes partial failures: a missing broker or partition is `Unseen` in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Union

from fenceline.compat import SLOTS
from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.kafka.groups import Committed, ShareProgress
from fenceline.kafka.scope import Scope
from transaction_admin.api import Unseen


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
