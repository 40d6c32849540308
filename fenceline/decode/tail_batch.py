"""What a tail of an internal topic saw since its last save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fenceline.compat import SLOTS
from fenceline.decode.record_table import RecordTable
from fenceline.facts import PositionMove


@dataclass(frozen=True, **SLOTS)
class TailBatch:
    """What a tail saw since its last save, and how far it came."""

    records: RecordTable
    moves: tuple[PositionMove, ...]
    #: Offsets that were gone before we came: older records of ids, which compaction removed.
    compacted: int = 0
    #: All partitions were at their end at this instant; None when none was asked or one was not.
    seen_through_ms: int | None = None
    behind: int | None = None
    #: What it has cost the cluster: requests sent, and milliseconds of waiting for their answers.
    requests: int = 0
    broker_ms: int = 0
    #: Reading began without any position and is on its first way to the end: what it meets first in a
    #: partition was never seen before.
    cold: bool = False

    @property
    def count(self) -> int:
        """How many records."""
        return self.records.count

    @property
    def is_empty(self) -> bool:
        """Whether it says no more than how far all was seen, as it was before."""
        return not (self.count or self.records.bad or self.moves or self.compacted or self.cold)

    @property
    def is_first(self) -> bool:
        """Whether no record of any of its partitions was read before."""
        return all(move.is_first for move in self.moves)

    def split_by_keys(self, most_keys: int) -> Iterator[TailBatch]:
        """Split it into batches of some partitions each, so that none has many more than `most_keys` keys.

        Only the last one contains how far all was read.
        """
        moves: list[PositionMove] = []
        keys = 0
        for move in self.moves:
            found = len(self.records.get(move.partition, ()))
            if moves and keys + found > most_keys:
                yield TailBatch(self._records_of(moves), tuple(moves), cold=self.cold)
                moves, keys = [], 0
            moves.append(move)
            keys += found
        yield replace(self, records=self._records_of(moves), moves=tuple(moves))

    def _records_of(self, moves: Sequence[PositionMove]) -> RecordTable:
        if len(moves) == len(self.moves):
            return self.records
        return self.records.of_partitions({move.partition for move in moves})
