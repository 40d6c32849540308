"""A comparison of input and output by a key -> what is missing, duplicated, and what cannot be concluded.

A record is due where its consumer has committed a later offset. Of each key: fewer in the output than due
are missing, more than the input has at all are duplicated. Records are compared as readers get them.
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
    """Records by how often their key is there."""

    #: In the input below what its consumer has committed, and of them in the output.
    due: int
    found: int
    missing: int
    #: As missing, and older than what was removed from the output: they may have been there.
    uncertain: int
    duplicated: int
    #: In the output, with a key that the input does not have.
    foreign: int
    #: In the input or output without a key.
    keyless: int


@dataclass(frozen=True, **SLOTS)
class ComparedTopics:
    """What input and output were when they were compared."""

    #: The first and the next offset that were read of each partition of the input.
    due: Mapping[TopicPartition, tuple[int, int]]
    targets: Mapping[TopicPartition, Offsets]
    compacted: Collection[str] = ()
    #: Whether the input was read from its first record on that was ever written.
    whole: bool = True

    @property
    def blocked(self) -> Sequence[tuple[TopicPartition, Offsets]]:
        """Return the partitions of the output whose last records readers do not get yet."""
        return [(where, now) for where, now in sorted(self.targets.items()) if now.lso < now.high_watermark]

    def concluded(self, totals: KeyTotals) -> KeyTotals:
        """Return the totals without what may only seem to be missing or duplicated."""
        if self.compacted:
            return totals._replace(missing=0, uncertain=0, duplicated=0)
        return totals._replace(missing=0) if self.blocked else totals


def compared_obstacles(topics: ComparedTopics, totals: KeyTotals) -> Iterable[AuditObstacle]:
    """Yield what prevents a proof by keys."""
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
