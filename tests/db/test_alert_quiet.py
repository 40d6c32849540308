"""Proves who is told of nothing, why, and that what was kept quiet is told once nothing keeps it so."""

from __future__ import annotations

import pytest

from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.models import Alert, AlertChange, Channel, Delivery
from fenceline.facts import Severity
from tests.db.alerting import (
    ALL,
    BLOCKER,
    FIRST,
    NEW,
    World,
    alert,
    channel,
    fates,
    found,
    messages,
    silence,
    world,
)

pytestmark = pytest.mark.sql

__all__ = ["world"]


def test_what_is_silenced_is_told_once_the_silence_is_over(world: World) -> None:
    channel()
    one = silence(20, world)
    assert world.seconds(3, found()) + world.later(10, found()) == 0
    (kind, who, words), *_ = alert().quiet
    assert (kind, who) == ("silenced", str(one.pk))
    assert words.startswith("by ada until 2026-")
    assert fates() == [[]]
    assert world.later(10, found()) + world.later(10, found()) == 1
    assert fates()[0][0][1] == "delivery"


def test_what_was_silenced_until_it_was_over_says_so(world: World) -> None:
    channel()
    silence(100, world)
    assert world.seconds(10, found()) + world.seconds(5) == 0
    assert "over before anybody there was told: silenced" in fates("firing")[0][0][2]


def test_who_waits_is_quiet_while_its_cause_fires_and_ends_unheard(world: World) -> None:
    channel()
    cause = found(BLOCKER, "coordinator_overdue", Severity.WARNING, "group:billing")
    follows = found("group:billing", "group_stalled")
    world.second(follows)
    world.seconds(10, cause, follows)
    (kind, who, words), *_ = alert("group:billing").quiet
    assert (kind, who) == ("inhibited", f"#{alert().pk}")
    assert words.startswith("by coordinator_overdue of transaction:payments-7: an effect in incident ")
    # The cause is over first, and the group goes on a moment later.
    world.seconds(5, follows)
    world.seconds(15)
    assert messages() == [FIRST, ALL]
    assert Alert.objects.filter(state="firing").count() == 0
    (told,) = {
        row["labels"]["alertname"] for sent in Delivery.objects.all() for row in sent.payload["alerts"]
    }
    assert told == "coordinator_overdue"


def test_who_goes_on_waiting_is_told_in_the_end(world: World) -> None:
    channel()
    cause = found(BLOCKER, "coordinator_overdue", Severity.WARNING, "group:billing")
    follows = found("group:billing", "group_stalled")
    world.seconds(5, cause, follows)
    world.seconds(30, follows)
    assert alert("group:billing").told
    # One message: the cause is over, and what it left behind goes on.
    assert messages() == [FIRST, NEW]
    sent = Delivery.objects.latest("pk").payload["alerts"]
    assert [(each["labels"]["alertname"], each["status"]) for each in sent] == [
        ("group_stalled", "firing"), ("coordinator_overdue", "resolved"),
    ]  # fmt: skip


def test_who_is_not_told_of_the_cause_is_told_of_what_follows(world: World) -> None:
    team = channel("team", matchers=[["group", "=", "billing"]])
    cause = found(BLOCKER, "coordinator_overdue", Severity.WARNING, "group:billing")
    world.seconds(5, cause, found("group:billing", "group_stalled"))
    assert messages(team) == [FIRST]


def test_a_channel_is_told_when_it_gets_bad_enough(world: World) -> None:
    critical, all_ = channel("critical", min_severity="critical"), channel("all", min_severity="info")
    world.seconds(5, found())
    assert (messages(critical), messages(all_)) == ([], [FIRST])
    world.seconds(5, found(severity=Severity.CRITICAL))
    assert (messages(critical), messages(all_)) == ([FIRST], [FIRST, NEW])
    first, worse = fates("firing")
    assert sorted(fate[1] for fate in first) == ["delivery", "quiet"]
    assert [fate[1] for fate in worse] == ["delivery", "delivery"]


def test_nobody_to_tell_and_a_channel_that_comes_later(world: World) -> None:
    world.seconds(5, found())
    assert [why[0] for why in alert().quiet] == ["no_channel"]
    assert fates() == [[]]
    assert not AlertChange.objects.filter(processed_at=None).exists()
    channel()
    assert world.seconds(3, found()) == 1
    assert alert().quiet == []


def test_a_disabled_channel_is_told_nothing_and_is_told_the_end_when_it_is_back(world: World) -> None:
    pager = channel()
    world.seconds(5, found())
    Channel.objects.update(enabled=False, disabled_why="10 messages failed")
    world.seconds(20)
    assert fates("resolved") == [[[pager.pk, "quiet", "the channel is disabled: 10 messages failed"]]]
    world.seconds(4, found())
    assert alert().quiet == [["disabled", "pager", "the channel is disabled: 10 messages failed"]]
    world.seconds(4)
    Channel.objects.update(enabled=True)
    world.seconds(5)
    assert messages() == [FIRST, ALL]


def test_the_next_message_waits_until_the_one_before_is_through(world: World) -> None:
    channel()
    world.seconds(4, found())
    Delivery.objects.update(state="pending")
    for _ in range(10):
        world.judged()
        evaluate_alerts.evaluate_alerts(world.alerts, now_ms=world.now_ms)
    assert messages() == [FIRST]
    assert not AlertChange.objects.get(new="resolved").processed_at
    Delivery.objects.update(state="failed")
    world.second()
    assert messages() == [FIRST, ALL]
