"""Other hosts' clocks in terms of our own: coordinators stamp records, and may be an hour off.

`Position.clock_ms` says how far our clock is ahead of the one that stamps a partition of
`__transaction_state`; it is known once a record was written there before our eyes.
"""

from __future__ import annotations


def ours_ms(stamped_ms: int, *, now_ms: int, ahead_ms: int | None) -> int:
    """Return a stamped instant by our clock: moved by how far ours is ahead, and never after `now_ms`."""
    return min(now_ms, stamped_ms + (ahead_ms or 0))


def start_ms(
    stamped_ms: int | None, *, now_ms: int, ahead_ms: int | None, since_ms: int | None
) -> int | None:
    """Return when a transaction began by our clock, None where that cannot be told.

    `ahead_ms` is how far our clock is ahead of its coordinator's, None where no record of its partition came
    before our eyes; then its record was there when we came, and it counts from its stamp or from when we
    first looked (`since_ms`), whichever is later: rather too young than accused. A stamp in our future then
    says that its clock is wrong, and nothing about its age.
    """
    if stamped_ms is None:
        return None
    if ahead_ms is not None:
        return ours_ms(stamped_ms, now_ms=now_ms, ahead_ms=ahead_ms)
    if stamped_ms > now_ms:
        return None
    return max(stamped_ms, since_ms or 0)
