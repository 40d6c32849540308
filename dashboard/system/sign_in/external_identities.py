"""Users of an identity provider: found by the provider's identifier, with the role of their groups."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from dashboard.config.identity import IdentityProvider
from dashboard.models import ExternalIdentity
from dashboard.runtime.write_transactions import retry_write
from dashboard.system import access, cluster_limits, users
from dashboard.system.access import AccessRefused

_LONGEST_SUBJECT = 255
#: Shown characters of a refused name.
_SHOWN = 60


def _role(provider: IdentityProvider, claims: Mapping[str, Any]) -> str:
    """Return the highest role of a user's groups; raises `AccessRefused` if none has a role."""
    groups = _groups(provider, claims)
    role = next((role for group, role in reversed(provider.roles) if group in groups), "")
    if not role:
        named = ", ".join(sorted({group for group, _ in provider.roles}))
        raise AccessRefused(
            f"No group of yours at {provider.label} has a role here: ask its administrator for {named}."
        )
    return role


def _grants(provider: IdentityProvider, claims: Mapping[str, Any], own: str) -> Sequence[str] | None:
    """Return the highest grants of a user's groups for each cluster; None for all clusters as `own`."""
    groups, granted = _groups(provider, claims), dict[str, str]()
    for grant in (grant for group, grants in provider.clusters if group in groups for grant in grants):
        cluster, _, role = grant.partition("=")
        granted[cluster] = max(granted.get(cluster, role or own), role or own, key=list(access.ROLES).index)
    if granted == {cluster_limits.ALL: own}:
        return None
    return sorted(name if role == own else f"{name}={role}" for name, role in granted.items())


def _groups(provider: IdentityProvider, claims: Mapping[str, Any]) -> set[str]:
    """Return the groups in a claim, which is a name or a list; ignore all other values."""
    claimed = claims.get(provider.groups_claim)
    names = claimed if isinstance(claimed, list) else [claimed]
    return {name for name in names if isinstance(name, str)}


def _subject(provider: IdentityProvider, claims: Mapping[str, Any]) -> str:
    """Return the `sub` claim unshortened: two subjects may differ only in their last letter."""
    subject = claims.get("sub")
    if isinstance(subject, str) and 0 < len(subject) <= _LONGEST_SUBJECT and subject.isprintable():
        return subject
    raise AccessRefused(
        f"{provider.label} sent no usable sub: a text of 1 to {_LONGEST_SUBJECT} characters names a user."
    )


@retry_write
@transaction.atomic
def admit(provider: IdentityProvider, claims: Mapping[str, Any]) -> User:
    """Return the user of verified claims, created at the first sign-in, with the present role.

    A local user of the same name is another person: no provider's user becomes that one. Raises
    `AccessRefused`.
    """
    role = _role(provider, claims)
    subject = _subject(provider, claims)
    identity = _known(provider, subject)
    try:
        user = identity.user if identity else _new_user(provider, claims, subject)
    except IntegrityError as error:
        raise AccessRefused("Another sign-in made this user at the same time: begin again.") from error
    if not user.is_active:
        raise AccessRefused(f"{user} is disabled here: an admin of Fenceline can enable this user.")
    users.take_role(user, role)
    if provider.clusters:
        cluster_limits.set_clusters(user, _grants(provider, claims, role))
    return user


def _known(provider: IdentityProvider, subject: str) -> ExternalIdentity | None:
    """Return the provider's known user; with another issuer the same subject is another person."""
    known = ExternalIdentity.objects.select_related("user").filter(provider=provider.name, subject=subject)
    identity = known.filter(issuer__in=("", provider.issuer)).order_by("-issuer").first()
    if identity is not None and identity.issuer != provider.issuer:
        identity.issuer = provider.issuer
        identity.save(update_fields=["issuer"])
    return identity


def _new_user(provider: IdentityProvider, claims: Mapping[str, Any], subject: str) -> User:
    name = claims.get(provider.username_claim)
    if not isinstance(name, str) or not name:
        raise AccessRefused(
            f"{provider.label} sent no {provider.username_claim}: let username_claim name what it sends."
        )
    # In Django's normal form: names that differ only in their Unicode form are equal.
    user = User(username=User.normalize_username(name))
    user.set_unusable_password()
    try:
        user.clean_fields()
    except ValidationError as error:
        reason = " ".join(error.messages)
        raise AccessRefused(f"{name[:_SHOWN]!r} cannot be a user here: {reason}") from error
    if User.objects.filter(username__iexact=user.username).exists():
        raise AccessRefused(
            f"A user {user} exists here who is not of {provider.label}: an admin can rename or delete it."
        )
    user.save()
    ExternalIdentity.objects.create(
        user=user, provider=provider.name, issuer=provider.issuer, subject=subject
    )
    return user
