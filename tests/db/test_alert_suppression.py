"""Proves which channels are not notified, why, and that a suppressed alert is notified after the
suppression.
"""

import pytest

from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.models import Alert, AlertChange, Channel, Delivery
from fenceline.facts import Severity
from tests.db.scenarios import (
    ALL_RESOLVED,
    BLOCKER,
    FIRST,
    NEW,
    AlertScenario,
    alert,
    channel,
    decisions,
    finding,
    message_reasons,
    scenario,
    silence,
)

__all__ = ["scenario"]


def test_a_silenced_alert_is_notified_once_the_silence_ends(scenario: AlertScenario) -> None:
    channel()
    one = silence(20, scenario)
    assert scenario.run_seconds(3, finding()) + scenario.run_later(10, finding()) == 0
    (kind, who, words), *_ = alert().quiet
    assert (kind, who) == ("silenced", str(one.pk))
    assert words.startswith("by ada until 2026-")
    assert decisions() == [[]]
    assert scenario.run_later(10, finding()) + scenario.run_later(10, finding()) == 1
    assert decisions()[0][0][1] == "delivery"


@pytest.mark.parametrize("written", ["late", "coordinator_overdue"])
def test_a_silence_matches_both_names_of_a_rule(scenario: AlertScenario, written: str) -> None:
    channel()
    silence(60, scenario, value=written)
    scenario.run_seconds(5, finding(rule="coordinator_overdue"))
    assert (alert().state, alert().quiet[0][0], message_reasons()) == ("firing", "silenced", [])


def test_an_alert_silenced_until_its_end_records_the_silence(scenario: AlertScenario) -> None:
    channel()
    silence(100, scenario)
    assert scenario.run_seconds(10, finding()) + scenario.run_seconds(5) == 0
    assert "over before anybody there was notified: silenced" in decisions("firing")[0][0][2]


def test_a_blocked_group_is_suppressed_while_its_cause_fires_and_ends_unnotified(
    scenario: AlertScenario,
) -> None:
    channel()
    cause = finding(BLOCKER, "coordinator_overdue", Severity.WARNING, "group:billing")
    follows = finding("group:billing", "group_stalled")
    scenario.run_second(follows)
    scenario.run_seconds(10, cause, follows)
    (kind, who, words), *_ = alert("group:billing").quiet
    assert (kind, who) == ("inhibited", f"#{alert().pk}")
    assert words.startswith("by the alert of transaction payments-7: covered by incident ")
    # The cause is over first, and the group goes on a moment later.
    scenario.run_seconds(5, follows)
    scenario.run_seconds(15)
    assert message_reasons() == [FIRST, ALL_RESOLVED]
    assert Alert.objects.filter(state="firing").count() == 0
    (told,) = {
        row["labels"]["alertname"] for sent in Delivery.objects.all() for row in sent.payload["alerts"]
    }
    assert told == "coordinator_overdue"


def test_a_group_still_blocked_is_notified_after_its_cause_ends(scenario: AlertScenario) -> None:
    channel()
    cause = finding(BLOCKER, "coordinator_overdue", Severity.WARNING, "group:billing")
    follows = finding("group:billing", "group_stalled")
    scenario.run_seconds(5, cause, follows)
    scenario.run_seconds(30, follows)
    assert alert("group:billing").told
    # One message: the cause is over, and what it left behind goes on.
    assert message_reasons() == [FIRST, NEW]
    sent = Delivery.objects.latest("pk").payload["alerts"]
    assert [(each["labels"]["alertname"], each["status"]) for each in sent] == [
        ("group_stalled", "firing"), ("coordinator_overdue", "resolved"),
    ]  # fmt: skip


def test_a_channel_is_notified_when_the_severity_reaches_its_minimum(scenario: AlertScenario) -> None:
    critical, all_ = channel("critical", min_severity="critical"), channel("all", min_severity="info")
    scenario.run_seconds(5, finding())
    assert (message_reasons(critical), message_reasons(all_)) == ([], [FIRST])
    scenario.run_seconds(5, finding(severity=Severity.CRITICAL))
    assert (message_reasons(critical), message_reasons(all_)) == ([FIRST], [FIRST, NEW])
    first, worse = decisions("firing")
    assert sorted(fate[1] for fate in first) == ["delivery", "quiet"]
    assert [fate[1] for fate in worse] == ["delivery", "delivery"]


def test_a_channel_added_later_is_notified_of_a_firing_alert(scenario: AlertScenario) -> None:
    scenario.run_seconds(5, finding())
    assert [why[0] for why in alert().quiet] == ["no_channel"]
    assert decisions() == [[]]
    assert not AlertChange.objects.filter(processed_at=None).exists()
    channel()
    assert scenario.run_seconds(3, finding()) == 1
    assert alert().quiet == []


def test_a_disabled_channel_is_notified_of_the_end_only_after_it_is_enabled(
    scenario: AlertScenario,
) -> None:
    pager = channel()
    scenario.run_seconds(5, finding())
    Channel.objects.update(enabled=False, disabled_why="10 messages failed")
    scenario.run_seconds(20)
    assert decisions("resolved") == [[[pager.pk, "quiet", "the channel is disabled: 10 messages failed"]]]
    scenario.run_seconds(4, finding())
    assert alert().quiet == [["disabled", "pager", "the channel is disabled: 10 messages failed"]]
    scenario.run_seconds(4)
    Channel.objects.update(enabled=True)
    scenario.run_seconds(5)
    assert message_reasons() == [FIRST, ALL_RESOLVED]


def test_the_next_message_waits_until_the_previous_one_is_delivered(scenario: AlertScenario) -> None:
    channel()
    scenario.run_seconds(4, finding())
    Delivery.objects.update(state="pending")
    for _ in range(10):
        scenario.evaluate()
        evaluate_alerts.evaluate_alerts(scenario.alerts, now_ms=scenario.now_ms)
    assert message_reasons() == [FIRST]
    assert not AlertChange.objects.get(new="resolved").processed_at
    Delivery.objects.update(state="failed")
    scenario.run_second()
    assert message_reasons() == [FIRST, ALL_RESOLVED]
