"""What a fold knows before it, and what it returns: values alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fenceline.compat import SLOTS
from fenceline.facts import NOT_FROM_LOG, TopicPartitions, TransactionRecord, TransactionState, Transition
from fenceline.kafka.fold import counting


class Prior(NamedTuple):
    """What was known of an id before these records.

    `record` is None where its last record is not known, and then `offset` is NOT_FROM_LOG; `state` is what is
    shown of it all the same, None where nothing is. `packed`: its last transitions (`transition_ring`).
    """

    state: TransactionState | None = None
    record: TransactionRecord | None = None
    offset: int = NOT_FROM_LOG
    packed: bytes = b""


class Newest(NamedTuple):
    """What is known of an id now."""

    transactional_id: str
    application: str
    #: None when the coordinator forgot it, at `expired_ms`.
    record: TransactionRecord | None
    expired_ms: int | None
    partition: int
    offset: int
    packed: bytes


class NotableTransition(NamedTuple):
    """A notable transition, new or revised; `revised_from` is its kind before, "" where that is unchanged."""

    key: bytes
    transactional_id: str
    application: str
    transition: Transition
    revised_from: str = ""
    #: Of an abort, what the transaction wrote to; () where a later record only changed the verdict.
    partitions: tuple[TopicPartitions, ...] = ()
    #: The number of our action that caused it, None for every other.
    action: int | None = None


class Lived(NamedTuple):
    """All that a fold found of one id, for readers that keep every transition: entries of
    `fenceline.kafka.fold.transition_ring`."""

    transactional_id: str
    application: str
    #: The newest transition from before these records, and as it reads now; b"" where there is none, or where
    #: it reads as it did.
    before: bytes
    after: bytes
    #: The transitions that these records made, oldest first, as they read at the end of them.
    made: bytes


class KnownSpan(NamedTuple):
    """A time whose history is known from elsewhere, both ends included."""

    since_ms: int
    until_ms: int

    def meets(self, start_ms: int, span_ms: int = 1) -> bool:
        """Whether a span from `start_ms` on has any of it."""
        return start_ms <= self.until_ms and start_ms + span_ms > self.since_ms


@dataclass(**SLOTS)
class Folded:
    """The result of a fold: everything that must be saved with the positions it read to."""

    #: By the key's raw bytes.
    newest: dict[bytes, Newest] = field(default_factory=dict)
    #: By the record's place, so that a transition derived and revised in one fold is reported once.
    notable: dict[tuple[int, int], NotableTransition] = field(default_factory=dict)
    #: By application and start of the minute.
    tallies: dict[tuple[str, int], counting.MinuteTally] = field(default_factory=dict)
    #: What applications wrote to.
    links: counting.LinkTallies = field(default_factory=dict)
    #: By how much the number of ids in each state changed.
    states: Counter[TransactionState] = field(default_factory=Counter)
    undecoded: Counter[str] = field(default_factory=Counter)
    #: Keys of ids of which nothing new is known but that their last record could not be decoded.
    lost: set[bytes] = field(default_factory=set)
    #: The first record of each reason that could not be decoded: where it lies, and what is wrong with it.
    strange: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    #: Every transition, by key; None where nobody asked for them: an intake keeps the last ones alone.
    lives: dict[bytes, Lived] | None = None

    def outside(self, known: KnownSpan) -> Folded:
        """Return it without events and counts of a time that is known from elsewhere."""
        return replace(
            self,
            notable={
                at: notable
                for at, notable in self.notable.items()
                if not known.meets(notable.transition.at_ms)
            },
            tallies={key: tally for key, tally in self.tallies.items() if not known.meets(key[1], 60_000)},
            links={
                key: tally
                for key, tally in self.links.items()
                if not known.meets(key[1], counting.LINK_SPAN_MS)
            },
        )
