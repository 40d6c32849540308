"""Our rows against the coordinators' own lists: which differences count, and what they are corrected to.

A list and our rows are never of one moment: a record may be in one and not yet in the other. So a difference
counts only when two lists show the very same one, the row was read before each of them and did not change,
and the tail has since passed everything that was in the log when the first list came. Then no record can
explain it any more. The next record of the id always wins over the correction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.compat import SLOTS, StrEnum
from fenceline.facts import (
    NOT_REPORTED,
    OPEN_STATES,
    Tombstone,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
)
from fenceline.kafka.fold.marker_history import EndMarker

#: Ids whose row is to be read before the next list; more than these wait for the list after it.
MOST_SUSPECTS = 10_000


class Listed(NamedTuple):
    """One transactional id in the answer of ListTransactions."""

    state: TransactionState
    producer_id: int


class Described(NamedTuple):
    """One transactional id in the answer of DescribeTransactions.

    While Prepare*, `partitions` are those whose marker is still to be written; the log keeps naming all.
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartitions, ...]


class Obstacle(StrEnum):
    """Why an id could not be described."""

    UNKNOWN = "unknown"
    FORBIDDEN = "forbidden"
    UNSEEN = "unseen"


class NotDescribed(NamedTuple):
    """An id without a description: its coordinator does not know it, forbids it, or did not answer."""

    obstacle: Obstacle
    #: For an operator: what to do about it.
    text: str


class KnownTransaction(NamedTuple):
    """Our row of one id, as far as it is compared."""

    state: TransactionState
    producer_id: int
    log_offset: int
    producer_epoch: int = NOT_REPORTED
    started_ms: int | None = None
    partition_count: int = 0


class Difference(NamedTuple):
    """One id that we and its coordinator see differently; None where it does not exist, or is not open."""

    ours: KnownTransaction | None
    theirs: Listed | None


class Sighting(NamedTuple):
    """A difference, and when the list that showed it first had arrived."""

    difference: Difference
    listed_ms: int


@dataclass(frozen=True, **SLOTS)
class Comparison:
    """One list against our rows."""

    agreed: int
    differences: Mapping[str, Difference]
    #: Ids that seem to differ but whose row was read after the list: they are compared with the next one.
    suspects: frozenset[str]


class Correction(NamedTuple):
    """A row to be written or, for a tombstone, removed; only if ours is still the row that was compared."""

    record: TransactionRecord | Tombstone
    ours: KnownTransaction | None
    #: Whether its coordinator hides the id: then it is not known to have ended, nor to be forgotten.
    hidden: bool = False


@dataclass(frozen=True, **SLOTS)
class Reconciliation:
    """What one poll found. Compared are the ids whose row is settled; pending ones are in neither count."""

    at_ms: int
    #: Whether it was the full list, and not that of open transactions alone.
    full: bool
    #: Whether the coordinators are our only source: the topic may not be read.
    alone: bool
    agreed: int = 0
    #: The differences that counted and that their coordinators confirmed; all that changed when alone.
    corrections: tuple[Correction, ...] = ()
    #: Rows of ids outside the scope, to be removed.
    outside: tuple[Correction, ...] = ()
    #: When alone: the markers that were read since the poll before, by producer id, and why those of some
    #: partitions were not.
    markers: Mapping[int, Sequence[EndMarker]] = field(default_factory=dict)
    markers_unseen: Mapping[str, str] = field(default_factory=dict)
    #: How many ids the list has.
    listed: int = 0
    #: Differences that do not count, or not yet.
    pending: int = 0
    #: Ids that are in our rows and that the coordinators do not let us see.
    hidden: int = 0
    #: Who did not answer and why, or what has no leader.
    unseen: tuple[str, ...] = ()
    #: Open transactions that the lists leave out, without a proof of their end, by id: why.
    lost: Mapping[str, str] = field(default_factory=dict)
    #: What brokers leave out of every list without a word; for pages that show nothing else.
    may_hide: str = ""
    requests: int = 0
    broker_ms: float = 0.0
    #: The pause before the next list of open transactions.
    pause_ms: int = 0
    #: Everything before this instant is in the rows once they are saved; None while somebody is unseen.
    seen_through_ms: int | None = None

    @property
    def shortest_ms(self) -> int:
        """How long a transaction must be open to be seen for sure, where lists are our only source."""
        return 2 * self.pause_ms

    @property
    def compared_ids(self) -> int:
        """How many ids were compared; 0 where we have no rows of our own to compare with the lists."""
        return 0 if self.alone else self.agreed + len(self.corrections)


def next_open_s(answer_s: float) -> float:
    """Return how long to leave the list of open transactions alone after an answer that took so long."""
    return max(1.0, 20 * answer_s)


def next_full_s(answer_s: float) -> float:
    """Return the same for the full list: the call is O(ids) on the broker."""
    return max(60.0, 100 * answer_s)


def format_agreement(agreed: int, compared: int) -> str:
    """Return `100 %`, `99.98 %`: rounded down, so that one difference among many is never hidden.

    "" when nothing was compared.
    """
    if not compared:
        return ""
    hundredths = agreed * 10_000 // compared
    return "100 %" if hundredths == 10_000 else f"{hundredths / 100:.2f} %"


