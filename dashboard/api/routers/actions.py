"""`/api/v1/actions`: the audit log, and how a plan is made and executed.

Make a plan, read it, execute it with its digest and its `confirm`: nobody executes what they have not seen.
"""

from __future__ import annotations

from typing import Any, Literal

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from dashboard.actions import audit as action_audit
from dashboard.actions import execute
from dashboard.actions import service as action_service
from dashboard.actions import store as action_store
from dashboard.api import cursors, schemas
from dashboard.models import Action
from dashboard.runtime import loop, visibility
from dashboard.runtime.collector_names import ACTIONS
from dashboard.system import access
from fenceline.plans.plan import MOST_SUBJECTS, Act, Bound, Refusal, RefusalReason, SubjectPlan

router = Router(tags=["actions"])


class StepOut(Schema):
    """One request that is sent, or one file that is created: Kafka's word, or "ledger"."""

    request: str
    words: str


class EffectOut(Schema):
    """One thing that is otherwise afterwards; `amount` is null where it has no number.

    `bound`: "at_least" or "at_most" where the amount is a bound, since producers go on writing until the plan
    is carried out; "" where it is exact.
    """

    name: str
    amount: int | None
    words: str
    bound: Bound


class RefusalOut(Schema):
    """A reason not to do it; `forceable`: an admin may, with a reason."""

    ground: RefusalReason
    words: str
    forceable: bool


class HeldOut(Schema):
    """A partition whose LSO it blocks; null where the offsets were not seen.

    `lso_at_least`: what the LSO reaches at least once the action is done.
    """

    topic: str
    partition: int
    lso: int | None
    high_watermark: int | None
    lso_at_least: int | None


class PartOut(Schema):
    """What one request came to: `code` is Kafka's error code, null where nobody answered or was asked."""

    where: str
    code: int | None
    words: str


class ResultOut(Schema):
    """What came of one subject."""

    outcome: Literal["done", "stale", "failed", "unknown", "skipped"]
    words: str
    parts: list[PartOut]
    started_at: str | None
    ended_at: str | None


class SubjectOut(Schema):
    """What would be done to one subject, and what came of it; refused where `refusals` are not empty.

    `name` is what `plan` takes to plan the same again.
    """

    subject: str
    name: str
    title: str
    steps: list[StepOut]
    effects: list[EffectOut]
    refusals: list[RefusalOut]
    held: list[HeldOut]
    waiting: list[str]
    result: ResultOut | None


class FollowUpOut(Schema):
    """Something that was seen afterwards."""

    kind: str
    words: str
    at: str | None


class RecoveryRef(Schema):
    """An episode that it opened: `/api/v1/recoveries/{cluster}/{id}`."""

    id: int
    transactional_id: str


class ActionOut(Schema):
    """A plan, and what came of it.

    `planned` also once it has expired, or where every subject is refused: see `executable`. `confirm` is
    what is to be sent back to execute it, with the digest.
    """

    id: int
    cluster: str
    act: Act
    state: Action.State
    executable: bool
    digest: str
    confirm: str
    forced: bool
    overridden: list[RefusalOut]
    warnings: list[str]
    subjects: list[SubjectOut]
    planned_at: str | None
    planned_by: str
    planned_via: str
    expires_at: str | None
    confirmed_at: str | None
    executed_by: str
    reason: str
    ended_at: str | None
    follow_up: list[FollowUpOut]
    rev: int


class OneActionOut(ActionOut):
    """An action with the episodes that it opened."""

    recoveries: list[RecoveryRef]


class ActionList(schemas.Listing):
    items: list[ActionOut]


class ActionFilters(schemas.ShortListFilters, action_store.ActionCriteria):
    """The query string of the list; `q` is a part of a subject, `who` a whole name."""


class PlanIn(Schema):
    """What is to be planned; `force` needs the role admin.

    Subjects: transactional ids (fence, commit_flink), `topic-partition` or `topic-partition@offset`
    (abort_marker), `IDENT@BATCH` of a query (finish_batch, roll_back_batch).
    """

    cluster: schemas.Name
    act: Act
    subjects: list[schemas.Name] = Field(min_length=1, max_length=MOST_SUBJECTS)
    force: bool = False


class ExecuteIn(Schema):
    """The digest and the `confirm` of the plan that was read, and why it is executed."""

    digest: schemas.Name
    confirm: schemas.Name
    reason: schemas.Name


@router.get("", response=ActionList, summary="List actions")
def list_actions(request: HttpRequest, wanted: Query[ActionFilters]) -> dict[str, object]:
    """Plans and their outcomes, the newest first; kept for ever."""
    before = cursors.read_number(wanted.cursor, "actions")
    found, after = action_store.newest_actions(wanted, before=before, limit=wanted.limit)
    return {
        "items": [ActionOut(**_fields(row)) for row in found],
        "next": None if after is None else cursors.encode_cursor("actions", after),
        **schemas.visibility_fields(visibility.noun_visibility(wanted.cluster, ACTIONS)),
    }


