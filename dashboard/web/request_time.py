"""The clock of a request: read once, so that all of a page is of one instant."""

from __future__ import annotations

import time

from django.http import HttpRequest


def now_ms(request: HttpRequest) -> int:
    """Return when this request began to be answered, in milliseconds since the epoch."""
    moment: int = request.__dict__.setdefault("now_ms", time.time_ns() // 1_000_000)
    return moment
