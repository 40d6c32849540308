"""Convert other hosts' timestamps to our clock: coordinators stamp records, and may be an hour off.

The measurable value is how far our clock is ahead of a record's timestamp when we read the record soon after
it was written. That is the difference of the clocks plus the reading delay, and the delay is never negative.
So the smallest recent value counts (`follow_offset`, kept in `Position.clock_ms`). A difference of a few
seconds counts as 0 (`difference_ms`), because it cannot be distinguished from a delay.
"""

from typing import NamedTuple

#: Differences up to this are ignored. A record is measured only if everything had been read at most this long
#: before (`dashboard.runtime.collector_store.clocks_ahead`), so no delay is larger.
LEAST_MS = 5_000
#: How long a smallest difference counts: to the end of the next window. By then an adjusted clock is noticed.
WINDOW_MS = 60_000


class Offset(NamedTuple):
    """How far our clock is ahead of another clock: the smallest recently measured difference."""

    ahead_ms: int
    #: The smallest difference of this window, and our clock at the window's start.
    window_ms: int
    since_ms: int


def follow_offset(known: Offset | None, ahead_ms: int, now_ms: int) -> Offset:
    """Return the offset after another measurement: the least of this window and the previous one."""
    if known is None:
        return Offset(ahead_ms, ahead_ms, now_ms)
    if 0 <= now_ms - known.since_ms < WINDOW_MS:
        return Offset(min(known.ahead_ms, ahead_ms), min(known.window_ms, ahead_ms), known.since_ms)
    return Offset(min(known.window_ms, ahead_ms), ahead_ms, now_ms)


def difference_ms(ahead_ms: int | None) -> int:
    """Return the correction for timestamps: 0 if the difference may be a delay, or was not measured."""
    return ahead_ms if ahead_ms is not None and abs(ahead_ms) > LEAST_MS else 0


def to_local_ms(stamped_ms: int, *, now_ms: int, ahead_ms: int | None) -> int:
    """Return a timestamp by our clock: corrected by the difference of the clocks, at most `now_ms`."""
    return min(now_ms, stamped_ms + difference_ms(ahead_ms))


def start_ms(
    stamped_ms: int | None, *, now_ms: int, ahead_ms: int | None, since_ms: int | None
) -> int | None:
    """Return when a transaction began by our clock, None if unknown.

    `ahead_ms` is how far our clock is ahead of its coordinator's. It is None if no record of its partition
    was observed live. The record then existed before we came: the start is its timestamp or our first poll
    (`since_ms`), whichever is later. A timestamp in our future then proves that its clock is wrong, and
    nothing about the transaction's age.
    """
    if stamped_ms is None:
        return None
    if ahead_ms is not None:
        return to_local_ms(stamped_ms, now_ms=now_ms, ahead_ms=ahead_ms)
    if stamped_ms > now_ms:
        return None
    return max(stamped_ms, since_ms or 0)
