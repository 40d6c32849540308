"""Proves which channels are not notified, and why; that alerts are notified per incident, and a suppressed
one after its suppression; and that patterns of matchers are RE2's: anchored, never slow."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.alerts.validation import compile_pattern
from dashboard.models import Alert, AlertChange, Channel, Delivery, Incident
from fenceline.facts import Severity
from tests.cases import cases
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
def test_an_alert_silenced_by_either_name_until_its_end_records_the_silence(
    scenario: AlertScenario, written: str
) -> None:
    channel()
    silence(100, scenario, value=written)
    scenario.run_seconds(10, finding(rule="coordinator_overdue"))
    assert (alert().state, alert().quiet[0][0], message_reasons()) == ("firing", "silenced", [])
    assert scenario.run_seconds(5) == 0
    assert "over before anybody there was notified: silenced" in decisions("firing")[0][0][2]


WARNS = finding(BLOCKER, "coordinator_overdue", Severity.WARNING, "group:billing")
FOLLOWS = finding("group:billing", "group_stalled")


def test_a_blocked_group_is_suppressed_while_its_cause_fires_and_ends_unnotified(
    scenario: AlertScenario,
) -> None:
    channel()
    scenario.run_second(FOLLOWS)
    scenario.run_seconds(10, WARNS, FOLLOWS)
    (kind, who, words), *_ = alert("group:billing").quiet
    assert (kind, who) == ("inhibited", f"#{alert().pk}")
    assert words.startswith("by the alert of transaction payments-7: covered by incident ")
    # The cause is over first, and the group goes on a moment later.
    scenario.run_seconds(5, FOLLOWS)
    scenario.run_seconds(15)
    assert message_reasons() == [FIRST, ALL_RESOLVED]
    assert Alert.objects.filter(state="firing").count() == 0
    told = {row["labels"]["alertname"] for sent in Delivery.objects.all() for row in sent.payload["alerts"]}
    assert told == {"coordinator_overdue"}


def test_a_group_still_blocked_is_notified_after_its_cause_ends(scenario: AlertScenario) -> None:
    channel()
    scenario.run_seconds(5, WARNS, FOLLOWS)
    scenario.run_seconds(30, FOLLOWS)
    assert alert("group:billing").told
    # One message: the cause is over, and what it left behind goes on.
    assert message_reasons() == [FIRST, NEW]
    sent = Delivery.objects.latest("pk").payload["alerts"]
    expected = [("group_stalled", "firing"), ("coordinator_overdue", "resolved")]
    assert [(each["labels"]["alertname"], each["status"]) for each in sent] == expected


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


def test_a_cause_with_its_effects_is_one_message_whose_end_still_names_its_incident(
    scenario: AlertScenario,
) -> None:
    channel()
    scenario.run_seconds(12, CAUSE, *EFFECTS)
    number = Incident.objects.get().pk
    assert {alert(each.subject).labels["incident"] for each in (CAUSE, *EFFECTS)} == {str(number)}
    assert notified_subjects() == [[BLOCKER]]
    assert {alert(each.subject).quiet[0][0] for each in EFFECTS} == {"inhibited"}
    scenario.run_seconds(20)
    assert message_reasons() == [FIRST, ALL_RESOLVED]
    first, over = Delivery.objects.order_by("pk")
    assert first.payload["groupLabels"] == over.payload["groupLabels"]
    assert over.payload["alerts"][0]["labels"] == first.payload["alerts"][0]["labels"]
    assert Incident.objects.get().closed_ms is not None


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


def regexes() -> st.SearchStrategy[str]:
    one = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\W", "[a-c0]", r"\."])
    return st.recursive(
        one,
        lambda inner: st.one_of(
            st.builds("{}{}".format, inner, inner),
            st.builds("(?:{}|{})".format, inner, inner),
            st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "+?"])),
        ),
        max_leaves=6,
    )


@given(regexes(), st.text("abc1.", max_size=8))
def test_patterns_match_what_python_matches(pattern: str, text: str) -> None:
    assert compile_pattern(pattern)(text) == bool(re.fullmatch(pattern, text))


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*a){20}b", "(a?){60}a{60}b", ".*.*.*.*.*b"])
def test_every_pattern_is_matched_in_linear_time(pattern: str) -> None:
    assert not compile_pattern(pattern)("a" * 300)


@cases(
    ("pay", "payments", False),
    ("pay.*", "payments", True),
    ("^pay.*$", "payments", True),
    ("(?i)PAY.*", "payments", True),
    (r".*\bments", "pay-ments", True),
    ("a|ab", "ab", True),
    (".*", "two\nlines", False),
    ("é.", "éü", True),
    ("a.c", "a\ud800c", True),
    ("a\ud800c", "a\ud800c", True),
)
def test_patterns_match_whole_texts(pattern: str, text: str, expected: bool) -> None:
    assert compile_pattern(pattern)(text) is expected


@cases(
    ("(", "missing ): ("),
    ("a(?=b)", "invalid perl operator: (?="),
    (r"(a)\1", r"invalid escape sequence: \1"),
    ("(b{200}){200}", "invalid repetition size: {200}"),
    ("a++", "bad repetition operator: ++"),
    (r"\p{Greek}{1000}", "pattern too large"),
)
def test_an_unusable_pattern_is_refused(pattern: str, says: str) -> None:
    with pytest.raises(ValueError, match="is not a regular expression of RE2") as refused:
        compile_pattern(pattern)
    assert says in str(refused.value)
