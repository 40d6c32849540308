"""`/api/v1/actions`: the log of actions; make and execute plans.

Make a plan, read it, then execute it with its digest and `confirm`, which prove that the caller has read it.
"""

from dataclasses import asdict
from itertools import zip_longest
from typing import Literal

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.actions import audit as action_audit
from dashboard.actions import execute
from dashboard.actions import planning as action_service
from dashboard.actions import store as action_store
from dashboard.api import schemas
from dashboard.api.problems import Body
from dashboard.models import Action
from dashboard.runtime import loop
from dashboard.runtime.collector_names import ACTIONS
from dashboard.system import access
from fenceline.plans.plan import MOST_SUBJECTS, Act, Bound, RefusalReason

router = Router(tags=["actions"])


class StepOut(Schema):
    """A request that is sent (Kafka's name), or a file that is created ("ledger")."""

    request: str
    words: str


class EffectOut(Schema):
    """An effect of the action; `amount` is null if it has no number.

    `bound` is "" for an exact amount, else "at_least" or "at_most": producers go on writing until the plan is
    carried out.
    """

    name: str
    amount: int | None
    words: str
    bound: Bound


class RefusalOut(Schema):
    """A reason to refuse an action; `forceable`: an admin may override it, with a reason."""

    ground: RefusalReason
    words: str
    forceable: bool


class HeldOut(Schema):
    """A partition whose LSO the subject blocks; offsets are null if unknown.

    `lso_at_least`: the LSO reaches at least this offset after the action.
    """

    topic: str
    partition: int
    lso: int | None
    high_watermark: int | None
    lso_at_least: int | None


class PartOut(Schema):
    """The result of one request: `code` is Kafka's error code, null without a request or an answer."""

    where: str
    code: int | None
    words: str


class ResultOut(Schema):
    """The result for one subject."""

    outcome: Literal["done", "stale", "failed", "unknown", "skipped"]
    words: str
    parts: list[PartOut]
    started_at: schemas.Instant | None = Field(validation_alias="started_ms")
    ended_at: schemas.Instant | None = Field(validation_alias="ended_ms")


class SubjectOut(Schema):
    """The plan and the result for one subject; a subject with `refusals` is refused.

    `name` is the subject's name in a request for the same plan.
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
    """An observation after the action."""

    kind: str
    words: str
    at: schemas.Instant | None = Field(validation_alias="at_ms")

    resolve_kind = staticmethod(lambda line: str(line.get("kind", "")))


class RecoveryRef(Schema):
    """A recovery that the action opened: `/api/v1/recoveries/{cluster}/{id}`."""

    id: int
    transactional_id: str


class ActionOut(Schema):
    """A plan and its outcome.

    An expired plan, or one with every subject refused, stays `planned`: see `executable`. Send `confirm` and
    the digest back to execute it.
    """

    id: int
    cluster: str = Field(validation_alias="cluster.name")
    act: Act
    state: Action.State
    executable: bool
    digest: str
    confirm: str = Field(validation_alias="made.confirm")
    forced: bool
    overridden: list[RefusalOut] = Field(validation_alias="made.overridden")
    warnings: list[str] = Field(validation_alias="made.warnings")
    subjects: list[SubjectOut] = Field(validation_alias="planned_subjects")
    planned_at: schemas.Instant | None = Field(validation_alias="made.made_ms")
    planned_by: str
    planned_via: str
    expires_at: schemas.Instant | None = Field(validation_alias="expires_ms")
    confirmed_at: schemas.Instant | None
    executed_by: str
    reason: str
    ended_at: schemas.Instant | None = Field(validation_alias="ended_ms")
    follow_up: list[FollowUpOut]
    rev: int


class OneActionOut(ActionOut):
    """An action with the recoveries that it opened."""

    recoveries: list[RecoveryRef]

    resolve_recoveries = staticmethod(action_audit.action_recoveries)


class ActionFilters(schemas.ShortListFilters, action_store.ActionCriteria):
    """The query string of the list; `q` is a part of a subject, `who` a full name."""


class PlanIn(Body):
    """A request for a plan; `force` needs the role admin.

    Subjects: transactional ids (fence, commit_flink), `topic-partition` or `topic-partition@offset`
    (abort_marker), `IDENT@BATCH` of a query (finish_batch, roll_back_batch).
    """

    cluster: schemas.Name
    act: Act
    subjects: list[schemas.Name] = Field(min_length=1, max_length=MOST_SUBJECTS)
    force: bool = False


class ExecuteIn(Body):
    """The plan's digest and `confirm`, and the reason for the action."""

    digest: schemas.Name
    confirm: schemas.Name
    reason: schemas.Name


@router.get("", response=schemas.list_of(ActionOut), summary="List actions")
def list_actions(request: HttpRequest, wanted: Query[ActionFilters]) -> dict[str, object]:
    """Plans and their outcomes, newest first; they are kept for ever."""
    before = schemas.read_number(wanted.cursor, "actions")
    rows, after = action_store.newest_actions(wanted, before=before, limit=wanted.limit)
    following = None if after is None else schemas.encode_cursor("actions", after)
    return schemas.list_answer(list(map(_with_plan, rows)), following, wanted.cluster, ACTIONS)


@router.get("/{int:number}", response=OneActionOut, summary="One action")
def get_action(request: HttpRequest, number: int) -> Action:
    """Return an action by its id, with its results and the observations after it."""
    return _with_plan(_known(number))


@router.post("/plan", response={201: OneActionOut}, summary="Make a plan")
def make_plan(request: HttpRequest, asked: PlanIn) -> tuple[int, Action]:
    """Inspect the cluster and return the effects of an action; planning changes nothing.

    A plan expires in 5 minutes. If every subject is refused, the plan has the reasons and cannot be executed.
    """
    actor = access.actor_of(request, "api")
    row = action_service.plan_for(
        actor, asked.cluster, asked.act, asked.subjects, force=asked.force, now_ms=loop.now_ms()
    )
    return 201, _with_plan(row)


@router.post("/{int:number}/execute", response={202: OneActionOut}, summary="Execute a plan")
def execute_plan(request: HttpRequest, number: int, confirmed: ExecuteIn) -> tuple[int, Action]:
    """Let a worker execute a plan, once; it checks every subject again first.

    A repeated request of the same caller gets the same answer. Poll the action's `state` for progress.
    """
    row = execute.confirm_plan(
        _known(number),
        digest=confirmed.digest,
        typed=confirmed.confirm,
        reason=confirmed.reason,
        actor=access.actor_of(request, "api"),
        now_ms=loop.now_ms(),
    )
    return 202, _with_plan(row)


def _known(number: int) -> Action:
    row = action_store.find_action(number)
    if row is None or not row.cluster.configured:
        raise Http404(f"No action {number} is known.")
    return row


def _with_plan(row: Action) -> Action:
    """Return a row with its stored plan, and the result of each subject."""
    shown = action_audit.action_status(row, now_ms=loop.now_ms())
    subjects = shown.plan.subjects
    return schemas.add_fields(
        row,
        made=shown.plan,
        executable=shown.state == "planned",
        planned_subjects=[
            {**asdict(subject), "name": action_audit.subject_name(subject), "result": result}
            for subject, result in zip_longest(subjects, row.results[: len(subjects)])
        ],
    )
