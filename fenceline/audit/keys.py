"""Compare input and output by a key: missing records, duplicated records, and uncertain ones.

A record is due if its consumer has committed a later offset. For each key: if the output has fewer records
than are due, records are missing; if it has more than the whole input, records are duplicated. Records are
compared as readers see them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.audit.manifest import AuditObstacle, ObstacleKind
from fenceline.compat import SLOTS
from fenceline.facts import TopicPartition
from fenceline.formatting import count_noun
from fenceline.kafka.partitions import Offsets


class KeyTotals(NamedTuple):
    """Numbers of records by the frequency of their key."""

    #: In the input below the consumer's committed offset, and of these in the output.
    due: int
    found: int
    missing: int
    #: Missing records that are older than deleted output: the output may have held them.
    uncertain: int
    duplicated: int
    #: In the output, with a key that the input lacks.
    foreign: int
    #: In the input or output, without a key.
    keyless: int


@dataclass(frozen=True, **SLOTS)
class ComparedTopics:
    """The state of input and output at the comparison."""

    targets: Mapping[TopicPartition, Offsets]
    compacted: Collection[str] = ()
    #: Whether the input was read from the first record ever written.
    whole: bool = True

    @property
    def blocked(self) -> Sequence[tuple[TopicPartition, Offsets]]:
        """Return the partitions of the output whose last records readers cannot read yet."""
        return [(where, now) for where, now in sorted(self.targets.items()) if now.lso < now.high_watermark]

    def concluded(self, totals: KeyTotals) -> KeyTotals:
        """Return the totals without records that may only seem missing or duplicated."""
        if self.compacted:
            return totals._replace(missing=0, uncertain=0, duplicated=0)
        return totals._replace(missing=0) if self.blocked else totals


def compared_obstacles(topics: ComparedTopics, totals: KeyTotals) -> Iterable[AuditObstacle]:
    yield from _removed(topics, totals)
    for where, now in topics.blocked:
        yield AuditObstacle(
            ObstacleKind.UNREADABLE,
            str(where),
            f"its last stable offset is {now.lso:,} and it ends at {now.high_watermark:,}",
            "what is not in the output may lie there: nothing counts as missing until that transaction ends",
        )
    if totals.keyless:
        yield AuditObstacle(
            ObstacleKind.KEY_MISSING,
            "key",
            f"the key of {count_noun(totals.keyless, 'record')} is null",
            "such records are compared with none",
        )
    if totals.foreign and topics.whole and not topics.compacted:
        yield AuditObstacle(
            ObstacleKind.FOREIGN_RECORDS,
            "output",
            f"{count_noun(totals.foreign, 'record')} have a key that no input record has",
            "they come from elsewhere, or the key is another one on that side",
        )


def _removed(topics: ComparedTopics, totals: KeyTotals) -> Iterable[AuditObstacle]:
    for topic in sorted(topics.compacted):
        yield AuditObstacle(
            ObstacleKind.COMPACTED,
            topic,
            "its cleanup.policy is compact",
            "records may have been removed: none counts as missing or duplicated",
        )
    if totals.uncertain:
        yield AuditObstacle(
            ObstacleKind.RETENTION,
            "output",
            f"{count_noun(totals.uncertain, 'record')} are not in it and older than what it still holds",
            "they may have been there and were deleted: they do not count as missing",
        )