@router.get("/{int:number}", response=OneActionOut, summary="One action")
def get_action(request: HttpRequest, number: int) -> OneActionOut:
    """One action by its id, with its results and what was seen afterwards."""
    return _one(_known(number))


@router.post("/plan", response={201: OneActionOut}, summary="Make a plan")
def make_plan(request: HttpRequest, asked: PlanIn) -> tuple[int, OneActionOut]:
    """Inspect the cluster and return what an action would do; no request changes anything.

    A plan expires in 5 minutes. Where every subject is refused it has the reasons and cannot be executed.
    """
    actor = access.actor_of(request, "api")
    try:
        row = action_service.plan_for(
            actor, asked.cluster, asked.act, asked.subjects, force=asked.force, now_ms=loop.now_ms()
        )
    except action_service.NotPlanned as error:
        raise HttpError(error.status, str(error)) from error
    return 201, _one(row)


@router.post("/{int:number}/execute", response={202: OneActionOut}, summary="Execute a plan")
def execute_plan(request: HttpRequest, number: int, confirmed: ExecuteIn) -> tuple[int, OneActionOut]:
    """Have a worker execute a plan, once; every subject is checked again first.

    The same caller may repeat the request and gets the same answer. Poll the action's `state` for progress.
    """
    try:
        row = execute.confirm_plan(
            _known(number),
            digest=confirmed.digest,
            typed=confirmed.confirm,
            reason=confirmed.reason,
            actor=access.actor_of(request, "api"),
            now_ms=loop.now_ms(),
        )
    except execute.ExecutionRefused as refused:
        raise HttpError(refused.status, refused.text) from refused
    return 202, _one(row)


def _known(number: int) -> Action:
    row = action_store.find_action(number) if number < 2**63 else None
    if row is None or not row.cluster.configured:
        raise Http404(f"No action {number} is known.")
    return row


def _one(row: Action) -> OneActionOut:
    refs = [
        RecoveryRef(id=each.pk, transactional_id=each.transactional_id)
        for each in action_audit.action_recoveries(row)
    ]
    return OneActionOut(**_fields(row), recoveries=refs)


def _fields(row: Action) -> dict[str, Any]:
    """Return the fields of an action's schema."""
    shown = action_audit.action_status(row, now_ms=loop.now_ms())
    plan = shown.plan
    results = [*row.results, *[None] * len(plan.subjects)]
    return {
        "id": row.pk,
        "cluster": row.cluster.name,
        "act": plan.act,
        "state": Action.State(row.state),
        "executable": shown.state == "planned",
        "digest": row.digest,
        "confirm": plan.confirm,
        "forced": plan.forced,
        "overridden": [_refusal(each) for each in plan.overridden],
        "warnings": list(plan.warnings),
        "subjects": [_subject(each, results[n]) for n, each in enumerate(plan.subjects)],
        "planned_at": schemas.format_iso(plan.made_ms),
        "planned_by": row.planned_by,
        "planned_via": row.planned_via,
        "expires_at": schemas.format_iso(row.expires_ms),
        "confirmed_at": schemas.format_iso(action_audit.confirmed_ms(row)),
        "executed_by": row.executed_by,
        "reason": row.reason,
        "ended_at": schemas.format_iso(row.ended_ms),
        "follow_up": [
            FollowUpOut(kind=each.get("kind", ""), words=each["words"], at=schemas.format_iso(each["at_ms"]))
            for each in row.follow_up
        ],
        "rev": row.rev,
    }


def _subject(of: SubjectPlan, result: dict[str, Any] | None) -> SubjectOut:
    return SubjectOut(
        subject=of.subject,
        name=action_audit.subject_name(of),
        title=of.title,
        steps=[StepOut(request=each.request, words=each.words) for each in of.steps],
        effects=[
            EffectOut(name=each.name, amount=each.amount, words=each.words, bound=each.bound)
            for each in of.effects
        ],
        refusals=[_refusal(each) for each in of.refusals],
        held=[
            HeldOut(topic=topic, partition=partition, lso=lso, high_watermark=end, lso_at_least=at_least)
            for topic, partition, lso, end, at_least in of.held
        ],
        waiting=list(of.waiting),
        result=None if result is None else _result(result),
    )


def _refusal(of: Refusal) -> RefusalOut:
    return RefusalOut(ground=of.ground, words=of.words, forceable=of.forceable)


def _result(of: dict[str, Any]) -> ResultOut:
    return ResultOut(
        outcome=of["outcome"],
        words=of["words"],
        parts=[PartOut(**each) for each in of["parts"]],
        started_at=schemas.format_iso(of["started_ms"]),
        ended_at=schemas.format_iso(of["ended_ms"]),
    )
