"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sandbox.ports import HOST

T = TypeVar("T")

_REST_S, _LONGEST_REST_S = 0.02, 1.0
#: Of a long wait: each question costs the server that answers, and more than who asks.
_SHARE, _SHARED_S = 0.1, 0.3


def port_answers(port: int) -> bool:
    """Whether something accepts connections on a port of the loopback address."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def process_state(pid: int) -> str:
    """Return the kernel's letter for what a process does: T is stopped, S waits for input or a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(
    condition: Callable[[], T],
    what: str,
    seconds: float = 30,
    *,
    rest_s: float = _REST_S,
    until: Callable[[T], object] = bool,
) -> T:
    """Return the first answer of `condition` that is true, or that `until` takes; fail after `seconds`.

    It rests as long as an answer took, and a tenth of what it has waited: who asks all the time takes the
    cores from what is waited for. `rest_s` is the shortest rest.
    """
    start = time.monotonic()
    end = start + seconds
    while True:
        asked = time.monotonic()
        answer = condition()
        if until(answer):
            return answer
        now = time.monotonic()
        assert now < end, f"not within {seconds:g} s: {what}; last answer {answer!r}"
        waited_s = min((now - start) * _SHARE, _SHARED_S)
        time.sleep(min(max(rest_s, now - asked, waited_s), _LONGEST_REST_S))
