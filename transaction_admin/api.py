"""What is sent to brokers and what they answer, as plain values; and the error without an answer.

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
from fenceline.kafka.reconcile import Listed
from fenceline.kafka.scope import Scope

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"


class AdminUnavailable(Exception):
    """The cluster's admin protocol is unavailable; the text has the problem, the place and the remedy.

    It is `passing` if it may end by itself: an unreachable broker, an election, a quota.
    """

    def __init__(self, text: str = "", *, passing: bool = True) -> None:
        super().__init__(text)
        self.passing = passing


class Unseen(NamedTuple):
    """A missing part of an answer: its name, and the reason."""

    what: str
    reason: str
    #: The broker that did not answer at all; None if it refused this part only.
    broker: int | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


class Cost(NamedTuple):
    """The requests to brokers so far; the counts only grow."""

    requests: int
    #: From the last byte sent to the decoded answer, summed over all requests, also concurrent ones.
    broker_ms: float


class Ending(NamedTuple):
    """A transaction to end: its id (escaped text) and the producer that has it open."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool


class Fencing(NamedTuple):
    """A transactional id (escaped text) whose producer to fence, and the timeout to give it.

    With a producer the coordinator compares: without an open transaction, and if another producer or epoch
    has the id, it does nothing and answers PRODUCER_FENCED. Without one it fences any producer.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1


class Marker(NamedTuple):
    """The target of an abort marker in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    #: The coordinator epoch of the producer's last marker there; 0 without one.
    coordinator_epoch: int


class Ended(NamedTuple):
    """A coordinator's answer to an end or a fencing, or a partition leader's answer to a marker."""

    #: Kafka's error code, 0 for success; None without an answer.
    code: int | None
    #: Kafka's name of the error, or why there is no answer; "" for success.
    word: str
    #: The id's new producer after a successful InitProducerId; None otherwise.
    producer_id: int | None = None
    producer_epoch: int | None = None


@dataclass(frozen=True, **SLOTS)
class TransactionListing:
    """The transactional ids that the coordinators list to us, in escaped text.

    A missing id proves nothing: a broker that has just started, and has not yet begun to load its part of the
    topic, answers with an empty list and no error. A description is proof.
    """

    entries: Mapping[str, Listed]
    #: Empty when every broker answered and every partition of `__transaction_state` has a leader.
    unseen: tuple[Unseen, ...]
    #: Brokers silently omit ids that we may not describe: this sentence reports that.
    may_hide: str


def grant_command(principal: str, operation: str, resource: str) -> str:
    """Return the command that grants a principal an operation on a resource (`--topic orders`)."""
    return f"kafka-acls --add --allow-principal {principal} --operation {operation} {resource}"


def describe_grant(principal: str, transactional_id: str = "'*'") -> str:
    """Return the command that lets a principal see transactional ids."""
    return grant_command(principal, "DESCRIBE", f"--transactional-id {transactional_id}")


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
