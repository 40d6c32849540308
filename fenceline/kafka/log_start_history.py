"""Measure how fast logs lose records at their start, because retention may overtake a reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from fenceline.facts import TopicPartition


class LogStarts:
    """The log starts of partitions over the last hour, and the deletion rates that follow."""

    #: Minimum distance of points, their maximum age, and the minimum span of a rate.
    APART_MS, LONGEST_MS, LEAST_MS = 30_000, 3_600_000, 120_000

    def __init__(self) -> None:
        self._points: dict[TopicPartition, deque[tuple[int, int]]] = {}

    def record_starts(self, starts: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Record the current log starts; partitions that are not given are forgotten."""
        self._points = {where: self._points.get(where, deque()) for where in starts}
        for where, start in starts.items():
            points = self._points[where]
            if points and start < points[-1][1]:
                points.clear()
            if len(points) > 1 and points[-1][0] - points[-2][0] < self.APART_MS:
                points.pop()
            points.append((now_ms, start))
            while now_ms - points[0][0] > self.LONGEST_MS:
                points.popleft()

    def deletion_rate(self, where: TopicPartition) -> float | None:
        """Return how many records a second a log loses at its start; None while unknown."""
        points = self._points.get(where)
        if not points:
            return None
        (first_ms, first), (last_ms, last) = points[0], points[-1]
        spent_ms = last_ms - first_ms
        return None if spent_ms < self.LEAST_MS else (last - first) * 1_000 / spent_ms
