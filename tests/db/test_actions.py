"""Proves that a plan is kept as it was previewed and listed, that it is executed only with permission,
confirmation and before it expires, that its row has one worker, and what is reported of it afterwards."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.db.models import Q
from django.db.models.functions import Now

from dashboard.actions import execute
from dashboard.actions import store as action_store
from dashboard.actions.connections import ClusterConnections
from dashboard.actions.follow_up import Following
from dashboard.actions.store import SubjectOutcome, action_state
from dashboard.models import Action, Cluster, Recovery, Token
from dashboard.runtime import collector_store
from dashboard.system.access import ROLES, Actor
from fenceline.facts import Confidence, TransitionKind
from fenceline.kafka.transactional_ids import key_of
from fenceline.losses.recoveries import RecoveryOutcome
from fenceline.plans.plan import LIVES_MS, Act, Plan, Refusal, RefusalReason, SubjectPlan
from tests.cases import cases
from tests.db import factories
from tests.db.conftest import NOW_MS

pytestmark = pytest.mark.sql

OLGA = Actor("olga", "page", ROLES[Token.Role.OPERATOR])
ADA = Actor("ada", "page", ROLES[Token.Role.ADMIN])
VERA = Actor("vera", "page", ROLES[Token.Role.VIEWER])
STARTED_MS = NOW_MS - 90_000


def subject(name: str = "payments-7", **columns: Any) -> SubjectPlan:
    seen = {
        "transactional_id": name, "producer_id": 7, "producer_epoch": 3, "started_ms": STARTED_MS,
        "timeout_ms": 60_000, "state": "Ongoing",
    }  # fmt: skip
    return SubjectPlan(f"transaction:{name}", name, seen, **columns)


def fence(*subjects: SubjectPlan, **columns: Any) -> Plan:
    return Plan(Act.FENCE, "prod", NOW_MS, "payments-7", subjects or (subject(),), **columns)


def saved_plan(plan: Plan | None = None, actor: Actor = OLGA) -> Action:
    return action_store.save_plan(plan or fence(), actor)


def confirm(row: Action, actor: Actor = OLGA, **said: Any) -> Action:
    """Confirm as required, except for the values in `said`."""
    usual = {"digest": row.digest, "typed": "payments-7", "reason": "it is stuck", "now_ms": NOW_MS + 1}
    return execute.confirm_plan(row, actor=actor, **(usual | said))


def executing(row: Action, by: str = "olga") -> Action:
    """Have a row confirmed; the message to its worker names `t`."""
    until = Now() + execute.WAITS
    fields: dict[str, Any] = {"state": Action.State.EXECUTING, "lease_until": until, "lease_token": "t"}
    assert action_store.update_action(row, Q(state="planned"), executed_by=by, **fields)
    row.refresh_from_db()
    return row


def test_a_plan_is_saved_as_it_was_previewed() -> None:
    plan = fence(subject(held=(("payments", 0, 1_204, 1_981, 1_981),), waiting=("billing",)), forced=True)
    row = saved_plan(plan, ADA)
    row.refresh_from_db()
    assert action_store.plan_of(row) == plan
    assert (row.digest, row.state, row.planned_by, row.forced) == (plan.digest, "planned", "ada", True)
    assert row.expires_ms == NOW_MS + LIVES_MS
    assert row.rev == Cluster.objects.get().rev > 0


def listed(before: Any = None, limit: int = 9, **criteria: str) -> tuple[list[int], Any]:
    found, end = action_store.newest_actions(
        action_store.ActionCriteria(**criteria), before=before, limit=limit
    )
    return [row.pk for row in found], end


def test_the_newest_come_first_page_by_page_and_by_filters() -> None:
    names = [saved_plan(fence(subject(f"payments-{number}"))).pk for number in range(5)]
    other = saved_plan(replace(fence(subject("orders-1")), act=Act.ROLL_BACK_BATCH), ADA)
    found, place = listed(limit=4)
    assert found == [other.pk, *reversed(names[2:])]
    assert listed(place, 4) == (list(reversed(names[:2])), None)
    for criteria in {"act": "roll_back_batch"}, {"q": "ORDERS"}, {"actor": "ada"}:
        assert listed(**criteria)[0] == [other.pk]
    assert len(listed(cluster="prod", state="planned")[0]) == 6
    collector_store.sync_clusters([])
    assert listed() == ([], None)


def test_a_change_is_made_only_where_a_row_is_as_expected() -> None:
    row, before = saved_plan(), Cluster.objects.get().rev
    assert not action_store.update_action(row, Q(state="done"), reason="never")
    assert Cluster.objects.get().rev == before
    assert action_store.update_action(row, Q(state="planned"), reason="now")
    row.refresh_from_db()
    assert (row.reason, row.rev, Cluster.objects.get().rev) == ("now", before + 1, before + 1)


UNFIT = SubjectPlan("transaction:x", "x", {}, refusals=(Refusal(RefusalReason.PREPARE, "It is decided."),))


@cases(
    (fence(), VERA, {}, 403, "vera may not do this"),
    (fence(forced=True), OLGA, {}, 403, "needs the role admin"),
    (fence(), OLGA, {"digest": "0" * 64}, 409, "not the plan that was previewed"),
    (fence(), OLGA, {"digest": "ä"}, 409, "not the plan that was previewed"),
    (fence(), OLGA, {"now_ms": NOW_MS + LIVES_MS}, 410, "The plan has expired at "),
    (fence(), OLGA, {"typed": "payments-8"}, 422, "type exactly that"),
    (fence(), OLGA, {"typed": " payments-7"}, 422, "type exactly that"),
    (fence(), OLGA, {"reason": " \n "}, 422, "A reason is required"),
    (fence(), OLGA, {"reason": "x" * 1_001}, 422, "has 1,001 characters"),
    (fence(UNFIT), OLGA, {}, 422, "every subject is refused"),
)
def test_a_plan_is_refused_unless_confirmed_as_required(
    plan: Plan, actor: Actor, said: dict[str, Any], status: int, text: str
) -> None:
    row = saved_plan(plan)
    with pytest.raises(execute.ExecutionRefused) as refused:
        confirm(row, actor, **said)
    assert (refused.value.status, text in refused.value.text) == (status, True), refused.value.text
    row.refresh_from_db()
    assert (row.state, row.executed_by, row.lease_token) == ("planned", "", "")


@pytest.mark.parametrize("act", list(Act))
def test_each_action_needs_its_own_permission_and_read_only_refuses_it(act: Act, settings: Any) -> None:
    others = Actor("otto", "api", OLGA.permissions - {execute.access.OF_ACT[act]})
    for actor, text in ((others, "otto may not do this"), (ADA, "READ_ONLY")):
        settings.READ_ONLY = actor is ADA
        with pytest.raises(execute.ExecutionRefused, match=text) as refused:
            confirm(saved_plan(replace(fence(), act=act)), actor)
        assert refused.value.status == 403


def test_a_repeated_execution_returns_the_same_answer_to_the_same_user_only() -> None:
    row = executing(saved_plan())
    assert confirm(row).state == "executing"
    with pytest.raises(execute.ExecutionRefused, match="olga executes this plan right now") as refused:
        confirm(row, ADA)
    assert refused.value.status == 409
    action_store.update_action(row, Q(), state="done")
    # Also once it has expired, and whatever was typed this time: it is done.
    assert confirm(row, typed="", now_ms=NOW_MS + LIVES_MS).state == "done"
    with pytest.raises(execute.ExecutionRefused, match="olga has executed this plan already, it is done"):
        confirm(row, ADA)


def test_an_action_is_begun_once_only_by_its_token_and_in_time() -> None:
    row = executing(saved_plan())
    for number, token in ((row.pk, ""), (row.pk, "another"), (row.pk + 1, "t")):
        assert action_store.begin_action(number, token, now_ms=NOW_MS) is None
    begun = action_store.begin_action(row.pk, "t", now_ms=NOW_MS)
    assert begun is not None
    assert begun.started_ms == NOW_MS
    assert action_store.begin_action(row.pk, "t", now_ms=NOW_MS) is None
    late = executing(saved_plan(fence(subject("late"))))
    Action.objects.update(lease_until=Now() - action_store.LIVES)
    assert action_store.begin_action(late.pk, "t", now_ms=NOW_MS) is None


def test_a_worker_that_lost_its_lease_writes_nothing() -> None:
    executing(saved_plan())
    row = action_store.begin_action(Action.objects.get().pk, "t", now_ms=NOW_MS)
    assert row is not None
    settler = Action.objects.get()
    assert not action_store.take_over(settler, "s"), "its lease lives"
    Action.objects.update(lease_until=Now() - action_store.LIVES)
    with pytest.raises(action_store.ActionLeaseLost):
        action_store.prolong_lease(row)
    assert action_store.take_over(settler, "s")
    for late in (
        lambda: action_store.prolong_lease(row),
        lambda: action_store.write_results(row, [{"subject": "late"}]),
        lambda: action_store.end_action(row, Action.State.DONE, [{"subject": "late"}]),
    ):
        with pytest.raises(action_store.ActionLeaseLost):
            late()
    action_store.end_action(settler, Action.State.UNKNOWN, [])
    assert Action.objects.get().results == []
    assert not action_store.take_over(settler, "s2")


@cases(
    ([SubjectOutcome.DONE, SubjectOutcome.DONE], Action.State.DONE),
    ([SubjectOutcome.DONE, SubjectOutcome.SKIPPED], Action.State.DONE),
    ([SubjectOutcome.DONE, SubjectOutcome.STALE, SubjectOutcome.UNKNOWN], Action.State.PARTLY),
    ([SubjectOutcome.STALE, SubjectOutcome.STALE], Action.State.STALE),
    ([SubjectOutcome.STALE, SubjectOutcome.FAILED], Action.State.FAILED),
    ([SubjectOutcome.FAILED, SubjectOutcome.UNKNOWN], Action.State.UNKNOWN),
)
def test_the_state_of_an_action_follows_its_subjects(
    fates: Sequence[SubjectOutcome], state: Action.State
) -> None:
    assert action_state([{"outcome": each.value} for each in fates]) == state


def finished_action(plan: Plan, *, lso_told: bool = True) -> Action:
    """Return a row whose subjects were all done at NOW_MS; that the LSO has moved is reported."""
    results = [{"subject": each.subject, "outcome": "done", "ended_ms": NOW_MS} for each in plan.subjects]
    told = [
        {"kind": "lso", "of": f"{topic}-{number}", "words": "it moved", "at_ms": NOW_MS}
        for each in plan.subjects
        for topic, number, *_ in each.held
        if lso_told
    ]
    row = saved_plan(plan)
    action_store.update_action(row, Q(), state="done", results=results, follow_up=told, ended_ms=NOW_MS)
    row.refresh_from_db()
    return row


def new_entries(row: Action) -> tuple[list[str], bool]:
    """Return the texts that are reported now, and whether those were the last."""
    following = Following(row, NOW_MS + 2_000)
    with ClusterConnections("prod") as connections:
        found = following.new_entries(connections)
    return [each["words"] for each in found], following.is_over(found)


HELD = {"held": (("orders", 0, 812, 820, 820),), "waiting": ("billing", "orders_enrich")}


def test_groups_and_queries_are_reported_once_they_have_read_past_the_lso() -> None:
    row = finished_action(fence(subject(**HELD)))
    waits = factories.blocked_group("billing")
    query = factories.query(name="orders_enrich", finished=3)
    batch = factories.batch(query, 3, offsets=read("orders", 812), committed_ms=NOW_MS - 5)
    assert new_entries(row) == ([], False)
    type(waits).objects.update(offset=813, commit_ms=NOW_MS + 1_300)
    type(batch).objects.update(offsets=read("orders", 820), committed_ms=NOW_MS + 900)
    said, over = new_entries(row)
    assert said == ["group billing resumed after 1.3 s", "query orders_enrich resumed after 900 ms"]
    assert not over, "its episode is yet to come"


def read(topic: str, offset: int) -> list[list[str]]:
    return [["source", f'{{"{topic}": {{"0": {offset}}}}}']]


def test_the_recovery_of_an_action_is_reported_with_its_outcome() -> None:
    row = finished_action(fence())
    add_recovery(opened_ms=STARTED_MS - 1)
    assert new_entries(row) == ([], False)
    mine = add_recovery(opened_ms=NOW_MS - 10)
    assert new_entries(row)[0] == [f"recovery episode {mine.pk} of payments-7: takeover"]
    Recovery.objects.filter(pk=mine.pk).update(resumed_ms=NOW_MS + 2_490, resumed_by="payments-8")
    said, over = new_entries(row)
    assert said[1] == "payments-8 committed again after 2.5 s"
    assert over


def add_recovery(*, opened_ms: int) -> Recovery:
    return Recovery.objects.create(
        cluster=Cluster.objects.get(), key=key_of(b"payments-7"), transactional_id="payments-7",
        application="payments", cause=TransitionKind.TAKEOVER, confidence=Confidence.PROBABLE, producer_id=7,
        producer_epoch=4, topic_id="t", log_partition=1, log_offset=opened_ms, opened_ms=opened_ms,
        outcome=RecoveryOutcome.OPEN, rev=1,
    )  # fmt: skip


def test_a_finished_batch_is_reported_when_its_query_continues() -> None:
    query = factories.query(name="orders", finished=40)
    batch = SubjectPlan("query:q", "orders, batch 41", {"query": query.ident, "batch_id": 41})
    row = finished_action(replace(fence(batch), act=Act.FINISH_BATCH))
    assert new_entries(row) == ([], False)
    type(query).objects.update(finished=41)
    assert new_entries(row) == (["orders, batch 41: its query has finished it, and goes on"], True)
    stands = Following(finished_action(fence(subject(**HELD)), lso_told=False), NOW_MS)
    assert [each["words"] for each in stands.last_words()] == ["LSO of orders-0 still stands at 812"]
