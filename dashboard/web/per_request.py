"""Values derived once per request, shared by view and templates, including its clock."""

import time
from collections.abc import Callable
from typing import TypeVar

from django.http import HttpRequest

Derived = TypeVar("Derived")


def derive_once(request: HttpRequest, name: str, derive: Callable[[], Derived]) -> Derived:
    """Return the value of this name for the request, derived at the first call."""
    kept = request.__dict__
    if name not in kept:
        kept[name] = derive()
    value: Derived = kept[name]
    return value


def now_ms(request: HttpRequest) -> int:
    """Return the start of this request in milliseconds since the epoch, so that a page has one instant."""
    return derive_once(request, "now_ms", lambda: time.time_ns() // 1_000_000)
