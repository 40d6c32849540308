"""Proves the API of acting: an action in full, plan, execute with its digest, whom CSRF is checked for."""

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from dashboard.config import ClusterConfig, Config
from dashboard.models import Action, Cluster
from fenceline.plans.plan import LIVES_MS
from tests.api.conftest import Call
from tests.cases import cases
from tests.web import factories, roles

pytestmark = pytest.mark.django_db
PLAN = {"cluster": "prod", "act": "fence", "subjects": ["payments-7"]}


@pytest.fixture
def prod(settings: Any, prod: Cluster) -> Cluster:
    settings.FENCELINE = Config(
        clusters={"prod": ClusterConfig("prod", {"bootstrap.servers": "127.0.0.1:1"})}
    )
    return prod


def post(client: Client, path: str, body: Any, status: int, **headers: str) -> Any:
    answer = client.post(f"/api/v1/{path}", body, "application/json", headers=headers)
    assert answer.status_code == status, answer.content
    return answer.json()


def execution(action: Action, **fields: str) -> dict[str, str]:
    said = {"digest": action.digest, "confirm": action.plan["confirm"], "reason": "ticket 4411"}
    return said | fields


def test_an_action_is_told_whole(call: Call, prod: Cluster) -> None:
    action = factories.executed_action(
        factories.plan(factories.fence_subject(), factories.refused_subject("orders-2", factories.PREPARE)),
        "done",
        "skipped",
        state="partly",
    )
    episode = factories.recovery(prod, "payments-7", opened_ms=factories.now_ms() - 3_500)
    factories.action_transition(episode, action)
    told = call("get", f"actions/{action.pk}", role="viewer")
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


def test_a_plan_is_executed_with_what_was_seen_and_once(call: Call, sent: list[Any]) -> None:
    action = factories.planned_action()
    path, said = f"actions/{action.pk}/execute", execution(action)
    told = call("post", path, said, role="operator", status=202)
    assert (told["state"], told["executed_by"]) == ("executing", "token ci-operator")
    assert told["reason"] == "ticket 4411"
    assert call("post", path, said, role="operator", status=202)["id"] == action.pk
    assert len(sent) == 1
    other = call("post", path, said, status=409)
    assert "token ci-operator executes this plan right now" in other["detail"]


@cases(
    ({"digest": "0" * 64}, 409, "digest differs"),
    ({"confirm": "payments"}, 422, "type exactly that"),
    ({"reason": "\0"}, 422, "NUL"),
)
def test_what_is_not_confirmed_rightly_is_a_problem(
    call: Call, sent: list[Any], fields: dict[str, str], status: int, said: str
) -> None:
    action = factories.planned_action()
    problem = call("post", f"actions/{action.pk}/execute", execution(action, **fields), status=status)
    assert problem["status"] == status
    assert said in problem["detail"]
    assert not sent


def test_a_plan_that_cannot_be_executed_says_so(call: Call) -> None:
    expired = factories.planned_action(factories.plan(made_ms=factories.now_ms() - LIVES_MS))
    refused = factories.planned_action(factories.refused_subject("payments-7", factories.HEALTHY))
    for action, status in ((expired, 410), (refused, 422)):
        assert call("get", f"actions/{action.pk}")["executable"] is False
        call("post", f"actions/{action.pk}/execute", execution(action), status=status)
    (subject,) = call("get", f"actions/{refused.pk}")["subjects"]
    assert subject["refusals"][0]["forceable"] is True


def test_another_person_confirms_where_two_are_asked_for(call: Call, sent: list[Any], settings: Any) -> None:
    settings.FENCELINE = replace(settings.FENCELINE, second_person=frozenset({"fence"}))
    operator, admin = map(roles.client_with_role, ("operator", "admin"))
    action = factories.planned_action(planned_by="the operator")
    path, said = f"actions/{action.pk}/execute", execution(action)
    assert "the operator planned it, somebody else confirms it" in post(operator, path, said, 403)["detail"]
    assert "somebody else confirms it" in operator.get(f"/actions/{action.pk}").content.decode()
    assert "a person confirms it" in call("post", path, said, status=403)["detail"]
    assert not sent
    of_token = factories.planned_action(planned_by="token ci-operator")
    alone = post(operator, f"actions/{of_token.pk}/execute", execution(of_token), 403)
    assert "a token planned it" in alone["detail"]
    told = post(admin, path, said, 202)
    assert (told["planned_by"], told["executed_by"]) == ("the operator", "the admin")


@cases(
    ({"cluster": "nowhere"}, 404, "No cluster “nowhere” is configured."),
    ({"act": "explode"}, 422, "act"),
    ({"subjects": []}, 422, "subjects"),
    ({"subjects": [f"id-{n}" for n in range(51)]}, 422, "subjects"),
    ({"force": True}, 403, "needs the role admin"),
    ({}, 409, "No plan can be made for prod"),
)
def test_no_plan_is_a_problem_that_says_why(
    call: Call, asked: dict[str, Any], status: int, said: str
) -> None:
    problem = call("post", "actions/plan", PLAN | asked, role="operator", status=status)
    assert said in problem["detail"]
    assert not Action.objects.exists()


def test_a_read_only_cluster_refuses_and_the_others_do_not(call: Call, settings: Any) -> None:
    action = factories.planned_action()
    kept = settings.FENCELINE.clusters["prod"]
    settings.FENCELINE = Config(clusters={"prod": replace(kept, read_only=True)})
    for path, body in ("actions/plan", PLAN), (f"actions/{action.pk}/execute", execution(action)):
        assert "Cluster prod is read_only" in call("post", path, body, status=403)["detail"]
    elsewhere = call("post", "actions/plan", {**PLAN, "cluster": "elsewhere"}, status=404)
    assert "No cluster" in elsewhere["detail"]


def test_a_session_must_bring_its_csrf_token_and_a_bearer_need_not(call: Call, sent: list[Any]) -> None:
    action, client = factories.planned_action(), Client(enforce_csrf_checks=True)
    client.cookies = roles.client_with_role("operator").cookies
    path = f"actions/{action.pk}/execute"
    assert "CSRF" in post(client, path, execution(action), 403)["detail"]
    assert "CSRF" in post(client, "actions/plan", PLAN, 403)["detail"]
    assert not sent
    client.get("/actions")  # Any page sets the cookie.
    token = client.cookies["csrftoken"].value
    told = post(client, path, execution(action), 202, **{"X-CSRFToken": token})
    assert told["executed_by"] == "the operator"
    other = factories.planned_action()
    call("post", f"actions/{other.pk}/execute", execution(other), status=202)
    assert len(sent) == 2


def test_a_token_that_nobody_knows_is_no_session_either(prod: Cluster, sent: list[Any]) -> None:
    action, client = factories.planned_action(), roles.client_with_role("operator")
    said = execution(action)
    problem = post(client, f"actions/{action.pk}/execute", said, 401, Authorization="Bearer nobody")
    assert "create_token" in problem["detail"]
    assert client.get("/api/v1/actions", headers={"Authorization": "Bearer nobody"}).status_code == 401
    assert not sent
