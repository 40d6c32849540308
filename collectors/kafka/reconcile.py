"""Compare the coordinators' own lists with our rows, at a limited rate, and accept confirmed differences.

It uses neither the database nor Celery. Its driver asks for `wait_s`, calls `poll`, saves the result
(`dashboard.transactions.reconcile_store`), and polls again. Without the right to read the topic, its polls
are the only source, and are accepted as they come.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

from collectors.kafka.markers import MarkersByProducer, MarkerTail, merge_markers
from collectors.polling import RecentDuration
from fenceline.facts import NOT_REPORTED, OPEN_STATES, Tombstone, TopicPartition, expand_partitions
from fenceline.kafka.fold.marker_history import EndMarker
from fenceline.kafka.reconcile import (
    MOST_SUSPECTS,
    Correction,
    Described,
    Difference,
    KnownTransaction,
    Listed,
    NotDescribed,
    Obstacle,
    Reconciliation,
    Sighting,
    compare_listing,
    confirm_differences,
    correct_row,
    is_open,
    mirror_row,
    next_full_s,
    next_open_s,
)
from fenceline.kafka.scope import EVERYTHING, Scope
from transaction_admin.api import Cost, TransactionListing
from transaction_admin.kafka_python import TransactionAdmin

#: Maximum differences to confirm in one poll; others wait for the next.
MOST_DESCRIBED = 1_000


class PreviousTransactionState(Protocol):
    """Our rows of one cluster, read on demand (`dashboard.transactions.reconcile_store.ReconciledRows`)."""

    def without_tail(self) -> bool:
        """Whether no tail can read the topic, so that the coordinators' lists are our only source."""

    def read_through_ms(self) -> int | None:
        """Return the instant before which the rows have every record; None if unknown."""

    def open_rows(self) -> Mapping[str, KnownTransaction]:
        """Return the rows of open transactions."""

    def known_rows(self, names: Collection[str]) -> Mapping[str, KnownTransaction]:
        """Return the rows of ids that have one."""

    def all_rows(self) -> Iterator[tuple[str, KnownTransaction]]:
        """Yield every row, in no order."""


@dataclass(slots=True)
class _Watch:
    """The differences to check against the next list of one kind."""

    pending: dict[str, Sighting] = field(default_factory=dict)
    suspects: frozenset[str] = frozenset()
    #: Ids that their coordinators refuse to describe.
    hidden: set[str] = field(default_factory=set)


