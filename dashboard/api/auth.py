"""Who may use the API: a signed-in session, or `Authorization: Bearer TOKEN`."""

from __future__ import annotations

import hashlib
from typing import Any

from django.http import HttpRequest
from ninja import security
from ninja.errors import HttpError
from ninja.utils import check_csrf

from dashboard.models import Token

_NO_CSRF = (
    "A session that changes something must send its CSRF token: the csrftoken cookie's value as X-CSRFToken. "
    "With 'Authorization: Bearer TOKEN' none is needed."
)


def digest(token: str) -> str:
    """Return what is kept of a token: its SHA-256, in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


class _Bearer(security.HttpBearer):
    """Tokens made by `manage.py create_token`; an ingest token may only ingest."""

    def authenticate(self, request: HttpRequest, token: str) -> Token | None:
        return Token.objects.filter(digest=digest(token)).exclude(role=Token.Role.INGEST).first()


class SessionAuth(security.SessionAuth):
    """A signed-in user with their CSRF token; who brought a token that nobody knows is no user either."""

    def __call__(self, request: HttpRequest) -> Any | None:
        brought = request.headers.get("Authorization", "").lower().startswith("bearer ")
        if brought or not request.user.is_authenticated:
            return None
        if check_csrf(request):
            raise HttpError(403, _NO_CSRF)
        return request.user


bearer = _Bearer()
session = SessionAuth()
