"""What operators did, for pages: how an action stands, which of them ended a transaction. A reader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from django.db.models import Q

from dashboard.actions import rows
from dashboard.models import Action, Recovery
from fenceline.plans.plan import Plan, SubjectPlan
from fenceline.words import count

#: A coordinator's clock may be so far from ours; what it wrote is later still than what it was asked.
_CLOCKS_MS = 15_000
_FOLLOWS_MS = 60_000
#: So many actions are looked through for those that caused what a page shows.
_MOST_LOOKED = 500
_MOST_EPISODES = 50
#: States in which something may have been sent.
_SENT = (Action.State.EXECUTING, Action.State.DONE, Action.State.PARTLY, Action.State.UNKNOWN)


class Ended(Protocol):
    """A transition or an episode: an id of a cluster, at an instant."""

    cluster_id: int
    transactional_id: str


@dataclass(frozen=True, slots=True)
class Shown:
    """How an action stands now: as its state says, or "refused", or "expired"."""

    plan: Plan
    state: str
    #: What it is about: the first subject's title, and how many more there are.
    title: str
    more: int
    #: What came of it in a few words, "" before.
    result: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What was done since an instant, and what is under way."""

    executing: int
    #: Plans that may still be confirmed.
    waiting: int
    executed: int
    #: Of the executed ones those that did not do everything they were to do.
    undone: int


def shown(row: Action, *, now_ms: int) -> Shown:
    """Return how an action stands."""
    plan = rows.plan_of(row)
    state = row.state
    if state == Action.State.PLANNED and not plan.doable:
        state = "refused"
    elif state == Action.State.PLANNED and now_ms >= row.expires_ms:
        state = "expired"
    return Shown(plan, state, plan.subjects[0].title, len(plan.subjects) - 1, _result(row))


def _result(row: Action) -> str:
    """Return `12 of 14 subjects done, 1 stale, 1 failed`, of a single one what came of it."""
    outcomes = [each["outcome"] for each in row.results]
    if len(outcomes) < 2:
        return str(row.results[0]["words"]) if outcomes else ""
    parts = [f"{outcomes.count('done'):,} of {count(len(outcomes), 'subject')} done"]
    parts += [
        f"{outcomes.count(name):,} {name}"
        for name in ("stale", "failed", "unknown", "skipped")
        if name in outcomes
    ]
    return ", ".join(parts)


def summary(cluster: str, *, since_ms: int, now_ms: int) -> Summary:
    """Return what is under way, and how what was confirmed since an instant went."""
    found = Action.objects.filter(cluster__configured=True)
    if cluster:
        found = found.filter(cluster__name=cluster)
    planned = found.filter(state=Action.State.PLANNED, expires_ms__gt=now_ms).order_by("-pk")[:_MOST_LOOKED]
    since = datetime.fromtimestamp(since_ms / 1_000, UTC)
    ended = found.filter(confirmed_at__gte=since).exclude(state=Action.State.EXECUTING)
    return Summary(
        executing=found.filter(state=Action.State.EXECUTING).count(),
        waiting=sum(bool(rows.plan_of(each).doable) for each in planned),
        executed=ended.count(),
        undone=ended.exclude(state=Action.State.DONE).count(),
    )


def behind(ended: Iterable[tuple[Ended, int]]) -> Mapping[tuple[int, str, int], Action]:
    """Return which action ended which transaction: by cluster, id and the instant that was given with it.

    Ours are those that had confirmed an act on this very id shortly before; nothing in Kafka's log says who
    sent a request.
    """
    each = list(ended)
    if not each:
        return {}
    first, last = min(at_ms for _, at_ms in each), max(at_ms for _, at_ms in each)
    by_id = _by_id({row.cluster_id for row, _ in each}, first, last)
    found = {}
    for row, at_ms in each:
        for action in by_id.get((row.cluster_id, row.transactional_id), ()):
            if _covers(action, at_ms):
                found[row.cluster_id, row.transactional_id, at_ms] = action
    return found


