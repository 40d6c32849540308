"""Who may use the API: a signed-in session, or `Authorization: Bearer TOKEN`."""

from __future__ import annotations

import hashlib

from django.http import HttpRequest
from ninja.security import HttpBearer, SessionAuth

from dashboard.models import Token


def digest(token: str) -> str:
    """Return what is kept of a token: its SHA-256, in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


class _Bearer(HttpBearer):
    """Tokens made by `manage.py create_token`; an ingest token may only ingest."""

    def authenticate(self, request: HttpRequest, token: str) -> Token | None:
        return Token.objects.filter(digest=digest(token)).exclude(role=Token.Role.INGEST).first()


bearer = _Bearer()
session = SessionAuth()
