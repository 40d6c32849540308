"""Users and their roles: invite, change, disable, reset. Refused changes raise `AccessRefused`.

The signals of `dashboard.system.audit` record each change; those of `dashboard.web.server.live_socket`
close affected live sockets.
"""

from collections.abc import Callable

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX, make_password
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from dashboard.models import Token
from dashboard.runtime.write_transactions import lock_row, retry_write
from dashboard.system import access, cluster_limits
from dashboard.system.access import AccessRefused

_BACKEND = "django.contrib.auth.backends.ModelBackend"


def list_users() -> QuerySet[User]:
    """Return all users by name, with their groups."""
    return (
        User.objects.order_by("username")
        .select_related("external_identity", "cluster_limit")
        .prefetch_related("groups")
    )


def find_user(number: int) -> User | None:
    return User.objects.filter(pk=number).first()


def role_of(user: User) -> str:
    """Return the highest role of a user: "superuser", one of `access.ROLES`, or ""."""
    if user.is_superuser:
        return "superuser"
    names = {group.name for group in user.groups.all()}
    return next((str(role) for role in reversed(tuple(access.ROLES)) if role in names), "")


def state_of(user: User) -> str:
    """Return "active", "disabled", "external" (of an identity provider), or "invited" (no password)."""
    if not user.is_active:
        return "disabled"
    if provider_of(user):
        return "external"
    return "active" if user.has_usable_password() else "invited"


def provider_of(user: User) -> str:
    """Return the identity provider that a user signs in at, "" for a local user."""
    identity = getattr(user, "external_identity", None)
    return identity.provider if identity else ""


def refusal_of_change(user: User, by: User) -> str:
    """Return why `by` may not change a user at all, "" if they may.

    A user who resets a password could sign in as its owner, so nobody changes a user with more permissions.
    """
    if by.is_superuser or not (user.is_superuser or user.get_all_permissions() - by.get_all_permissions()):
        return ""
    return f"{user} has permissions that you lack: only a superuser may change this user."


def invite_user(username: str, role: str) -> User:
    """Create a user who sets a password later, by a link; raises `AccessRefused`."""
    group, user = _role_group(role), User(username=username.strip())
    user.set_unusable_password()
    taken = AccessRefused("A user with that username already exists.", "username")
    try:
        with transaction.atomic():
            user.full_clean()
            # Also a name that differs from another only in case.
            if User.objects.filter(username__iexact=user.username).exists():
                raise taken
            user.save()
            user.groups.add(group)
    except ValidationError as error:
        raise AccessRefused(" ".join(error.messages), "username") from error
    except IntegrityError as error:
        raise taken from error
    return user


@retry_write
@transaction.atomic
def set_role(number: int, role: str, *, by: User) -> None:
    """Give a user one role in place of the others; other groups stay. Raises `AccessRefused`."""
    user, group = _locked_user(number, by), _role_group(role)
    if user.is_superuser:
        raise AccessRefused(f"{user} is a superuser, who has every permission: no role changes that.")
    if provider := provider_of(user):
        raise AccessRefused(f"{user} signs in at {provider}: the role comes from the groups there.")
    if role != Token.Role.ADMIN:
        _keep_an_admin(user)
    _give(user, group)


@retry_write
@transaction.atomic
def set_clusters(number: int, grants: str, *, by: User) -> None:
    """Limit a user to comma-separated grants; "" lifts the limit. Raises `AccessRefused`."""
    user = _locked_user(number, by)
    if user.is_superuser:
        raise AccessRefused(f"{user} is a superuser, who sees every cluster.")
    _refuse_self(user, by, "limit")
    wanted = cluster_limits.checked_grants(cluster_limits.split_names(grants))
    if wanted:
        _keep_an_admin(user)
    cluster_limits.set_clusters(user, wanted or None)


def take_role(user: User, role: str) -> None:
    """Give a user at the sign-in the role of the identity provider's groups."""
    if role_of(user) != role:
        _give(user, _role_group(role))


def _give(user: User, group: Group) -> None:
    user.groups.set([*user.groups.exclude(name__in=access.ROLES), group])


@retry_write
@transaction.atomic
def set_active(number: int, *, active: bool, by: User) -> None:
    """Disable a user, or enable the user again; raises `AccessRefused`."""
    user = _locked_user(number, by)
    if not active:
        _refuse_self(user, by, "disable")
        _keep_an_admin(user)
    user.is_active = active
    user.save(update_fields=["is_active"])


@retry_write
@transaction.atomic
def reset_password(number: int, *, by: User) -> User:
    """Remove a user's password, which ends sessions and earlier links; raises `AccessRefused`."""
    user = _locked_user(number, by)
    _refuse_self(user, by, "reset the password of")
    if not user.is_active:
        raise AccessRefused(f"{user} is disabled: enable this user first.")
    if provider := provider_of(user):
        raise AccessRefused(f"{user} signs in at {provider} and has no password here.")
    user.set_unusable_password()
    # Save all fields: a save of only the password looks like a sign-in's re-hash and leaves no audit row.
    user.save()
    return user


def set_password(number: int, password: str, *, still_may: Callable[[User], bool]) -> bool:
    """Set a password if the user is active and `still_may`; return whether it was set.

    Hashing takes half a second, so it runs before the transaction.
    """
    hashed = make_password(password)
    with transaction.atomic():
        user = lock_row(User.objects.filter(pk=number, is_active=True))
        if user is None or not still_may(user):
            return False
        user.password = hashed
        user.save()
        return True


def _locked_user(number: int, by: User) -> User:
    """Return a user, locked with all admins: changes that could remove the last admin are serialised."""
    admins = _admins().values("pk")
    rows = User.objects.select_for_update().filter(Q(pk=number) | Q(pk__in=admins)).order_by("pk")
    user = next((row for row in rows if row.pk == number), None)
    if user is None:
        raise AccessRefused("This user was deleted.")
    if refused := refusal_of_change(user, by):
        raise AccessRefused(refused)
    return user


def _admins() -> QuerySet[User]:
    """Return the active users with a password who may administer users and see all clusters."""
    users = User.objects.with_perm(access.USERS, backend=_BACKEND).filter(cluster_limit=None)
    return users.exclude(password__startswith=UNUSABLE_PASSWORD_PREFIX)


def _keep_an_admin(user: User) -> None:
    admins = {row.pk for row in _admins()}
    if admins == {user.pk}:
        raise AccessRefused(f"{user} is the last active admin: make another user admin first.")


def _refuse_self(user: User, by: User, what: str) -> None:
    if user.pk == by.pk:
        raise AccessRefused(f"You cannot {what} your own user: another admin can.")


def _role_group(role: str) -> Group:
    if role not in access.ROLES:
        raise AccessRefused(f"No such role: choose one of {', '.join(access.ROLES)}.", "role")
    if not Group.objects.filter(name=role).exists():
        access.ensure_roles()
    return Group.objects.get(name=role)
