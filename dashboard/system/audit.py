"""Write and read the audit log: changes of channels, silences, tokens, users and roles, with their origin.

A row is written in the transaction of its change: a rolled back change leaves no row. A row refers to no
other row and has no unique key, so inserting one waits for no other writer's locks.

Signals record changes of users, roles and tokens by any code: Django's admin, a command, a shell. Not
recorded: `QuerySet.update`, which sends no signal; code that changes a token that way records it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.contrib.auth.models import Group, Permission, User
from django.db import connection, transaction
from django.db.models import Model, Q, Sum
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save
from django.dispatch import receiver
from django.http import HttpRequest
from pydantic import Field

from dashboard.models import SIGN_INS, AuditEntry, Token
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
    rows = AuditEntry.objects.filter(starts_in_range(wanted, "at"))
    if wanted.event:
        rows = rows.filter(event__in=FAMILIES.get(wanted.event, [wanted.event]))
    if wanted.actor:
        rows = rows.filter(actor=wanted.actor)
    if wanted.q:
        part = Q(subject_name__icontains=wanted.q) | Q(actor__icontains=wanted.q)
        rows = rows.filter(part | Q(address__icontains=wanted.q))
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


#: The recorded fields: without a user's last sign-in and a token's last use.
_FIELDS: Mapping[type[Model], Sequence[str]] = {
    User: (
        "username",
        "first_name",
        "last_name",
        "email",
        "is_active",
        "is_staff",
        "is_superuser",
        "password",
    ),
    Group: ("name",),
    Token: ("name", "role", "clusters", "digest", "expires_at", "revoked_at"),
}
_SHOWN = {"password": hide_secret, "digest": hide_secret}
_WORDS: Mapping[type[Model], str] = {User: "user", Group: "role", Token: "token"}
#: Attributes of an instance: its fields before it is saved, members before they change, its audit row.
_BEFORE, _MEMBERS, _ROW = "_audit_before", "_audit_members", "_audit_row"


def audited_subject(row: Model) -> AuditedSubject:
    """Return a user, a role or a token as an audited subject."""
    name = row.get_username() if isinstance(row, User) else row.name  # type: ignore[attr-defined]
    return AuditedSubject(_WORDS[type(row)], row.pk, name)


def _before_save(sender: type[Model], instance: Model, update_fields: Any = None, **_: object) -> None:
    fields = [name for name in _FIELDS[sender] if update_fields is None or name in update_fields]
    before = sender._base_manager.filter(pk=instance.pk).values(*fields).first() if fields else None
    instance.__dict__[_BEFORE] = before or {}


def _saved(
    sender: type[Model], instance: Model, created: bool, update_fields: Any = None, **_: object
) -> None:
    before = instance.__dict__.pop(_BEFORE)
    after = {name: getattr(instance, name) for name in (_FIELDS[sender] if created else before)}
    if _is_rehash(instance, update_fields):
        return
    changes = field_changes(before, after, _SHOWN)
    if set(changes) == {"password"} and not created:
        _note(Event.PASSWORD_CHANGED, instance, changes)
    elif created or changes:
        _note(_event(instance, "created" if created else "changed"), instance, changes)


def _is_rehash(instance: Model, update_fields: Any) -> bool:
    """Whether a sign-in re-hashed the same password; Django clears `_password` then."""
    is_password = isinstance(instance, User) and set(update_fields or ()) == {"password"}
    return is_password and getattr(instance, "_password", None) is None


def _deleted(instance: Model, **_: object) -> None:
    record_change(_event(instance, "deleted"), audited_subject(instance))


def _members_changed(
    field: str, instance: Model, action: str, reverse: bool, model: type[Model], pk_set: Any, **_: object
) -> None:
    """Record changed roles or permissions of users and roles: their names before and after."""
    if action.startswith("pre_"):
        owners = _owners(field, model, instance, pk_set) if reverse else [instance]
        instance.__dict__[_MEMBERS] = [(owner, _names(owner, field)) for owner in owners]
        return
    for owner, before in instance.__dict__.pop(_MEMBERS):
        after = _names(owner, field)
        if before != after:
            _note(_event(owner, "changed"), owner, {field: (before, after)})


def _owners(field: str, model: type[Model], member: Model, pk_set: Any) -> Sequence[Model]:
    """Return the instances whose members change: the given ones, or all of the members on a clear."""
    wanted = {field: member} if pk_set is None else {"pk__in": pk_set}
    return list(model._base_manager.filter(**wanted).order_by("pk"))


def _names(owner: Model, field: str) -> list[str]:
    rows = getattr(owner, field)
    if rows.model is Permission:
        codenames = sorted(rows.order_by().values_list("content_type__app_label", "codename"))
        return [f"{app}.{name}" for app, name in codenames]
    return sorted(rows.values_list("name", flat=True))


for _model in _FIELDS:
    # A change and its row are one transaction, even if Django's caller has none: its password pages.
    _model.add_to_class("save", transaction.atomic(savepoint=False)(_model.save))
    pre_save.connect(_before_save, sender=_model)
    post_save.connect(_saved, sender=_model)
    post_delete.connect(_deleted, sender=_model)

for _through, _field in (
    (User.groups.through, "groups"),
    (User.user_permissions.through, "user_permissions"),
    (Group.permissions.through, "permissions"),
):

    @receiver(m2m_changed, sender=_through, weak=False)
    def _changed(field: str = _field, **signal: Any) -> None:
        _members_changed(field, **signal)


def _event(row: Model, what: str) -> Event:
    return Event(f"{_WORDS[type(row)]}.{what}")


def _note(event: Event, instance: Model, changes: Changes) -> None:
    """Record a change; a transaction that saves an instance and its members writes one row."""
    row = instance.__dict__.get(_ROW)
    if row is not None and _merge(row, changes):
        return
    row = record_change(event, audited_subject(instance), changes)
    if connection.in_atomic_block:
        instance.__dict__[_ROW] = row
        transaction.on_commit(lambda: instance.__dict__.pop(_ROW, None))


def _merge(row: AuditEntry, changes: Changes) -> bool:
    """Add changes to a row of this transaction; return False if a rollback has removed it."""
    for name, (before, after) in changes.items():
        first = row.changes[name][0] if name in row.changes else before
        row.changes[name] = [first, after]
    return bool(AuditEntry.objects.filter(pk=row.pk).update(changes=row.changes))
