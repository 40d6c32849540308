"""Execution: run a confirmed plan once, check each subject again right before, and record the results.

`confirm_plan` takes a plan from planned to executing by compare-and-set and sends it to a worker. The message
names a lease token. A worker begins only a row with that token and a live lease that was never begun.
So neither a repeated message nor a second worker executes a plan again. `follow_up`, which only reads,
settles a row whose worker died.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.db.models import Q
from django.db.models.functions import Now
from kombu.exceptions import OperationalError

from dashboard.actions import inspect
from dashboard.actions import store as action_store
from dashboard.actions.connections import ClusterConnections, NoRoot
from dashboard.actions.handlers import abort_marker, batches, fence, sink_transactions
from dashboard.actions.store import Result, SubjectOutcome, action_state, failed_result, unknown_result
from dashboard.celery import app
from dashboard.models import Action
from dashboard.runtime import loop
from dashboard.system import access
from dashboard.system.access import Actor
from fenceline.formatting import format_clock
from fenceline.plans.plan import Act, Plan, SubjectPlan
from spark_pipeline.sink.errors import SinkError
from transaction_admin.api import AdminUnavailable
from transaction_admin.properties import CannotTranslate

log = logging.getLogger(__name__)

#: The name of the task that executes, and its queue.
TASK, QUEUE = "dashboard.execute_action", "default"
#: The time that a confirmed plan waits for a worker.
WAITS = timedelta(seconds=30)
MOST_REASON = 1_000

#: Carries out an action on one subject, or reads its outcome.
Do = Callable[[SubjectPlan, ClusterConnections], Result]
#: Called with the step and the subject at each step of an execution; a test may end the process there.
Observer = Callable[[str, str], None]
#: Keeps the lease of a row alive inside its context.
Keeping = Callable[[Action], AbstractContextManager[None]]
#: For each action, the function that carries it out and the one that reads its outcome after a crash.
ACTS: Mapping[Act, tuple[Do, Do]] = {
    Act.FENCE: (fence.fence_producer, fence.read_outcome),
    Act.ABORT_MARKER: (abort_marker.write_marker, abort_marker.read_outcome),
    Act.FINISH_BATCH: (batches.finish_batch, batches.read_finish_outcome),
    Act.ROLL_BACK_BATCH: (batches.roll_back, batches.read_roll_back_outcome),
    Act.COMMIT_FLINK: (sink_transactions.commit_transaction, sink_transactions.read_outcome),
}
#: Errors whose text is the problem and the remedy.
_CLEAR = (AdminUnavailable, CannotTranslate, NoRoot, SinkError, inspect.UnknownCluster)
#: Errors of our database and our lease, not of a cluster or a store.
OURS = (DatabaseError, action_store.ActionLeaseLost)
#: Milliseconds for which the effects of an action are followed.
_FOLLOWED_MS = 600_000


class ExecutionRefused(Exception):
    """A plan is not executed: an HTTP status for the kind of reason, and the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def confirm_plan(
    action: Action, *, digest: str, typed: str, reason: str, actor: Actor, now_ms: int
) -> Action:
    """Let a worker execute a plan, once; return its row.

    A repeated confirmation by the same actor returns the row unchanged. Raises `ExecutionRefused`: 403 no
    permission, 409 another digest or executed by somebody else, 410 expired, 422 wrong input, 503 no message
    can be sent, which leaves the row planned.
    """
    plan = action_store.plan_of(action)
    refused = access.act_refusal(actor, plan.act, plan.cluster, force=plan.forced)
    if why := refused or second_person_refusal(action, actor):
        raise ExecutionRefused(403, why)
    if not secrets.compare_digest(digest.encode(), action.digest.encode()):
        raise ExecutionRefused(
            409, "This is not the plan that was previewed: its digest differs. Open it again."
        )
    action.refresh_from_db()
    if action.state != Action.State.PLANNED:
        return _executed_already(action, actor)
    _refuse_inputs(action, plan, typed, reason.strip(), now_ms)
    token = secrets.token_hex(16)
    claimed = action_store.update_action(
        action,
        Q(state=Action.State.PLANNED),
        state=Action.State.EXECUTING,
        executed_by=actor.name[:150],
        reason=reason.strip(),
        confirmed_at=Now(),
        lease_until=Now() + WAITS,
        lease_token=token,
    )
    if claimed:
        _send(action, token)
    action.refresh_from_db()
    return action if claimed else _executed_already(action, actor)


def second_person_refusal(action: Action, actor: Actor) -> str:
    """Return why an actor may not confirm a plan that takes two persons, as a sentence; "" if they may."""
    if action.act not in settings.FENCELINE.second_person:
        return ""
    if actor.name == action.planned_by:
        return f"This takes two persons: {actor.name} planned it, somebody else confirms it."
    if access.is_token_name(action.planned_by):
        # The person with the token may be the person who confirms.
        return (
            "This takes two persons: a token planned it. A person plans it again, another person confirms it."
        )
    if actor.is_token:
        return "This takes two persons: a person confirms it, on the page of the plan or by a session."
    return ""


def _refuse_inputs(action: Action, plan: Plan, typed: str, reason: str, now_ms: int) -> None:
    expires = format_clock(action.expires_ms)
    expired = f"The plan has expired at {expires}: make a new one, which checks again."
    missing = "A reason is required: say in a few words why; it is kept in the audit log."
    too_long = f"The reason has {len(reason):,} characters: {MOST_REASON:,} are the most."
    for is_refused, status, text in (
        (now_ms >= action.expires_ms, 410, expired),
        (not plan.doable_subjects, 422, "Nothing of this plan can be done: every subject is refused."),
        (typed != plan.confirm, 422, f"What was typed is not {plan.confirm}: type exactly that."),
        (not reason, 422, missing),
        (len(reason) > MOST_REASON, 422, too_long),
    ):
        if is_refused:
            raise ExecutionRefused(status, text)


