"""What is derived once for a request, and asked for by view and templates; its clock is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from django.http import HttpRequest

Derived = TypeVar("Derived")


def derive_once(request: HttpRequest, name: str, derive: Callable[[], Derived]) -> Derived:
    """Return what was derived by this name for the request; derive it now if nobody has asked before."""
    kept = request.__dict__
    if name not in kept:
        kept[name] = derive()
    found: Derived = kept[name]
    return found


def now_ms(request: HttpRequest) -> int:
    """Return when this request began to be answered, in milliseconds since the epoch: one instant a page."""
    return derive_once(request, "now_ms", lambda: time.time_ns() // 1_000_000)
