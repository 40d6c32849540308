"""Write and read the audit log: changes of channels, silences, tokens, users and roles, with their origin.

A row is written in the transaction of its change: a rolled back change leaves no row. A row refers to no
other row and has no unique key, so inserting one waits for no other writer's locks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db.models import Q, QuerySet, Sum
from django.http import HttpRequest
from pydantic import Field

from dashboard.models import SIGN_INS, AuditEntry
from dashboard.runtime.criteria import Name, Ranged, Search, starts_in_range
from dashboard.system import access
from dashboard.system.origin import client_address, current_command, current_request
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


def _beginning(*starts: str) -> Sequence[Event]:
    return [event for event in Event if event.value.startswith(starts)]


#: Groups of kinds in a filter, by their name in a URL.
Family = Literal["channels", "silences", "incidents", "scenes", "tokens", "users", "roles", "sign-ins"]
FAMILIES: Mapping[str, Sequence[Event]] = {
    "channels": _beginning("channel."),
    "silences": _beginning("silence."),
    "incidents": _beginning("incident."),
    "scenes": _beginning("scene."),
    "tokens": _beginning("token."),
    "users": _beginning("user.", "password."),
    "roles": _beginning("role."),
    "sign-ins": _beginning("sign_in.", "signed_out"),
}


class AuditCriteria(Ranged):
    """The filters of a list of audit rows."""

    event: Family | Event | None = None
    #: The full name of the actor.
    actor: Name = Field(default="", alias="who")
    #: A part of the subject, of the actor, or of an address.
    q: Search = ""


def newest_entries(
    wanted: AuditCriteria, *, before: int | None, limit: int
) -> tuple[Sequence[AuditEntry], int | None]:
    """Return the newest rows, and the number after which the list continues, None at its end."""
    rows = _filtered(wanted)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    entries = list(rows.order_by("-pk")[: limit + 1])
    return entries[:limit], entries[limit - 1].pk if len(entries) > limit else None


def counts_since(moment: datetime) -> tuple[int, int]:
    """Return the numbers of changes and of failed sign-ins since an instant."""
    recent = AuditEntry.objects.filter(at__gte=moment)
    failed = recent.filter(event=Event.SIGN_IN_FAILED).aggregate(number=Sum("count"))["number"]
    changes = [event for event in Event if event not in SIGN_INS]
    return recent.filter(event__in=changes).count(), failed or 0


def _filtered(wanted: AuditCriteria) -> QuerySet[AuditEntry]:
    rows = AuditEntry.objects.filter(starts_in_range(wanted, "at"))
    if wanted.event:
        rows = rows.filter(event__in=FAMILIES.get(wanted.event, [wanted.event]))
    if wanted.actor:
        rows = rows.filter(actor=wanted.actor)
    if not wanted.q:
        return rows
    part = Q(subject_name__icontains=wanted.q) | Q(actor__icontains=wanted.q)
    return rows.filter(part | Q(address__icontains=wanted.q))