def markers(cluster: str, *, since_ms: int | None, until_ms: int | None, limit: int) -> Sequence[Action]:
    """Return the newest actions that wrote abort markers: no coordinator's log tells of those."""
    found = Action.objects.filter(cluster__configured=True, act="abort_marker", state__in=_SENT)
    if cluster:
        found = found.filter(cluster__name=cluster)
    if since_ms is not None:
        found = found.filter(confirmed_at__gte=datetime.fromtimestamp(since_ms / 1_000, UTC))
    if until_ms is not None:
        found = found.filter(confirmed_at__lt=datetime.fromtimestamp(until_ms / 1_000, UTC))
    return list(found.select_related("cluster").order_by("-confirmed_at", "-pk")[:limit])


def episodes(row: Action) -> Sequence[Recovery]:
    """Return the recoveries that an action opened, oldest first: those it was followed to, and of its ids."""
    begun = confirmed_ms(row)
    if begun is None:
        return []
    over = row.ended_ms or begun
    window = Q(opened_ms__gte=begun - _CLOCKS_MS, opened_ms__lte=over + _FOLLOWS_MS)
    its = Q(window, transactional_id__in=sorted(_ids(row)))
    its |= Q(pk__in=[each["recovery"] for each in row.follow_up if "recovery" in each])
    of_ids = Recovery.objects.filter(its, cluster=row.cluster_id)
    return list(of_ids.select_related("cluster").order_by("opened_ms", "pk")[:_MOST_EPISODES])


def named(subject: SubjectPlan) -> str:
    """Return a subject as planning takes it: an id, `topic-partition@offset`, or `IDENT@BATCH`."""
    kind, _, name = subject.subject.partition(":")
    seen = subject.seen
    if kind == "partition" and "start_offset" in seen:
        return f"{name}@{seen['start_offset']}"
    if kind == "query" and "batch_id" in seen:
        return f"{seen.get('query', name)}@{seen['batch_id']}"
    return name


def confirmed_ms(row: Action) -> int | None:
    """Return when an action was confirmed, in milliseconds; None for a plan."""
    return None if row.confirmed_at is None else int(row.confirmed_at.timestamp() * 1_000)


def _by_id(clusters: set[int], first_ms: int, last_ms: int) -> Mapping[tuple[int, str], Sequence[Action]]:
    """Return the actions of about that time by the ids that they were to end, oldest first."""
    begun = datetime.fromtimestamp(max(0, first_ms - 10 * _FOLLOWS_MS) / 1_000, UTC)
    over = datetime.fromtimestamp((last_ms + _CLOCKS_MS) / 1_000, UTC)
    near = Action.objects.filter(
        cluster__in=clusters, state__in=_SENT, confirmed_at__gte=begun, confirmed_at__lte=over
    )
    found: dict[tuple[int, str], list[Action]] = defaultdict(list)
    for action in reversed(near.select_related("cluster").order_by("-pk")[:_MOST_LOOKED]):
        for name in _ids(action):
            found[action.cluster_id, name].append(action)
    return found


def _covers(action: Action, at_ms: int) -> bool:
    begun = confirmed_ms(action)
    if begun is None:
        return False
    # Who still executes may end it any moment.
    over = action.ended_ms if action.ended_ms is not None else at_ms
    return begun - _CLOCKS_MS <= at_ms <= over + _FOLLOWS_MS


def _ids(action: Action) -> set[str]:
    """Return the transactional ids that an action was to end: its subjects, and those of a batch."""
    found = {
        line.removeprefix("transaction:")
        for line in action.subjects.split("\n")
        if line.startswith("transaction:")
    }
    for each in action.plan.get("subjects", ()):
        found |= set(_named(each.get("seen", {})))
    return found


def _named(seen: Mapping[str, Any]) -> Iterable[str]:
    """Yield the transactional ids that a plan of a batch saw."""
    return (each[0] for each in seen.get("transactions", ()))
