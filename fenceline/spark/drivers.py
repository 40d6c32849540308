"""Whether a driver runs a query, by the heartbeat of its listener.

`spark_listener.emit` posts every few seconds from a thread of its own, whatever Spark does: a batch that
takes an hour, or a query without data, does not stop it. A heartbeat that is missing is a fact; that the
driver is gone follows from it only together with something else that a running driver would have done.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from fenceline.formatting import format_clock

#: How often listeners of 0.1.0's first builds posted: they do not report their interval.
OLDEST_INTERVAL_MS = 20_000
#: So many heartbeats in a row have to be missing, and a late post still counts.
MISSED, GRACE_MS = 2, 2_000


class DriverStatus(StrEnum):
    """What is known of the driver of a query."""

    RUNNING = "running"
    #: Its heartbeat is overdue.
    NO_HEARTBEAT = "no_heartbeat"
    #: Its listener reported that the run has ended.
    ENDED = "ended"
    #: No listener has ever reported.
    UNKNOWN = "unknown"


class Driver(NamedTuple):
    """A driver's status, and the instant that it follows from."""

    status: DriverStatus
    #: Its last heartbeat, by our clock; None where there never was one.
    heartbeat_ms: int | None = None
    #: When its run ended, by its own clock, and whether that was an exception.
    ended_ms: int | None = None
    failed: bool = False

    @property
    def alive(self) -> bool | None:
        """Whether it runs; None where nothing reports that, or not lately."""
        return {DriverStatus.RUNNING: True, DriverStatus.ENDED: False}.get(self.status)

    @property
    def silent_since_ms(self) -> int | None:
        """Return its last heartbeat where the next one is overdue, None otherwise."""
        return self.heartbeat_ms if self.status is DriverStatus.NO_HEARTBEAT else None

    @property
    def status_text(self) -> str:
        """Return what is known of it, and since when: `no heartbeat since 12:15:03 UTC`."""
        if self.status is DriverStatus.ENDED:
            verb = "failed" if self.failed else "stopped"
            return verb if self.ended_ms is None else f"{verb} at {format_clock(self.ended_ms)}"
        if self.silent_since_ms is not None:
            return f"no heartbeat since {format_clock(self.silent_since_ms)}"
        return "running" if self.alive else "no listener reports whether it runs"


def silent_after_ms(interval_ms: int | None, least_ms: float) -> int:
    """Return how old a heartbeat is when two in a row are missing, and never less than `least_ms`.

    `interval_ms` is what the listener reports as its interval, None where it reports none.
    """
    interval = OLDEST_INTERVAL_MS if interval_ms is None else interval_ms
    return max(int(least_ms), MISSED * interval + GRACE_MS)


def driver_by_heartbeat(
    heartbeat_ms: int | None, *, interval_ms: int | None, least_ms: float, now_ms: int
) -> Driver:
    """Return the driver of a run that has not ended, as far as is known."""
    if heartbeat_ms is None:
        return Driver(DriverStatus.UNKNOWN)
    late = now_ms - heartbeat_ms > silent_after_ms(interval_ms, least_ms)
    return Driver(DriverStatus.NO_HEARTBEAT if late else DriverStatus.RUNNING, heartbeat_ms)
