"""Write the audit log: changes of channels, silences, tokens, users and roles, with actor and address.

A row is written in the transaction of its change: a rolled back change leaves no row. A row refers to no
other row and has no unique key, so inserting one waits for no other writer's locks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from dashboard.models import AuditEntry
from dashboard.system import access
from dashboard.system.client_address import client_address
from dashboard.system.origin import current_command, current_request
from fenceline.alerts import redact

Event = AuditEntry.Event
Via = AuditEntry.Via
#: Field -> value before, value after; None for no value.
Changes = Mapping[str, tuple[Any, Any]]
#: Pages that change objects outside of our own pages.
_PREFIXES = {"/admin/": Via.ADMIN, "/api/": Via.API, "/ingest/": Via.API}
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class ChangeOrigin:
    """The actor, the interface, and the actor's IP address."""

    actor: str
    via: Via
    address: str | None


@dataclass(frozen=True, slots=True)
class AuditedSubject:
    """The subject of a change: its kind for `AuditEntry.subject_kind`, its id and its name."""

    kind: str
    id: int | None
    name: str


def change_origin(request: HttpRequest | None = None) -> ChangeOrigin:
    """Return the origin of a change: a request (by default the current one), else a command."""
    request = request or current_request.get()
    if request is not None:
        via = next((via for start, via in _PREFIXES.items() if request.path_info.startswith(start)), Via.PAGE)
        return ChangeOrigin(_actor(request), via, client_address(request) or None)
    if command := current_command.get():
        return ChangeOrigin(f"manage.py {command}", Via.COMMAND, None)
    return ChangeOrigin("", Via.SYSTEM, None)


def _actor(request: HttpRequest) -> str:
    who = getattr(request, "auth", None) or getattr(request, "user", None)
    if who is None or getattr(who, "is_anonymous", False):
        return ""
    return access.caller_name(request)


def audit_entry(
    event: Event, subject: AuditedSubject, changes: Changes | None = None, by: ChangeOrigin | None = None
) -> AuditEntry:
    """Return an unsaved audit row."""
    by = by or change_origin()
    return AuditEntry(
        event=event,
        actor=by.actor[:_LONGEST_NAME],
        via=by.via,
        address=by.address,
        subject_kind=subject.kind,
        subject_id=subject.id,
        subject_name=subject.name[:_LONGEST_NAME],
        changes={name: list(pair) for name, pair in (changes or {}).items()},
    )


def record_change(event: Event, subject: AuditedSubject, changes: Changes | None = None) -> AuditEntry:
    """Save an audit row; call it in the transaction of the change, after it."""
    row = audit_entry(event, subject, changes)
    row.save()
    return row


def hide_secret(value: object) -> str | None:
    """Return the shown value of a secret: only whether there is one."""
    return redact.HIDDEN if value else None


def field_changes(
    before: Mapping[str, Any], after: Mapping[str, Any], shown: Mapping[str, Callable[[Any], Any]]
) -> Changes:
    """Return the fields of `after` that differ from `before`; `shown` converts values to their stored form.

    A field that `before` lacks differs unless it is empty.
    """
    return {
        name: (_shown(before.get(name), shown.get(name)), _shown(value, shown.get(name)))
        for name, value in after.items()
        if before.get(name) != value and (name in before or value not in (None, "", []))
    }


def _shown(value: Any, show: Callable[[Any], Any] | None) -> Any:
    return value if show is None or value is None else show(value)
