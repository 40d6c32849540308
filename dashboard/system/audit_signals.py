"""Write audit rows for changes of users, roles and tokens by any code: Django's admin, a command, a shell.

Not recorded: `QuerySet.update`, which sends no signal; code that changes a token that way records it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.db import connection, transaction
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save
from django.dispatch import receiver

from dashboard.models import AuditEntry, Token
from dashboard.system import audit
from dashboard.system.audit import AuditedSubject, Changes, Event

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
_SHOWN = {"password": audit.hide_secret, "digest": audit.hide_secret}
_WORDS: Mapping[type[Model], str] = {User: "user", Group: "role", Token: "token"}
#: Attributes of an instance: its fields before it is saved, members before they change, its audit row.
_BEFORE, _MEMBERS, _ROW = "_audit_before", "_audit_members", "_audit_row"


for _model in _FIELDS:
    # A change and its row are one transaction, even if Django's caller has none: its password pages.
    _model.add_to_class("save", transaction.atomic(savepoint=False)(_model.save))


def audited_subject(row: Model) -> AuditedSubject:
    """Return a user, a role or a token as an audited subject."""
    name = row.get_username() if isinstance(row, User) else row.name  # type: ignore[attr-defined]
    return AuditedSubject(_WORDS[type(row)], row.pk, name)


@receiver(pre_save, sender=User)
@receiver(pre_save, sender=Group)
@receiver(pre_save, sender=Token)
def _before_save(sender: type[Model], instance: Model, update_fields: Any = None, **_: object) -> None:
    fields = [name for name in _FIELDS[sender] if update_fields is None or name in update_fields]
    before = sender._base_manager.filter(pk=instance.pk).values(*fields).first() if fields else None
    instance.__dict__[_BEFORE] = before or {}


@receiver(post_save, sender=User)
@receiver(post_save, sender=Group)
@receiver(post_save, sender=Token)
def _saved(
    sender: type[Model], instance: Model, created: bool, update_fields: Any = None, **_: object
) -> None:
    before = instance.__dict__.pop(_BEFORE)
    after = {name: getattr(instance, name) for name in (_FIELDS[sender] if created else before)}
    if _is_rehash(instance, update_fields):
        return
    changes = audit.field_changes(before, after, _SHOWN)
    if set(changes) == {"password"} and not created:
        _note(Event.PASSWORD_CHANGED, instance, changes)
    elif created or changes:
        _note(_event(instance, "created" if created else "changed"), instance, changes)


def _is_rehash(instance: Model, update_fields: Any) -> bool:
    """Whether a sign-in re-hashed the same password; Django clears `_password` then."""
    is_password = isinstance(instance, User) and set(update_fields or ()) == {"password"}
    return is_password and getattr(instance, "_password", None) is None


@receiver(post_delete, sender=User)
@receiver(post_delete, sender=Group)
@receiver(post_delete, sender=Token)
def _deleted(instance: Model, **_: object) -> None:
    audit.record_change(_event(instance, "deleted"), audited_subject(instance))


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
    row = audit.record_change(event, audited_subject(instance), changes)
    if connection.in_atomic_block:
        instance.__dict__[_ROW] = row
        transaction.on_commit(lambda: instance.__dict__.pop(_ROW, None))


def _merge(row: AuditEntry, changes: Changes) -> bool:
    """Add changes to a row of this transaction; return False if a rollback has removed it."""
    for name, (before, after) in changes.items():
        first = row.changes[name][0] if name in row.changes else before
        row.changes[name] = [first, after]
    return bool(AuditEntry.objects.filter(pk=row.pk).update(changes=row.changes))
