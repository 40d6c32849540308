"""Proves the API of acting: an action in full, plan, execute with its digest, whom CSRF is checked for."""

import json
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from dashboard.config import ClusterConfig, Config
from dashboard.models import Action, Cluster, Token
from dashboard.system.tokens import token_digest
from fenceline.plans.plan import LIVES_MS
from tests.web import factories, roles
from tests.web.action_fixtures import sent

__all__ = ["sent"]

pytestmark = pytest.mark.django_db
PLAN = {"cluster": "prod", "act": "fence", "subjects": ["payments-7"]}


@pytest.fixture
def prod(settings: Any, prod: Cluster) -> Cluster:
    settings.FENCELINE = Config(
        clusters={"prod": ClusterConfig("prod", {"bootstrap.servers": "127.0.0.1:1"})}
    )
    return prod


class Caller:
    """Asks the API with a token, or with the session of a user who has its role."""

    def __init__(self, role: str, *, session: bool = False) -> None:
        self.client = Client(enforce_csrf_checks=True)
        self.headers: dict[str, str] = {}
        if session:
            self.client.cookies = roles.client_with_role(role).cookies
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


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"digest": "0" * 64}, 409, "digest differs"),
        ({"confirm": "payments"}, 422, "type exactly that"),
        ({"reason": "\0"}, 422, "NUL"),
    ],
)
def test_what_is_not_confirmed_rightly_is_a_problem(
    prod: Cluster, sent: list[Any], fields: dict[str, str], status: int, said: str
) -> None:
    action = factories.planned_action()
    problem = Caller("operator").post(f"actions/{action.pk}/execute", execution(action, **fields), status)
    assert problem["status"] == status
    assert said in problem["detail"]
    assert not sent


def test_a_plan_that_cannot_be_executed_says_so(prod: Cluster) -> None:
    expired = factories.planned_action(factories.plan(made_ms=factories.now_ms() - LIVES_MS))
    refused = factories.planned_action(factories.refused_subject("payments-7", factories.HEALTHY))
    operator = Caller("operator")
    for action, status in ((expired, 410), (refused, 422)):
        assert operator.get(f"actions/{action.pk}")["executable"] is False
        operator.post(f"actions/{action.pk}/execute", execution(action), status)
    (subject,) = operator.get(f"actions/{refused.pk}")["subjects"]
    assert subject["refusals"][0]["forceable"] is True


def test_another_person_confirms_where_two_are_asked_for(
    prod: Cluster, sent: list[Any], settings: Any
) -> None:
    settings.FENCELINE = replace(settings.FENCELINE, second_person=frozenset({"fence"}))
    operator, other = Caller("operator", session=True), Caller("admin", session=True)
    operator.client.handler.enforce_csrf_checks = other.client.handler.enforce_csrf_checks = False
    action = factories.planned_action(planned_by="the operator")
    alone = operator.post(f"actions/{action.pk}/execute", execution(action), 403)
    assert "the operator planned it, somebody else confirms it" in alone["detail"]
    assert "somebody else confirms it" in operator.client.get(f"/actions/{action.pk}").content.decode()
    program = Caller("admin").post(f"actions/{action.pk}/execute", execution(action), 403)
    assert "a person confirms it" in program["detail"]
    assert not sent
    of_token = factories.planned_action(planned_by="token ci-operator")
    alone = operator.post(f"actions/{of_token.pk}/execute", execution(of_token), 403)
    assert "a token planned it" in alone["detail"]
    told = other.post(f"actions/{action.pk}/execute", execution(action), 202)
    assert (told["planned_by"], told["executed_by"]) == ("the operator", "the admin")


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
    assert told["executed_by"] == "the operator"
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
