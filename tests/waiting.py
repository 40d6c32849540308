"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_REST_S, _LONGEST_REST_S = 0.02, 1.0


def wait_for(
    condition: Callable[[], T],
    what: str,
    seconds: float = 30,
    *,
    rest_s: float = _REST_S,
    until: Callable[[T], object] = bool,
) -> T:
    """Return the first answer of `condition` that is true, or that `until` takes; fail after `seconds`.

    It rests as long as an answer took: who asks all the time takes the cores from what is waited for.
    `rest_s` is the shortest rest.
    """
    end = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        answer = condition()
        if until(answer):
            return answer
        now = time.monotonic()
        assert now < end, f"not within {seconds:g} s: {what}; last answer {answer!r}"
        time.sleep(min(max(rest_s, now - asked), _LONGEST_REST_S))
