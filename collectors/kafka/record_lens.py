"""Read one offset of a partition, or its newest batches, from its leader on demand, without storing it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from collectors.kafka.compression import decompress
from fenceline.compat import SLOTS
from fenceline.decode.log_parts import LogColumns, LogPart, read_parts, whole_batches
from fenceline.decode.record_batches import BatchWriters, RecordBatch, count_writers
from fenceline.facts import TopicPartition
from fenceline.kafka.record_fate import OffsetLook, RecordFate, fate_of
from transaction_admin.api import Batches, Unseen
from transaction_admin.kafka_reads import ClusterReads

#: Bytes of the first request, of each further one in search of a marker, and of all of them.
_FIRST_BYTES, _BYTES_AT_ONCE, MOST_BYTES = 64 * 1024, 1024 * 1024, 8 * 1024 * 1024
#: Offsets before the record whose batches are its neighbours, and their maximum bytes.
_NEIGHBOURS, _NEIGHBOUR_BYTES = 50, 32 * 1024
#: Newest offsets to examine, and requests for them.
_OFFSETS, _MOST_ANSWERS = 10_000, 8


@dataclass(frozen=True, **SLOTS)
class SeenRecord:
    """A record's own timestamp in milliseconds, and its bytes; None for a null key or value."""

    at_ms: int
    key: bytes | None
    value: bytes | None


class KeySearch(NamedTuple):
    """The newest record with a key, None without one, and the searched offsets, the end excluded."""

    offset: int | None
    from_offset: int
    to_offset: int
    #: Unreadable batches among them.
    unreadable: int


def look_at_offset(
    reads: ClusterReads, where: TopicPartition, offset: int
) -> tuple[OffsetLook, SeenRecord | None, str] | Unseen:
    """Ask the leader about one offset, in a few requests. Raises `AdminUnavailable`.

    The record is None if there is none, or it cannot be read. The last part tells why the records of the
    batch cannot be read, "" if they can.

    The log grows meanwhile: each answer is at least as new as the one before, so a record has every outcome
    that a later answer reports.
    """
    ends = reads.list_offsets([where])[where]
    if isinstance(ends, Unseen):
        return ends
    look = OffsetLook(offset, ends.log_start, ends.lso, ends.high_watermark)
    if fate_of(look) in (RecordFate.DELETED, RecordFate.NOT_WRITTEN):
        return look, None, ""
    first = reads.batch_headers(where, offset, most_bytes=_FIRST_BYTES)
    if isinstance(first, Unseen):
        return first
    look = replace(look, batches=first.batches, read_to=first.next, high_watermark=first.end)
    columns, unreadable = _records(where, first)
    record = None
    if look.batch is not None and not look.batch.marker and columns is not None:
        look = replace(look, held=frozenset(columns.offset.tolist()))
        record = _record(columns, offset)
    return _with_transaction(reads, where, _with_neighbours(reads, where, look)), record, unreadable


def find_key(reads: ClusterReads, where: TopicPartition, key: bytes) -> KeySearch | Unseen:
    """Search for the newest record with a key among a partition's newest. Raises `AdminUnavailable`."""
    searched = KeySearch(None, 0, 0, 0)
    for at, answer in newest_batches(reads, where):
        if isinstance(answer, Unseen):
            return answer
        part = LogPart(where.partition, at, answer.data, whole_batches(answer.data))
        columns, _, bad = read_parts([part], decompress)
        newest = _newest_with(columns, key)
        searched = KeySearch(
            searched.offset if newest is None else newest,
            searched.from_offset if searched.to_offset else at,
            answer.next,
            searched.unreadable + len(bad),
        )
    return searched


def _newest_with(columns: LogColumns, key: bytes) -> int | None:
    """Return the last offset whose record has a key."""
    for row in (columns.key_length == len(key)).nonzero()[0].tolist()[::-1]:
        at = int(columns.key_at[row])
        if columns.data[at : at + len(key)] == key:
            return int(columns.offset[row])
    return None


def _records(where: TopicPartition, answer: Batches) -> tuple[LogColumns | None, str]:
    """Return the records of the first batch, or the reason why they are unreadable."""
    places = whole_batches(answer.data)[:1]
    columns, _, bad = read_parts([LogPart(where.partition, 0, answer.data, places)], decompress)
    return (None, bad[0].detail) if bad else (columns, "")


def _record(columns: LogColumns, offset: int) -> SeenRecord | None:
    rows = (columns.offset == offset).nonzero()[0].tolist()
    if not rows:
        return None
    row = rows[0]
    spans = ((columns.key_at, columns.key_length), (columns.value_at, columns.value_length))
    key, value = (
        None if length[row] < 0 else columns.data[int(at[row]) : int(at[row] + length[row])]
        for at, length in spans
    )
    return SeenRecord(int(columns.at_ms[row]), key, value)


def _with_neighbours(reads: ClusterReads, where: TopicPartition, look: OffsetLook) -> OffsetLook:
    first = look.batches[0].first if look.batches else look.offset
    start = max(look.log_start, first - _NEIGHBOURS)
    if start >= first:
        return look
    answer = reads.batch_headers(where, start, most_bytes=_NEIGHBOUR_BYTES)
    before = () if isinstance(answer, Unseen) else answer.batches
    return replace(look, before=[batch for batch in before if batch.last < first])


def _with_transaction(reads: ClusterReads, where: TopicPartition, look: OffsetLook) -> OffsetLook:
    """Add the facts about the record's transaction: the index, its marker, and whether it is open."""
    batch = look.batch
    if batch is None or not batch.transactional or batch.marker:
        return look
    index = reads.batch_headers(where, look.offset, most_bytes=1, committed=True)
    if not isinstance(index, Unseen):
        look = replace(
            look,
            lso=max(look.lso, index.lso),
            aborted=index.aborted if index.batches and look.offset < index.lso else None,
        )
    look = _with_marker(reads, where, look)
    if look.aborted is None and look.marker is None:
        producers = reads.describe_producers([where])[where]
        if not isinstance(producers, Unseen):
            opened = {p.producer_id: p.start_offset for p in producers if p.start_offset is not None}
            look = replace(look, open_from=opened)
    return look


def _with_marker(reads: ClusterReads, where: TopicPartition, look: OffsetLook) -> OffsetLook:
    """Read on to the transaction's marker, the end of the log, or MOST_BYTES."""
    batches: Sequence[RecordBatch] = look.batches
    for _ in range(MOST_BYTES // _BYTES_AT_ONCE):
        if look.marker is not None or look.read_to >= look.high_watermark:
            break
        more = reads.batch_headers(where, look.read_to, most_bytes=_BYTES_AT_ONCE)
        if isinstance(more, Unseen) or more.next == look.read_to:
            break
        batches = [*batches, *more.batches]
        look = replace(look, batches=batches, read_to=more.next, high_watermark=more.end)
    return look


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
