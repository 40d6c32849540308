"""Follow the effects of actions, and settle actions of dead workers.

An executing row without a valid lease is never executed again: its outcome is read, and recorded as done, not
done or unknown.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import zip_longest
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now

from dashboard.actions import execute
from dashboard.actions import store as action_store
from dashboard.actions.connections import ClusterConnections
from dashboard.actions.follow_up import Following
from dashboard.actions.results import Result, SubjectOutcome, action_state, failed_result
from dashboard.models import Action
from dashboard.runtime.collector_names import ACTIONS
from dashboard.runtime.leases import Lease, renew
from fenceline.plans.plan import Act, Plan, SubjectPlan

log = logging.getLogger(__name__)

NAME = ACTIONS
#: An unreachable cluster delays the tick.
TTL = timedelta(seconds=90)
#: The age up to which an action is followed every second, and the interval after it.
_YOUNG_MS, _SELDOM_MS = 60_000, 10_000
#: The time after which an unreachable cluster makes the outcome unknown, and the interval of retries.
_PATIENCE_MS, _AGAIN = 600_000, timedelta(seconds=5)

_NO_WORKER = "no worker took it in time, and nothing was asked: see that a worker runs, then make a new plan"
_NOT_REACHED = "its worker died before it came to it: nothing was asked"


class _Watcher:
    """State of a cluster from tick to tick: connections, and when each action was followed."""

    def __init__(self, cluster: str) -> None:
        self.looked_ms: dict[int, int] = {}
        self.connections = ClusterConnections(cluster)

    def disconnect(self) -> None:
        """Close the connections; they are opened again at their next use."""
        self.connections.__exit__(None, None, None)
        self.connections = ClusterConnections(self.connections.cluster)


_watchers: dict[str, _Watcher] = {}


def follow_actions(lease: Lease, *, now_ms: int) -> None:
    """Settle and follow the actions of a cluster, once. Raises `LeaseLost`."""
    renew(lease, seen_through_ms=now_ms, behind=0)
    of_cluster = Action.objects.filter(cluster_id=lease.cluster_id).select_related("cluster")
    dead = Q(state=Action.State.EXECUTING, lease_until__lte=Now())
    rows = list(of_cluster.filter(dead | Q(followed_until_ms__isnull=False)))
    for row in rows:
        if row.state == Action.State.EXECUTING:
            with suppress(action_store.ActionLeaseLost):
                settle_action(row, now_ms=now_ms)
    followed = [row for row in rows if row.followed_until_ms is not None]
    if not followed:
        close_connections(lease.cluster)
        return
    watcher = _watchers.setdefault(lease.cluster, _Watcher(lease.cluster))
    for row in followed:
        if _is_due(watcher, row, now_ms):
            watcher.looked_ms[row.pk] = now_ms
            _follow(watcher, row, now_ms)


def close_connections(cluster: str) -> None:
    """Close the connections of earlier ticks; the next tick opens them again."""
    if cluster in _watchers:
        _watchers.pop(cluster).disconnect()


def settle_action(row: Action, *, now_ms: int) -> bool:
    """Record the outcome of an action whose worker died; return False while it cannot be read yet."""
    if not action_store.take_over(row, secrets.token_hex(16)):
        return False
    plan = action_store.plan_of(row)
    if row.started_ms is None:
        results = [_unasked(subject, _NO_WORKER) for subject in plan.subjects]
        action_store.end_action(row, Action.State.FAILED, results, ended_ms=now_ms)
        return True
    is_last = now_ms - row.started_ms > _PATIENCE_MS
    with ClusterConnections(plan.cluster) as connections:
        try:
            results = _results(row, plan, partial(_observed, plan.act, connections), now_ms)
        except execute.OURS:
            raise
        except Exception as trouble:  # A store's client may raise any exception.
            why = execute.error_text(trouble)
            if not is_last:
                action_store.update_action(row, Q(lease_token=row.lease_token), lease_until=Now() + _AGAIN)
                log.info("action %d: what its dead worker did cannot be seen yet: %s", row.pk, why)
                return False
            results = _results(row, plan, partial(_unseen, why), now_ms)
    state = action_state(results)
    worked = state in (Action.State.DONE, Action.State.PARTLY)
    until_ms = now_ms + execute.FOLLOWED_MS if worked else None
    action_store.end_action(row, state, results, ended_ms=now_ms, followed_until_ms=until_ms)
    log.warning("action %d: its worker died; it is %s, by its observed outcome", row.pk, state)
    return True


def _results(
    row: Action, plan: Plan, outcome_of: Callable[[SubjectPlan, str], Result], now_ms: int
) -> list[dict[str, Any]]:
    """Return the results of all subjects: those that the worker wrote, and those of the others.

    `outcome_of` gets a subject in flight, and words about the death of its worker.
    """
    results = []
    for subject, known in zip_longest(plan.subjects, row.results):
        if known is None:
            results.append(_unasked(subject, _NOT_REACHED))
        elif _is_in_flight(known):
            result = outcome_of(subject, f"its worker died while {known['words']}")
            results.append(result.as_json(subject.subject, known["started_ms"], now_ms))
        else:
            results.append(known)
    return results


def _unasked(subject: SubjectPlan, why: str) -> dict[str, Any]:
    result = execute.skipped_result(subject) if subject.is_refused else failed_result(why)
    return result.as_json(subject.subject, None, None)


def _observed(act: Act, connections: ClusterConnections, subject: SubjectPlan, death: str) -> Result:
    outcome = execute.ACTS[act][1](subject, connections)
    return Result(outcome.fate, f"{death}; seen afterwards: {outcome.words}", outcome.parts)


def _unseen(why: str, _: SubjectPlan, death: str) -> Result:
    return Result(SubjectOutcome.UNKNOWN, f"{death}, and then: {why}")


def _is_in_flight(result: Mapping[str, Any]) -> bool:
    return result["ended_ms"] is None and result["started_ms"] is not None


def _is_due(watcher: _Watcher, row: Action, now_ms: int) -> bool:
    is_young = row.ended_ms is None or now_ms - row.ended_ms < _YOUNG_MS
    return is_young or now_ms - watcher.looked_ms.get(row.pk, 0) >= _SELDOM_MS


def _follow(watcher: _Watcher, row: Action, now_ms: int) -> None:
    following = Following(row, now_ms)
    try:
        news: Sequence[dict[str, Any]] = following.new_entries(watcher.connections)
    except execute.OURS:
        raise
    except Exception as trouble:  # As above.
        log.info("action %d cannot be followed now: %s", row.pk, execute.error_text(trouble))
        watcher.disconnect()
        news = ()
    is_over = following.is_over(news) or now_ms >= (row.followed_until_ms or 0)
    if now_ms >= (row.followed_until_ms or 0):
        news = [*news, *following.last_words()]
    fields: dict[str, Any] = {"followed_until_ms": None} if is_over else {}
    if news:
        fields["follow_up"] = [*row.follow_up, *news]
    if fields:
        # If another worker has changed the row, it has written the same entries.
        action_store.update_action(row, Q(rev=row.rev), **fields)