class Reconciler:
    """Polls the coordinators of one cluster. Raises `AdminUnavailable` from `poll`."""

    def __init__(
        self, admin: TransactionAdmin, open_markers: Callable[[], MarkerTail], scope: Scope = EVERYTHING
    ) -> None:
        """`open_markers` is called if the topic may not be read."""
        self._admin, self._open_markers, self._scope = admin, open_markers, scope
        self._markers: MarkerTail | None = None
        #: Markers that were read after the last list.
        self._held: MarkersByProducer = {}
        self._open, self._full = _Watch(), _Watch()
        self._open_at = self._full_at = time.monotonic()
        self._lately, self._full_lately = RecentDuration(), RecentDuration()

    def wait_s(self) -> float:
        """Return the seconds until the next poll, 0 when it is due."""
        return max(0.0, min(self._open_at, self._full_at) - time.monotonic())

    def close(self) -> None:
        self._admin.close()
        if self._markers is not None:
            self._markers.close()

    def poll(self, now_ms: int, ours: PreviousTransactionState) -> Reconciliation:
        """Ask for the due list, the full one first, and return its consequences for our rows."""
        full = time.monotonic() >= self._full_at
        before, own = self._cost(), self._admin.cost.broker_ms
        try:
            found = (
                self._mirror(full, now_ms, ours) if ours.without_tail() else self._compare(full, now_ms, ours)
            )
        finally:
            # Lists are the coordinators' main cost: they set the pace.
            spent_s = (self._admin.cost.broker_ms - own) / 1_000
            pause_s = next_open_s(self._lately.add(spent_s))
            self._open_at = time.monotonic() + pause_s
        if full:
            self._full_at = time.monotonic() + next_full_s(self._full_lately.add(spent_s))
            found = replace(found, outside=tuple(self._outside(ours)))
        cost = self._cost()
        spent_ms = cost.broker_ms - before.broker_ms
        return replace(
            found,
            requests=cost.requests - before.requests,
            broker_ms=spent_ms,
            pause_ms=round(pause_s * 1_000),
        )

    def _outside(self, ours: PreviousTransactionState) -> Iterator[Correction]:
        """Yield rows outside the scope from before its configuration: nothing would update them."""
        if not self._scope.has_all_ids:
            for name, row in ours.all_rows():
                if not self._scope.has_id(name):
                    yield Correction(Tombstone(name), row, hidden=True)

    def _compare(self, full: bool, now_ms: int, ours: PreviousTransactionState) -> Reconciliation:
        watch = self._full if full else self._open
        # This order avoids artificial differences: first the tail's position, then the rows to compare, then
        # the list, then all other rows.
        seen_through_ms = ours.read_through_ms()
        before = _rows(ours, watch.suspects | watch.pending.keys())
        if not full:
            before |= ours.open_rows()
        listing = self._list(full)
        listed_ms = time.time_ns() // 1_000_000
        watch.hidden -= listing.entries.keys()
        differences, suspects, agreed = compare_listing(
            listing.entries,
            {name: row for name, row in before.items() if name not in watch.hidden},
            ours.all_rows() if full else (),
            only_open=not full,
            absences=not listing.unseen,
        )
        watch.suspects = frozenset(islice(suspects - watch.hidden, MOST_SUSPECTS))
        watch.pending, counted = confirm_differences(
            watch.pending, differences, listed_ms=listed_ms, seen_through_ms=seen_through_ms
        )
        corrections = self._confirm(watch, counted, now_ms)
        return Reconciliation(
            at_ms=now_ms,
            full=full,
            alone=False,
            agreed=agreed,
            corrections=corrections,
            pending=len(watch.suspects) + len(watch.pending) - len(corrections),
            hidden=len(watch.hidden),
            listed=len(listing.entries),
            unseen=tuple(map(str, listing.unseen)),
            may_hide=listing.may_hide,
            seen_through_ms=None if listing.unseen else now_ms,
        )

    def _confirm(
        self, watch: _Watch, counted: Mapping[str, Difference], now_ms: int
    ) -> tuple[Correction, ...]:
        """Verify differences with the coordinators; return the confirmed ones."""
        names = list(islice(counted, MOST_DESCRIBED))
        described = self._admin.describe_transactions(names) if names else {}
        watch.hidden |= {name for name in names if _is_hidden(described[name])}
        rows = [correct_row(name, counted[name], described[name], now_ms) for name in names]
        return tuple(row for row in rows if row is not None)

    def _mirror(self, full: bool, now_ms: int, ours: PreviousTransactionState) -> Reconciliation:
        """Accept the list; open ids, and ids without details, are described first."""
        if self._markers is None:
            self._markers = self._open_markers()
        # Before the list: transactions that these markers end are over in it.
        markers = merge_markers(self._held, self._markers.read())
        listing = self._list(full)
        rows = dict(ours.all_rows() if full else ours.open_rows())
        rows |= ours.known_rows(listing.entries.keys() - rows.keys())
        # A coordinator has listed each of them, now or before.
        described = self._admin.describe_transactions(_to_describe(full, listing, rows), listed=True)
        answers = _join(listing.entries, described)
        corrections = [mirror_row(name, rows.get(name), answer, now_ms) for name, answer in answers.items()]
        changed = tuple(row for row in corrections if row is not None)
        self._held = self._read_late(self._markers, markers, changed)
        self._markers.follow(_open_partitions(answers.values()))
        return Reconciliation(
            at_ms=now_ms,
            full=full,
            alone=True,
            corrections=changed,
            markers=markers,
            markers_unseen={str(where): reason for where, reason in self._markers.blind.items()},
            listed=len(listing.entries),
            unseen=tuple(map(str, listing.unseen)),
            lost=dict(_lost(rows, answers)),
            may_hide=listing.may_hide,
            seen_through_ms=None if listing.unseen else now_ms,
        )

    def _read_late(
        self, tail: MarkerTail, markers: dict[int, list[EndMarker]], changed: Collection[Correction]
    ) -> MarkersByProducer:
        """Read again for transactions that ended just before the list; return all other markers."""
        lacking = {
            row.ours.producer_id
            for row in changed
            if row.ours is not None and row.ours.state in OPEN_STATES and row.ours.producer_id not in markers
        }
        late = dict(tail.read()) if lacking else {}
        markers |= {producer_id: late.pop(producer_id) for producer_id in lacking & late.keys()}
        return late

    def _cost(self) -> Cost:
        costs = [self._admin.cost, *([self._markers.cost] if self._markers else [])]
        return Cost(sum(cost.requests for cost in costs), sum(cost.broker_ms for cost in costs))

    def _list(self, full: bool) -> TransactionListing:
        return self._admin.list_transactions(() if full else OPEN_STATES)


