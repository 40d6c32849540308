"""Proves the API of acting: plan, execute with its digest, the list, and whom the CSRF check is for."""

import json
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from dashboard.actions import execute
from dashboard.config import ClusterConfig, Config
from dashboard.models import Action, Cluster, Token
from dashboard.system import access
from dashboard.system.tokens import token_digest
from fenceline.plans.plan import LIVES_MS, Act
from tests.api.client import all_items
from tests.web import factories

pytestmark = pytest.mark.django_db
PLAN = {"cluster": "prod", "act": "fence", "subjects": ["payments-7"]}


@pytest.fixture
def prod(settings: Any, prod: Cluster) -> Cluster:
    settings.FENCELINE = Config(
        clusters={"prod": ClusterConfig("prod", {"bootstrap.servers": "127.0.0.1:1"})}
    )
    return prod


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have gone to a worker: no Redis runs here."""
    found: list[Any] = []
    monkeypatch.setattr(execute.app, "send_task", lambda *args, **options: found.append((args, options)))
    return found


class Caller:
    """Asks the API with a token, or with the session of a user who has its role."""

    def __init__(self, role: str, *, session: bool = False) -> None:
        self.client = Client(enforce_csrf_checks=True)
        self.headers: dict[str, str] = {}
        if session:
            access.ensure_roles()
            user = User.objects.create_user(f"user-{role}")
            user.groups.set([Group.objects.get(name=role)])
            self.client.force_login(user)
        else:
            Token.objects.create(name=f"ci-{role}", role=role, digest=token_digest(role))
            self.headers["Authorization"] = f"Bearer {role}"

    def get(self, path: str, status: int = 200) -> Any:
        return self._told(self.client.get(f"/api/v1/{path}", headers=self.headers), status)

    def post(self, path: str, body: Any, status: int, **headers: str) -> Any:
        said = json.dumps(body)
        answer = self.client.post(
            f"/api/v1/{path}", said, content_type="application/json", headers=self.headers | headers
        )
        return self._told(answer, status)

    def _told(self, answer: Any, status: int) -> Any:
        assert answer.status_code == status, answer.content
        kind = "application/json" if status < 300 else "application/problem+json"
        assert answer["Content-Type"].startswith(kind)
        return answer.json()


def execution(action: Action, **fields: str) -> dict[str, str]:
    said = {"digest": action.digest, "confirm": action.plan["confirm"], "reason": "ticket 4411"}
    return said | fields


def test_an_action_is_told_whole(prod: Cluster) -> None:
    action = factories.executed_action(
        factories.plan(factories.fence_subject(), factories.refused_subject("orders-2", factories.PREPARE)),
        "done",
        "skipped",
        state="partly",
    )
    episode = factories.recovery(prod, "payments-7", opened_ms=factories.now_ms() - 3_500)
    factories.action_transition(episode, action)
    told = Caller("viewer").get(f"actions/{action.pk}")
    assert (told["act"], told["state"], told["executable"]) == ("fence", "partly", False)
    assert (told["confirm"], told["digest"]) == ("prod 2", action.digest)
    assert told["expires_at"].endswith("Z")
    first, second = told["subjects"]
    assert (first["subject"], first["name"]) == ("transaction:payments-7", "payments-7")
    assert first["effects"][0] == {
        "name": "records_released",
        "amount": 1_707,
        "words": "At least 1,707 records behind the LSO of payments-0 become readable.",
        "bound": "at_least",
    }
    assert first["held"][1]["high_watermark"] is None
    assert first["result"]["parts"] == [{"where": "payments-7", "code": 0, "words": "InitProducerId: done"}]
    assert second["refusals"][0]["ground"] == "prepare"
    assert second["steps"] == []
    assert [each["kind"] for each in told["follow_up"]] == ["lso", "group"]
    assert told["recoveries"] == [{"id": episode.pk, "transactional_id": "payments-7"}]
    assert (told["executed_by"], told["reason"]) == ("ada", "ticket 4411: billing stopped")


def test_the_list_filters_and_goes_on_by_its_cursor(prod: Cluster) -> None:
    marked = factories.executed_action(factories.plan(factories.marker_subject(), act=Act.ABORT_MARKER))
    failed = factories.executed_action(
        factories.plan(factories.fence_subject("orders-1")), "failed", state="failed"
    )
    waits = factories.planned_action(planned_by="token ci")
    ask = Caller("viewer").get
    body = ask("actions")
    assert set(body) == {"items", "next", "as_of", "gaps"}
    assert body["as_of"]
    for query, found in {
        "": [waits, failed, marked],
        "act=abort_marker": [marked],
        "state=failed": [failed],
        "q=orders": [failed],
        "who=token%20ci": [waits],
    }.items():
        assert [each["id"] for each in ask(f"actions?{query}")["items"]] == [row.pk for row in found], query
    assert [each["id"] for each in all_items(ask, "actions?limit=1")] == [waits.pk, failed.pk, marked.pk]
    assert ask("actions?state=gone", 422)
    assert ask("actions?cursor=x", 400)
    assert ask("actions/999999", 404)


def test_a_plan_is_executed_with_what_was_seen_and_once(prod: Cluster, sent: list[Any]) -> None:
    action, operator = factories.planned_action(), Caller("operator")
    told = operator.post(f"actions/{action.pk}/execute", execution(action), 202)
    assert (told["state"], told["executed_by"]) == ("executing", "token ci-operator")
    assert told["reason"] == "ticket 4411"
    again = operator.post(f"actions/{action.pk}/execute", execution(action), 202)
    assert again["id"] == action.pk
    assert len(sent) == 1
    other = Caller("admin").post(f"actions/{action.pk}/execute", execution(action), 409)
    assert "token ci-operator executes this plan right now" in other["detail"]


def test_another_person_confirms_where_two_are_asked_for(
    prod: Cluster, sent: list[Any], settings: Any
) -> None:
    settings.FENCELINE = replace(settings.FENCELINE, second_person=frozenset({"fence"}))
    operator, other = Caller("operator", session=True), Caller("admin", session=True)
    operator.client.handler.enforce_csrf_checks = other.client.handler.enforce_csrf_checks = False
    action = factories.planned_action(planned_by="user-operator")
    alone = operator.post(f"actions/{action.pk}/execute", execution(action), 403)
    assert "user-operator planned it, somebody else confirms it" in alone["detail"]
    assert "somebody else confirms it" in operator.client.get(f"/actions/{action.pk}").content.decode()
    program = Caller("admin").post(f"actions/{action.pk}/execute", execution(action), 403)
    assert "a person confirms it" in program["detail"]
    assert not sent
    of_token = factories.planned_action(planned_by="token ci-operator")
    alone = operator.post(f"actions/{of_token.pk}/execute", execution(of_token), 403)
    assert "a token planned it" in alone["detail"]
    told = other.post(f"actions/{action.pk}/execute", execution(action), 202)
    assert (told["planned_by"], told["executed_by"]) == ("user-operator", "user-admin")


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"digest": "0" * 64}, 409, "digest differs"),
        ({"confirm": "payments"}, 422, "type exactly that"),
        ({"reason": ""}, 422, "A reason is required"),
        ({"reason": "\0"}, 422, "NUL"),
    ],
)
def test_anything_else_is_a_problem_that_says_what(
    prod: Cluster, sent: list[Any], fields: dict[str, str], status: int, said: str
) -> None:
    action = factories.planned_action()
    problem = Caller("operator").post(f"actions/{action.pk}/execute", execution(action, **fields), status)
    assert problem["status"] == status
    assert said in problem["detail"]
    assert not sent


def test_an_expired_plan_is_gone(prod: Cluster) -> None:
    action = factories.planned_action(factories.plan(made_ms=factories.now_ms() - LIVES_MS))
    operator = Caller("operator")
    assert operator.get(f"actions/{action.pk}")["executable"] is False
    problem = operator.post(f"actions/{action.pk}/execute", execution(action), 410)
    assert "make a new one" in problem["detail"]


def test_a_plan_where_all_is_refused_cannot_be_executed(prod: Cluster) -> None:
    action = factories.planned_action(
        factories.plan(factories.refused_subject("payments-7", factories.HEALTHY))
    )
    operator = Caller("operator")
    told = operator.get(f"actions/{action.pk}")
    assert told["executable"] is False
    assert told["subjects"][0]["refusals"][0]["forceable"] is True
    problem = operator.post(f"actions/{action.pk}/execute", execution(action), 422)
    assert "every subject is refused" in problem["detail"]


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ({"cluster": "nowhere"}, 404, "No cluster “nowhere” is configured."),
        ({"act": "explode"}, 422, "act"),
        ({"subjects": []}, 422, "subjects"),
        ({"subjects": [f"id-{n}" for n in range(51)]}, 422, "subjects"),
        ({"force": True}, 403, "needs the role admin"),
        ({}, 409, "No plan can be made for prod"),
    ],
)
def test_no_plan_is_a_problem_that_says_why(
    prod: Cluster, asked: dict[str, Any], status: int, said: str
) -> None:
    problem = Caller("operator").post("actions/plan", PLAN | asked, status)
    assert said in problem["detail"]
    assert not Action.objects.exists()


def test_read_only_refuses_everybody(prod: Cluster, sent: list[Any], settings: Any) -> None:
    settings.READ_ONLY = True
    action, admin = factories.planned_action(), Caller("admin")
    assert "READ_ONLY" in admin.post("actions/plan", PLAN, 403)["detail"]
    assert "READ_ONLY" in admin.post(f"actions/{action.pk}/execute", execution(action), 403)["detail"]
    assert admin.get(f"actions/{action.pk}")["id"] == action.pk
    assert not sent


def test_a_read_only_cluster_refuses_and_the_others_do_not(prod: Cluster, settings: Any) -> None:
    admin = Caller("admin")
    action = factories.planned_action()
    kept = settings.FENCELINE.clusters["prod"]
    settings.FENCELINE = Config(clusters={"prod": replace(kept, read_only=True)})
    for path, body in ("actions/plan", PLAN), (f"actions/{action.pk}/execute", execution(action)):
        assert "Cluster prod is read_only" in admin.post(path, body, 403)["detail"]
    assert "No cluster" in admin.post("actions/plan", {**PLAN, "cluster": "elsewhere"}, 404)["detail"]


def test_a_session_must_bring_its_csrf_token_and_a_bearer_need_not(prod: Cluster, sent: list[Any]) -> None:
    action, caller = factories.planned_action(), Caller("operator", session=True)
    path = f"actions/{action.pk}/execute"
    assert "CSRF" in caller.post(path, execution(action), 403)["detail"]
    assert "CSRF" in caller.post("actions/plan", PLAN, 403)["detail"]
    assert not sent
    caller.client.get("/actions")  # Any page sets the cookie.
    token = caller.client.cookies["csrftoken"].value
    told = caller.post(path, execution(action), 202, **{"X-CSRFToken": token})
    assert told["executed_by"] == "user-operator"
    other = factories.planned_action()
    Caller("operator").post(f"actions/{other.pk}/execute", execution(other), 202)
    assert len(sent) == 2


def test_a_token_that_nobody_knows_is_no_session_either(prod: Cluster, sent: list[Any]) -> None:
    action, caller = factories.planned_action(), Caller("operator", session=True)
    caller.headers["Authorization"] = "Bearer nobody"
    problem = caller.post(f"actions/{action.pk}/execute", execution(action), 401)
    assert "create_token" in problem["detail"]
    caller.get("actions", 401)
    assert not sent
