"""Plans that are executed as a worker does it: stored, confirmed, run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from django.db.models import Q
from django.db.models.functions import Now
from django.test import override_settings

from dashboard.actions import execute, planning
from dashboard.actions import store as action_store
from dashboard.config import CheckpointRoot, ClusterConfig, Config
from dashboard.models import Action, Token
from dashboard.runtime import collector_store, loop
from dashboard.system.access import ROLES, Actor
from fenceline.plans.plan import Act, Plan

CLUSTER = "acting"
OPERATOR = Actor("olga", "page", ROLES[Token.Role.OPERATOR])
TOKEN = "worker"


def configured_cluster(
    properties: Mapping[str, str], checkpoints: Sequence[CheckpointRoot] = ()
) -> override_settings:
    """Return settings with one cluster, none of whose ids is hidden; it is in the database."""
    collector_store.sync_clusters([CLUSTER])
    cluster = ClusterConfig(CLUSTER, properties, sees_all_transactional_ids=True)
    return override_settings(FENCELINE=Config(clusters={CLUSTER: cluster}, checkpoints=checkpoints))


def make_plan(act: Act, *subjects: str, force: bool = True) -> Plan:
    """Return a plan, by default one that also forces what is young and healthy."""
    return planning.make_plan(CLUSTER, act, subjects, force=force, now_ms=loop.now_ms())


def confirm_plan(plan: Plan) -> Action:
    """Keep a plan, and have it confirmed; the message to its worker names TOKEN."""
    row = action_store.save_plan(plan, OPERATOR)
    is_planned = Q(state=Action.State.PLANNED)
    until = Now() + execute.WAITS
    fields: dict[str, Any] = {"state": Action.State.EXECUTING, "lease_until": until, "lease_token": TOKEN}
    assert action_store.update_action(row, is_planned, executed_by=OPERATOR.name, reason="a test", **fields)
    return row


def execute_plan(plan: Plan, observer: execute.Observer | None = None) -> Action:
    """Execute a plan as a worker does; return its row."""
    row = confirm_plan(plan)
    # The tests' database is in memory: no second thread shares it.
    assert execute.run_action(row.pk, TOKEN, observer, keeping=lambda _: nullcontext())
    row.refresh_from_db()
    return row


def expire_lease(row: Action) -> None:
    """Let the lease of an action expire, as its worker's death does after a while."""
    Action.objects.filter(pk=row.pk).update(lease_until=Now() - action_store.LIVES)
    row.refresh_from_db()


def outcomes(row: Action) -> list[str]:
    """Return what came of each subject."""
    return [each["outcome"] for each in row.results]


def result_texts(row: Action) -> str:
    """Return the texts of the results."""
    return "\n".join(each["words"] for each in row.results)


class WorkerKilled(BaseException):
    """Where a worker's process is killed."""


def kill_at(step: str, which: int = 0) -> Callable[[str, str], None]:
    met = iter(range(100))

    def die(at: str, subject: str) -> None:
        if at == step and next(met) == which:
            raise WorkerKilled

    return die


def execute_until_killed(plan: Plan, observer: Callable[[str, str], None]) -> Action:
    """Execute until the worker dies; return the row once its lease is over."""
    with pytest.raises(WorkerKilled):
        execute_plan(plan, observer)
    row = Action.objects.latest("pk")
    assert row.state == Action.State.EXECUTING
    expire_lease(row)
    return row
