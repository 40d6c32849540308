"""Infer the history of an id with an unreadable log from its coordinator's reports and from control batches.

A coordinator reports an id's current state, and when its transaction began. The control batch (marker) that
ends a transaction in a partition has its producer id, its epoch and the decision (`EndTransactionMarker`).
From one report to the next these give the records that the coordinator must have written, except for
transactions that began and ended unobserved. Transactions of one epoch (protocol version 0 or 1) differ only
by the clocks of two brokers. So only the coordinator's own reports are certain. A marker that may belong to a
transaction already counted is not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import NamedTuple

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import (
    ABORTED_STATES,
    COMMITTED_STATES,
    NOT_REPORTED,
    OPEN_STATES,
    Confidence,
    Tombstone,
    TopicPartition,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
    expand_partitions,
)
from fenceline.kafka.transitions import TransitionStep

_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
#: Kinds that a coordinator's report alone proves.
_REPORTED_KINDS = frozenset({TransitionKind.BASELINE, TransitionKind.BEGIN, TransitionKind.COMMIT})
_LESS_SURE = {
    Confidence.CERTAIN: Confidence.PROBABLE,
    Confidence.PROBABLE: Confidence.AMBIGUOUS,
    Confidence.AMBIGUOUS: Confidence.AMBIGUOUS,
}


class EndMarker(NamedTuple):
    """A control batch that ends a transaction in one partition."""

    where: TopicPartition
    offset: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    #: By the clock of the partition's leader.
    at_ms: int

    def ends(self, complete: TransactionRecord) -> bool:
        """Whether the marker may end the transaction of this record, by epoch and decision.

        A transaction at the last epoch ends under the next producer id.
        """
        follows = self.producer_id != complete.producer_id or self.producer_epoch == complete.producer_epoch
        return follows and self.is_commit is (complete.state is TransactionState.COMPLETE_COMMIT)


class InferredRecord(NamedTuple):
    """A record that the coordinator must have written."""

    record: TransactionRecord | Tombstone
    #: Whether the coordinator's own report shows it.
    reported: bool
    #: For a completion: the latest instant at which every marker was written.
    completed_ms: int | None = None


def end_marker(where: TopicPartition, batch: RecordBatch) -> EndMarker | None:
    """Return the marker in a batch, None for any other batch."""
    if not batch.marker:
        return None
    is_commit = batch.marker == "commit"
    return EndMarker(
        where, batch.first, batch.producer_id, batch.producer_epoch, is_commit, batch.max_timestamp_ms
    )


def infer_records(
    last: TransactionRecord | None, now: TransactionRecord | Tombstone, markers: Sequence[EndMarker]
) -> Sequence[InferredRecord]:
    """Return the records from one report of an id to the next, oldest first.

    `last` is the first report, None if there was none; `markers` were read since then. A transaction that is
    no longer open gets no end if neither report nor marker shows one.
    """
    if isinstance(now, Tombstone):
        return [InferredRecord(now, True)]
    if now.producer_epoch == NOT_REPORTED:
        return []
    if last is None:
        return [InferredRecord(now._replace(client_version=NOT_REPORTED), True)]
    mine = sorted(marker for marker in markers if marker.producer_id == last.producer_id)
    return _Inference(last, now, mine).infer()


def temper_step(inferred: InferredRecord, step: TransitionStep) -> TransitionStep:
    """Lower the confidence of an inferred record's step.

    The first marker stands for the decision, so the duration of a commit's markers is unknown.
    """
    record, reported, completed_ms = inferred
    made, revised = step.made, step.revised
    if made is not None and not (reported and made.kind in _REPORTED_KINDS):
        made = _less_sure(made)
    if isinstance(record, TransactionRecord) and record.state in _COMPLETE:
        is_commit = revised is not None and revised.kind is TransitionKind.COMMIT
        return TransitionStep(
            made, None if is_commit else revised and revised._replace(completed_ms=completed_ms)
        )
    return TransitionStep(made, revised and _less_sure(revised))


def _less_sure(transition: Transition) -> Transition:
    return transition._replace(confidence=_LESS_SURE[transition.confidence])


class _Inference:
    """The inference from the report `last` of an id to the report `now`, by its producer's sorted markers."""

    def __init__(self, last: TransactionRecord, now: TransactionRecord, markers: Sequence[EndMarker]) -> None:
        self.last, self.now = last, now
        later = filter(self._is_later, markers)
        self.markers = {where: list(own) for where, own in groupby(later, key=lambda marker: marker.where)}
        held = set(expand_partitions(last.partitions or ()))
        of_held = [own for where, own in self.markers.items() if where in held or not held]
        #: The markers of the partition with the fewest: one for each transaction there. Other partitions may
        #: have a late marker of a transaction already counted.
        self.own: list[EndMarker] = min(of_held, key=len, default=[])
        self.found: list[InferredRecord] = []

    def infer(self) -> Sequence[InferredRecord]:
        """Return the records after `last`, up to and including `now`."""
        if self.last.state in OPEN_STATES:
            if self._is_reported() and self.now.state in OPEN_STATES:
                # While markers are written, a report names the remaining partitions: the state is the same.
                if self.now.state is TransactionState.ONGOING or self.now.state is not self.last.state:
                    self._add(self.now._replace(client_version=self.last.client_version), True)
                return self.found
            self._end_open()
            newest = self._take_newest()
        else:
            newest = self._take_newest()
            self._skip_counted()
        for marker in self.own:
            if self._is_earlier(marker):
                self._begin(marker.producer_epoch, None, marker.at_ms, marker)
                self._end(marker.is_commit, marker.producer_epoch, marker.at_ms, False)
        self._arrive(newest)
        return self.found

    def _is_later(self, marker: EndMarker) -> bool:
        """Whether a marker may end a transaction after the last report, by its epoch."""
        raised = self.last.state in _COMPLETE and self.last.client_version == 2
        return marker.producer_epoch >= self.last.producer_epoch + raised

    def _add(self, record: TransactionRecord, reported: bool, completed_ms: int | None = None) -> None:
        self.found.append(InferredRecord(record, reported, completed_ms))
        self.last = record

    def _is_reported(self) -> bool:
        """Whether `now` is about the last record's transaction: an id has one open at a time."""
        started_ms = None if self.now.state is TransactionState.EMPTY else self.now.started_ms
        return started_ms is not None and started_ms == self.last.started_ms

    def _end_open(self) -> None:
        """Add the end of the open transaction, if it is known."""
        last, now, marker = self.last, self.now, self._take_first()
        at_ms = marker.at_ms if marker else now.updated_ms
        if self._is_reported():
            # No other transaction of the id has begun since.
            self.own = []
            # At the last epoch, version 2 continues with another producer id, from epoch 0.
            same = now.producer_id == last.producer_id
            epoch = now.producer_epoch if same else last.producer_epoch + 1
            self._end(now.state in COMMITTED_STATES, epoch, at_ms, True)
        elif last.state is not TransactionState.ONGOING:
            self._end(last.state in COMMITTED_STATES, last.producer_epoch, at_ms, True)
        elif marker:
            self._end(marker.is_commit, marker.producer_epoch, at_ms, False)

    def _take_first(self) -> EndMarker | None:
        """Return the marker that ends the open transaction, and keep the markers after it."""
        epochs = self.last.producer_epoch, self.last.producer_epoch + 1
        ends = self._known_ends()
        self.own = [marker for marker in self.own if marker.at_ms >= (self.last.started_ms or 0)]
        for at, marker in enumerate(self.own):
            if marker.producer_epoch in epochs and marker.is_commit in ends:
                self.own = self.own[at + 1 :]
                return marker
        return None

    def _known_ends(self) -> Collection[bool]:
        """Return the possible decisions for the open transaction; both if neither report tells."""
        states = self.last.state, *((self.now.state,) if self._is_reported() else ())
        decided = {state in COMMITTED_STATES for state in states if state is not TransactionState.ONGOING}
        return decided or (True, False)

    def _take_newest(self) -> EndMarker | None:
        """Return the marker of the ended transaction of `now`, if that is another transaction.

        A marker that is earlier than the begin, by the brokers' clocks, is removed and not returned.
        """
        now, started_ms = self.now, self.now.started_ms
        if now.state not in _COMPLETE or started_ms is None or self._is_reported() or not self.own:
            return None
        if not self.own[-1].ends(now):
            return None
        marker = self.own.pop()
        return marker if marker.at_ms >= started_ms else None

    def _skip_counted(self) -> None:
        """Remove a late marker that may end the transaction of the last report."""
        last = self.last
        self.own = [marker for marker in self.own if marker.at_ms >= (last.started_ms or 0)]
        if self.own and last.state in _COMPLETE and self.own[0].ends(last):
            del self.own[0]

    def _is_earlier(self, marker: EndMarker) -> bool:
        """Whether a marker ends a transaction before the one that is open now; True if none is open."""
        now = self.now
        if now.state not in OPEN_STATES or now.started_ms is None:
            return True
        return marker.at_ms < now.started_ms or marker.producer_epoch < now.producer_epoch

    def _begin(self, end_epoch: int, started_ms: int | None, at_ms: int, marker: EndMarker | None) -> None:
        """Add the begin of a transaction; its end has `end_epoch`, raised by version 2."""
        bumped = self.last.client_version != 0
        begun = self.last._replace(
            state=TransactionState.ONGOING,
            producer_epoch=max(self.last.producer_epoch, end_epoch - bumped),
            partitions=(TopicPartitions(marker.where.topic, (marker.where.partition,)),) if marker else (),
            started_ms=started_ms,
            updated_ms=at_ms,
        )
        # A client of version 2 may abort without an open transaction: then nothing began.
        self._add(begun, started_ms is not None and self.now.state in COMMITTED_STATES)

    def _end(self, is_commit: bool, epoch: int, at_ms: int, reported: bool) -> None:
        """Add the missing records of the open transaction's end."""
        prepared, complete = COMMITTED_STATES if is_commit else ABORTED_STATES
        if self.last.state is TransactionState.ONGOING:
            # A commit raises the epoch only with a client of version 2.
            shown = 2 * (epoch > self.last.producer_epoch) if is_commit else self.last.client_version
            self._add(
                self.last._replace(
                    state=prepared, producer_epoch=epoch, updated_ms=at_ms, client_version=shown
                ),
                reported,
            )
        completed_ms = self._completed_ms(epoch)
        ended = self.last._replace(state=complete, updated_ms=completed_ms or at_ms)
        # Every marker was written before the report that follows.
        self._add(ended, reported, completed_ms or max(at_ms, self.now.updated_ms))

    def _completed_ms(self, epoch: int) -> int | None:
        """Return the instant of the open transaction's last marker, None if any marker was not read."""
        partitions = expand_partitions(self.last.partitions or ())
        instants = [instant for where in partitions for instant in self._ended_ms(where, epoch)]
        return max(instants) if instants and len(instants) == len(partitions) else None

    def _ended_ms(self, where: TopicPartition, epoch: int) -> Sequence[int]:
        """Return the instant of the open transaction's marker in a partition, [] if it was not read."""
        begun_ms = self.last.started_ms or 0
        own = [marker for marker in self.markers.get(where, ()) if marker.producer_epoch == epoch]
        return [marker.at_ms for marker in own if marker.at_ms >= begun_ms][:1]

    def _arrive(self, newest: EndMarker | None) -> None:
        """Add the records of `now` after the end of the previously open transaction."""
        # A report has no protocol version: keep the version the id has shown.
        now = self.now._replace(client_version=self.last.client_version)
        if now.state in _COMPLETE:
            if now.started_ms is not None and not self._is_reported():
                self._begin(now.producer_epoch, now.started_ms, now.started_ms, newest)
                at_ms = newest.at_ms if newest else now.updated_ms
                self._end(now.state in COMMITTED_STATES, now.producer_epoch, at_ms, True)
        elif now.state is TransactionState.EMPTY:
            self._add(now, True)
        else:
            ongoing = now._replace(
                state=TransactionState.ONGOING, updated_ms=now.started_ms or now.updated_ms
            )
            self._add(ongoing, now.state is not TransactionState.PREPARE_ABORT)
            if now.state is not TransactionState.ONGOING:
                self._add(now, True)
