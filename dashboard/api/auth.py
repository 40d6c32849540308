"""Who may ask the API, what, and how often: a signed-in session, or `Authorization: Bearer TOKEN`."""

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
from ninja import security
from ninja.errors import AuthenticationError, HttpError
from ninja.utils import check_csrf

from dashboard.api.problems import RefusedRequest
from dashboard.models import Token
from dashboard.system import access, cluster_limits
from dashboard.system.access import Actor
from dashboard.system.tokens import TokenRefused, usable_token

_REMEDY = "Make one with `manage.py create_token NAME` and send it as 'Authorization: Bearer TOKEN'."
_NO_CSRF = (
    "A session that changes something must send its CSRF token: the csrftoken cookie's value as X-CSRFToken. "
    "With 'Authorization: Bearer TOKEN' none is needed."
)


class _Bearer(security.HttpBearer):
    """Tokens made by `manage.py create_token`; an ingest token may only ingest."""

    def authenticate(self, request: HttpRequest, token: str) -> Token | None:
        try:
            row = usable_token(token)
        except TokenRefused as refused:
            raise AuthenticationError(message=f"{refused} {_REMEDY}") from None
        if row.role == Token.Role.INGEST:
            return None
        if reason := cluster_limits.limit_caller(request, cluster_limits.limit_of_token(row)):
            raise HttpError(403, reason)
        # The path's cluster can be checked only now, once the token's limit is known.
        named = request.resolver_match.kwargs if request.resolver_match else {}
        cluster_limits.refuse_hidden(named.get("cluster"))
        return row


class SessionAuth(security.SessionAuth):
    """A signed-in user with their CSRF token; a request with a bearer token never uses its session."""

    def __call__(self, request: HttpRequest) -> Any | None:
        has_token = request.headers.get("Authorization", "").lower().startswith("bearer ")
        if has_token or not request.user.is_authenticated:
            return None
        if check_csrf(request):
            raise HttpError(403, _NO_CSRF)
        if not access.may_view(request.user):
            raise HttpError(403, access.no_role(request.user))
        return request.user


bearer = _Bearer()
session = SessionAuth()


def require_permission(request: HttpRequest, permission: str, cluster: str = "") -> Actor:
    """Return the caller; raises a 403 unless they have the permission, on `cluster` if given."""
    actor = access.actor_of(request, "api")
    if refused := access.permission_refusal(actor, permission, cluster):
        raise HttpError(403, refused)
    return actor


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
