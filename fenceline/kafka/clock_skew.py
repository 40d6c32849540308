"""Other hosts' clocks in terms of our own: coordinators stamp records, and may be an hour off.

What can be measured is how far our clock is ahead of a record's stamp when the record is read just after it
was written. That is the difference of the clocks plus the delay until it was read, and the delay is never
negative. So the smallest one of a while counts (`follow_offset`, kept in `Position.clock_ms`), and a
difference of some seconds is taken for none (`difference_ms`): it cannot be distinguished from a delay.
"""

from __future__ import annotations

from typing import NamedTuple

#: Differences up to this are ignored. A record is measured only where all had been read at most so long
#: before (`dashboard.runtime.collector_store.is_live`), so no delay is larger.
LEAST_MS = 5_000
#: How long a smallest difference counts: to the end of the next window. A clock that was set is known then.
WINDOW_MS = 60_000


class Offset(NamedTuple):
    """How far our clock is ahead of another one: the smallest difference that was measured of late."""

    ahead_ms: int
    #: The smallest one of this window, and when the window began, by our clock.
    window_ms: int
    since_ms: int


def follow_offset(known: Offset | None, ahead_ms: int, now_ms: int) -> Offset:
    """Return the offset after another measurement: the least of this window and of the one before it."""
    if known is None:
        return Offset(ahead_ms, ahead_ms, now_ms)
    if 0 <= now_ms - known.since_ms < WINDOW_MS:
        return Offset(min(known.ahead_ms, ahead_ms), min(known.window_ms, ahead_ms), known.since_ms)
    return Offset(min(known.window_ms, ahead_ms), ahead_ms, now_ms)


def difference_ms(ahead_ms: int | None) -> int:
    """Return by how much stamps are moved: 0 for what may be a delay, and where nothing was measured."""
    return ahead_ms if ahead_ms is not None and abs(ahead_ms) > LEAST_MS else 0


def to_local_ms(stamped_ms: int, *, now_ms: int, ahead_ms: int | None) -> int:
    """Return a stamped instant by our clock: moved by how far ours is ahead, and never after `now_ms`."""
    return min(now_ms, stamped_ms + difference_ms(ahead_ms))


def start_ms(
    stamped_ms: int | None, *, now_ms: int, ahead_ms: int | None, since_ms: int | None
) -> int | None:
    """Return when a transaction began by our clock, None where that is unknown.

    `ahead_ms` is how far our clock is ahead of its coordinator's, None where no record of its partition was
    observed live; then its record was there when we came, and it counts from its stamp or from when we
    first polled (`since_ms`), whichever is later. A stamp in our future then proves that its clock is wrong,
    and nothing about its age.
    """
    if stamped_ms is None:
        return None
    if ahead_ms is not None:
        return to_local_ms(stamped_ms, now_ms=now_ms, ahead_ms=ahead_ms)
    if stamped_ms > now_ms:
        return None
    return max(stamped_ms, since_ms or 0)
