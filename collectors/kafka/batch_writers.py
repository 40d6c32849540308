"""Reads the headers of a partition's newest batches: who wrote them."""

from __future__ import annotations

from fenceline.decode.record_batches import BatchWriters, RecordBatch, count_writers
from fenceline.facts import TopicPartition
from transaction_admin.api import Unseen
from transaction_admin.reads import ClusterReads

#: Offsets that are looked at, and how much is read of them: at once and in all.
_OFFSETS, _BYTES_AT_ONCE, _MOST_BYTES = 10_000, 1024 * 1024, 8 * 1024 * 1024


def read_writers(reads: ClusterReads, where: TopicPartition) -> BatchWriters | Unseen:
    """Return who wrote the last offsets of a partition, as far as 8 MB reach. Raises `AdminUnavailable`."""
    ends = reads.list_offsets([where])[where]
    if isinstance(ends, Unseen):
        return ends
    batches: list[RecordBatch] = []
    at = max(ends.log_start, ends.high_watermark - _OFFSETS)
    for _ in range(_MOST_BYTES // _BYTES_AT_ONCE):
        if at >= ends.high_watermark:
            break
        answer = reads.batch_headers(where, at, most_bytes=_BYTES_AT_ONCE)
        if isinstance(answer, Unseen):
            return answer
        if answer.next == at:
            break
        batches += answer.batches
        at = answer.next
    return count_writers(batches)
