"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, seconds: float = 30) -> T:
    """Return the first true answer of `condition`; fail after `seconds`, naming what was waited for."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}; last answer {answer!r}"
        time.sleep(0.02)
