"""What the audit logs and the feed are asked for: query strings, parsed without failing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.actions import store as action_store
from dashboard.history import queries as history_queries
from dashboard.models import Action
from dashboard.system import audit_queries
from dashboard.web.forms.columns import LONGEST_APPLICATION, check_cluster, clip, one_of, place_of, searched
from fenceline.facts import TransitionKind
from fenceline.plans.plan import Act

_LONGEST_NAME = 150
_LONGEST_ACTOR = 200
#: What ends a transaction against its producer's wish, or may have: what the feed tells, worst first.
FEED_KINDS = (
    TransitionKind.TAKEOVER,
    TransitionKind.TIMEOUT,
    TransitionKind.ADMIN_FENCE,
    TransitionKind.ADMIN_ABORT,
    TransitionKind.ABORT,
    TransitionKind.CLIENT_ABORT,
    TransitionKind.SELF_RECOVERY,
)


@dataclass(frozen=True, slots=True)
class ActionListQuery:
    """A parsed query string of the audit log; `ignored` says in words what in it could not be used."""

    filter: action_store.ActionCriteria
    #: The number of the action behind which the list goes on.
    before: int | None
    ignored: Sequence[str]


@dataclass(frozen=True, slots=True)
class FeedQuery:
    """A parsed query string of the feed; `kind` is the one asked for, "" for all of them."""

    filter: history_queries.HistoryCriteria
    kind: str
    before: history_queries.Place | None
    ignored: Sequence[str]


@dataclass(frozen=True, slots=True)
class WantedEntries:
    """A parsed query string of the list of changes and sign-ins; `before` as in `ActionListQuery`."""

    filter: audit_queries.Filter
    before: int | None
    ignored: Sequence[str]

    @property
    def narrowed(self) -> bool:
        """Return whether anything narrows the list."""
        return self.filter != audit_queries.Filter()


def parse(query: Mapping[str, str], cluster: str, clusters: Sequence[str]) -> ActionListQuery:
    """Return which actions a query string asks for."""
    ignored: list[str] = []
    check_cluster(query, clusters, ignored)
    wanted = action_store.ActionCriteria(
        cluster=cluster,
        act=one_of("act", query, tuple(Act), "", ignored),
        state=one_of("state", query, tuple(Action.State), "", ignored),
        q=searched(query),
        actor=query.get("who", "").replace("\0", "")[:_LONGEST_NAME],
    )
    return ActionListQuery(wanted, _before(query, ignored), ignored)


def parse_feed(query: Mapping[str, str], cluster: str, clusters: Sequence[str]) -> FeedQuery:
    """Return what of the feed a query string asks for."""
    ignored: list[str] = []
    check_cluster(query, clusters, ignored)
    kind = one_of("kind", query, tuple(each.value for each in FEED_KINDS), "", ignored)
    wanted = history_queries.HistoryCriteria(
        cluster=cluster,
        kinds=(TransitionKind(kind),) if kind else FEED_KINDS,
        application=query.get("application", "").replace("\0", "")[:LONGEST_APPLICATION],
        q=searched(query),
    )
    return FeedQuery(wanted, kind, place_of(query, ignored), ignored)


def parse_entries(query: Mapping[str, str]) -> WantedEntries:
    """Return which changes and sign-ins a query string asks for."""
    ignored: list[str] = []
    wanted = audit_queries.Filter(
        event=one_of("event", query, audit_queries.EVENTS, "", ignored),
        actor=query.get("who", "").replace("\0", "")[:_LONGEST_ACTOR],
        q=searched(query),
    )
    return WantedEntries(wanted, _before(query, ignored), ignored)


def _before(query: Mapping[str, str], ignored: list[str]) -> int | None:
    value = query.get("before", "")
    if not value:
        return None
    if value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    ignored.append(f"before “{clip(value)}” is not a place in this list")
    return None
