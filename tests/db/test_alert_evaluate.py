"""Proves what a tick makes of findings: alerts, messages once each, an outcome for every change, and in how
many queries."""

import random
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.alerts import alert_set
from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.models import Alert, AlertChange, Channel, Cluster, Delivery, FindingRecord, Incident
from fenceline.alerts.engine import Alerting
from fenceline.facts import Finding, Severity
from fenceline.owners import Owner
from tests.db import factories
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import QUERY_ID
from tests.db.scenarios import (
    ALL_RESOLVED,
    FIRST,
    AlertScenario,
    alert,
    channel,
    decisions,
    finding,
    message_reasons,
    scenario,
    silence,
)

pytestmark = pytest.mark.sql

__all__ = ["scenario"]


def test_an_alert_is_notified_once_when_it_fires_and_once_when_it_resolves(scenario: AlertScenario) -> None:
    pager = channel()
    scenario.run_second(finding())
    assert (alert().state, alert().quiet) == ("pending", [["pending", "", "found in 1 of 2 complete ticks"]])
    scenario.run_second(finding())
    assert (alert().state, alert().quiet[0][0]) == ("firing", "grouped")
    scenario.run_seconds(5, finding())
    (sent,) = Delivery.objects.all()
    assert (sent.reason, sent.state, sent.standing) == (FIRST, "delivered", True)
    assert sent.message_id.startswith("msg_")
    assert (alert().quiet, alert().told) == ([], [[pager.pk, sent.pk, sent.made_ms]])
    scenario.run_seconds(5)
    assert (alert().state, message_reasons()) == ("resolved", [FIRST, ALL_RESOLVED])
    assert decisions() == [[[pager.pk, "delivery", row.pk]] for row in Delivery.objects.order_by("pk")]
    assert not AlertChange.objects.filter(processed_at=None).exists()
    assert scenario.run_seconds(10) == 0
    assert not Delivery.objects.filter(standing=True).exists()


def test_the_payload_has_the_format_of_its_channel(scenario: AlertScenario) -> None:
    for kind in Channel.Kind:
        channel(kind.value, kind=kind, group_wait_s=0)
    scenario.run_seconds(3, finding())
    payloads = {row.channel.kind: row.payload for row in Delivery.objects.select_related("channel")}
    assert payloads["webhook"]["alerts"][0]["generatorURL"].endswith("/transactions/prod/payments-7")
    assert payloads["webhook"]["receiver"] == "webhook"
    assert payloads["alertmanager"][0]["labels"]["alertname"] == "coordinator_overdue"
    assert payloads["apprise"]["title"] == f"[FIRING:1] prod coordinator_overdue #{Incident.objects.get().pk}"


def evaluate_a_finding_that_ends(scenario: AlertScenario) -> None:
    for findings in [(finding(),)] * 3 + [()] * 3:
        scenario.evaluate(*findings)


def test_findings_opened_and_closed_between_two_ticks_are_accounted_for(scenario: AlertScenario) -> None:
    pager = channel()
    evaluate_a_finding_that_ends(scenario)
    assert scenario.run_seconds(5) == 0
    assert (alert().state, alert().fired_ms) == ("resolved", alert().resolved_ms)
    why = [[pager.pk, "quiet", "it was over before anybody there was notified"]]
    assert decisions() == [why, [[pager.pk, "quiet", "its firing was not notified there"]]]


def test_an_alert_that_ended_before_the_first_tick_is_not_notified(take: Take) -> None:
    scenario = AlertScenario(take)
    evaluate_a_finding_that_ends(scenario)
    scenario.tick()
    assert not Alert.objects.exists()


def test_a_long_pause_is_caught_up_with_in_portions(
    scenario: AlertScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_set, "AT_ONCE", 3)
    for number in range(10):
        for _ in range(2):
            scenario.evaluate(finding(f"group:g{number}"))
    for _ in range(5):
        scenario.tick()
    assert Alert.objects.filter(fired_ms__isnull=False).count() == 10
    assert AlertChange.objects.filter(new="firing").count() == 10