def _open_partitions(
    answers: Iterable[Described | Listed | NotDescribed],
) -> Collection[TopicPartition]:
    opened = (answer for answer in answers if isinstance(answer, Described) and answer.state in OPEN_STATES)
    return {where for answer in opened for where in expand_partitions(answer.partitions)}


def _rows(ours: PreviousTransactionState, names: Collection[str]) -> dict[str, KnownTransaction | None]:
    rows = ours.known_rows(names) if names else {}
    return {name: rows.get(name) for name in names}


def _is_hidden(described: Described | NotDescribed) -> bool:
    return isinstance(described, NotDescribed) and described.obstacle is Obstacle.FORBIDDEN


def _join(
    listed: Mapping[str, Listed], described: Mapping[str, Described | NotDescribed]
) -> Mapping[str, Described | Listed | NotDescribed]:
    """Return the best answer on each id; an id that may not be described keeps its listed state."""
    return {
        **listed,
        **{
            name: answer
            for name, answer in described.items()
            if name not in listed or isinstance(answer, Described)
        },
    }


def _lost(
    rows: Mapping[str, KnownTransaction], answers: Mapping[str, Described | Listed | NotDescribed]
) -> Iterator[tuple[str, str]]:
    """Yield open ids that no coordinator describes any more, with the reason."""
    for name, answer in answers.items():
        if not isinstance(answer, NotDescribed) or answer.obstacle is Obstacle.UNKNOWN:
            continue
        if is_open(rows.get(name)):
            yield name, answer.text


def _to_describe(full: bool, listing: TransactionListing, rows: Mapping[str, KnownTransaction]) -> set[str]:
    """Return the open ids, and ids without details in the list, limited to a share of many.

    An id missing in a list is gone only if its coordinator does not know it: a broker that has just started
    may answer with an empty list.
    """
    opened = {name for name, listed in listing.entries.items() if listed.state in OPEN_STATES}
    if not full:
        return opened.union(rows)
    missing = rows.keys() - listing.entries.keys()
    opened.update(name for name in missing if is_open(rows[name]))
    vague = (name for name, listed in listing.entries.items() if _is_vague(rows.get(name), listed))
    return opened.union(islice(missing, MOST_DESCRIBED), islice(vague, MOST_DESCRIBED))


def _is_vague(row: KnownTransaction | None, listed: Listed) -> bool:
    return row is None or row.producer_epoch == NOT_REPORTED or (row.state, row.producer_id) != listed
