"""Reads the newest batches of a partition, oldest first: as many as a request may cost."""

from __future__ import annotations

from collections.abc import Iterator

from fenceline.decode.record_batches import BatchWriters, RecordBatch, count_writers
from fenceline.facts import TopicPartition
from transaction_admin.api import Unseen
from transaction_admin.reads import Batches, ClusterReads

#: Offsets that are looked at, and how much is read of them: at once, and how often.
_OFFSETS, _BYTES_AT_ONCE, _MOST_ANSWERS = 10_000, 1024 * 1024, 8


def newest_batches(reads: ClusterReads, where: TopicPartition) -> Iterator[tuple[int, Batches | Unseen]]:
    """Yield the newest batches with the offset that each answer was asked from; ends with what is unseen.

    Large records make it begin later: the end counts, and 8 MB are read at most.
    """
    ends = reads.list_offsets([where])[where]
    if isinstance(ends, Unseen):
        yield 0, ends
        return
    at = max(ends.log_start, ends.high_watermark - _OFFSETS)
    answer = _ask(reads, where, at)
    if not isinstance(answer, Unseen) and answer.batches:
        per_answer = max(1, answer.next - at)
        later = ends.high_watermark - per_answer * (_MOST_ANSWERS - 1)
        if later > at:
            at = later
            answer = _ask(reads, where, at)
    for left in reversed(range(_MOST_ANSWERS)):
        yield at, answer
        if isinstance(answer, Unseen) or not answer.batches or answer.next >= ends.high_watermark or not left:
            return
        at = answer.next
        answer = _ask(reads, where, at)


def _ask(reads: ClusterReads, where: TopicPartition, at: int) -> Batches | Unseen:
    return reads.batch_headers(where, at, most_bytes=_BYTES_AT_ONCE)


def read_writers(reads: ClusterReads, where: TopicPartition) -> BatchWriters | Unseen:
    """Return who wrote the newest batches of a partition. Raises `AdminUnavailable`."""
    batches: list[RecordBatch] = []
    for _, answer in newest_batches(reads, where):
        if isinstance(answer, Unseen):
            return answer
        batches += answer.batches
    return count_writers(batches)
