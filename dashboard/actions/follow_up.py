"""Follow the effects of actions, and settle actions of dead workers.

An executing row without a valid lease is never executed again: its outcome is read, and recorded as done, not
done or unknown.
"""

import logging
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import zip_longest
from typing import Any

from django.db.models import F, Q
from django.db.models.functions import Now

from dashboard.actions import execute
from dashboard.actions import store as action_store
from dashboard.actions.connections import ClusterConnections
from dashboard.actions.store import Result, SubjectOutcome, failed_result, unknown_result
from dashboard.models import Action, Batch, Group, GroupOffset, Query, Recovery
from dashboard.runtime.collector_names import ACTIONS
from dashboard.runtime.leases import Lease, renew
from fenceline.decode.checkpoint import parse_positions
from fenceline.facts import TopicPartition
from fenceline.formatting import format_duration
from fenceline.kafka.partitions import Offsets
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.plans.plan import Act, Plan, SubjectPlan

log = logging.getLogger(__name__)

#: An entry of `Action.follow_up`.
Entry = dict[str, Any]
LSO, GROUP, QUERY, RECOVERY, RESUMED, BATCH, STANDS = (
    "lso", "group", "query", "recovery", "resumed", "batch", "lso_stands",
)  # fmt: skip


class Following:
    """The expected effects of one action, and those already reported."""

    def __init__(self, row: Action, now_ms: int) -> None:
        self._row, self._now_ms = row, now_ms
        self._plan = action_store.plan_of(row)
        self._reported = {(entry["kind"], entry["of"]) for entry in row.follow_up}
        self._done = list(_done(self._plan, row.results))
        #: The LSO of each partition when the action was planned.
        self._held = {
            TopicPartition(topic, number): lso
            for subject, _ in self._done
            for topic, number, lso, *_ in subject.held
            if lso is not None
        }

    def new_entries(self, connections: ClusterConnections) -> list[Entry]:
        """Return the new effects. Raises `AdminUnavailable`."""
        return [*self._lsos(connections), *self._waiting(), *self._episodes(), *self._batches()]

    def is_over(self, news: Collection[Entry]) -> bool:
        """Whether every expected effect has been reported."""
        reported = self._reported | {(entry["kind"], entry["of"]) for entry in news}
        return reported >= set(self._expected())

    def last_words(self) -> list[Entry]:
        """Return an entry for each LSO that has not moved."""
        return [
            self._entry(STANDS, str(where), f"LSO of {where} still stands at {lso:,}")
            for where, lso in self._held.items()
            if (LSO, str(where)) not in self._reported
        ]

    def _expected(self) -> Iterator[tuple[str, str]]:
        yield from ((LSO, str(where)) for where in self._held)
        yield from ((self._kind(name), name) for name in self._names())
        for subject, _ in self._done:
            if self._plan.act is Act.FENCE:
                name = subject.seen["transactional_id"]
                yield from ((RECOVERY, name), (RESUMED, name))
            elif "batch_id" in subject.seen:
                yield BATCH, subject.title

    def _lsos(self, connections: ClusterConnections) -> Iterator[Entry]:
        wanted = [where for where in self._held if (LSO, str(where)) not in self._reported]
        if not wanted:
            return
        for where, offsets in connections.reads.list_offsets(wanted).items():
            before = self._held[where]
            if isinstance(offsets, Offsets) and offsets.lso > before:
                words = f"LSO of {where} moved {before:,} → {offsets.lso:,}"
                yield {**self._entry(LSO, str(where), words), "before": before, "after": offsets.lso}

    def _waiting(self) -> Iterator[Entry]:
        for name in self._names():
            kind = self._kind(name)
            if (kind, name) in self._reported:
                continue
            at_ms = self._group_ms(name) if kind == GROUP else self._query_ms(name)
            if at_ms is not None:
                after_ms = at_ms - min(ended_ms for _, ended_ms in self._done)
                yield {
                    **self._entry(kind, name, f"{kind} {name} resumed after {format_duration(after_ms)}"),
                    "after_ms": after_ms,
                }

    def _names(self) -> Sequence[str]:
        return list(dict.fromkeys(name for subject, _ in self._done for name in subject.waiting))

    def _kind(self, name: str) -> str:
        of_cluster = Group.objects.filter(cluster_id=self._row.cluster_id, group_id=name)
        return GROUP if of_cluster.exists() else QUERY

    def _group_ms(self, name: str) -> int | None:
        """Return when a group read past an LSO that blocked it, or None."""
        offsets = GroupOffset.objects.filter(
            group__cluster_id=self._row.cluster_id,
            group__group_id=name,
            topic__in={where.topic for where in self._held},
        )
        passed = [
            row.commit_ms
            for row in offsets
            if row.offset is not None
            and row.offset > self._held.get(TopicPartition(row.topic, row.partition), row.offset)
        ]
        return self._at(passed)

    def _query_ms(self, name: str) -> int | None:
        """Return when a query read past an LSO that blocked it, or None."""
        newest = Batch.objects.filter(
            query__cluster_id=self._row.cluster_id, batch_id=F("query__finished")
        ).select_related("query")
        named = (batch for batch in newest if str(batch.query) == name)
        return self._at([batch.committed_ms for batch in named if self._is_past(batch)])

    def _is_past(self, batch: Batch) -> bool:
        read = {where: at for _, raw in batch.offsets for where, at in (parse_positions(raw) or {}).items()}
        return any(
            at > self._held[where]
            for place, at in read.items()
            if (where := TopicPartition(*place)) in self._held
        )

    def _at(self, passed: Sequence[int | None]) -> int | None:
        """Return the first instant (by other clocks) after the action's end, or now."""
        if not passed:
            return None
        ended_ms = min(ended_ms for _, ended_ms in self._done)
        return min((at for at in passed if at is not None and ended_ms <= at), default=self._now_ms)

    def _episodes(self) -> Iterator[Entry]:
        """Yield each fenced id's recovery, and its resumption; begun and opened are by the same clock."""
        if self._plan.act is not Act.FENCE:
            return
        for subject, _ in self._done:
            name, started_ms = subject.seen["transactional_id"], subject.seen["started_ms"]
            recoveries = Recovery.objects.filter(
                cluster_id=self._row.cluster_id,
                key=key_of_name(name),
                opened_ms__gte=started_ms or 0,
            ).order_by("opened_ms", "pk")
            row = recoveries.first()
            if row is None:
                continue
            if (RECOVERY, name) not in self._reported:
                words = f"recovery episode {row.pk} of {name}: {row.cause}"
                yield {**self._entry(RECOVERY, name, words), "recovery": row.pk}
            if row.resumed_ms is not None and (RESUMED, name) not in self._reported:
                after_ms = max(0, row.resumed_ms - row.opened_ms)
                words = f"{row.resumed_by or name} committed again after {format_duration(after_ms)}"
                yield {**self._entry(RESUMED, name, words), "after_ms": after_ms}

    def _batches(self) -> Iterator[Entry]:
        for subject, _ in self._done:
            facts, title = subject.seen, subject.title
            if "batch_id" not in facts or (BATCH, title) in self._reported:
                continue
            finished = Query.objects.filter(
                cluster_id=self._row.cluster_id, ident=facts["query"], finished__gte=facts["batch_id"]
            )
            if finished.exists():
                yield self._entry(BATCH, title, f"{title}: its query has finished it, and goes on")

    def _entry(self, kind: str, of: str, words: str) -> Entry:
        return {"kind": kind, "of": of, "words": words, "at_ms": self._now_ms}


def _done(plan: Plan, results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[SubjectPlan, int]]:
    """Yield the done subjects of a plan, and when each ended."""
    for subject, result in zip(plan.subjects, results, strict=False):
        if result["outcome"] == SubjectOutcome.DONE:
            yield subject, result["ended_ms"]


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
    state = execute.end_by_results(row, results, now_ms=now_ms)
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
    return unknown_result(f"{death}, and then: {why}")


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
