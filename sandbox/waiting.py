"""Wait for a condition; at the deadline, name the missing event."""

import time
from collections.abc import Callable
from typing import TypeVar

from sandbox.errors import SandboxError

T = TypeVar("T")


def wait_until(condition: Callable[[], T | None], what: str, within_s: float, *, rest_s: float = 0.1) -> T:
    """Return the first true answer of `condition`. Raises SandboxError after `within_s`, naming `what`."""
    until = time.monotonic() + within_s
    while not (answer := condition()):
        if time.monotonic() > until:
            raise SandboxError(f"not within {within_s:.0f} s: {what}")
        time.sleep(rest_s)
    return answer
