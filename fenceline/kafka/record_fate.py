"""The fate of one offset of a partition: what became of its record, and which consumers can read it.

Kafka's consumers decide by the same facts: the last stable offset, the aborted transactions in a Fetch
answer, and markers (`LogSegment.collectAbortedTxns`, `CompletedFetch`). docs/design/kafka.md §1.3.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fenceline.compat import SLOTS, StrEnum
from fenceline.decode.record_batches import RecordBatch


class RecordFate(StrEnum):
    """The fate of the record at an offset."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    #: Its transaction has no marker yet.
    OPEN = "open"
    #: It was written outside any transaction.
    PLAIN = "plain"
    #: The offset is that of a commit or abort marker.
    MARKER = "marker"
    #: The record is gone, though the log has earlier and later records.
    COMPACTED = "compacted"
    #: It lies before the log's start: retention or DeleteRecords removed it.
    DELETED = "deleted"
    #: The offset is at or after the log's end.
    NOT_WRITTEN = "not_written"
    UNKNOWN = "unknown"


@dataclass(frozen=True, **SLOTS)
class OffsetLook:
    """A partition leader's report about one offset."""

    offset: int
    log_start: int
    lso: int
    high_watermark: int
    #: Headers from the batch that holds the offset, or the next one, up to offset `read_to`.
    batches: Sequence[RecordBatch] = ()
    read_to: int = 0
    #: Headers of batches before the offset.
    before: Sequence[RecordBatch] = ()
    #: The offsets of the records in the batch that spans the offset; None if they cannot be read.
    held: Collection[int] | None = None
    #: The aborted transactions that overlap the batch: producer id and first offset. None at or after the
    #: LSO, where the index is not complete yet.
    aborted: Collection[tuple[int, int]] | None = None
    #: The first offset of each producer's open transaction; None if the leader did not report it.
    open_from: Mapping[int, int] | None = None

    @property
    def batch(self) -> RecordBatch | None:
        return next((batch for batch in self.batches if batch.first <= self.offset <= batch.last), None)

    @property
    def marker(self) -> RecordBatch | None:
        """Return the marker that ends the record's transaction, None if none was read."""
        batch = self.batch
        if batch is None or not batch.transactional or batch.marker:
            return None
        ends = (other for other in self.batches if other.marker and other.producer_id == batch.producer_id)
        return next((end for end in ends if end.first > self.offset), None)

    @property
    def batch_before(self) -> RecordBatch | None:
        """Return the newest earlier batch of the same producer and epoch that was read, except markers."""
        batch = self.batch
        if batch is None or batch.base_sequence < 0:
            return None
        own = self._earlier_of(batch.producer_id)
        same = (other for other in own if other.producer_epoch == batch.producer_epoch)
        return next((other for other in same if other.base_sequence >= 0), None)

    @property
    def newer_epoch(self) -> RecordBatch | None:
        """Return an earlier batch of the same producer with a newer epoch: it proves a stale writer."""
        batch = self.batch
        if batch is None or batch.producer_id < 0:
            return None
        own = self._earlier_of(batch.producer_id)
        return next((other for other in own if other.producer_epoch > batch.producer_epoch), None)

    def _earlier_of(self, producer_id: int) -> Iterator[RecordBatch]:
        return (other for other in reversed(self.before) if other.producer_id == producer_id)


#: Fates of offsets with a record that a consumer can read.
_READABLE = (RecordFate.COMMITTED, RecordFate.ABORTED, RecordFate.OPEN, RecordFate.PLAIN)


def fate_of(look: OffsetLook) -> RecordFate:
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
    # A log read to its end has no marker; otherwise the marker may come later.
    return RecordFate.OPEN if look.read_to >= look.high_watermark else RecordFate.UNKNOWN


def is_visible(look: OffsetLook, *, committed: bool) -> bool | None:
    """Whether a consumer gets the record now; None if its fate is unknown.

    `committed`: the consumer reads with `isolation.level=read_committed`.
    """
    fate = fate_of(look)
    if not committed:
        return fate in _READABLE if fate is not RecordFate.UNKNOWN else True
    if fate is RecordFate.UNKNOWN:
        return False if look.offset >= look.lso else None
    return fate in (RecordFate.COMMITTED, RecordFate.PLAIN) and look.offset < look.lso
