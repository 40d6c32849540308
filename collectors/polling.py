"""What polls keep from one to the next: when the next one is due, so that requests to a cluster or a store
take a small share of its time, and since when each part of a cluster cannot be read.
"""

import time
from collections.abc import Mapping

#: The share of time that brokers or a store may spend on us: one part in twenty.
SHARE = 20


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


class PollTimer:
    """The time of the next poll: the base of collectors."""

    def __init__(self) -> None:
        self._due = time.monotonic()
        self._lately = RecentDuration()

    def wait_s(self) -> float:
        """Return the seconds until the next poll, 0 when it is due."""
        return max(0.0, self._due - time.monotonic())

    def poll_soon(self) -> None:
        self._due = time.monotonic()

    def set_due(self, began: float, every_s: float, spent_s: float = 0.0) -> None:
        """Plan the next poll `every_s` after the last one `began`, later if its answers took long."""
        self._due = began + max(every_s, SHARE * self._lately.add(spent_s))


class GapStarts:
    """The starts of the present gaps, by scope."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def date_gaps(self, reasons: Mapping[str, str], now_ms: int) -> Mapping[str, tuple[int, str]]:
        """Return start and reason of each gap; other gaps have ended."""
        self._since = {scope: self._since.get(scope, now_ms) for scope in reasons}
        return {scope: (self._since[scope], reason) for scope, reason in reasons.items()}
