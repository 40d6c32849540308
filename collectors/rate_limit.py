"""How often a cluster may be asked: a small share of the time that its brokers take to answer."""

from __future__ import annotations


class RecentDuration:
    """The lesser of the last two durations, in seconds.

    One slow answer is no habit: while a broker is away, a look waits for it and not for work of its own, and
    a pause of many times that would leave everything unseen long after it is back.
    """

    def __init__(self) -> None:
        self._last = 0.0

    def add(self, seconds: float) -> float:
        """Take in how long the newest poll took; return what counts for the rate."""
        lesser, self._last = min(self._last, seconds), seconds
        return lesser
