"""Check whether a live socket may stay open: its session, its user and the user's role.

A change that may end a socket makes all affected sockets check at once; other ends, such as an expired
session, are found by the sockets themselves once a minute.
"""

from typing import Any

from django.contrib.auth import get_user
from django.contrib.auth.models import Group, User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from dashboard.models import ClusterLimit
from dashboard.runtime import notify
from dashboard.system import access

_TAKES_AWAY = ("post_remove", "post_clear")


def may_stay(session_key: str) -> bool:
    """Whether a session exists, its user's password is unchanged, and the user may view pages."""
    request = HttpRequest()
    request.session = SessionStore(session_key)
    return access.may_view(get_user(request))


@receiver(post_delete, sender=Session)
def _session_ended(instance: Session, **_: object) -> None:
    """Check sockets after a sign-out, or a new sign-in in the browser; an expired session has no socket."""
    if instance.expire_date <= timezone.now():
        return
    transaction.on_commit(lambda: notify.check_sessions(session=notify.session_name(instance.session_key)))


@receiver(post_save, sender=User)
@receiver(post_delete, sender=User)
def _user_changed(instance: User, created: bool = False, **_: object) -> None:
    if not created:
        _check(instance.pk)


@receiver(post_save, sender=ClusterLimit)
@receiver(post_delete, sender=ClusterLimit)
def _limit_changed(instance: ClusterLimit, **_: object) -> None:
    _check(instance.user_id)


@receiver(m2m_changed, sender=User.groups.through)
@receiver(m2m_changed, sender=User.user_permissions.through)
def _roles_changed(instance: User | Group, action: str, reverse: bool, **_: Any) -> None:
    """Check sockets after a removal; with `reverse`, `instance` is a group or permission, not a user."""
    if action in _TAKES_AWAY:
        _check(None if reverse else instance.pk)


@receiver(m2m_changed, sender=Group.permissions.through)
def _permissions_changed(action: str, **_: object) -> None:
    if action in _TAKES_AWAY:
        _check(None)


@receiver(post_delete, sender=Group)
def _group_deleted(**_: object) -> None:
    _check(None)


def _check(user: int | None) -> None:
    """Make the sockets of a user, or of all for None, check themselves once the change is committed."""
    transaction.on_commit(lambda: notify.check_sessions(user=user))
