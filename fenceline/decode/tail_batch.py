"""The records of an internal topic read by a tail since its last save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fenceline.compat import SLOTS
from fenceline.decode.record_table import RecordTable
from fenceline.facts import PositionMove


@dataclass(frozen=True, **SLOTS)
class TailBatch:
    """The records read by a tail since its last save, and its new positions."""

    records: RecordTable
    moves: tuple[PositionMove, ...]
    #: Offsets that were gone before we read them: older records of ids, removed by compaction.
    compacted: int = 0
    #: All partitions were read to their end at this instant; None if any was not, or none was checked.
    seen_through_ms: int | None = None
    behind: int | None = None
    #: The cost to the cluster: requests sent, and milliseconds of waiting for their answers.
    requests: int = 0
    broker_ms: int = 0
    #: Reading began without any position, and has not reached the end yet: the first records of a partition
    #: were never read before.
    cold: bool = False

    @property
    def count(self) -> int:
        """The number of records."""
        return self.records.count

    @property
    def is_empty(self) -> bool:
        """Whether it has no news except `seen_through_ms` and `behind`."""
        return not (self.count or self.records.bad or self.moves or self.compacted or self.cold)

    @property
    def is_first(self) -> bool:
        """Whether no record of any of its partitions was read before."""
        return all(move.is_first for move in self.moves)

    def split_by_keys(self, most_keys: int) -> Iterator[TailBatch]:
        """Split it into batches of whole partitions with about `most_keys` keys at most.

        Only the last batch has `seen_through_ms`.
        """
        moves: list[PositionMove] = []
        keys = 0
        for move in self.moves:
            added = len(self.records.get(move.partition, ()))
            if moves and keys + added > most_keys:
                yield TailBatch(self._records_of(moves), tuple(moves), cold=self.cold)
                moves, keys = [], 0
            moves.append(move)
            keys += added
        yield replace(self, records=self._records_of(moves), moves=tuple(moves))

    def _records_of(self, moves: Sequence[PositionMove]) -> RecordTable:
        if len(moves) == len(self.moves):
            return self.records
        return self.records.of_partitions({move.partition for move in moves})
