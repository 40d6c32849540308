"""Limit requests to a cluster to a small share of its brokers' response time."""

from __future__ import annotations


class RecentDuration:
    """The lower of the last two durations, in seconds.

    One slow answer is an exception: while a broker is unreachable, a poll waits for it without working, and a
    proportional pause would leave everything unread long after its return.
    """

    def __init__(self) -> None:
        self._last = 0.0

    def add(self, seconds: float) -> float:
        """Add the newest poll's duration; return the value for the rate."""
        lesser, self._last = min(self._last, seconds), seconds
        return lesser
