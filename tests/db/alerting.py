"""A judge and an alert tick by a clock of their own, and what they have said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.models import Alert, AlertChange, Channel, Delivery, Silence
from dashboard.runtime.leases import Lease
from fenceline.facts import Finding, Severity
from tests.db.conftest import NOW_MS

Take = Callable[..., Lease]

#: Why a message was made, in Alertmanager's words.
FIRST, NEW, RESOLVED, ALL = (
    "first_notification", "new_alerts_in_group", "new_resolved_alerts", "all_alerts_resolved",
)  # fmt: skip
BLOCKER = "transaction:payments-7"


def found(
    subject: str = "transaction:payments-7",
    rule: str = "coordinator_overdue",
    severity: Severity = Severity.WARNING,
    *affected: str,
    cluster: str = "prod",
) -> Finding:
    """A finding of whatever rule."""
    return Finding(rule, cluster, subject, severity, NOW_MS, "s", "e", "n", tuple(affected))


def channel(name: str = "pager", **columns: Any) -> Channel:
    """A webhook that is told after a second, five seconds apart."""
    usual = {"kind": "webhook", "url": "https://x", "group_wait_s": 1, "group_interval_s": 5}
    return Channel.objects.create(name=name, created_by="ada", **(usual | columns))


class World:
    """One cluster: each `second` the judge finds what it is given, and alerts look."""

    def __init__(self, take: Take) -> None:
        self.judge, self.alerts = take("judge"), take(evaluate_alerts.NAME)
        self.now_ms = NOW_MS

    def judged(self, *findings: Finding, blind: bool = False) -> None:
        """A second of the judge alone."""
        self.now_ms += 1_000
        evaluate_rules.save_findings(self.judge, findings, sees=lambda row: not blind, now_ms=self.now_ms)

    def told(self, seconds: int, *findings: Finding) -> None:
        """Seconds of both, in which what alerts make stays to be delivered."""
        for _ in range(seconds):
            self.judged(*findings)
            evaluate_alerts.evaluate_alerts(self.alerts, now_ms=self.now_ms)

    def look(self) -> int:
        """A tick of alerts; what it makes is delivered at once."""
        made = evaluate_alerts.evaluate_alerts(self.alerts, now_ms=self.now_ms)
        Delivery.objects.filter(state="pending").update(state="delivered")
        return made

    def second(self, *findings: Finding, blind: bool = False) -> int:
        self.judged(*findings, blind=blind)
        return self.look()

    def seconds(self, count: int, *findings: Finding, blind: bool = False) -> int:
        return sum(self.second(*findings, blind=blind) for _ in range(count))

    def later(self, seconds: float, *findings: Finding) -> int:
        """So long after, a few seconds."""
        self.now_ms += int(seconds * 1_000)
        return self.seconds(3, *findings)


@pytest.fixture
def world(take: Take) -> World:
    """A cluster whose alerts have looked once, while nothing was found."""
    made = World(take)
    made.look()
    return made


def alert(subject: str = "transaction:payments-7") -> Alert:
    return Alert.objects.get(subject=subject)


def messages(of: Channel | None = None) -> list[str]:
    """Why each message was made, in order."""
    rows = Delivery.objects.order_by("pk")
    return list((rows if of is None else rows.filter(channel=of)).values_list("reason", flat=True))


def fates(new: str | None = None) -> list[list[Any]]:
    """What came of the changes, in order; of those to one state alone."""
    rows = AlertChange.objects.order_by("pk")
    return [row.fates for row in (rows if new is None else rows.filter(new=new))]


def silence(
    seconds: float, world: World, label: str = "alertname", value: str = "coordinator_overdue"
) -> Silence:
    return Silence.objects.create(
        matchers=[[label, "=", value]], starts_ms=0, ends_ms=world.now_ms + int(seconds * 1_000),
        reason="deploy", created_by="ada",
    )  # fmt: skip
