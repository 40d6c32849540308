"""A whole deployment on one machine: Kafka, Redis, Spark, the dashboard and a demo.

This module and `ports` run on Python 3.9, too: tests on older Spark wait by them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class SandboxError(Exception):
    """An error for the user in one line: what, where, what to do.

    Entry points print it as it is and exit with status 1; it never reaches the user as a traceback.
    """


def wait_until(condition: Callable[[], T | None], what: str, within_s: float, *, rest_s: float = 0.1) -> T:
    """Return the first true answer of `condition`. Raises SandboxError after `within_s`, naming `what`."""
    until = time.monotonic() + within_s
    while not (answer := condition()):
        if time.monotonic() > until:
            raise SandboxError(f"not within {within_s:.0f} s: {what}")
        time.sleep(rest_s)
    return answer