def compare_listing(
    listed: Mapping[str, Listed],
    before: Mapping[str, KnownTransaction | None],
    after: Iterable[tuple[str, KnownTransaction]] = (),
    *,
    only_open: bool,
    absences: bool,
) -> Comparison:
    """Compare a list with our rows.

    `before` are rows that were read before the list was asked for, None for an id that had none; they are
    compared. `after` are rows read later; what differs there is suspect and no more. `only_open`: the list
    holds open transactions alone. `absences`: that an id is missing in it means something.
    """
    differences: dict[str, Difference] = {}
    suspects: set[str] = set()
    rest = listed.keys() - before.keys()
    agreed = 0
    for name, ours in before.items():
        theirs = listed.get(name)
        if _agree(ours, theirs, only_open):
            agreed += theirs is not None
        elif theirs is not None or absences:
            differences[name] = Difference(ours, theirs)
    for name, row in after:
        if name in before:
            continue
        rest.discard(name)
        theirs = listed.get(name)
        if _agree(row, theirs, only_open):
            agreed += theirs is not None
        elif theirs is not None or absences:
            suspects.add(name)
    return Comparison(agreed, differences, frozenset(suspects | rest))


def _agree(ours: KnownTransaction | None, theirs: Listed | None, only_open: bool) -> bool:
    if theirs is None:
        return ours is None or (only_open and ours.state not in OPEN_STATES)
    return ours is not None and (ours.state, ours.producer_id) == theirs


def confirm_differences(
    pending: Mapping[str, Sighting],
    differences: Mapping[str, Difference],
    *,
    listed_ms: int,
    seen_through_ms: int | None,
) -> tuple[dict[str, Sighting], dict[str, Difference]]:
    """Return the sightings to hold against the next list, and the differences that count now.

    `pending` is what this returned before. `seen_through_ms` is the tail's: every record that was in the log
    at that instant is in our rows. It must have been read before the rows were.
    """
    still: dict[str, Sighting] = {}
    counted: dict[str, Difference] = {}
    for name, difference in differences.items():
        first = pending.get(name)
        if first is None or first.difference != difference:
            still[name] = Sighting(difference, listed_ms)
            continue
        still[name] = first
        if seen_through_ms is not None and seen_through_ms > first.listed_ms:
            counted[name] = difference
    return still, counted


def correct_row(
    name: str, difference: Difference, described: Described | NotDescribed, now_ms: int
) -> Correction | None:
    """Return the correction of our row from its coordinator's description, None where it explains nothing.

    A difference from a list is only ever corrected by a description that confirms it: what is missing in a
    list may be hidden from us, and what was in it may have moved on.
    """
    ours, theirs = difference
    if isinstance(described, NotDescribed):
        gone = theirs is None and described.obstacle is Obstacle.UNKNOWN
        return Correction(Tombstone(name), ours) if gone else None
    if theirs is None and (described.state in OPEN_STATES or _same(ours, described)):
        return None
    if theirs is not None and theirs != (described.state, described.producer_id):
        return None
    return Correction(record_of(described, now_ms), ours)


def mirror_row(
    name: str, ours: KnownTransaction | None, answer: Described | Listed | NotDescribed, now_ms: int
) -> Correction | None:
    """Return how our row follows its coordinator where the lists are all we may see; None as it is.

    What we may not see any more goes, like what is gone, since nothing would ever update it; but not what is
    open: that it has ended would be a guess.
    """
    if isinstance(answer, NotDescribed):
        hidden = answer.obstacle is Obstacle.FORBIDDEN
        gone = answer.obstacle is Obstacle.UNKNOWN or (hidden and not is_open(ours))
        return Correction(Tombstone(name), ours, hidden) if ours is not None and gone else None
    if _same(ours, answer):
        return None
    if isinstance(answer, Listed):
        return Correction(_record_of_listed(name, answer, now_ms), ours)
    return Correction(record_of(answer, now_ms), ours)


def is_open(ours: KnownTransaction | None) -> bool:
    """Whether our row is of an open transaction."""
    return ours is not None and ours.state in OPEN_STATES


def _same(ours: KnownTransaction | None, answer: Described | Listed) -> bool:
    if ours is None or (ours.state, ours.producer_id) != (answer.state, answer.producer_id):
        return False
    if isinstance(answer, Listed):
        return True
    record = record_of(answer, 0)
    count = sum(len(numbers) for _, numbers in record.partitions or ())
    return (ours.producer_epoch, ours.started_ms, ours.partition_count) == (
        record.producer_epoch,
        record.started_ms,
        count,
    )


def record_of(described: Described, now_ms: int) -> TransactionRecord:
    """Return a description in the form of a record; `now_ms` stands for its update, which is not reported.

    Up to Kafka 4.0.0 an id that was initialised again is described with the start of the transaction before
    (only the coordinator's memory has it); what is Empty has not started.
    """
    idle = described.state is TransactionState.EMPTY
    return TransactionRecord(
        described.transactional_id,
        described.state,
        described.producer_id,
        described.producer_epoch,
        described.timeout_ms,
        None if idle else described.partitions,
        now_ms,
        None if idle else described.started_ms,
    )


def _record_of_listed(name: str, listed: Listed, now_ms: int) -> TransactionRecord:
    return TransactionRecord(
        name, listed.state, listed.producer_id, NOT_REPORTED, NOT_REPORTED, None, now_ms, None
    )
