"""`/api/v1/audit`: changes of channels, silences, tokens, users and roles, and sign-ins."""

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from dashboard.api import schemas
from dashboard.models import AuditEntry
from dashboard.runtime import loop
from dashboard.system import access, audit

router = Router(tags=["audit"])


class AuditSubject(Schema):
    """The subject of a change, with its name at that time; `id` is null if it has none.

    `kind` is "channel", "silence", "token", "user", "role", "address" or "".
    """

    kind: str = Field(validation_alias="subject_kind")
    id: int | None = Field(validation_alias="subject_id")
    name: str = Field(validation_alias="subject_name")


class AuditOut(Schema):
    """A change or a sign-in.

    `actor` is a user's name, "token NAME", "manage.py NAME", or "" if unknown. `changes` has the old and new
    value by field, "***" for a secret. `count` counts failed sign-ins: those of one name and address within
    an hour of `at` are one item.
    """

    id: int
    at: schemas.Instant | None
    event: AuditEntry.Event
    actor: str
    via: AuditEntry.Via
    address: str | None
    subject: AuditSubject
    changes: dict[str, list[Any]]
    count: int

    resolve_subject = staticmethod(lambda row: row)


class AuditFilters(schemas.ShortListFilters, audit.AuditCriteria):
    """The query string of the list; `q` is a part of a name or an address, `who` a full name."""

    event: AuditEntry.Event | None = None


@router.get("", response=schemas.list_of(AuditOut), summary="List changes and sign-ins")
def list_audit(request: HttpRequest, wanted: Query[AuditFilters]) -> dict[str, object]:
    """Changes and sign-ins, newest first; needs the role admin."""
    if refused := access.missing_role(access.actor_of(request, "api"), access.AUDIT):
        raise HttpError(403, refused)
    before = schemas.read_number(wanted.cursor, "audit")
    rows, after = audit.newest_entries(wanted, before=before, limit=wanted.limit)
    return {
        "items": rows,
        "next": None if after is None else schemas.encode_cursor("audit", after),
        # Fenceline writes the entries itself, so there are no gaps.
        "as_of": schemas.format_iso(loop.now_ms()),
        "gaps": [],
    }
