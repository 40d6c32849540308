"""The page of a partition in a sentence: the block, its start, and the consumers that are behind."""

from collections.abc import Sequence

from dashboard.models import PartitionRecord, PinRecord
from dashboard.partitions.queries import unstable_offsets
from dashboard.web.headlines.detail import BlockedConsumer, DetailHeadline, blocked_words
from fenceline.formatting import count_noun
from fenceline.text.sentences import Age, Sentence


def partition_headline(
    row: PartitionRecord, pins: Sequence[PinRecord], consumers: Sequence[BlockedConsumer]
) -> DetailHeadline:
    """Return the current state of a partition in words; `consumers` are blocked there by some of `pins`."""
    if row.error:
        changed: Sentence = ("Data below last changed ", Age(row.seen_ms), " ago.") if row.seen_ms else ()
        return DetailHeadline((f"It is unavailable: {row.error.rstrip('.')}.",), changed)
    unstable = unstable_offsets(row)
    if row.pinned_ms is not None:
        sentence = (*_stuck(row, row.pinned_ms, pins), f"; {blocked_words(consumers)}.")
        records = "the records" if unstable is None else f"up to {count_noun(unstable, 'record')}"
        return DetailHeadline(
            sentence, (f"read_committed consumers cannot read past it: {records} behind it are uncommitted.",)
        )
    if row.lso is None:
        return DetailHeadline(("Its offsets are not known yet.",))
    if unstable:
        return DetailHeadline(("Its LSO advances.",), ("Open transactions are within their limits.",))
    readable = "read_committed consumers can read up to its high watermark."
    return DetailHeadline(("No transaction blocks it.",), (readable,))


def _stuck(row: PartitionRecord, since_ms: int, pins: Sequence[PinRecord]) -> Sentence:
    blocker = next((pin for pin in pins if pin.start_offset == row.lso), None)
    if blocker is None:
        return (f"Its LSO has been stuck at {row.lso:,} for ", Age(since_ms))
    name = blocker.transactional_id or f"A transaction of producer {blocker.producer_id}"
    return (f"{name} has blocked it at offset {row.lso:,} for ", Age(since_ms))
