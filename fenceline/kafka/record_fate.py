"""The fate of one offset of a partition: what became of the record there, and who can read it.

Kafka's consumers decide by the same: the last stable offset, the index of aborted transactions in a Fetch
answer, and markers (`LogSegment.collectAbortedTxns`, `CompletedFetch`). docs/design/kafka.md §1.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fenceline.compat import SLOTS, StrEnum
from fenceline.decode.record_batches import RecordBatch


class RecordFate(StrEnum):
    """What became of the record at an offset."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    #: Its transaction has no marker yet.
    OPEN = "open"
    #: It was written outside any transaction.
    PLAIN = "plain"
    #: The offset is that of a commit or abort marker.
    MARKER = "marker"
    #: There is no record at this offset any more, though the log goes on before and behind it.
    COMPACTED = "compacted"
    #: It lies before the log's start: retention or DeleteRecords removed it.
    DELETED = "deleted"
    #: The log does not reach it yet.
    NOT_WRITTEN = "not_written"
    UNKNOWN = "unknown"


@dataclass(frozen=True, **SLOTS)
class OffsetLook:
    """What a partition's leader reports about one offset."""

    offset: int
    log_start: int
    lso: int
    high_watermark: int
    #: Headers from the batch that holds the offset, or the next one, up to offset `read_to`.
    batches: Sequence[RecordBatch] = ()
    read_to: int = 0
    #: Headers of some batches before the offset.
    before: Sequence[RecordBatch] = ()
    #: The offsets of the records in the batch that spans the offset; None where they cannot be read.
    held: Collection[int] | None = None
    #: The aborted transactions that overlap the batch: producer id and first offset. None behind the LSO,
    #: where the index does not say yet.
    aborted: Collection[tuple[int, int]] | None = None
    #: The first offset of each producer's open transaction; None where the leader did not say.
    open_from: Mapping[int, int] | None = None

    @property
    def batch(self) -> RecordBatch | None:
        """Return the batch that spans the offset."""
        return next((batch for batch in self.batches if batch.first <= self.offset <= batch.last), None)

    @property
    def marker(self) -> RecordBatch | None:
        """Return the marker that ends the transaction of the record, None where none was read."""
        batch = self.batch
        if batch is None or not batch.transactional or batch.marker:
            return None
        return next(
            (
                other
                for other in self.batches
                if other.marker and other.producer_id == batch.producer_id and other.first > self.offset
            ),
            None,
        )

    @property
    def batch_before(self) -> RecordBatch | None:
        """Return the newest batch read before it of the same producer and epoch, markers left out."""
        batch = self.batch
        if batch is None or batch.base_sequence < 0:
            return None
        whose = batch.producer_id, batch.producer_epoch
        return next(
            (
                other
                for other in reversed(self.before)
                if (other.producer_id, other.producer_epoch) == whose and other.base_sequence >= 0
            ),
            None,
        )

    @property
    def newer_epoch(self) -> RecordBatch | None:
        """Return an earlier batch of the same producer with a newer epoch: a stale one wrote this record."""
        batch = self.batch
        if batch is None or batch.producer_id < 0:
            return None
        return next(
            (
                other
                for other in reversed(self.before)
                if other.producer_id == batch.producer_id and other.producer_epoch > batch.producer_epoch
            ),
            None,
        )


#: Fates of offsets that have a record which somebody can read.
_READABLE = (RecordFate.COMMITTED, RecordFate.ABORTED, RecordFate.OPEN, RecordFate.PLAIN)


def fate_of(look: OffsetLook) -> RecordFate:
    """Return what became of the record at the offset that was looked at."""
    if look.offset < look.log_start:
        return RecordFate.DELETED
    if look.offset >= look.high_watermark:
        return RecordFate.NOT_WRITTEN
    batch = look.batch
    if batch is None:
        return RecordFate.COMPACTED if look.read_to > look.offset else RecordFate.UNKNOWN
    if batch.marker:
        return RecordFate.MARKER
    if not batch.records or (look.held is not None and look.offset not in look.held):
        return RecordFate.COMPACTED
    if not batch.transactional:
        return RecordFate.PLAIN
    return _transaction_fate(look, batch)


def _transaction_fate(look: OffsetLook, batch: RecordBatch) -> RecordFate:
    if look.aborted is not None:
        aborted = any(
            producer == batch.producer_id and first <= look.offset for producer, first in look.aborted
        )
        return RecordFate.ABORTED if aborted else RecordFate.COMMITTED
    if (marker := look.marker) is not None:
        return RecordFate.COMMITTED if marker.marker == "commit" else RecordFate.ABORTED
    opened = None if look.open_from is None else look.open_from.get(batch.producer_id)
    if opened is not None and opened <= look.offset:
        return RecordFate.OPEN
    # A log that was read to its end has no marker; one that was not may have it further on.
    return RecordFate.OPEN if look.read_to >= look.high_watermark else RecordFate.UNKNOWN


def is_visible(look: OffsetLook, *, committed: bool) -> bool | None:
    """Return whether a consumer gets the record now; `committed`: with `isolation.level=read_committed`.

    None where the fate is not known.
    """
    fate = fate_of(look)
    if not committed:
        return fate in _READABLE if fate is not RecordFate.UNKNOWN else True
    if fate is RecordFate.UNKNOWN:
        return False if look.offset >= look.lso else None
    return fate in (RecordFate.COMMITTED, RecordFate.PLAIN) and look.offset < look.lso
