"""Whether a driver runs a query, from the heartbeat of its listener.

`spark_listener.emit` posts every few seconds from a separate thread, regardless of Spark: an hour-long batch,
or a query without data, does not stop it. A missing heartbeat is a fact. It proves that the driver has
stopped only together with another missing action of a running driver.
"""

from enum import StrEnum
from typing import NamedTuple

from fenceline.formatting import format_clock

#: The interval of the first 0.1.0 listeners, which do not report it.
OLDEST_INTERVAL_MS = 20_000
#: The number of consecutive missing heartbeats; a late post still counts.
MISSED, GRACE_MS = 2, 2_000


class DriverStatus(StrEnum):
    RUNNING = "running"
    #: Its heartbeat is overdue.
    NO_HEARTBEAT = "no_heartbeat"
    #: Its listener reported the end of the run.
    ENDED = "ended"
    #: No listener has ever reported.
    UNKNOWN = "unknown"


class Driver(NamedTuple):
    """A driver's status, and the instant of its evidence."""

    status: DriverStatus
    #: Its last heartbeat, by our clock; None without any.
    heartbeat_ms: int | None = None
    #: The end of its run by its own clock, and whether that was an exception.
    ended_ms: int | None = None
    failed: bool = False

    @property
    def alive(self) -> bool | None:
        """Return whether it runs; None without a report, or without a recent one."""
        return {DriverStatus.RUNNING: True, DriverStatus.ENDED: False}.get(self.status)

    @property
    def silent_since_ms(self) -> int | None:
        """Return its last heartbeat if the next one is overdue, else None."""
        return self.heartbeat_ms if self.status is DriverStatus.NO_HEARTBEAT else None

    @property
    def status_text(self) -> str:
        """Return its status with the instant: `no heartbeat since 12:15:03 UTC`."""
        if self.status is DriverStatus.ENDED:
            verb = "failed" if self.failed else "stopped"
            return verb if self.ended_ms is None else f"{verb} at {format_clock(self.ended_ms)}"
        if self.silent_since_ms is not None:
            return f"no heartbeat since {format_clock(self.silent_since_ms)}"
        return "running" if self.alive else "no listener reports whether it runs"


def silent_after_ms(interval_ms: int | None, least_ms: float) -> int:
    """Return the age of a heartbeat that means two missing ones, at least `least_ms`.

    `interval_ms` is the listener's reported interval, None without one.
    """
    interval = OLDEST_INTERVAL_MS if interval_ms is None else interval_ms
    return max(int(least_ms), MISSED * interval + GRACE_MS)


def driver_by_heartbeat(
    heartbeat_ms: int | None, *, interval_ms: int | None, least_ms: float, now_ms: int
) -> Driver:
    """Return the driver of a run that has not ended, as far as known."""
    if heartbeat_ms is None:
        return Driver(DriverStatus.UNKNOWN)
    late = now_ms - heartbeat_ms > silent_after_ms(interval_ms, least_ms)
    return Driver(DriverStatus.NO_HEARTBEAT if late else DriverStatus.RUNNING, heartbeat_ms)
