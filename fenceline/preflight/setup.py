"""The settings and habits of one cluster that decide about exactly-once, None if unknown; and the limits of
one transactional id: its timeout and its needs, and when Kafka forgets it. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.compat import SLOTS
from fenceline.facts import NOT_REPORTED, TWO_PHASE_COMMIT_TIMEOUT_MS, Isolation, Transition, TransitionKind
from fenceline.flow.observations import GroupReads

#: The share of a limit from which it counts as used up.
NEARLY = 0.8
#: Checkpoint intervals that a transaction must survive: one, and a restart.
CHECKPOINTS = 2
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


@dataclass(frozen=True, **SLOTS)
class ClusterSetup:
    """All settings of one cluster; `unseen` has a sentence for each unreadable part."""

    brokers: BrokerSetup = field(default_factory=BrokerSetup)
    topics: Sequence[TopicSetup] = ()
    ids: Sequence[IdSetup] = ()
    queries: Sequence[QuerySetup] = ()
    jobs: Sequence[JobSetup] = ()
    #: Groups that read topics of transactions.
    readers: Sequence[GroupReads] = ()
    unseen: Sequence[str] = ()


def decided_spans(life: Iterable[Transition]) -> Sequence[int]:
    """Return the open times of transactions that their producer committed or aborted, in ms."""
    return [
        transition.open_ms
        for transition in life
        if transition.kind in _DECIDED and transition.open_ms is not None
    ]


class IdLimit(NamedTuple):
    """One figure to compare with a timeout, in ms."""

    words: str
    value_ms: int
    #: Its percentage of the timeout; None without a timeout to compare.
    share: float | None = None

    @property
    def is_near(self) -> bool:
        """Whether it has nearly used up the timeout, or exceeded it."""
        return self.share is not None and self.share >= 100 * NEARLY


def id_limits(
    timeout_ms: int,
    brokers: BrokerSetup,
    spans: Sequence[int],
    query: QuerySetup | None = None,
    job: JobSetup | None = None,
) -> Sequence[IdLimit]:
    """Return the timeout of an id, and the known figures that need it, longest transaction first.

    `spans` are the durations of its transactions that its producer ended. A two-phase commit never times out.
    """
    if timeout_ms in (NOT_REPORTED, TWO_PHASE_COMMIT_TIMEOUT_MS) or timeout_ms <= 0:
        return ()
    most_ms = brokers.max_timeout_ms
    return [
        IdLimit("transaction.timeout.ms", timeout_ms),
        *([IdLimit("transaction.max.timeout.ms of the brokers", most_ms)] if most_ms else []),
        *(
            IdLimit(words, needed_ms, 100 * needed_ms / timeout_ms)
            for words, needed_ms in _needs(spans, query, job)
            if needed_ms is not None
        ),
    ]


def _needs(
    spans: Sequence[int], query: QuerySetup | None, job: JobSetup | None
) -> Iterator[tuple[str, int | None]]:
    yield "longest of its last transactions", max(spans, default=None)
    if query is not None:
        yield f"longest of the last batches of {query.name}", query.longest_batch_ms
    if job is not None and job.longest_interval_ms is not None:
        yield f"two checkpoint intervals of {job.name}", job.longest_interval_ms * CHECKPOINTS


def forgotten_ms(updated_ms: int, brokers: BrokerSetup, *, is_open: bool) -> int | None:
    """Return when its coordinator forgets an idle id; None while it is open, or if unknown."""
    if is_open or brokers.id_expiration_ms is None:
        return None
    return updated_ms + brokers.id_expiration_ms
