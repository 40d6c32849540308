"""Until when a log was read: its ends are asked again and again, and reached some time later."""

from __future__ import annotations

from collections.abc import Mapping


class ReachedEnds:
    """Ends that were asked for, and the newest instant whose ends were reached.

    Of a partition with a transaction every moment the newest end is never reached: it is behind a marker,
    which no consumer gets, and the next record comes before the end of the partition is announced. So the
    first ends that were not reached are kept until they are.
    """

    def __init__(self) -> None:
        self._newest: tuple[int, Mapping[int, int]] = 0, {}
        self._first: tuple[int, Mapping[int, int]] | None = None
        self._reached_ms = 0

    def note_ends(self, asked_ms: int, ends: Mapping[int, int]) -> None:
        """Note the ends of partitions, and when they were asked for."""
        self._newest = asked_ms, ends

    def forget_ends(self) -> None:
        """Begin anew: the partitions, or the positions in them, are others."""
        self._first = None

    def take_reached_ms(self, following: Mapping[int, int]) -> int | None:
        """Return when the newest ends were asked that `following`, the next offsets, have reached.

        None where no newer ones are reached than the last time.
        """
        reached_ms = self._reached_ms
        if self._first is not None and _has_reached(following, self._first[1]):
            reached_ms, self._first = self._first[0], None
        if _has_reached(following, self._newest[1]):
            reached_ms, self._first = self._newest[0], None
        elif self._first is None:
            self._first = self._newest
        if reached_ms == self._reached_ms:
            return None
        self._reached_ms = reached_ms
        return reached_ms


def _has_reached(following: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(following[partition] >= end for partition, end in ends.items())
