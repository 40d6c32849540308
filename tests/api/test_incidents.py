"""Proves the API of incidents: filters, ranges, cursors, one incident with its history, who may write; and
of alerts, silences, channels and deliveries: who may what, and that it tells no secret."""

import json
from typing import Any

import pytest

from dashboard.api.schemas import format_iso
from dashboard.config import ClusterConfig, Config
from dashboard.models import (
    Channel,
    Cluster,
    FindingRecord,
    Incident,
    IncidentEvent,
    IncidentFinding,
    Silence,
)
from fenceline.alerts.engine import Alerting
from tests.api.conftest import Ask, Call
from tests.cases import cases
from tests.receivers import Receiver
from tests.web import factories

pytestmark = pytest.mark.django_db
HOUR_MS = 3_600_000


def member(row: Incident, of: FindingRecord, role: str, **columns: Any) -> IncidentFinding:
    return IncidentFinding.objects.create(
        incident=row,
        finding=of.pk,
        rule=of.rule,
        subject=of.subject,
        role=role,
        severity="info",
        summary="as it came in",
        since_ms=row.opened_ms,
        **columns,
    )


@pytest.fixture
def story(prod: Cluster) -> Incident:
    """An open incident with an effect that a second one shares, and one that has left."""
    cause = factories.finding(prod, "transaction:payments-7", summary="payments-7 is open")
    row = factories.incident(prod, facts=factories.facts_of([cause]))
    other = factories.incident(prod, subject="transaction:orders-1")
    shared = factories.finding(prod, "partition:payments-0", rule="lso_pinned")
    gone = factories.finding(prod, "group:billing", rule="group_stalled")
    member(row, cause, "cause")
    for each in (row, other):
        member(each, shared, "effect")
    member(row, gone, "effect", until_ms=factories.now_ms())
    gone.delete()
    IncidentEvent.objects.create(incident=row, at_ms=row.opened_ms, kind="opened")
    return row


def numbers(answer: Any) -> list[int]:
    return [each["number"] for each in answer["items"]]


def test_a_list_carries_items_next_as_of_and_gaps(ask: Ask, story: Incident) -> None:
    body = ask("incidents")
    assert set(body) == {"items", "next", "as_of", "gaps"}
    assert body["as_of"]
    told = body["items"][-1]
    assert (told["number"], told["state"], told["summary"]) == (story.pk, "open", "payments-7 is open")
    assert told["impact"]["backlog"] is None
    assert told["deadline_at"] is None


def test_filters(ask: Ask, prod: Cluster) -> None:
    closed = factories.incident(prod, closed_ms=factories.now_ms(), severity="critical")
    opened = factories.incident(prod)
    other = Cluster.objects.create(name="other", configured=True)
    factories.incident(other)
    factories.incident(Cluster.objects.create(name="gone", configured=False))
    assert numbers(ask("incidents?cluster=prod")) == [opened.pk]
    assert numbers(ask("incidents?cluster=prod&state=all")) == [opened.pk, closed.pk]
    assert numbers(ask("incidents?state=closed")) == [closed.pk]
    assert numbers(ask("incidents?state=all&severity=critical")) == [closed.pk]
    assert len(numbers(ask("incidents"))) == 2


def test_a_range_has_what_was_open_in_it(ask: Ask, prod: Cluster) -> None:
    start_ms = factories.now_ms() // 1_000 * 1_000 - 24 * HOUR_MS
    over = factories.incident(prod, opened_ms=start_ms, closed_ms=start_ms + HOUR_MS)
    long = factories.incident(prod, opened_ms=start_ms + 2 * HOUR_MS)
    for first, last, expected in (
        (-2, -1, []),
        (-1, 0, []),
        (0, 1, [over.pk]),
        (1, 2, [over.pk]),
        (0.5, 2.5, [long.pk, over.pk]),
        (3, 4, [long.pk]),
    ):
        begin, end = (format_iso(int(start_ms + hours * HOUR_MS)) for hours in (first, last))
        assert numbers(ask(f"incidents?state=all&from={begin}&to={end}")) == expected, (first, last)
    assert "query.to: " in ask(f"incidents?from={end}&to={begin}", 422)["detail"]


