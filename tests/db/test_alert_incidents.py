"""Proves that alerts are notified per incident: one message for a cause with its effects, one for what is
left when the cause is over. An effect of two causes waits for both; a cause found later takes over."""

from dashboard.models import Delivery, Incident
from fenceline.facts import Severity
from tests.db.scenarios import (
    ALL_RESOLVED,
    BLOCKER,
    FIRST,
    NEW,
    AlertScenario,
    alert,
    channel,
    finding,
    message_reasons,
    scenario,
)

__all__ = ["scenario"]

PARTITION, GROUP, READER = "partition:payments-0", "group:billing", "query:q1"
CAUSE = finding(BLOCKER, "coordinator_overdue", Severity.CRITICAL, PARTITION, GROUP, READER)
OTHER = finding("transaction:orders-3", "coordinator_overdue", Severity.CRITICAL, PARTITION)
PINNED = finding(PARTITION, "lso_pinned", Severity.WARNING, GROUP, READER)
STALLED, WAITING = finding(GROUP, "group_stalled"), finding(READER, "query_blocked")
EFFECTS = (PINNED, STALLED, WAITING)


def notified_subjects() -> list[list[str]]:
    """The subjects of each message, in order."""
    rows = Delivery.objects.order_by("pk")
    return [[each["labels"]["subject"] for each in row.payload["alerts"]] for row in rows]


def test_a_cause_with_its_effects_is_one_message(scenario: AlertScenario) -> None:
    channel()
    scenario.run_seconds(12, CAUSE, *EFFECTS)
    number = Incident.objects.get().pk
    assert {alert(each.subject).labels["incident"] for each in (CAUSE, *EFFECTS)} == {str(number)}
    assert notified_subjects() == [[BLOCKER]]
    assert {alert(each.subject).quiet[0][0] for each in EFFECTS} == {"inhibited"}
    scenario.run_seconds(20)
    assert message_reasons() == [FIRST, ALL_RESOLVED]


def test_each_of_two_incidents_has_its_own_messages(scenario: AlertScenario) -> None:
    channel()
    alone = finding("group:other", "group_stalled")
    scenario.run_seconds(12, CAUSE, *EFFECTS, alone)
    assert sorted(notified_subjects()) == [["group:other"], [BLOCKER]]
    assert len(set(Delivery.objects.values_list("group_key", flat=True))) == 2


def test_an_effect_of_two_causes_is_notified_once_both_are_over(scenario: AlertScenario) -> None:
    channel()
    scenario.run_seconds(12, CAUSE, OTHER, PINNED)
    assert sorted(notified_subjects()) == [["transaction:orders-3"], [BLOCKER]]
    scenario.run_seconds(20, OTHER, PINNED)
    assert PARTITION not in [each for message in notified_subjects() for each in message]
    scenario.run_seconds(20, PINNED)
    assert notified_subjects()[-1][0] == PARTITION


def test_a_cause_that_is_found_later_takes_over(scenario: AlertScenario) -> None:
    channel()
    scenario.run_seconds(12, PINNED)
    assert notified_subjects() == [[PARTITION]]
    number = alert(PARTITION).labels["incident"]
    scenario.run_seconds(12, CAUSE, PINNED)
    assert {alert(PARTITION).labels["incident"], alert().labels["incident"]} == {number}
    assert message_reasons() == [FIRST, NEW]
    assert notified_subjects()[-1][0] == BLOCKER
    assert alert(PARTITION).quiet[0][:2] == ["inhibited", f"#{alert().pk}"]


def test_an_effect_is_notified_on_a_channel_that_does_not_match_the_cause(scenario: AlertScenario) -> None:
    readers = channel("readers", matchers=[["subject_kind", "=", "group"]])
    scenario.run_seconds(12, CAUSE, *EFFECTS)
    assert message_reasons(readers) == [FIRST]
    assert notified_subjects() == [[GROUP]]
    assert Delivery.objects.get().payload["commonLabels"]["incident"] == str(Incident.objects.get().pk)


def test_an_end_still_names_its_incident(scenario: AlertScenario) -> None:
    channel()
    scenario.run_seconds(5, CAUSE)
    scenario.run_seconds(20)
    first, over = Delivery.objects.order_by("pk")
    assert first.payload["groupLabels"] == over.payload["groupLabels"]
    assert over.payload["alerts"][0]["labels"] == first.payload["alerts"][0]["labels"]
    assert Incident.objects.get().closed_ms is not None
