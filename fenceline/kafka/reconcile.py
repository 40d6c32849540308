"""Reconcile our rows with the coordinators' lists: which differences count, and their corrections.

A list and our rows never show the same moment: a record may be in one and not yet in the other. So a
difference counts only under three conditions. Two lists show the same difference. The row was read before
each of them and did not change. The tail has passed everything that was in the log when the first list came.
Then no record can explain the difference any more. The next record of the id always wins over the correction.
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

#: Maximum ids whose row is read before the next list; further ids wait for the list after it.
MOST_SUSPECTS = 10_000


class Listed(NamedTuple):
    """One transactional id in the answer of ListTransactions."""

    state: TransactionState
    producer_id: int


class Described(NamedTuple):
    """One transactional id in the answer of DescribeTransactions.

    In Prepare* states, `partitions` are those whose marker is not written yet; the log keeps naming all.
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartitions, ...]


class Obstacle(StrEnum):
    """The reason why an id could not be described."""

    UNKNOWN = "unknown"
    FORBIDDEN = "forbidden"
    UNSEEN = "unseen"


class NotDescribed(NamedTuple):
    """An id without a description: unknown to its coordinator, forbidden, or without an answer."""

    obstacle: Obstacle
    #: Advice for the operator.
    text: str


class KnownTransaction(NamedTuple):
    """The compared fields of our row of one id."""

    state: TransactionState
    producer_id: int
    log_offset: int
    producer_epoch: int = NOT_REPORTED
    started_ms: int | None = None
    partition_count: int = 0


class Difference(NamedTuple):
    """A difference between our row of an id and its coordinator; None if absent, or not open."""

    ours: KnownTransaction | None
    theirs: Listed | None


#: A difference, and when the first list that showed it arrived.
Sighting = tuple[Difference, int]


class Correction(NamedTuple):
    """A row to write, or to delete for a tombstone, provided that our row is still the compared one."""

    record: TransactionRecord | Tombstone
    ours: KnownTransaction | None
    #: Whether its coordinator hides the id: it is then not known to have ended or to be forgotten.
    hidden: bool = False


@dataclass(frozen=True, **SLOTS)
class Reconciliation:
    """The result of one poll. Only ids with a settled row are compared; pending ids are in neither count."""

    at_ms: int
    #: Whether the list was full, and not limited to open transactions.
    full: bool
    #: Whether the coordinators are our only source, because the topic may not be read.
    alone: bool
    agreed: int = 0
    #: The differences that counted and were confirmed by their coordinators; every change if `alone`.
    corrections: tuple[Correction, ...] = ()
    #: Rows of ids outside the scope, to be removed.
    outside: tuple[Correction, ...] = ()
    #: If `alone`: the markers read since the previous poll, by producer id, and why markers of partitions
    #: were not read.
    markers: Mapping[int, Sequence[EndMarker]] = field(default_factory=dict)
    markers_unseen: Mapping[str, str] = field(default_factory=dict)
    #: Number of ids in the list.
    listed: int = 0
    #: Differences that do not count, or not yet.
    pending: int = 0
    #: Ids of our rows that the coordinators hide from us.
    hidden: int = 0
    #: The brokers that did not answer and why, or the partitions without a leader.
    unseen: tuple[str, ...] = ()
    #: Open transactions missing in the lists, without a proof of their end: the reason by id.
    lost: Mapping[str, str] = field(default_factory=dict)
    #: What brokers silently omit from every list; for pages that show nothing else.
    may_hide: str = ""
    requests: int = 0
    broker_ms: float = 0.0
    #: The pause before the next list of open transactions.
    pause_ms: int = 0
    #: Everything before this instant is in the rows once they are saved; None if a coordinator did not
    #: answer.
    seen_through_ms: int | None = None

    @property
    def shortest_ms(self) -> int:
        """The least time a transaction must be open to be observed for sure, if lists are our only source."""
        return 2 * self.pause_ms

    @property
    def compared_ids(self) -> int:
        """The number of compared ids; 0 without rows of our own to compare."""
        return 0 if self.alone else self.agreed + len(self.corrections)


def next_open_s(answer_s: float) -> float:
    """Return the pause before the next list of open transactions, from the time the last answer took."""
    return max(1.0, 20 * answer_s)


def next_full_s(answer_s: float) -> float:
    """Return the pause before the next full list: the call is O(ids) on the broker."""
    return max(60.0, 100 * answer_s)


def format_agreement(agreed: int, compared: int) -> str:
    """Return `100 %`, `99.98 %`: rounded down, so that one difference among many is never hidden.

    "" if nothing was compared.
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
) -> tuple[Mapping[str, Difference], frozenset[str], int]:
    """Compare a list with our rows; return differences, suspects, and the number of ids that agree.

    Suspects seem to differ, but their row was read after the list: the next list decides.

    `before` are rows read before the list was requested, None for an id without a row; they are compared.
    `after` are rows read later: their differences only make them suspects. `only_open`: the list has open
    transactions only. `absences`: an id's absence from the list is meaningful.
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
    return differences, frozenset(suspects | rest), agreed


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
    """Return the sightings to compare with the next list, and the differences that count now.

    `pending` is the previous result. `seen_through_ms` is the tail's: every record that was in the log at
    that instant is in our rows. It must be read before the rows.
    """
    still: dict[str, Sighting] = {}
    counted: dict[str, Difference] = {}
    for name, difference in differences.items():
        first = pending.get(name)
        if first is None or first[0] != difference:
            still[name] = difference, listed_ms
            continue
        still[name] = first
        if seen_through_ms is not None and seen_through_ms > first[1]:
            counted[name] = difference
    return still, counted


def correct_row(
    name: str, difference: Difference, described: Described | NotDescribed, now_ms: int
) -> Correction | None:
    """Return the correction of our row from its coordinator's description, None if that confirms nothing.

    A difference from a list is only corrected by a description that confirms it: an id missing in a list may
    be hidden from us, and an id in the list may have moved on.
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
    """Return how our row follows its coordinator if lists are our only source; None without a change.

    The row of an id that is gone or hidden is deleted, because nothing would ever update it. The row of a
    hidden open transaction stays: its end would be a guess.
    """
    if isinstance(answer, NotDescribed):
        hidden = answer.obstacle is Obstacle.FORBIDDEN
        gone = answer.obstacle is Obstacle.UNKNOWN or (hidden and not is_open(ours))
        return Correction(Tombstone(name), ours, hidden) if ours is not None and gone else None
    if _same(ours, answer):
        return None
    if isinstance(answer, Listed):
        known = name, answer.state, answer.producer_id, NOT_REPORTED, NOT_REPORTED
        return Correction(TransactionRecord(*known, None, now_ms, None), ours)
    return Correction(record_of(answer, now_ms), ours)


def is_open(ours: KnownTransaction | None) -> bool:
    return ours is not None and ours.state in OPEN_STATES


def _same(ours: KnownTransaction | None, answer: Described | Listed) -> bool:
    if ours is None or (ours.state, ours.producer_id) != (answer.state, answer.producer_id):
        return False
    if isinstance(answer, Listed):
        return True
    record = record_of(answer, 0)
    count = sum(len(numbers) for _, numbers in record.partitions or ())
    described = record.producer_epoch, record.started_ms, count
    return (ours.producer_epoch, ours.started_ms, ours.partition_count) == described


def record_of(described: Described, now_ms: int) -> TransactionRecord:
    """Return a description as a record; `now_ms` is its update time, which is not reported.

    Up to Kafka 4.0.0 the description of a re-initialised id has the start of the previous transaction, which
    only the coordinator's memory has. An Empty id has not started.
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