def test_the_evaluation_counts_ticks(scenario: AlertScenario, settings: Any) -> None:
    settings.FENCELINE = replace(settings.FENCELINE, alerts=Alerting(resolve_ticks=3))
    counts = []
    for findings, blind in (
        ([finding()], False), ([], True), ([finding()], False), ([], False), ([], True), ([], False),
        ([finding()], False), ([], False), ([], False), ([], False), ([], False),
    ):  # fmt: skip
        scenario.evaluate(*findings, blind=blind)
        counts.append([(row.ticks, row.to_miss) for row in FindingRecord.objects.order_by("pk")])
    assert counts == [
        [(1, 0)], [(1, 0)], [(2, 0)], [(2, 2)], [(2, 2)], [(2, 1)],
        [(2, -1), (1, 0)], [(2, -1), (1, 2)], [(2, -1), (1, 1)], [(2, -1), (1, 0)], [(2, -1), (1, 0)],
    ]  # fmt: skip


def test_owners_travel_as_labels(scenario: AlertScenario, settings: Any) -> None:
    owner = Owner("payments-*", "Payments", "#payments", "https://wiki.example")
    settings.FENCELINE = replace(settings.FENCELINE, owners=[owner])
    channel(group_by=["team"], matchers=[["team", "=~", "Pay.*"]])
    scenario.run_seconds(5, finding(), finding("group:other"))
    (sent,) = Delivery.objects.all()
    assert sent.payload["groupLabels"] == {"team": "Payments"}
    assert sent.payload["commonLabels"]["contact"] == "#payments"
    assert alert("group:other").quiet[0][0] == "no_match"


@pytest.mark.parametrize("match", ["orders*", "flc-orders*", QUERY_ID])
def test_a_query_is_its_owner_s_by_name_prefix_or_id(
    scenario: AlertScenario, settings: Any, match: str
) -> None:
    settings.FENCELINE = replace(settings.FENCELINE, owners=[Owner(match, "Orders")])
    factories.query(name="orders", prefix="flc-orders")
    subjects = [f"query:{QUERY_ID}", "query:unknown"]
    scenario.run_seconds(3, *(finding(subject, "query_stalled") for subject in subjects))
    assert [alert(subject).labels.get("team") for subject in subjects] == ["Orders", None]


def test_an_alert_of_a_query_has_its_name_for_people_and_its_id_for_programs(scenario: AlertScenario) -> None:
    channel()
    factories.query(name="orders_enrich")
    subjects = f"query:{QUERY_ID}", "query:unknown"
    scenario.run_seconds(5, *(finding(subject, "batch_slow") for subject in subjects))
    known, unknown = (alert(subject).labels for subject in subjects)
    assert (known["query_name"], known["query"]) == ("orders_enrich", QUERY_ID)
    assert "query_name" not in unknown
    sent = [each["labels"] for row in Delivery.objects.all() for each in row.payload["alerts"]]
    expected = dict(zip(subjects, ("orders_enrich", None), strict=True))
    assert {each["subject"]: each.get("query_name") for each in sent} == expected


def test_an_effect_of_a_query_names_the_query(scenario: AlertScenario) -> None:
    channel()
    factories.query(name="orders_enrich")
    scenario.run_seconds(5, *(finding(f"query:{QUERY_ID}", rule) for rule in ("query_failed", "batch_slow")))
    (why,) = [words for kind, _, words in Alert.objects.get(rule="batch_slow").quiet if kind == "inhibited"]
    assert "query orders_enrich" in why


def test_a_flapping_alert_is_notified_once(scenario: AlertScenario, settings: Any) -> None:
    settings.FENCELINE = replace(settings.FENCELINE, alerts=Alerting(flap_openings=3, flap_s=60))
    channel(group_interval_s=1)
    for _ in range(8):
        scenario.run_seconds(4, finding())
        scenario.run_seconds(4)
    assert alert().flapping_ms is not None
    assert message_reasons() == [FIRST, ALL_RESOLVED, FIRST, ALL_RESOLVED, FIRST]
    assert scenario.run_later(50) == 0
    assert scenario.run_later(10) == 1
    assert (alert().state, message_reasons()[-1]) == ("resolved", ALL_RESOLVED)


