"""The input and the result of a fold: plain values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fenceline.compat import SLOTS
from fenceline.facts import NOT_FROM_LOG, TopicPartitions, TransactionRecord, TransactionState, Transition
from fenceline.kafka.fold import counting


class Prior(NamedTuple):
    """The known history of an id before these records.

    `record` is None if its last record is unknown; `offset` is then NOT_FROM_LOG. `state` is the displayed
    state even then, None if there is none. `packed`: its last transitions (`transition_ring`).
    """

    state: TransactionState | None = None
    record: TransactionRecord | None = None
    offset: int = NOT_FROM_LOG
    packed: bytes = b""


class Newest(NamedTuple):
    """An id's newest state."""

    transactional_id: str
    application: str
    #: None if the coordinator has forgotten the id, at `expired_ms`.
    record: TransactionRecord | None
    expired_ms: int | None
    partition: int
    offset: int
    packed: bytes


class NotableTransition(NamedTuple):
    """A new or revised notable transition; `revised_from` is its previous kind, "" if unchanged."""

    key: bytes
    transactional_id: str
    application: str
    transition: Transition
    revised_from: str = ""
    #: For an abort, the partitions it wrote to; () if a later record only changed the verdict.
    partitions: tuple[TopicPartitions, ...] = ()
    #: The number of our action that caused it, None if no action did.
    action: int | None = None


class Lived(NamedTuple):
    """All transitions of one id in a fold, for readers that keep every transition; packed as entries of
    `fenceline.kafka.fold.transition_ring`."""

    transactional_id: str
    application: str
    #: The newest transition from before these records, and its revision; b"" without one, or if it is
    #: unchanged.
    before: bytes
    after: bytes
    #: The transitions that these records made, oldest first, in their final form.
    made: bytes


class KnownSpan(NamedTuple):
    """A time span whose history is known from another source, both ends included."""

    since_ms: int
    until_ms: int

    def meets(self, start_ms: int, span_ms: int = 1) -> bool:
        """Whether the span of `span_ms` from `start_ms` on overlaps this one."""
        return start_ms <= self.until_ms and start_ms + span_ms > self.since_ms


@dataclass(**SLOTS)
class Folded:
    """The result of a fold: everything that must be saved with the positions it read to."""

    #: By the key's raw bytes.
    newest: dict[bytes, Newest] = field(default_factory=dict)
    #: By the record's partition and offset, so a transition derived and revised in one fold is reported once.
    notable: dict[tuple[int, int], NotableTransition] = field(default_factory=dict)
    #: By application and start of the minute.
    tallies: dict[tuple[str, int], counting.MinuteTally] = field(default_factory=dict)
    #: The topics that applications wrote to.
    links: counting.LinkTallies = field(default_factory=dict)
    #: The change of the number of ids in each state.
    states: Counter[TransactionState] = field(default_factory=Counter)
    undecoded: Counter[str] = field(default_factory=Counter)
    #: Keys of ids whose last record could not be decoded, without any other news.
    lost: set[bytes] = field(default_factory=set)
    #: The first undecodable record of each reason: its partition, its offset, and the error.
    strange: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    #: Every transition, by key; None unless requested: an intake keeps only the last transitions.
    lives: dict[bytes, Lived] | None = None

    def outside(self, known: KnownSpan) -> Folded:
        """Return this result without events and counts in a time known from another source."""
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
