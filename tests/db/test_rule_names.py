"""Proves that what a rule found under its former name goes on under its new one: the migration's own step on
rows that were written before it, then the evaluator with the new name.
"""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps

from dashboard.alerts.queries import alerts_by_fingerprint
from dashboard.models import Alert, Delivery, FindingRecord
from tests.db.scenarios import (
    ALL_RESOLVED,
    FIRST,
    AlertScenario,
    alert,
    channel,
    finding,
    message_reasons,
    scenario,
    silence,
)

pytestmark = pytest.mark.sql

__all__ = ["scenario"]
FORMER, NOW = finding(rule="late"), finding(rule="coordinator_overdue")


def upgrade() -> None:
    import_module("dashboard.migrations.0018_rule_names").rename(apps, None)


def test_findings_and_alerts_go_on(scenario: AlertScenario) -> None:
    channel(group_by=["cluster"])
    scenario.run_seconds(5, FORMER, finding("transaction:other", "hanging"))
    before = {row.subject: row for row in Alert.objects.all()}
    opened = FindingRecord.objects.get(rule="late").pk
    upgrade()
    scenario.run_seconds(10, NOW, finding("transaction:other", "hanging"))
    assert FindingRecord.objects.get(rule="coordinator_overdue", closed_at=None).pk == opened
    assert FindingRecord.objects.count() == 2
    for row in Alert.objects.all():
        known = before[row.subject]
        assert (row.pk, row.state, row.fired_ms) == (known.pk, "firing", known.fired_ms)
    assert (alert().rule, alert().labels["alertname"]) == ("coordinator_overdue", "coordinator_overdue")
    assert message_reasons() == [FIRST], "nobody is notified again of what they know"


def test_a_group_by_rule_ends_under_the_former_name_and_begins_under_the_new_one(
    scenario: AlertScenario,
) -> None:
    channel(group_by=["cluster", "alertname"])
    scenario.run_seconds(5, FORMER)
    upgrade()
    scenario.run_seconds(10, NOW)
    first, begun, ended = Delivery.objects.order_by("pk")
    assert (first.reason, begun.reason, ended.reason) == (FIRST, FIRST, ALL_RESOLVED)
    assert first.group_key == ended.group_key
    assert 'alertname="coordinator_overdue"' in begun.group_key
    assert alert().told[0][1] == begun.pk


def test_messages_of_before_still_name_their_alerts(scenario: AlertScenario) -> None:
    channel()
    scenario.run_seconds(5, FORMER)
    scenario.run_seconds(10)
    upgrade()
    held = [
        row.held[name] for row in Delivery.objects.all() for name in ("firing", "resolved") if row.held[name]
    ]
    assert [[row.subject for row in alerts_by_fingerprint(each)] for each in held] == [[alert().subject]] * 2


@pytest.mark.parametrize("written", ["late", "coordinator_overdue"])
def test_silences_hold_under_both_names(scenario: AlertScenario, written: str) -> None:
    channel()
    silence(60, scenario, value=written)
    scenario.run_seconds(5, FORMER)
    upgrade()
    scenario.run_seconds(5, NOW)
    assert (alert().state, alert().quiet[0][0], message_reasons()) == ("firing", "silenced", [])


def test_what_is_over_stays_closed(scenario: AlertScenario) -> None:
    scenario.run_seconds(5, FORMER)
    scenario.run_seconds(5)
    upgrade()
    assert FindingRecord.objects.filter(rule="coordinator_overdue").exclude(closed_at=None).count() == 1
    scenario.run_seconds(5, NOW)
    assert Alert.objects.count() == 1
    assert FindingRecord.objects.count() == 2