def test_one_incident_with_its_findings_and_history(ask: Ask, story: Incident) -> None:
    told = ask(f"incidents/{story.pk}")
    assert (told["cause"]["subject"], told["cause"]["evidence"] != "") == ("transaction:payments-7", True)
    (effect,) = told["effects"]
    assert (effect["rule"], effect["also_blocked_by"]) == ("lso_pinned", [story.pk + 1])
    assert told["also_blocked_by"] == [story.pk + 1]
    (past,) = told["past"]
    assert (past["rule"], past["summary"], past["evidence"]) == ("group_stalled", "as it came in", "")
    assert past["until"]
    assert [each["kind"] for each in told["history"]] == ["opened"]


def test_an_operator_acknowledges_and_writes_notes(call: Call, story: Incident) -> None:
    told = call("post", f"incidents/{story.pk}/acknowledge", {}, role="operator")
    by, at = told["acknowledged_by"], told["acknowledged_at"]
    assert by
    assert at
    again = call("post", f"incidents/{story.pk}/acknowledge", {}, role="admin")
    assert (again["acknowledged_by"], again["acknowledged_at"]) == (by, at)
    noted = call("post", f"incidents/{story.pk}/notes", {"text": " <b>restarted</b> "}, role="operator")
    last = noted["history"][-1]
    assert (last["kind"], last["actor"], last["text"]) == ("note", by, "<b>restarted</b>")


@pytest.mark.parametrize("text", ["", "   ", "nul\0", "x" * 5_001, None, 7])
def test_a_note_that_cannot_be_used_is_refused(call: Call, story: Incident, text: object) -> None:
    call("post", f"incidents/{story.pk}/notes", {"text": text}, role="operator", status=422)
    assert IncidentEvent.objects.count() == 1


def test_a_closed_incident_is_not_acknowledged(call: Call, story: Incident) -> None:
    Incident.objects.update(closed_ms=factories.now_ms())
    call("post", f"incidents/{story.pk}/acknowledge", {}, role="operator", status=409)
    assert call("post", f"incidents/{story.pk}/notes", {"text": "over"}, role="operator")


def test_a_list_of_100_costs_a_few_queries(
    ask: Ask, prod: Cluster, django_assert_max_num_queries: Any
) -> None:
    rows = [factories.incident(prod) for _ in range(100)]
    cause = factories.finding(prod, "transaction:payments-7")
    for row in rows:
        member(row, cause, "cause")
    with django_assert_max_num_queries(12):
        assert len(ask("incidents")["items"]) == 100


def test_the_deadline_is_that_of_its_findings(ask: Ask, story: Incident) -> None:
    deadline_ms = factories.now_ms() + 50_000
    Incident.objects.filter(pk=story.pk).update(deadline_ms=deadline_ms)
    FindingRecord.objects.filter(subject="transaction:payments-7").update(deadline_ms=deadline_ms)
    at = format_iso(deadline_ms)
    assert [each["deadline_at"] for each in ask("findings?subject=transaction:payments-7")["items"]] == [at]
    assert ask(f"incidents/{story.pk}")["deadline_at"] == at
    assert [each["deadline_at"] for each in ask("incidents")["items"]] == [None, at]


SILENCE = {"matchers": 'alertname="open_too_long"', "reason": "maintenance", "duration_s": 3600}


@pytest.fixture
def prod(settings: Any, prod: Cluster) -> Cluster:
    clusters = {"prod": ClusterConfig("prod", {"bootstrap.servers": "127.0.0.1:1"})}
    settings.FENCELINE = Config(
        clusters=clusters, alerts=Alerting(allow_private=("127.0.0.0/8",), timeout_s=5)
    )
    return prod


def test_an_alert_is_told_with_why_it_is_loud_or_quiet(ask: Ask, prod: Cluster) -> None:
    ops = factories.channel()
    sent = factories.delivery(ops)
    loud = factories.alert(prod, labels={"team": "Payments"}, told=[[ops.pk, sent.pk, 1]])
    factories.alert_change(loud, [ops.pk, "delivery", sent.pk])
    quiet = factories.alert(prod, "group:billing", quiet=[["silenced", "#7", "by ada"]])
    second, first = ask("alerts")["items"]
    assert first["told"] == [
        {
            "channel_id": ops.pk,
            "channel": "ops",
            "delivery_id": sent.pk,
            "delivery_state": "delivered",
            "why": "",
        }
    ]
    assert (first["labels"]["team"], first["quiet"], first["state"]) == ("Payments", [], "firing")
    assert second["quiet"] == [{"kind": "silenced", "by": "7", "words": "by ada"}]
    detail = ask(f"alerts/{loud.pk}")
    assert {name: detail[name] for name in first} == first
    (change,) = detail["changes"]
    assert (change["old"], change["new"], change["settled"]) == ("pending", "firing", True)
    assert change["fates"] == first["told"]
    assert ask(f"alerts/{quiet.pk}")["changes"] == []


