"""Read the newest batches of a partition, oldest first, within the cost of a request."""

from collections.abc import Iterator

from fenceline.decode.record_batches import BatchWriters, RecordBatch, count_writers
from fenceline.facts import TopicPartition
from transaction_admin.api import Unseen
from transaction_admin.kafka_reads import ClusterReads
from transaction_admin.reads import Batches

#: Offsets to examine, and bytes to read per request, and requests.
_OFFSETS, _BYTES_AT_ONCE, _MOST_ANSWERS = 10_000, 1024 * 1024, 8


def newest_batches(reads: ClusterReads, where: TopicPartition) -> Iterator[tuple[int, Batches | Unseen]]:
    """Yield the newest batches with the offset of each request; an unreadable part ends the iteration.

    With large records it begins later: the end matters, and it reads at most 8 MB.
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
    """Return the writers of a partition's newest batches. Raises `AdminUnavailable`."""
    batches: list[RecordBatch] = []
    for _, answer in newest_batches(reads, where):
        if isinstance(answer, Unseen):
            return answer
        batches += answer.batches
    return count_writers(batches)
