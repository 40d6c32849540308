"""The settings and habits of one cluster that decide about exactly-once; unknown ones are None."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.compat import SLOTS
from fenceline.facts import Isolation, Transition, TransitionKind

#: Ends by a producer itself. A transaction that a coordinator ended has waited for its whole timeout.
_DECIDED = (TransitionKind.COMMIT, TransitionKind.CLIENT_ABORT)


class BrokerSetup(NamedTuple):
    """Settings of the brokers, in milliseconds."""

    max_timeout_ms: int | None = None
    id_expiration_ms: int | None = None
    verifies_partitions: bool | None = None


class TopicSetup(NamedTuple):
    """A topic that transactions write to, or one of Kafka's two internal topics."""

    name: str
    replicas: int | None = None
    min_in_sync: int | None = None
    unclean_election: bool | None = None
    #: Whether it contains records outside of transactions; None if no header was read.
    plain_records: bool | None = None


class IdSetup(NamedTuple):
    """The transactional ids of one application, in milliseconds."""

    application: str
    shortest_timeout_ms: int
    longest_timeout_ms: int
    #: Whether an id takes part in a two-phase commit: its transactions never time out (KIP-939).
    is_two_phase: bool = False
    #: The longest of the last transactions that its producer ended, and the longest pause before one.
    longest_open_ms: int | None = None
    longest_pause_ms: int | None = None
    #: The lowest version of the transaction protocol among them (KIP-890).
    protocol: int | None = None


class QuerySetup(NamedTuple):
    """A streaming query of Spark, by its own name and by the identifier of its page."""

    name: str
    ident: str = ""
    #: "exactly_once" (ours), "kafka", "other", "" if unknown.
    sink: str = ""
    isolation: Isolation = Isolation.UNKNOWN
    asynchronous: bool | None = None
    longest_batch_ms: int | None = None
    #: The timeout of its sink's transactions.
    timeout_ms: int | None = None
    #: The URL of its checkpoint, "" if unknown.
    checkpoint: str = ""
    #: The prefix of its sink's ids, "" without one.
    prefix: str = ""


class JobSetup(NamedTuple):
    name: str
    prefixes: Sequence[str] = ()
    #: The longest time between two of its last checkpoints, and the timeout of its transactions.
    longest_interval_ms: int | None = None
    timeout_ms: int | None = None


class ReaderSetup(NamedTuple):
    """A group that reads a topic of transactions."""

    group: str
    topic: str
    isolation: Isolation = Isolation.UNKNOWN


@dataclass(frozen=True, **SLOTS)
class ClusterSetup:
    """All settings of one cluster; `unseen` has a sentence for each unreadable part."""

    brokers: BrokerSetup = field(default_factory=BrokerSetup)
    topics: Sequence[TopicSetup] = ()
    ids: Sequence[IdSetup] = ()
    queries: Sequence[QuerySetup] = ()
    jobs: Sequence[JobSetup] = ()
    readers: Sequence[ReaderSetup] = ()
    unseen: Sequence[str] = ()


def decided_spans(life: Iterable[Transition]) -> Sequence[int]:
    """Return the open times of transactions that their producer committed or aborted, in ms."""
    return [
        transition.open_ms
        for transition in life
        if transition.kind in _DECIDED and transition.open_ms is not None
    ]
