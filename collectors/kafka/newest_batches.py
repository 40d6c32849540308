"""Reads the newest batches of a partition, oldest first: as many as a request may cost."""

from __future__ import annotations

from collections.abc import Iterator

from fenceline.decode.record_batches import BatchWriters, RecordBatch, count_writers
from fenceline.facts import TopicPartition
from transaction_admin.api import Unseen
from transaction_admin.reads import Batches, ClusterReads

#: Offsets that are looked at, and how much is read of them: at once and in all.
_OFFSETS, _BYTES_AT_ONCE, _MOST_BYTES = 10_000, 1024 * 1024, 8 * 1024 * 1024


def newest_batches(reads: ClusterReads, where: TopicPartition) -> Iterator[Batches | Unseen]:
    """Yield the batches of the last offsets, as far as 8 MB reach; ends with what could not be read."""
    ends = reads.list_offsets([where])[where]
    if isinstance(ends, Unseen):
        yield ends
        return
    at = max(ends.log_start, ends.high_watermark - _OFFSETS)
    for _ in range(_MOST_BYTES // _BYTES_AT_ONCE):
        if at >= ends.high_watermark:
            return
        answer = reads.batch_headers(where, at, most_bytes=_BYTES_AT_ONCE)
        if not isinstance(answer, Unseen) and not answer.batches:
            return
        yield answer
        if isinstance(answer, Unseen):
            return
        at = answer.next


def read_writers(reads: ClusterReads, where: TopicPartition) -> BatchWriters | Unseen:
    """Return who wrote the newest batches of a partition. Raises `AdminUnavailable`."""
    batches: list[RecordBatch] = []
    for answer in newest_batches(reads, where):
        if isinstance(answer, Unseen):
            return answer
        batches += answer.batches
    return count_writers(batches)
