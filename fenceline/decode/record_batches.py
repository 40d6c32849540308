"""Record batches: what their headers contain. Their records are not read."""

from __future__ import annotations

from typing import NamedTuple


class RecordBatch(NamedTuple):
    """The header of one record batch (message format v2), offsets inclusive."""

    first: int
    last: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    #: "commit" or "abort" for an end-of-transaction marker, "" for data.
    marker: str
    records: int
    #: The largest timestamp in it, in milliseconds; of a marker: by the clock of the leader that wrote it.
    max_timestamp_ms: int = -1
    #: The producer's number of its first record, by which a leader tells a resend; -1 for none.
    base_sequence: int = -1

    @property
    def last_sequence(self) -> int:
        """Return the number of its last record; it wraps around behind 2147483647 (`DefaultRecordBatch`)."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last - self.first) % 2**31
