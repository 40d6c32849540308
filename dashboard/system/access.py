"""Permissions: three roles as Django groups, the same roles for tokens and on clusters, and their checks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.conf import settings
from django.contrib.auth.models import (
    AbstractBaseUser,
    AnonymousUser,
    Group,
    Permission,
    PermissionsMixin,
    User,
)
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import HttpRequest

from dashboard.models import ClusterLimit, Token
from fenceline.plans.plan import Act

#: The permission of each action, in the form for `user.has_perm`.
OF_ACT: Mapping[Act, str] = {
    Act.FENCE: "dashboard.fence_producer",
    Act.ABORT_MARKER: "dashboard.abort_marker",
    Act.FINISH_BATCH: "dashboard.finish_batch",
    Act.ROLL_BACK_BATCH: "dashboard.roll_back_batch",
    Act.COMMIT_FLINK: "dashboard.commit_flink",
}
#: To view pages; every role has it.
VIEW = "dashboard.view_cluster"
FORCE = "dashboard.force_action"
#: To send DescribeProducers to every replica of a partition.
ASK_REPLICAS = "dashboard.ask_replicas"
#: To see the keys and values of records, if a cluster's `payloads` allows it.
PAYLOADS = "dashboard.view_payload"
#: To make and end silences.
SILENCE = "dashboard.add_silence"
#: To acknowledge incidents and add notes to them.
INCIDENTS = "dashboard.change_incident"
#: To play a failure in the sandbox: scenes fence and kill producers.
SCENES = OF_ACT[Act.FENCE]
#: To send a delivery again, and a test.
SEND = "dashboard.add_delivery"
#: To add, change, disable and delete channels.
CHANNELS = "dashboard.change_channel"
#: To see changes with their authors, and sign-ins with their addresses.
AUDIT = "dashboard.view_auditentry"
#: To administer users and tokens. Django's `auth.change_user` would let staff make superusers in the admin.
USERS = "dashboard.change_token"

#: Why no user may change anything with READ_ONLY.
READ_ONLY = "READ_ONLY is set: this Fenceline only shows; nothing can be done or changed from here."

_ON_KAFKA = frozenset({*OF_ACT.values(), FORCE})
_OPERATOR = frozenset({VIEW, *OF_ACT.values(), ASK_REPLICAS, SILENCE, SEND, INCIDENTS})
#: The permissions of each role; an ingest token has none.
ROLES: Mapping[str, frozenset[str]] = {
    Token.Role.VIEWER: frozenset({VIEW}),
    Token.Role.OPERATOR: _OPERATOR,
    Token.Role.ADMIN: _OPERATOR | {FORCE, CHANNELS, AUDIT, USERS, PAYLOADS},
}


_OF_TOKENS = "token "


class AccessRefused(ValueError):
    """A change of a user or token is refused; `field` names the wrong input, or is ""."""

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True, slots=True)
class Actor:
    """A user or token, with its interface: "page", "admin" or "api"."""

    name: str
    via: str
    permissions: frozenset[str]
    #: Role by cluster, if it differs from the role of `permissions`.
    roles_on: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_token(self) -> bool:
        return is_token_name(self.name)

    def may(self, permission: str, cluster: str = "") -> bool:
        """Return whether the actor has a permission of this module, on a given cluster."""
        role = self.roles_on.get(cluster)
        return permission in (ROLES[role] if role else self.permissions)


def is_token_name(name: str) -> bool:
    """Whether an actor's name is a token's; users' names have no spaces."""
    return name.startswith(_OF_TOKENS)


def caller_name(request: HttpRequest) -> str:
    """Return the caller's name: of the API's token, or of the session's user."""
    token = getattr(request, "auth", None)
    return f"{_OF_TOKENS}{token.name}" if isinstance(token, Token) else str(request.user)


def actor_of(request: HttpRequest, via: str) -> Actor:
    """Return the actor of a request: the API's token, or the session's user."""
    token, name = getattr(request, "auth", None), caller_name(request)
    if isinstance(token, Token):
        return Actor(name, via, ROLES.get(token.role, frozenset()), _roles_on(token.clusters))
    return Actor(name, via, _of_user(request.user), _roles_on(grants_of(request.user) or ()))


