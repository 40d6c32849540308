"""Lets a collector take its turns in a test's own thread, for a while."""

import time

from dashboard.runtime import loop


def take_turns(turns: loop.Turns, seconds: float) -> None:
    """Take turns, the first at once, and rest between them as they ask, until `seconds` are over."""
    end = time.monotonic() + seconds
    for wait_s in turns:
        loop.stop_requested.wait(min(wait_s, max(0.0, end - time.monotonic())))
        if time.monotonic() >= end or loop.stop_requested.is_set():
            turns.close()
