"""What Fenceline asks of coordinators, whatever client library does it: a Protocol, plain values, errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fenceline.compat import SLOTS
from fenceline.facts import TopicPartition, TransactionState
from fenceline.kafka.reconcile import Described, Listed, NotDescribed

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"


class AdminUnavailable(Exception):
    """The cluster's admin protocol cannot be used; the text has the problem, the place and the remedy.

    It is `passing` where it may end by itself: a broker that is away, an election, a quota.
    """

    def __init__(self, text: str = "", *, passing: bool = True) -> None:
        super().__init__(text)
        self.passing = passing


class Unseen(NamedTuple):
    """A part of a list that is missing: who or what, and why."""

    what: str
    reason: str
    #: The broker that did not answer at all; None where it refused this one thing.
    broker: int | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


class Cost(NamedTuple):
    """The requests to brokers so far; the counts only grow."""

    requests: int
    #: From the last byte sent to the answer decoded, summed over requests, also those in flight together.
    broker_ms: float


class Ending(NamedTuple):
    """A transaction to end, by its id (escaped text) and the producer that has it open."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool


class Fencing(NamedTuple):
    """A transactional id (escaped text) whose producer is to be fenced; its timeout is to be this.

    With a producer the coordinator compares: where nothing is open, and another one has the id, or this one
    at another epoch, it does nothing and answers PRODUCER_FENCED. Without one it fences any producer.
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
    #: The last one that wrote a marker of this producer there; 0 where none has.
    coordinator_epoch: int


class Ended(NamedTuple):
    """The answer of a coordinator to an end or a fencing, or of a partition's leader to a marker."""

    #: Kafka's error code, 0 when it is ended as asked; None when nobody has answered.
    code: int | None
    #: Kafka's own name of the error, or why there is no answer; "" when it is ended.
    word: str
    #: What an InitProducerId that succeeded has given the id; None for everything else.
    producer_id: int | None = None
    producer_epoch: int | None = None


@dataclass(frozen=True, **SLOTS)
class TransactionListing:
    """The transactional ids that the coordinators list for us, by their escaped text form.

    A missing id proves nothing: a broker that has just started, and has not yet begun to load its part of the
    topic, answers with an empty list and no error. A description is proof.
    """

    entries: Mapping[str, Listed]
    #: Empty when every broker answered and every partition of `__transaction_state` has a leader.
    unseen: tuple[Unseen, ...]
    #: Brokers silently leave out ids that we may not describe: this is a sentence about that.
    may_hide: str


class TransactionAdmin(Protocol):
    """The admin side of one cluster. Every method raises `AdminUnavailable`."""

    @property
    def cost(self) -> Cost:
        """What was asked of the brokers since this was made."""

    @property
    def principal(self) -> str:
        """Whom the brokers take us for, for `grant_command`."""

    def list_transactions(self, states: Collection[TransactionState] = ()) -> TransactionListing:
        """Return the ids in one of `states`, all of them without any. O(ids) on each broker, unpaged."""

    def describe_transactions(
        self, transactional_ids: Collection[str], *, listed: bool = False
    ) -> Mapping[str, Described | NotDescribed]:
        """Return what the coordinators report of these ids (escaped text); each one asked for is answered.

        Never creates anything: while `__transaction_state` does not exist, every id is unknown. Where that
        may not be seen, only ids that a coordinator has `listed` are looked up.
        """

    def end_transactions(self, endings: Collection[Ending], *, timeout_s: float) -> Mapping[str, Ended]:
        """End transactions, all at once; return their coordinators' answers by id.

        Temporary refusals and missing answers are requested again until `timeout_s`: the same end twice is
        no error. **Never call it for a transaction whose fate somebody else may decide.**
        """

    def fence_producers(self, fencings: Collection[Fencing], *, timeout_s: float) -> Mapping[str, Ended]:
        """Initialise ids anew, as Kafka's `forceTerminateTransaction` does; return the answers by id.

        What is open under an id is aborted and its producer is fenced (InitProducerId without a
        producer id, key 22). Requested again while the coordinator answers CONCURRENT_TRANSACTIONS, its first
        answer if one is open, until `timeout_s`; never after no answer at all: somebody else may have begun
        in between. **Only for ids that the coordinator knows**: it would create others.
        """

    def write_abort_marker(self, marker: Marker, *, leader: int) -> Ended:
        """Write an abort marker into one partition, by its leader (WriteTxnMarkers, key 27); ask once.

        The leader checks little: it takes a marker for a transaction that has ended as well, and appends a
        useless one. **Only for what no coordinator owns**, checked right before: a coordinator would not
        learn of it, and could still commit the rest.
        """

    def close(self) -> None:
        """Close every connection."""


def grant_command(principal: str, operation: str, resource: str) -> str:
    """Return the command that lets a principal do an operation on a resource (`--topic orders`)."""
    return f"kafka-acls --add --allow-principal {principal} --operation {operation} {resource}"


def describe_grant(principal: str, transactional_id: str = "'*'") -> str:
    """Return the command that lets a principal see transactional ids."""
    return grant_command(principal, "DESCRIBE", f"--transactional-id {transactional_id}")
