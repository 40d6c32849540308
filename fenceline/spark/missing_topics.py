"""Deleted topics that a query reads, and their unread records, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from fenceline.formatting import count_noun, list_names
from fenceline.spark.queries import SourcePosition

#: Maximum named topics; further missing ones are counted.
_MOST_CLAUSES = 3


class MissingTopic(NamedTuple):
    """A missing topic, or missing partitions of one, that a query reads."""

    #: The topic; if it has other partitions, the missing ones.
    name: str
    #: When our polls first missed it; None if they never found it there.
    deleted_ms: int | None
    #: Records that the query had not read; None if unknown.
    unread: int | None
    #: Whether `name` lists several partitions.
    is_plural: bool = False

    def __str__(self) -> str:
        was, is_ = ("were", "are") if self.is_plural else ("was", "is")
        if self.deleted_ms is None:
            return f"{self.name} {is_} not in the cluster's list of topics: deleted, or no right to DESCRIBE"
        if self.unread is None:
            return f"{self.name} {was} deleted, and how many records were unread is not known"
        if not self.unread:
            return f"{self.name} {was} deleted; all of it was read"
        return f"{self.name} {was} deleted with {count_noun(self.unread, 'unread record')}"


def missing_topics(positions: Iterable[SourcePosition]) -> Sequence[MissingTopic]:
    """Return the missing sources of a query: deleted topics first, then those that never existed."""
    absent = sorted(position for position in positions if position.absence is not None)
    missing = [
        _missing(topic, list(group)) for topic, group in groupby(absent, key=lambda position: position.topic)
    ]
    return sorted(missing, key=lambda topic: topic.deleted_ms is None)


def missing_clauses(missing: Sequence[MissingTopic], outputs: Sequence[str]) -> str:
    """Return the missing sources and the missing sink topic in words; "" without any."""
    clauses = [*map(str, missing), *(f"its output topic {name} was deleted" for name in outputs)]
    more = len(clauses) - _MOST_CLAUSES
    return "; ".join([*clauses[:_MOST_CLAUSES], *([f"{more} more"] if more > 0 else [])])


def _missing(topic: str, positions: Sequence[SourcePosition]) -> MissingTopic:
    absences = [position.absence for position in positions if position.absence is not None]
    known = [absence.deleted_ms for absence in absences if absence.deleted_ms is not None]
    unread = [position.unread for position in positions]
    is_partial = any(absence.topic_exists for absence in absences)
    return MissingTopic(
        list_names([str(position) for position in positions]) if is_partial else topic,
        min(known, default=None),
        None if None in unread else sum(number for number in unread if number is not None),
        is_partial and len(positions) > 1,
    )
