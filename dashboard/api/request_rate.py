"""The rate limit of the API: beyond it a caller gets a 429 that says when to retry."""

import math
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from django.conf import settings
from django.http import HttpRequest
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from dashboard.api.problems import RefusedRequest
from dashboard.system import access

R = TypeVar("R")
#: Counts the requests of this process; every web process counts its own.
_limiter = FixedWindowRateLimiter(MemoryStorage())


def limit_rate(view: Callable[..., R]) -> Callable[..., R]:
    """Count an operation's requests by caller, and reject requests beyond the limit; a ninja decorator."""

    @wraps(view)
    def counted(request: HttpRequest, *args: Any, **values: Any) -> R:
        if settings.API_REQUESTS_PER_MINUTE:
            _count(access.caller_name(request))
        return view(request, *args, **values)

    return counted


def _count(caller: str) -> None:
    allowed = RateLimitItemPerMinute(settings.API_REQUESTS_PER_MINUTE)
    if _limiter.hit(allowed, caller):
        return
    wait_s = max(1, math.ceil(_limiter.get_window_stats(allowed, caller).reset_time - time.time()))
    raise RefusedRequest(
        429,
        f"{caller} has asked {allowed.amount:,} times within a minute (API_REQUESTS_PER_MINUTE): "
        f"ask again in {wait_s} s.",
        retry_after_s=wait_s,
    )