def _executed_already(action: Action, actor: Actor) -> Action:
    """Return the row to the user who executed it; raise `ExecutionRefused` for everybody else."""
    if action.executed_by == actor.name[:150] and action.state != Action.State.PLANNED:
        return action
    if action.state == Action.State.EXECUTING:
        raise ExecutionRefused(
            409, f"{action.executed_by} executes this plan right now: a plan is executed once."
        )
    raise ExecutionRefused(
        409,
        f"{action.executed_by} has executed this plan already, it is {action.state}: it is done only once.",
    )


def _send(action: Action, token: str) -> None:
    """Send the row to a worker; if Redis does not take the message, set the row back to planned."""
    message: Mapping[str, Any] = {"args": (action.pk, token), "queue": QUEUE, "retry": False}
    try:
        app.send_task(TASK, **message, expires=WAITS.total_seconds())
    except OperationalError as error:
        # If a worker got the message nevertheless, its token is outdated.
        action_store.update_action(
            action,
            Q(state=Action.State.EXECUTING, lease_token=token, started_ms=None),
            state=Action.State.PLANNED,
            executed_by="",
            reason="",
            confirmed_at=None,
            lease_until=None,
            lease_token="",
        )
        raise ExecutionRefused(
            503,
            f"Nothing was done: no worker can be notified, Redis does not answer ({error}). "
            "The plan stays as it is: start Redis, then execute it again.",
        ) from error


def run_action(
    number: int,
    token: str,
    observer: Observer | None = None,
    *,
    keeping: Keeping = action_store.lease_renewal,
) -> bool:
    """Execute a confirmed plan with the token of its message; return whether this call did.

    A row that was begun or settled, or has another token, is left alone. `keeping` extends its lease.
    """
    row = action_store.begin_action(number, token, now_ms=loop.now_ms())
    if row is None:
        log.warning("action %d: was begun already, or is settled: not executed again", number)
        return False
    try:
        with keeping(row):
            _Execution(row, observer).run()
    except action_store.ActionLeaseLost as lost:
        log.warning("%s: nothing more is done", lost)
    return True


def error_text(trouble: Exception) -> str:
    """Return the text of an error in one line; errors without an explanation are logged with traceback."""
    if isinstance(trouble, _CLEAR):
        return str(trouble)
    log.error("an action met an error", exc_info=trouble)
    return f"{type(trouble).__name__}: {' '.join(str(trouble).split())}"


def skipped_result(subject: SubjectPlan) -> Result:
    """Return the result of a subject that its plan refused."""
    words = " ".join(refusal.words for refusal in subject.refusals)
    return Result(SubjectOutcome.SKIPPED, f"refused in the plan: {words}")


def end_by_results(row: Action, results: Sequence[dict[str, Any]], *, now_ms: int) -> Action.State:
    """End an action in the state of its results, and have its effects followed; raises `ActionLeaseLost`."""
    state = action_state(results)
    until_ms = now_ms + _FOLLOWED_MS if state in (Action.State.DONE, Action.State.PARTLY) else None
    action_store.end_action(row, state, results, ended_ms=now_ms, followed_until_ms=until_ms)
    return state


class _Execution:
    def __init__(self, row: Action, observer: Observer | None) -> None:
        self._row, self._plan = row, action_store.plan_of(row)
        self._observer = observer
        self._results: list[dict[str, Any]] = []

    def run(self) -> None:
        with ClusterConnections(self._plan.cluster) as connections:
            for subject in self._plan.subjects:
                self._one(subject, connections)
        end_by_results(self._row, self._results, now_ms=loop.now_ms())

    def _one(self, subject: SubjectPlan, connections: ClusterConnections) -> None:
        if subject.is_refused:
            self._keep(skipped_result(subject), subject, None)
            return
        began_ms = loop.now_ms()
        self._observe("verify", subject)
        action_store.prolong_lease(self._row)
        connections.before_write = partial(self._about_to, subject, began_ms)
        connections.asked = ""
        result = self._do(subject, connections)
        self._observe("answered", subject)
        self._keep(result, subject, began_ms)
        self._observe("kept", subject)

    def _do(self, subject: SubjectPlan, connections: ClusterConnections) -> Result:
        try:
            return ACTS[self._plan.act][0](subject, connections)
        except OURS:
            raise
        except Exception as trouble:  # A store's client may raise any exception.
            if not connections.asked:
                return failed_result(f"nothing was asked for it: {error_text(trouble)}")
            return unknown_result(f"{connections.asked} was sent, and then: {error_text(trouble)}")

    def _keep(self, result: Result, subject: SubjectPlan, began_ms: int | None) -> None:
        ended_ms = None if began_ms is None else loop.now_ms()
        self._results.append(result.as_json(subject.subject, began_ms, ended_ms))
        action_store.write_results(self._row, self._results, result.records)

    def _about_to(self, subject: SubjectPlan, began_ms: int, request: str) -> None:
        """Record that a request is about to be sent; raises `ActionLeaseLost` if the lease is lost."""
        asked = unknown_result(f"{request} is being sent").as_json(subject.subject, began_ms, None)
        action_store.write_results(self._row, [*self._results, asked])
        self._observe(request, subject)

    def _observe(self, step: str, subject: SubjectPlan) -> None:
        if self._observer is not None:
            self._observer(step, subject.subject)
