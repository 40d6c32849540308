"""Proves `plan` and `execute`: a preview, the typed confirmation of a person, and what came of it."""

import json
import shlex
from typing import Any

import pytest
import requests

from dashboard.actions import execute, planning
from dashboard.models import Action, Cluster
from fenceline.plans.plan import LIVES_MS
from tests.client.conftest import Fenceline
from tests.client.program import terminal
from tests.receivers import Manner, Receiver, answer, raw
from tests.web import factories

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("operator")]
REASON = ("--reason", "ticket 4411")


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has done what it is sent before the API answers."""

    def work(name: str, args: Any, **_: Any) -> None:
        done = factories.action_result("transaction:payments-7", "done", factories.now_ms())
        Action.objects.filter(pk=args[0]).update(state="done", results=[done])

    monkeypatch.setattr(execute.app, "send_task", work)


def test_a_plan_is_made_by_the_server_and_shown(fenceline: Fenceline, prod: Cluster, server: str) -> None:
    factories.transaction(prod, "payments-7")
    done = fenceline("plan", "fence", "payments-7", *REASON)
    # No broker is there: the planner says so in one line.
    assert done.status == 2
    assert "answered 409" in done.error
    assert not Action.objects.exists()


def test_a_plan_is_shown_with_the_command_that_executes_it(
    fenceline: Fenceline, prod: Cluster, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "make_plan", lambda *_, **__: factories.plan())
    done = fenceline("plan", "fence", "payments-7", "--reason", "billing's ticket")
    row = Action.objects.get()
    assert (done.status, done.err) == (0, "")
    assert f"page        {server}/actions/{row.pk}" in done.out
    assert f"digest      {row.digest}" in done.out
    command = done.out.splitlines()[-1].partition("next        ")[2]
    assert shlex.split(command) == ["fenceline", "execute", str(row.pk), "--reason", "billing's ticket"]
    refused = factories.plan(factories.refused_subject("payments-7", factories.PREPARE))
    monkeypatch.setattr(planning, "make_plan", lambda *_, **__: refused)
    done = fenceline("plan", "fence", "payments-7", "--cluster", "prod")
    assert (done.status, done.err) == (1, "")
    assert f"refused     {factories.PREPARE.words}" in done.out
    forced = fenceline("plan", "fence", "payments-7", "--force")
    assert "answered 403: token ci-operator may not do this: it needs the role admin" in forced.error


def test_what_the_planner_needs_is_said_before(fenceline: Fenceline, prod: Cluster) -> None:
    factories.cluster("staging")
    expected = "Name the cluster by --cluster. Known are: prod, staging."
    assert fenceline("plan", "fence", "payments-7").error == expected
    assert "Invalid value for '{fence|" in fenceline("plan", "abort", "payments-7").error
    assert "Missing argument 'SUBJECT" in fenceline("plan", "fence").error


def test_a_person_types_what_the_plan_asks_for(prod: Cluster, worker: None, server: str) -> None:
    row = factories.planned_action()
    with terminal("execute", str(row.pk)) as screen:
        screen.wait_for("Reason (recorded in the audit log): ")
        screen.type("ticket 4411")
        screen.wait_for("Type payments-7: ")
        screen.type("payments-7")
        assert screen.status() == 0
    for words in (
        f"Plan {row.pk}: fence on prod, planned",
        "InitProducerId: To the coordinator of payments-7",
        factories.RELEASED,
        row.digest,
        f"{server}/actions/{row.pk}",
        "in 4 min",
        "payments-7: done: its coordinator fenced epoch 3",
        f"Action {row.pk}: done",
    ):
        assert words in screen.text
    row.refresh_from_db()
    assert (row.executed_by, row.reason) == ("token ci-operator", "ticket 4411")


def test_another_text_sends_nothing(prod: Cluster, sent: list[Any]) -> None:
    row = factories.planned_action()
    with terminal("execute", str(row.pk), *REASON) as screen:
        screen.wait_for("Type payments-7: ")
        screen.type("payments-8")
        assert screen.status() == 2
    assert "The text is not payments-7: nothing was sent. Type exactly that." in screen.text
    row.refresh_from_db()
    assert (sent, row.state) == ([], "planned")


def test_ctrl_c_at_the_prompt_sends_nothing(prod: Cluster, sent: list[Any]) -> None:
    row = factories.planned_action()
    with terminal("execute", str(row.pk), *REASON) as screen:
        screen.wait_for("Type payments-7: ")
        screen.press_ctrl_c()
        assert screen.status() == 130
    assert sent == []


@pytest.mark.parametrize("given", [(), REASON, ("--confirm", "payments-7")])
def test_without_a_person_both_texts_are_required(
    fenceline: Fenceline, prod: Cluster, sent: list[Any], given: tuple[str, ...]
) -> None:
    row = factories.planned_action()
    done = fenceline("execute", str(row.pk), *given)
    assert done.status == 2
    assert done.error.startswith(
        "Nobody can be asked without a terminal or with --json, so nothing was sent."
    )
    assert sent == []


def test_a_script_gives_the_exact_text(fenceline: Fenceline, prod: Cluster, worker: None) -> None:
    row = factories.planned_action()
    wrong = fenceline("execute", str(row.pk), *REASON, "--confirm", "PAYMENTS-7")
    assert (wrong.status, wrong.error) == (
        2, "The text is not payments-7: nothing was sent. Type exactly that.",
    )  # fmt: skip
    done = fenceline("execute", str(row.pk), *REASON, "--confirm", "payments-7", "--json")
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out)["state"] == "done"


def test_an_action_that_goes_on_is_named(
    fenceline: Fenceline, prod: Cluster, sent: list[Any], server: str
) -> None:
    row = factories.planned_action()
    done = fenceline("execute", str(row.pk), *REASON, "--confirm", "payments-7", "--wait", "1")
    assert (done.status, len(sent)) == (2, 1)
    assert done.error == f"A worker still executes it. See {server}/actions/{row.pk}"


def test_a_plan_that_cannot_be_executed_is_shown_and_refused(
    fenceline: Fenceline, prod: Cluster, sent: list[Any]
) -> None:
    refused = factories.planned_action(factories.refused_subject("payments-7", factories.HEALTHY))
    expired = factories.planned_action(expires_ms=factories.now_ms() - LIVES_MS)
    finished = factories.executed_action()
    for row, words in (
        (refused, "is refused or has expired"), (expired, "is refused or has expired"),
        (finished, "is done already"),
    ):  # fmt: skip
        done = fenceline("execute", str(row.pk), *REASON, "--confirm", "payments-7")
        assert done.status == 2
        assert words in done.error
    assert factories.HEALTHY.words in fenceline("execute", str(refused.pk)).out
    assert sent == []


def test_a_lost_answer_says_that_a_repetition_is_harmless(
    fenceline: Fenceline, prod: Cluster, server: str, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = factories.planned_action()
    plan = requests.get(
        f"{server}/api/v1/actions/{row.pk}", headers={"Authorization": f"Bearer {operator}"}, timeout=60
    )
    shown = answer(200, plan.content, content_type="application/json")
    with Receiver(manners=[shown], usually=raw()) as there:
        monkeypatch.setenv("FENCELINE_URL", there.url.removesuffix("/hook"))
        done = fenceline("execute", str(row.pk), *REASON, "--confirm", "payments-7")
    assert done.status == 2
    assert done.error.endswith(
        f"Whether plan {row.pk} is executed is not known. Repeat the command: a plan is executed only once."
    )


def test_a_poll_without_an_answer_is_repeated(
    fenceline: Fenceline, prod: Cluster, server: str, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = factories.planned_action()
    url, headers = f"{server}/api/v1/actions/{row.pk}", {"Authorization": f"Bearer {operator}"}

    def shown(state: str) -> Manner:
        Action.objects.filter(pk=row.pk).update(state=state)
        body = requests.get(url, headers=headers, timeout=60).content
        return answer(200, body, content_type="application/json", connection="close")

    planned, executing, done = map(shown, ("planned", "executing", "done"))
    with Receiver(manners=[planned, executing, raw(), answer(503), done]) as there:
        monkeypatch.setenv("FENCELINE_URL", there.url.removesuffix("/hook"))
        ended = fenceline("execute", str(row.pk), *REASON, "--confirm", "payments-7")
    assert (ended.status, ended.err) == (0, "")