def test_what_fires_is_listed_by_its_subject_and_a_former_name_of_its_rule(ask: Ask, prod: Cluster) -> None:
    """tests/web/test_alerts.py has the filters of page and API."""
    factories.alert(prod, "transaction:a")
    late = factories.alert(prod, "transaction:b", rule="coordinator_overdue")
    factories.alert(prod, "transaction:c", "resolved", rule="coordinator_overdue")
    for query in ("subject=transaction:b", "rule=late"):
        assert [row["id"] for row in ask(f"alerts?{query}")["items"]] == [late.pk], query


def test_a_silence_is_made_and_ended(call: Call) -> None:
    made = call("post", "silences", SILENCE, role="operator", status=201)
    assert (made["state"], made["created_by"], made["ended_by"]) == ("active", "token ci-operator", "")
    assert made["matchers"] == [{"label": "alertname", "operator": "=", "value": "open_too_long"}]
    ended = call("delete", f"silences/{made['id']}", role="operator")
    assert (ended["state"], ended["ended_by"]) == ("expired", "token ci-operator")
    assert call("delete", f"silences/{made['id']}", role="admin")["ended_by"] == "token ci-operator"
    assert [row["id"] for row in call("get", "silences?state=expired")["items"]] == [made["id"]]


def test_matchers_are_text_or_a_list(call: Call) -> None:
    matchers = [{"label": "team", "operator": "=~", "value": "Pay.*"}, {"label": "cluster", "value": "prod"}]
    made = call("post", "silences", SILENCE | {"matchers": matchers}, status=201)
    assert made["matchers"] == [matchers[0], {"label": "cluster", "operator": "=", "value": "prod"}]
    body = SILENCE | {"starts_at": "2099-01-01T00:00:00Z", "ends_at": "2099-01-02T00:00:00Z"}
    assert call("post", "silences", body, status=422)["errors"][0]["in"] == "body.starts"


@cases(
    ({"matchers": "x"}, "body.matchers"),
    ({"matchers": [{"label": "team", "operator": "~", "value": "x"}]}, "body.matchers"),
    ({"matchers": [{"label": "colour", "value": "x"}]}, "body.matchers"),
    ({"matchers": [{"label": "team", "operator": "=~", "value": "("}]}, "body.matchers"),
    ({"matchers": [{"label": "team", "value": "a\0"}]}, "body.matchers"),
    ({"matchers": []}, "body.matchers"),
    ({"matchers": [{"label": "team", "value": "x"}] * 30}, "body.matchers"),
    ({"reason": ""}, "body.reason"),
    ({"reason": "\0"}, "body.reason"),
    ({"duration_s": None}, "body.ends"),
    ({"ends_at": "2020-01-01T00:00:00Z"}, "body.ends"),
    ({"starts_at": "2020-01-01T00:00:00Z"}, "body.starts"),
    ({"duration_s": 1e8}, "body.ends"),
)
def test_what_cannot_be_a_silence_is_a_422_that_names_the_field(
    call: Call, asked: dict[str, Any], field: str
) -> None:
    body = call("post", "silences", SILENCE | asked, status=422)
    assert [each["in"] for each in body["errors"]] == [field]
    assert body["detail"]
    assert not Silence.objects.exists()


@cases({"duration_s": -1}, {"duration_s": 1e300}, {"reason": 7}, {"matchers": "x" * 60_000})
def test_what_has_the_wrong_shape_is_a_422(call: Call, asked: dict[str, Any]) -> None:
    assert call("post", "silences", SILENCE | asked, status=422)["errors"]


