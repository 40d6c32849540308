"""A cluster whose findings and alerts are evaluated by a clock of its own, and the results."""

from typing import Any

import pytest

from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.models import Alert, AlertChange, Channel, Delivery, Silence
from fenceline.facts import Finding, Severity
from tests.db.conftest import NOW_MS, Take

#: Why a message was made, in Alertmanager's words.
FIRST, NEW, RESOLVED, ALL_RESOLVED = (
    "first_notification", "new_alerts_in_group", "new_resolved_alerts", "all_alerts_resolved",
)  # fmt: skip
BLOCKER = "transaction:payments-7"


def finding(
    subject: str = "transaction:payments-7",
    rule: str = "coordinator_overdue",
    severity: Severity = Severity.WARNING,
    *affected: str,
    cluster: str = "prod",
) -> Finding:
    """Return a finding of a rule."""
    return Finding(rule, cluster, subject, severity, NOW_MS, "s", "e", "n", tuple(affected))


def channel(name: str = "pager", **columns: Any) -> Channel:
    """Make a webhook with a group wait of one second and a group interval of five."""
    usual = {"kind": "webhook", "url": "https://x", "group_wait_s": 1, "group_interval_s": 5}
    return Channel.objects.create(name=name, created_by="ada", **(usual | columns))


class AlertScenario:
    """One cluster, whose findings and alerts are evaluated every second."""

    def __init__(self, take: Take) -> None:
        self.evaluation_lease, self.alerts = take("judge"), take(evaluate_alerts.NAME)
        self.now_ms = NOW_MS

    def evaluate(self, *findings: Finding, blind: bool = False) -> None:
        """Evaluate findings alone, a second later."""
        self.now_ms += 1_000
        evaluate_rules.save_findings(
            self.evaluation_lease, findings, sees=lambda row: not blind, now_ms=self.now_ms
        )

    def run(self, seconds: int, *findings: Finding) -> None:
        """Evaluate findings and alerts for so many seconds, and deliver no message."""
        for _ in range(seconds):
            self.evaluate(*findings)
            evaluate_alerts.evaluate_alerts(self.alerts, now_ms=self.now_ms)

    def tick(self) -> int:
        """Evaluate alerts and deliver their messages; return how many there were."""
        made = evaluate_alerts.evaluate_alerts(self.alerts, now_ms=self.now_ms)
        Delivery.objects.filter(state="pending").update(state="delivered")
        return made

    def run_second(self, *findings: Finding, blind: bool = False) -> int:
        self.evaluate(*findings, blind=blind)
        return self.tick()

    def run_seconds(self, count: int, *findings: Finding) -> int:
        return sum(self.run_second(*findings) for _ in range(count))

    def run_later(self, seconds: float, *findings: Finding) -> int:
        """Wait so long, then run three seconds."""
        self.now_ms += int(seconds * 1_000)
        return self.run_seconds(3, *findings)


@pytest.fixture
def scenario(take: Take) -> AlertScenario:
    """A cluster whose alerts were evaluated once, without findings."""
    made = AlertScenario(take)
    made.tick()
    return made


def alert(subject: str = "transaction:payments-7") -> Alert:
    return Alert.objects.get(subject=subject)


def message_reasons(of: Channel | None = None) -> list[str]:
    """Return why each message was made, in order."""
    rows = Delivery.objects.order_by("pk")
    return list((rows if of is None else rows.filter(channel=of)).values_list("reason", flat=True))


def decisions(new: str | None = None) -> list[list[Any]]:
    """Return the notification decisions of each change, in order; of changes to one state alone."""
    rows = AlertChange.objects.order_by("pk")
    return [row.fates for row in (rows if new is None else rows.filter(new=new))]


def silence(
    seconds: float, scenario: AlertScenario, label: str = "alertname", value: str = "coordinator_overdue"
) -> Silence:
    return Silence.objects.create(
        matchers=[[label, "=", value]], starts_ms=0, ends_ms=scenario.now_ms + int(seconds * 1_000),
        reason="deploy", created_by="ada",
    )  # fmt: skip