def grants_of(user: AbstractBaseUser | AnonymousUser) -> Sequence[str] | None:
    """Return a user's grants, in the form of `granted_roles`; None for a user who may see all clusters."""
    if not isinstance(user, User) or user.is_superuser:
        return None
    limit: ClusterLimit | None = getattr(user, "cluster_limit", None)
    return None if limit is None else limit.clusters


def granted_roles(grants: Iterable[str]) -> Mapping[str, str]:
    """Return the role by cluster; a grant is CLUSTER, with the caller's own role, or CLUSTER=ROLE.

    The cluster "*" stands for all clusters, and the role "" for the caller's own role.
    """
    return {cluster: role for cluster, _, role in (grant.partition("=") for grant in grants)}


def _roles_on(grants: Iterable[str]) -> Mapping[str, str]:
    return {cluster: role for cluster, role in granted_roles(grants).items() if role}


def may_view(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Whether a user may view pages; a user without a role may not."""
    return isinstance(user, PermissionsMixin) and user.is_active and user.has_perm(VIEW)


def no_role(user: AbstractBaseUser | AnonymousUser) -> str:
    """Return an explanation for a signed-in user without a role."""
    roles = ", ".join(ROLES)
    return f"{user} has no role: an admin gives this user one of the roles {roles} under Users and access."


def permission_refusal(actor: Actor, permission: str, cluster: str = "") -> str:
    """Return why an actor may not use a permission now, as a sentence; "" if they may.

    READ_ONLY forbids every act by page and API, also on alerting; a `cluster`'s `read_only` forbids acts on
    its Kafka.
    """
    if settings.READ_ONLY:
        return READ_ONLY
    config = settings.FENCELINE.clusters.get(cluster)
    if config is not None and config.read_only and permission in _ON_KAFKA:
        return f"Cluster {cluster} is read_only in the configuration: nothing can be done on it from here."
    return missing_role(actor, permission, cluster)


def act_refusal(actor: Actor, act: Act, cluster: str, *, force: bool = False) -> str:
    """Return why an actor may not plan or confirm an act on a cluster, by force if so; "" if they may."""
    needed = (OF_ACT[act], FORCE) if force else (OF_ACT[act],)
    refusals = (permission_refusal(actor, permission, cluster) for permission in needed)
    return next(filter(None, refusals), "")


def payload_refusal(actor: Actor, cluster: str) -> str:
    """Return why an actor may not see keys and values of a cluster's records; "" if they may."""
    config = settings.FENCELINE.clusters.get(cluster)
    if config is None or not config.payloads:
        return (
            f"Keys and values are hidden: to show them, set payloads = true in [clusters.{cluster}] "
            "of fenceline.toml."
        )
    return missing_role(actor, PAYLOADS, cluster)


def missing_role(actor: Actor, permission: str, cluster: str = "") -> str:
    """Return the role that an actor lacks for a permission, as a sentence; "" if they have it."""
    if actor.may(permission, cluster):
        return ""
    needed = next((role for role, held in ROLES.items() if permission in held), "")
    where = f" on {cluster}" if actor.roles_on and cluster else ""
    return f"{actor.name} may not do this: it needs the role {needed}{where} (permission {permission})."


def _of_user(user: AbstractBaseUser | AnonymousUser) -> frozenset[str]:
    all_permissions = ROLES[Token.Role.ADMIN]
    if not isinstance(user, AnonymousUser) and getattr(user, "is_superuser", False):
        return all_permissions
    held: set[str] = getattr(user, "get_all_permissions", set)()
    return all_permissions & held


def check_password(password: str, username: str) -> None:
    """Raise ValueError, with a remedy, for a password that AUTH_PASSWORD_VALIDATORS refuse."""
    try:
        validate_password(password, User(username=username))
    except ValidationError as error:
        raise ValueError(f"{' '.join(error.messages)} Set another password and start again.") from error


def ensure_roles() -> None:
    """Create the groups viewer, operator and admin with their permissions; `prepare` runs this at each start.

    Permissions that an administrator has added to a group stay.
    """
    for role, names in ROLES.items():
        group, _ = Group.objects.get_or_create(name=str(role))
        wanted = Q(pk__in=[])
        for name in names:
            app, _, codename = name.partition(".")
            wanted |= Q(content_type__app_label=app, codename=codename)
        group.permissions.add(*Permission.objects.filter(wanted))
