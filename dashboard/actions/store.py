"""Save, read and list plans as audit rows, with results for each subject; every change notifies the pages of
its cluster.

A worker that executes an action holds a lease with a token. A row is begun once, and its worker writes
results into the row with the token. A worker that was paused past its lease can no longer write, neither to
the row nor to Kafka, once another worker has settled the row.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar, cast

from django.db import DatabaseError, connection
from django.db.models import Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from pydantic import Field

from dashboard.models import Action, Cluster
from dashboard.runtime import loop, notify
from dashboard.runtime.criteria import Name, Ranged, Search, given_conditions, starts_in_range
from dashboard.runtime.write_transactions import WriteTransaction, cluster_transaction, retry_write
from dashboard.system.access import Actor
from dashboard.transactions import attributions
from dashboard.transactions.attributions import WrittenRecord
from fenceline.plans.plan import Plan, SubjectPlan, from_json

Facts = TypeVar("Facts")
KIND: notify.Kind = "actions"


class SubjectOutcome(StrEnum):
    DONE = "done"
    #: The subject had changed since the plan, so no request was sent.
    STALE = "stale"
    #: The cluster refused or was unreachable, so nothing was done.
    FAILED = "failed"
    #: The action may have been done; its outcome could not be read.
    UNKNOWN = "unknown"
    #: The subject was not attempted.
    SKIPPED = "skipped"


class RequestResult(NamedTuple):
    """The result of one request, in the broker's words."""

    #: A transactional id, a partition or a file.
    where: str
    #: Kafka's error code, 0 for success; None without a request or an answer.
    code: int | None
    words: str


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome for one subject, as a sentence and by request."""

    fate: SubjectOutcome
    words: str
    parts: tuple[RequestResult, ...] = ()
    #: Records that join it with transitions (`fenceline.kafka.attributions`).
    records: tuple[WrittenRecord, ...] = ()

    def as_json(self, subject: str, started_ms: int | None, ended_ms: int | None) -> dict[str, Any]:
        """Return the result in the form of `Action.results`."""
        return {
            "subject": subject,
            "outcome": self.fate.value,
            "words": self.words,
            "parts": [part._asdict() for part in self.parts],
            "records": [record._asdict() for record in self.records],
            "started_ms": started_ms,
            "ended_ms": ended_ms,
        }


def stale_result(words: str, *parts: RequestResult, so: str = "; nothing was asked for it") -> Result:
    """Return the result of a subject that changed since the plan."""
    return Result(SubjectOutcome.STALE, f"the plan is outdated: {words}{so}", parts)


def failed_result(words: str, *parts: RequestResult) -> Result:
    """Return the result of a subject for which nothing was done."""
    return Result(SubjectOutcome.FAILED, words, parts)


def done_result(words: str, *parts: RequestResult) -> Result:
    return Result(SubjectOutcome.DONE, words, parts)


def unknown_result(words: str, *parts: RequestResult) -> Result:
    return Result(SubjectOutcome.UNKNOWN, words, parts)


def action_state(results: Iterable[Mapping[str, Any]]) -> Action.State:
    """Return the state of an action from the results of its subjects; skipped ones do not count."""
    fates = {result["outcome"] for result in results} - {SubjectOutcome.SKIPPED}
    if fates == {SubjectOutcome.DONE}:
        return Action.State.DONE
    if SubjectOutcome.DONE in fates:
        return Action.State.PARTLY
    if SubjectOutcome.UNKNOWN in fates:
        return Action.State.UNKNOWN
    return Action.State.STALE if fates == {SubjectOutcome.STALE} else Action.State.FAILED


class ActionCriteria(Ranged):
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
    asked = given_conditions(cluster__name=wanted.cluster, act=wanted.act, state=wanted.state)
    rows = Action.objects.filter(starts_in_range(wanted, "planned_at"), cluster__configured=True, **asked)
    if wanted.actor:
        rows = rows.filter(Q(planned_by=wanted.actor) | Q(executed_by=wanted.actor))
    if wanted.q:
        rows = rows.filter(subjects__icontains=wanted.q)
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


#: The validity of a lease without an extension.
LIVES = timedelta(seconds=15)
_EVERY_S = 1.0
_EXECUTING = Q(state=Action.State.EXECUTING)


class ActionLeaseLost(Exception):
    """This worker no longer holds the row: it must do and write nothing more."""


def begin_action(number: int, token: str, *, now_ms: int) -> Action | None:
    """Begin an action; return None if it was begun or settled, or has another token."""
    row = find_action(number)
    unbegun = _EXECUTING & Q(lease_token=token, started_ms=None, lease_until__gt=Now())
    if (
        row is None
        or not token
        or not update_action(row, unbegun, started_ms=now_ms, lease_until=Now() + LIVES)
    ):
        return None
    row.refresh_from_db()
    return row


def prolong_lease(row: Action) -> None:
    """Extend the lease; raises `ActionLeaseLost` if another worker has it or it has expired."""
    live = Action.objects.filter(_EXECUTING, pk=row.pk, lease_token=row.lease_token, lease_until__gt=Now())
    _held(row, live.update(lease_until=Now() + LIVES))


def write_results(
    row: Action, results: Sequence[dict[str, Any]], records: Sequence[WrittenRecord] = ()
) -> None:
    """Write the results so far; raises `ActionLeaseLost`.

    `records` are the records that coordinators wrote for the last subject's requests. The transitions and
    counters derived from them are saved in the same transaction.
    """
    live = _EXECUTING & Q(lease_token=row.lease_token, lease_until__gt=Now())
    also = partial(_attribute, row, records) if records else None
    _held(row, update_action(row, live, also=also, results=list(results), lease_until=Now() + LIVES))


def _attribute(row: Action, records: Sequence[WrittenRecord], write: WriteTransaction) -> None:
    attributions.save_attributions(row, records, rev=write.next_rev(), now_ms=loop.now_ms())
    write.notify_after_commit("transitions")


def take_over(row: Action, token: str) -> bool:
    """Take a row whose lease has expired; return whether it had."""
    dead = _EXECUTING & Q(lease_token=row.lease_token, lease_until__lte=Now())
    taken = update_action(row, dead, lease_token=token, lease_until=Now() + LIVES)
    row.refresh_from_db()
    return taken


def end_action(row: Action, state: Action.State, results: Sequence[dict[str, Any]], **fields: Any) -> None:
    """End an action; raises `ActionLeaseLost`."""
    held = _EXECUTING & Q(lease_token=row.lease_token)
    _held(row, update_action(row, held, state=state, results=list(results), lease_until=None, **fields))


def _held(row: Action, is_changed: int) -> None:
    if not is_changed:
        raise ActionLeaseLost(f"action {row.pk} was settled by somebody else")


@contextmanager
def lease_renewal(row: Action) -> Iterator[None]:
    """Extend a lease every second inside the context, on a thread with its own connection."""
    over = threading.Event()
    keeper = threading.Thread(target=_keep, args=(row, over), name=f"action-{row.pk}", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def _keep(row: Action, over: threading.Event) -> None:
    try:
        while not over.wait(_EVERY_S):
            try:
                prolong_lease(row)
            except DatabaseError:
                # The execution notices at its next step; until then the lease is still valid.
                connection.close()
    except ActionLeaseLost:
        return
    finally:
        connection.close()