def test_a_channel_lives(call: Call, receiver: Receiver) -> None:
    made = call(
        "post",
        "channels",
        {"name": "ops", "kind": "webhook", "url": f"{receiver.url}?key=abcdefgh"},
        status=201,
    )
    number, secret = made["id"], made.pop("secret")
    assert secret == Channel.objects.get().secret
    assert made["url"] == f"{receiver.url}?key=***"
    assert call("get", f"channels/{number}") == made
    expected = (True, True, "warning", True)
    assert (made["signs"], made["enabled"], made["min_severity"], made["send_resolved"]) == expected
    tested = call("post", f"channels/{number}/test", role="operator")
    assert (tested["state"], tested["origin"], tested["tries"][0]["status"]) == ("delivered", "test", 200)
    assert receiver.received[0].verified(secret)["receiver"] == "ops"
    changed = call(
        "patch", f"channels/{number}", {"min_severity": "critical", "group_wait_s": 2, "matchers": 'team="x"'}
    )
    assert changed == made | {
        "min_severity": "critical", "group_wait_s": 2.0,
        "matchers": [{"label": "team", "operator": "=", "value": "x"}],
    }  # fmt: skip
    assert call("patch", f"channels/{number}", {"group_wait_s": None})["group_wait_s"] is None
    new = call("post", f"channels/{number}/secret", status=201)["secret"]
    assert new == Channel.objects.get().secret != secret
    assert call("get", f"channels/{number}")["two_secrets"]
    assert "end it first" in call("post", f"channels/{number}/secret", status=409)["detail"]
    assert not call("delete", f"channels/{number}/secret/old")["two_secrets"]
    off = call("patch", f"channels/{number}", {"enabled": False})
    assert (off["enabled"], off["disabled_why"]) == (False, "Disabled by token ci-admin.")
    on = call("patch", f"channels/{number}", {"enabled": True, "name": "night"})
    assert (on["enabled"], on["name"], on["disabled_why"]) == (True, "night", "")
    assert call("delete", f"channels/{number}", status=204) is None
    assert not Channel.objects.exists()


@cases(
    ({"name": "taken"}, "body.name"),
    ({"kind": "pigeon"}, "body.kind"),
    ({"url": "http://10.0.0.1/"}, "body.url"),
    ({"min_severity": "fatal"}, "body.min_severity"),
    ({"matchers": "team"}, "body.matchers"),
    ({"group_by": ["colour"]}, "body.group_by"),
    ({"group_by": ["a\0"]}, "body.group_by"),
    ({"group_wait_s": -1}, "body.group_wait_s"),
    ({"repeat_interval_s": 1e12}, "body.repeat_interval_s"),
)
def test_what_cannot_be_a_channel_is_a_422_that_names_the_field(
    call: Call, receiver: Receiver, asked: dict[str, Any], field: str
) -> None:
    factories.channel("taken")
    body = {"name": "ops", "kind": "webhook", "url": receiver.url} | asked
    told = call("post", "channels", body, status=422)
    assert [each["in"] for each in told["errors"]] == [field]
    assert Channel.objects.count() == 1
    if field != "body.kind":
        number = factories.channel("other").pk
        told = call("patch", f"channels/{number}", asked, status=422)
        assert [each["in"] for each in told["errors"]] == [field]


def test_nothing_but_making_tells_a_secret(call: Call) -> None:
    hook = factories.channel(old_secret=f"{factories.SECRET}old")
    chat = factories.channel(
        "chat", kind="apprise", url=f"slack://{factories.TOKEN}/{factories.TOKEN}", secret=""
    )
    row = factories.delivery(hook)
    factories.delivery(chat)
    told = [
        call("get", path) for path in ("channels", f"channels/{hook.pk}", f"channels/{chat.pk}", "deliveries")
    ]
    told += [call("get", f"deliveries/{row.pk}"), call("patch", f"channels/{hook.pk}", {"name": "x"})]
    text = json.dumps(told)
    assert factories.SECRET[6:20] not in text
    assert factories.TOKEN not in text


def test_a_delivery_is_told_whole_and_sent_again(call: Call) -> None:
    row = factories.delivery(factories.channel(), "failed", held={"firing": ["ab" * 32], "resolved": []})
    told = call("get", f"deliveries/{row.pk}")
    assert (told["firing"], told["firing_alerts"], told["payload"]) == (1, ["ab" * 32], row.payload)
    (tried,) = told["tries"]
    assert (tried["status"], tried["took_ms"], tried["body"]) == (500, 34, "<b>boom</b>")
    assert tried["request_headers"]["webhook-id"] == "msg_1"
    again = call("post", f"deliveries/{row.pk}/again", role="operator", status=201)
    assert (again["message_id"], again["origin"], again["state"]) == (row.message_id, "again", "pending")
    told = call("post", f"deliveries/{again['id']}/again", status=409)
    assert "still being sent" in told["detail"]