def test_a_tick_without_changes_writes_nothing_and_a_clock_that_goes_back_changes_nothing(
    scenario: AlertScenario,
) -> None:
    channel()
    scenario.run_seconds(1, finding())
    scenario.evaluate(finding())
    same_instant = [
        evaluate_alerts.evaluate_alerts(scenario.alerts, now_ms=scenario.now_ms) for _ in range(3)
    ]
    assert (same_instant[1:], AlertChange.objects.count()) == ([0, 0], 1)
    scenario.run_seconds(6, finding())
    rev = Cluster.objects.get().rev
    scenario.run_seconds(5, finding())
    assert Cluster.objects.get().rev == rev
    with CaptureQueriesContext(connection) as caught:
        scenario.tick()
    written = [each["sql"] for each in caught if each["sql"].startswith(("INSERT", "UPDATE", "DELETE"))]
    # The lease, and what `look` delivers.
    assert len(written) == 2
    scenario.now_ms = NOW_MS - 3_600_000
    scenario.run_seconds(6, finding())
    assert message_reasons() == [FIRST]


def test_queries_do_not_grow_with_the_alerts_that_stay_and_slowly_with_those_that_change(
    scenario: AlertScenario,
) -> None:
    channel()
    counts = []
    for number in (3, 120):
        findings = [finding(f"group:g{n}") for n in range(number)]
        scenario.run_seconds(10, *findings)
        with CaptureQueriesContext(connection) as caught:
            scenario.tick()
        counts.append(len(caught))
    assert Alert.objects.filter(state="firing").count() == 120
    assert counts[0] == counts[1] <= 14
    findings = [finding(f"group:g{n}") for n in range(400)]
    scenario.run_second(*findings)
    scenario.evaluate(*findings)
    with CaptureQueriesContext(connection) as caught:
        evaluate_alerts.evaluate_alerts(scenario.alerts, now_ms=scenario.now_ms)
    assert Alert.objects.filter(state="firing").count() == 400
    assert len(caught) <= 60


RULES = ("coordinator_overdue", "group_stalled", "lso_pinned", "hanging")


def random_findings(dice: random.Random) -> list[Finding]:
    """Some findings, each of which may come and go with any tick."""
    severities = list(Severity)
    return [
        finding(f"partition:p-{n}", rule, dice.choice(severities), "partition:p-0")
        for rule in RULES
        for n in range(4)
        if dice.random() < 0.6
    ]


def test_random_findings_give_every_change_one_outcome_per_channel(scenario: AlertScenario) -> None:
    dice = random.Random(0)
    made = [
        channel("all", min_severity="info", group_interval_s=2, repeat_interval_s=20),
        channel("one", matchers=[["alertname", "=~", "l.*"]], group_by=["subject"]),
        channel("deaf", send_resolved=False, group_wait_s=4),
        channel("am", kind="alertmanager"),
    ]
    for number in range(26):
        if number % 15 == 10:
            silence(8, scenario, "alertname", dice.choice(RULES))
            Channel.objects.filter(pk=made[0].pk).update(enabled=dice.random() < 0.5)
        scenario.evaluate(*random_findings(dice), blind=dice.random() < 0.2)
        if dice.random() < 0.7:
            scenario.tick()
    Channel.objects.update(enabled=True)
    for _ in range(4):
        scenario.run_later(400)
    check_outcomes(made)


def check_outcomes(channels: list[Channel]) -> None:
    """Compare the outcomes of changes with the messages that were made."""
    numbers = {each.pk for each in channels}
    sent = {row.pk: row for row in Delivery.objects.all()}
    assert all(row.reason and row.payload for row in sent.values())
    assert AlertChange.objects.count() > 20
    for change in AlertChange.objects.select_related("alert"):
        assert change.processed_at, change
        assert sorted(fate[0] for fate in change.fates) == sorted(numbers)
        for number, kind, what in change.fates:
            if kind == "delivery":
                name = bytes(change.alert.fingerprint).hex()
                held = sent[what].held["firing" if change.new == "firing" else "resolved"]
                assert (sent[what].channel_id, name in held) == (number, True)
            else:
                assert what
    for each in channels:
        check_ends(each)


def check_ends(of: Channel) -> None:
    """Check what a channel received of each alert: it fires, and at the end it is resolved."""
    last: dict[str, str] = {}
    for row in Delivery.objects.filter(channel=of).order_by("pk"):
        last |= dict.fromkeys(row.held["resolved"], "resolved") | dict.fromkeys(row.held["firing"], "firing")
    if of.send_resolved:
        assert set(last.values()) <= {"resolved"}
