"""Choose the ranges of an input to replay: missing ones that no earlier replay has listed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from fenceline.audit.manifest import AuditedRange
from fenceline.facts import TopicPartition

_Span = tuple[int, int]


def ranges_without(
    wanted: Iterable[AuditedRange], replayed: Iterable[AuditedRange]
) -> Sequence[AuditedRange]:
    """Return the offsets in `wanted` that are not in `replayed`, as ascending ranges without overlaps."""
    taken = _merged(replayed)
    ranges = []
    for where, spans in sorted(_merged(wanted).items()):
        for first, end in spans:
            ranges += [AuditedRange(*where, *bounds) for bounds in _cut(first, end, taken.get(where, ()))]
    return ranges


def count_offsets(ranges: Iterable[AuditedRange]) -> int:
    return sum(range_.to_offset - range_.from_offset for range_ in ranges)


def _merged(ranges: Iterable[AuditedRange]) -> Mapping[TopicPartition, Sequence[_Span]]:
    merged: defaultdict[TopicPartition, list[_Span]] = defaultdict(list)
    for topic, partition, first, end in sorted(ranges):
        spans = merged[TopicPartition(topic, partition)]
        if spans and first <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        elif first < end:
            spans.append((first, end))
    return merged


def _cut(first: int, end: int, taken: Sequence[_Span]) -> Iterable[_Span]:
    """Yield the parts of a span outside of other, ascending ones."""
    for low, high in taken:
        if high <= first or low >= end:
            continue
        if first < low:
            yield first, low
        first = high
    if first < end:
        yield first, end
