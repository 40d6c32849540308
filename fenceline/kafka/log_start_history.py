"""How fast logs lose records at their start: retention may overtake a reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from fenceline.facts import TopicPartition


class LogStarts:
    """How fast the logs of partitions are cut: where they started over the last hour."""

    #: Points are so far apart, for so long; a pace is measured over no less.
    APART_MS, LONGEST_MS, LEAST_MS = 30_000, 3_600_000, 120_000

    def __init__(self) -> None:
        self._points: dict[TopicPartition, deque[tuple[int, int]]] = {}

    def record_starts(self, starts: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Note where logs start now; those that are not named are forgotten."""
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
        """Return how many records a second a log loses at its start; None before that is known."""
        points = self._points.get(where)
        if not points:
            return None
        (first_ms, first), (last_ms, last) = points[0], points[-1]
        spent_ms = last_ms - first_ms
        return None if spent_ms < self.LEAST_MS else (last - first) * 1_000 / spent_ms
