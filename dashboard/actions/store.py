"""Save, read and list plans as audit rows; every change notifies the pages of its cluster."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast

from django.db.models import Q, QuerySet
from django.db.models.expressions import Combinable
from pydantic import Field

from dashboard.models import Action, Cluster
from dashboard.runtime import notify
from dashboard.runtime.criteria import Name, Ranged, Search, given_conditions, starts_in_range
from dashboard.runtime.write_transactions import WriteTransaction, cluster_transaction, retry_write
from dashboard.system.access import Actor
from fenceline.plans.plan import Plan, SubjectPlan, from_json

Facts = TypeVar("Facts")
KIND: notify.Kind = "actions"


class ActionCriteria(Ranged):
    """The filters of a list of actions."""

    cluster: Name = ""
    act: Literal["", "fence", "abort_marker", "finish_batch", "roll_back_batch", "commit_flink"] = ""
    state: Literal["", "planned", "executing", "done", "partly", "stale", "failed", "unknown"] = ""
    #: The full name of the user who planned or executed it.
    actor: Name = Field(default="", alias="who")
    #: A part of a subject: `transaction:ID`, `partition:TOPIC-N`, `query:IDENT`.
    q: Search = ""


@retry_write
def save_plan(plan: Plan, actor: Actor) -> Action:
    """Save a plan as an audit row; pages are notified after the commit.

    Raises `Cluster.DoesNotExist` for a cluster that was never configured.
    """
    cluster = Cluster.objects.get(name=plan.cluster)
    row = Action(
        cluster=cluster,
        act=plan.act.value,
        plan=plan.as_json(),
        digest=plan.digest,
        subjects="\n".join(subject.subject for subject in plan.subjects),
        forced=plan.forced,
        planned_by=actor.name[:150],
        planned_via=actor.via,
        expires_ms=plan.expires_ms,
    )
    with cluster_transaction(cluster.name, cluster.pk) as write:
        row.rev = write.next_rev()
        row.save()
        write.notify_after_commit(KIND)
    return row


def plan_of(action: Action) -> Plan:
    """Return the plan of an audit row."""
    return from_json(action.plan)


def plan_facts(kind: type[Facts], subject: SubjectPlan) -> Facts:
    """Return the facts of a plan as a named tuple; raises KeyError for a plan of another act."""
    record = cast(Any, kind)
    return cast(Facts, record(*(subject.seen[name] for name in record._fields)))


def find_action(number: int) -> Action | None:
    """Return an audit row by its number, or None."""
    return Action.objects.select_related("cluster").filter(pk=number).first()


def newest_actions(
    wanted: ActionCriteria, *, before: int | None, limit: int
) -> tuple[Sequence[Action], int | None]:
    """Return the newest actions, and the number after which the list continues, None at its end."""
    rows = _filtered(wanted)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    actions = list(rows.select_related("cluster").order_by("-pk")[: limit + 1])
    return actions[:limit], actions[limit - 1].pk if len(actions) > limit else None


@retry_write
def update_action(
    row: Action, *where: Q, also: Callable[[WriteTransaction], None] | None = None, **fields: Combinable | Any
) -> bool:
    """Set columns of a row if it still matches `where`, and notify pages; return whether it did.

    The row object is not changed: refresh it. `also` writes related rows in the same transaction.
    """
    with cluster_transaction(row.cluster.name, row.cluster_id) as write:
        changed = Action.objects.filter(*where, pk=row.pk).update(rev=write.next_rev(), **fields)
        if not changed:
            write.cancel()
            return False
        if also is not None:
            also(write)
        write.notify_after_commit(KIND)
    return True


def _filtered(wanted: ActionCriteria) -> QuerySet[Action]:
    asked = given_conditions(cluster__name=wanted.cluster, act=wanted.act, state=wanted.state)
    rows = Action.objects.filter(cluster__configured=True, **asked)
    if wanted.actor:
        rows = rows.filter(Q(planned_by=wanted.actor) | Q(executed_by=wanted.actor))
    rows = rows.filter(starts_in_range(wanted, "planned_at"))
    return rows.filter(subjects__icontains=wanted.q) if wanted.q else rows
