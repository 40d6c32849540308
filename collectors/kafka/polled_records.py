"""The results of one poll of a tail."""

from __future__ import annotations

from collections import defaultdict

from fenceline.facts import RawRecord


class PolledRecords:
    """The results of one poll so far."""

    def __init__(self) -> None:
        self.records: defaultdict[int, defaultdict[bytes, list[RawRecord]]] = defaultdict(_by_key)
        self.holes: defaultdict[int, list[int]] = defaultdict(list)
        self.count = 0
        self.compacted = 0

    def note_hole(self, partition: int, offset: int, missing: int) -> None:
        """Note that offsets before this one are gone."""
        self.holes[partition].append(offset)
        self.compacted += max(0, missing)

    def take_over(self, other: PolledRecords, partition: int) -> None:
        """Take the records of a partition that another poll has gathered."""
        self.records[partition] = other.records.pop(partition)
        self.holes[partition] = other.holes.pop(partition, [])
        count = sum(map(len, self.records[partition].values()))
        self.count, other.count = self.count + count, other.count - count


def _by_key() -> defaultdict[bytes, list[RawRecord]]:
    return defaultdict(list)
