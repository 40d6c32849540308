"""Callers with limited clusters: answers omit rows of other clusters, and pages about all clusters are
refused.
"""

import re
from collections.abc import Iterable, Sequence

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.core.signals import request_finished
from django.db import transaction
from django.http import Http404, HttpRequest

from dashboard.models import Cluster, ClusterLimit, Token
from dashboard.models.collecting import visible_clusters
from dashboard.system import access, audit
from dashboard.system.access import AccessRefused
from dashboard.system.audit import AuditedSubject, Event

#: The first part of each address that a limited caller may request; below the API's, the first of its nouns.
#: A new address is refused until it is listed here: it may show facts about all clusters, such as channels
#: and users.
_PAGES = frozenset(
    (
        "", "transactions", "partitions", "groups", "queries", "flink-jobs", "events", "timeline",
        "recoveries", "actions", "incidents", "alerts", "pipelines", "clusters", "coordinators", "preflight",
        "find", "rules", "feed", "fencing", "login", "logout", "sign-in", "static", "favicon.ico", "healthz",
        "readyz", "api",
    )
)  # fmt: skip
_NOUNS = frozenset(
    (
        "", "docs", "openapi.json", "transactions", "events", "transitions", "applications", "partitions",
        "pipelines", "groups", "queries", "flink-jobs", "connectors", "recoveries", "actions", "alerts",
        "findings", "incidents", "collectors", "clusters", "exports",
    )
)  # fmt: skip
_API = ["api", "v1"]
#: Stands for all clusters among grants.
ALL = "*"


def limit_user(request: HttpRequest) -> str:
    """Limit the request of a signed-in user; return why its address is refused, "" if it is not."""
    return limit_caller(request, clusters_of(request.user) if request.user.is_authenticated else None)


def _forget(**_: object) -> None:
    """Reset the limit at the request's end, because a streamed response is read after the middleware."""
    visible_clusters.set(None)


request_finished.connect(_forget, dispatch_uid="cluster_limits")


def clusters_of(user: AbstractBaseUser | AnonymousUser) -> Sequence[str] | None:
    """Return the names of the clusters that a user may see, None for all."""
    grants = access.grants_of(user)
    return None if grants is None else _named(grants)


def _named(grants: Sequence[str]) -> Sequence[str] | None:
    roles = access.granted_roles(grants)
    return None if ALL in roles else list(roles)


def clusters_now(user_id: int) -> Sequence[str] | None:
    """Return the names of the clusters that a user may see now, None for all; none for a deleted user."""
    user = User.objects.select_related("cluster_limit").filter(pk=user_id).first()
    return [] if user is None else clusters_of(user)


def limit_caller(request: HttpRequest, names: Sequence[str] | None) -> str:
    """Limit a request to clusters by name, None for all; return why its address is refused, else ""."""
    visible_clusters.set(None)
    if names is None:
        return ""
    rows = Cluster.objects.filter(name__in=names)
    visible_clusters.set(frozenset(rows.values_list("pk", flat=True)))
    if may_open(request.path_info):
        return ""
    return f"This is about all clusters: your access is limited to {', '.join(names) or 'none'}."


def refuse_hidden(cluster: object) -> None:
    """Raise Http404 for a cluster that the caller may not see, as for an unknown one."""
    if visible_clusters.get() is None or cluster is None:
        return
    if not Cluster.objects.filter(name=cluster).exists():
        raise Http404(f"No cluster “{cluster}” is configured.")


def may_open(path: str) -> bool:
    """Return whether the caller may request an address; a limited caller only one about clusters."""
    return visible_clusters.get() is None or _is_of_clusters(path)


def why_closed(path: str) -> str:
    """Return why the caller may not request an address, "" if they may."""
    return "" if may_open(path) else "Your access is limited to clusters: this is about all of them."


def _is_of_clusters(path: str) -> bool:
    parts = path.strip("/").split("/")
    if parts[:2] != _API:
        return parts[0] in _PAGES
    noun = parts[2] if len(parts) > 2 else ""
    of_export = parts[3].partition(".")[0] if noun == "exports" and len(parts) > 3 else "exports"
    return noun in _NOUNS and of_export in _NOUNS


def checked_grants(grants: Iterable[str]) -> list[str]:
    """Return distinct grants; raises `AccessRefused` for an unconfigured cluster or an unknown role.

    Also for blank ones only: they would lift the intended limit.
    """
    grants = list(grants)
    known = set(Cluster.objects.filter(configured=True).values_list("name", flat=True))
    wanted = sorted(set(filter(None, (re.sub(r"\s*=\s*", "=", grant.strip()) for grant in grants))))
    roles = access.granted_roles(wanted)
    if unknown := sorted(set(roles) - known - {ALL}):
        raise AccessRefused(
            f"No cluster {', '.join(unknown)}: there are {', '.join(sorted(known)) or 'none'}.", "clusters"
        )
    if grants and not wanted:
        raise AccessRefused("No cluster is named: write a name, or nothing for all clusters.", "clusters")
    if len(roles) < len(wanted):
        raise AccessRefused("A cluster is named twice: give it one role.", "clusters")
    if wrong := sorted({role for role in roles.values() if role and role not in access.ROLES}):
        raise AccessRefused(
            f"No such role on a cluster: {', '.join(wrong)}; choose one of {', '.join(access.ROLES)}.",
            "clusters",
        )
    if roles.get(ALL):
        raise AccessRefused(
            "The role on all clusters is the user's or token's own: write * alone.", "clusters"
        )
    return [] if wanted == [ALL] else wanted


def split_names(text: str) -> Sequence[str]:
    """Return the comma-separated names in a form's field; empty for an empty field."""
    return text.split(",") if text.strip() else ()


@transaction.atomic
def set_clusters(user: User, grants: Sequence[str] | None) -> None:
    """Limit a user to clusters; an empty list means no cluster at all, None means all."""
    limit = ClusterLimit.objects.filter(user=user).first()
    before, after = limit.clusters if limit else None, None if grants is None else list(grants)
    if before == after:
        return
    if after is None:
        ClusterLimit.objects.filter(user=user).delete()
    else:
        ClusterLimit.objects.update_or_create(user=user, defaults={"clusters": after})
    subject = AuditedSubject("user", user.pk, user.get_username())
    audit.record_change(Event.USER_CHANGED, subject, {"clusters": (before, after)})


def limit_of_token(token: Token) -> Sequence[str] | None:
    """Return the names of the clusters that a token may see, None for all."""
    return _named(token.clusters) if token.clusters else None
