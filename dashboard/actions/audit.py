"""Operators' actions for pages: their status, and the action that ended a transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import Q

from dashboard.actions import store as action_store
from dashboard.models import Action, Recovery, TransitionRecord
from dashboard.runtime import visibility
from fenceline.formatting import count_noun
from fenceline.plans.plan import Plan, SubjectPlan

#: Maximum plans that are searched for those still open to confirmation.
_MOST_LOOKED = 500
_MOST_EPISODES = 50


@dataclass(frozen=True, slots=True)
class ActionStatus:
    """The status of an action now: its state, or "refused", or "expired"."""

    plan: Plan
    state: str
    #: The first subject's title, and the number of further subjects.
    title: str
    more: int
    #: Its result in a few words, "" before it ran.
    result: str


@dataclass(frozen=True, slots=True)
class ActionSummary:
    """Numbers of actions since an instant, and of those in progress."""

    executing: int
    #: Plans that may still be confirmed.
    waiting: int
    executed: int
    #: Executed actions that did not do everything they planned.
    undone: int


def action_status(row: Action, *, now_ms: int) -> ActionStatus:
    plan = action_store.plan_of(row)
    state = row.state
    if state == Action.State.PLANNED and not plan.doable_subjects:
        state = "refused"
    elif state == Action.State.PLANNED and now_ms >= row.expires_ms:
        state = "expired"
    return ActionStatus(plan, state, plan.subjects[0].title, len(plan.subjects) - 1, _result(row))


#: The outcomes of subjects that are not done, in words.
_NOT_DONE = {"stale": "outdated", "failed": "failed", "unknown": "unknown", "skipped": "skipped"}


def _result(row: Action) -> str:
    """Return `12 of 14 subjects done, 1 outdated, 1 failed`, or the words of a single subject's result."""
    outcomes = [result["outcome"] for result in row.results]
    if len(outcomes) < 2:
        return str(row.results[0]["words"]) if outcomes else ""
    parts = [f"{outcomes.count('done'):,} of {count_noun(len(outcomes), 'subject')} done"]
    parts += [f"{outcomes.count(name):,} {words}" for name, words in _NOT_DONE.items() if name in outcomes]
    return ", ".join(parts)


def action_summary(cluster: str, *, since_ms: int, now_ms: int) -> ActionSummary:
    """Return the actions in progress, and the results of those confirmed since an instant."""
    actions = visibility.rows_in(Action, cluster)
    planned = actions.filter(state=Action.State.PLANNED, expires_ms__gt=now_ms).order_by("-pk")[:_MOST_LOOKED]
    since = datetime.fromtimestamp(since_ms / 1_000, UTC)
    ended = actions.filter(confirmed_at__gte=since).exclude(state=Action.State.EXECUTING)
    return ActionSummary(
        executing=actions.filter(state=Action.State.EXECUTING).count(),
        waiting=sum(bool(action_store.plan_of(row).doable_subjects) for row in planned),
        executed=ended.count(),
        undone=ended.exclude(state=Action.State.DONE).count(),
    )


def cause_of(episode: Recovery) -> Action | None:
    """Return the action that ended the transaction of a recovery, None if no action of ours did."""
    same = TransitionRecord.objects.filter(
        cluster_id=episode.cluster_id,
        topic_id=episode.topic_id,
        log_partition=episode.log_partition,
        log_offset=episode.log_offset,
    )
    row = same.select_related("action").first()
    return None if row is None else row.action


def action_recoveries(row: Action) -> Sequence[Recovery]:
    """Return the recoveries that an action caused or follows, oldest first."""
    is_related = Q(pk__in=[entry["recovery"] for entry in row.follow_up if "recovery" in entry])
    for transition in TransitionRecord.objects.filter(action=row)[:_MOST_EPISODES]:
        is_related |= Q(
            topic_id=transition.topic_id,
            log_partition=transition.log_partition,
            log_offset=transition.log_offset,
        )
    opened = Recovery.objects.filter(is_related, cluster=row.cluster_id)
    return list(opened.select_related("cluster").order_by("opened_ms", "pk")[:_MOST_EPISODES])


def subject_name(subject: SubjectPlan) -> str:
    """Return a subject in the form for planning: an id, `topic-partition@offset`, or `IDENT@BATCH`."""
    kind, _, name = subject.subject.partition(":")
    facts = subject.seen
    if kind == "partition" and "start_offset" in facts:
        return f"{name}@{facts['start_offset']}"
    if kind == "query" and "batch_id" in facts:
        return f"{facts.get('query', name)}@{facts['batch_id']}"
    return name


def confirmed_ms(row: Action) -> int | None:
    """Return when an action was confirmed, in milliseconds; None for a plan."""
    return None if row.confirmed_at is None else int(row.confirmed_at.timestamp() * 1_000)
