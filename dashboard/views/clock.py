"""The clock of a request: read once, so that one page speaks of one instant."""

from __future__ import annotations

import time

from django.http import HttpRequest


def now_ms(request: HttpRequest) -> int:
    """Return when this request began to be answered, in milliseconds since the epoch."""
    if not hasattr(request, "now_ms"):
        request.now_ms = time.time_ns() // 1_000_000
    moment: int = request.now_ms
    return moment
