"""`/api/v1/actions`: the audit log, and how a plan is made and executed.

Make a plan, read it, execute it with its digest and its `confirm`: nobody executes what they have not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import zip_longest
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
from dashboard.api.known_names import Body
from dashboard.models import Action
from dashboard.runtime import loop
from dashboard.runtime.collector_names import ACTIONS
from dashboard.system import access
from fenceline.plans.plan import MOST_SUBJECTS, Act, Bound, RefusalReason

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
    started_at: schemas.Instant | None = Field(validation_alias="started_ms")
    ended_at: schemas.Instant | None = Field(validation_alias="ended_ms")


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
    at: schemas.Instant | None = Field(validation_alias="at_ms")

    @staticmethod
    def resolve_kind(line: Mapping[str, Any]) -> str:
        return str(line.get("kind", ""))


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
    """An action with the episodes that it opened."""

    recoveries: list[RecoveryRef]

    @staticmethod
    def resolve_recoveries(row: Action) -> object:
        return action_audit.action_recoveries(row)


class ActionList(schemas.Listing):
    items: list[ActionOut]


class ActionFilters(schemas.ShortListFilters, action_store.ActionCriteria):
    """The query string of the list; `q` is a part of a subject, `who` a whole name."""


class PlanIn(Body):
    """What is to be planned; `force` needs the role admin.

    Subjects: transactional ids (fence, commit_flink), `topic-partition` or `topic-partition@offset`
    (abort_marker), `IDENT@BATCH` of a query (finish_batch, roll_back_batch).
    """

    cluster: schemas.Name
    act: Act
    subjects: list[schemas.Name] = Field(min_length=1, max_length=MOST_SUBJECTS)
    force: bool = False


class ExecuteIn(Body):
    """The digest and the `confirm` of the plan that was read, and why it is executed."""

    digest: schemas.Name
    confirm: schemas.Name
    reason: schemas.Name


@router.get("", response=ActionList, summary="List actions")
def list_actions(request: HttpRequest, wanted: Query[ActionFilters]) -> dict[str, object]:
    """Plans and their outcomes, the newest first; kept for ever."""
    before = cursors.read_number(wanted.cursor, "actions")
    rows, after = action_store.newest_actions(wanted, before=before, limit=wanted.limit)
    following = None if after is None else cursors.encode_cursor("actions", after)
    return schemas.list_answer(list(map(_with_plan, rows)), following, wanted.cluster, ACTIONS)


@router.get("/{int:number}", response=OneActionOut, summary="One action")
def get_action(request: HttpRequest, number: int) -> Action:
    """One action by its id, with its results and what was seen afterwards."""
    return _with_plan(_known(number))


@router.post("/plan", response={201: OneActionOut}, summary="Make a plan")
def make_plan(request: HttpRequest, asked: PlanIn) -> tuple[int, Action]:
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
    return 201, _with_plan(row)


@router.post("/{int:number}/execute", response={202: OneActionOut}, summary="Execute a plan")
def execute_plan(request: HttpRequest, number: int, confirmed: ExecuteIn) -> tuple[int, Action]:
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
    return 202, _with_plan(row)


def _known(number: int) -> Action:
    row = action_store.find_action(number) if number < 2**63 else None
    if row is None or not row.cluster.configured:
        raise Http404(f"No action {number} is known.")
    return row


def _with_plan(row: Action) -> Action:
    """Return a row with the plan that it keeps, and with what came of each subject."""
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
