"""Users whom an identity provider knows: found by its name for them, with the role of their groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction

from dashboard.config.identity import IdentityProvider
from dashboard.models import ExternalIdentity
from dashboard.runtime.write_transactions import retry_write
from dashboard.system import cluster_limits, users
from dashboard.system.access import AccessRefused

_LONGEST_SUBJECT = 255
#: Of a name that is refused, so much is shown.
_SHOWN = 60


def role_of_claims(provider: IdentityProvider, claims: Mapping[str, Any]) -> str:
    """Return the highest role of a user's groups; raises `AccessRefused` where none has a role."""
    groups = _groups(provider, claims)
    role = next((role for group, role in reversed(provider.roles) if group in groups), "")
    if not role:
        named = ", ".join(sorted({group for group, _ in provider.roles}))
        raise AccessRefused(
            f"No group of yours at {provider.label} has a role here: ask its administrator for {named}."
        )
    return role


def clusters_of_claims(provider: IdentityProvider, claims: Mapping[str, Any]) -> Sequence[str] | None:
    """Return the clusters that a user's groups may see, by name; None for all."""
    groups = _groups(provider, claims)
    names = {name for group, names in provider.clusters if group in groups for name in names}
    return None if not provider.clusters or "*" in names else sorted(names)


def _groups(provider: IdentityProvider, claims: Mapping[str, Any]) -> set[str]:
    claimed = claims.get(provider.groups_claim)
    return {claimed} if isinstance(claimed, str) else set(map(str, claimed or ()))


@retry_write
@transaction.atomic
def admit(provider: IdentityProvider, claims: Mapping[str, Any]) -> User:
    """Return the user of checked claims, made at the first sign-in, with the role of now.

    A local user of the same name is another person: nobody becomes that one through a provider. Raises
    `AccessRefused`.
    """
    role = role_of_claims(provider, claims)
    subject = str(claims.get("sub") or "")[:_LONGEST_SUBJECT]
    known = ExternalIdentity.objects.select_related("user").filter(provider=provider.name, subject=subject)
    identity = known.first()
    user = identity.user if identity else _new_user(provider, claims, subject)
    if not user.is_active:
        raise AccessRefused(f"{user} is disabled here: an admin of Fenceline can enable this user.")
    users.take_role(user, role)
    if provider.clusters:
        cluster_limits.set_clusters(user, clusters_of_claims(provider, claims))
    return user


def _new_user(provider: IdentityProvider, claims: Mapping[str, Any], subject: str) -> User:
    name = claims.get(provider.username_claim)
    if not isinstance(name, str) or not name:
        raise AccessRefused(
            f"{provider.label} sent no {provider.username_claim}: let username_claim name what it sends."
        )
    if User.objects.filter(username__iexact=name).exists():
        raise AccessRefused(
            f"A user {name} exists here who is not of {provider.label}: an admin can rename or delete it."
        )
    user = User(username=name)
    user.set_unusable_password()
    try:
        user.full_clean()
    except ValidationError as error:
        reason = " ".join(error.messages)
        raise AccessRefused(f"{name[:_SHOWN]!r} cannot be a user here: {reason}") from error
    user.save()
    ExternalIdentity.objects.create(user=user, provider=provider.name, subject=subject)
    return user
