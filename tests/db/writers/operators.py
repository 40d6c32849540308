"""Writers of findings, alerts and messages, and of what operators do."""

import secrets

from django.conf import settings
from django.contrib.auth.signals import user_login_failed
from django.test import RequestFactory

from dashboard.alerts import channels, deliver, silences
from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.alerts.senders import SendOutcome
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.incidents import operators
from dashboard.models import (
    Alert,
    AuditEntry,
    Channel,
    Cluster,
    Delivery,
    FindingRecord,
    Incident,
    Silence,
    Token,
)  # fmt: skip
from fenceline.facts import Finding, Severity
from tests.db.conftest import NOW_MS
from tests.db.writers.writer import Writer, lease


class Evaluations(Writer):
    """The evaluation: one finding is new each time, one stays, the others close."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(evaluate_rules.NAME)

    def write(self, number: int) -> None:
        found = [
            Finding("coordinator_overdue", "prod", subject, Severity.WARNING, NOW_MS, f"s {number}", "e", "n")
            for subject in ("query:stays", f"query:{number}", f"query:{number - 1}")
        ]
        evaluate_rules.save_findings(self.lease, found, sees=lambda row: True, now_ms=self.now_ms)

    def lost(self) -> object:
        return FindingRecord.objects.filter(subject__startswith="query:").count() - self.number - 2


class Operators(Writer):
    """Operators who write notes to one incident, which the evaluation closes."""

    def __init__(self) -> None:
        super().__init__()
        of = Cluster.objects.get(name="prod")
        self.incident = Incident.objects.create(
            cluster=of, rule="hanging", subject="partition:a-0", severity="info", opened_ms=NOW_MS
        )

    def write(self, number: int) -> None:
        operators.add_incident_note(self.incident.pk, f"note {number}", by="ada", now_ms=self.now_ms)

    def lost(self) -> object:
        return self.incident.events.filter(kind="note").count() - self.number


class Alerts(Writer):
    """What turns findings into alerts and messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(evaluate_alerts.NAME)
        for name in ("pager", "chat"):
            Channel.objects.create(
                name=name,
                kind="webhook",
                url="https://x",
                group_wait_s=0,
                group_interval_s=1,
                created_by="ada",
            )

    def write(self, number: int) -> None:
        evaluate_alerts.evaluate_alerts(self.lease, now_ms=self.now_ms)

    def lost(self) -> object:
        self()
        stays = FindingRecord.objects.get(subject="query:stays")
        return stays.pk not in Alert.objects.values_list("finding", flat=True)


class Deliveries(Writer):
    """What sends messages, and what came of each; every third one is not taken."""

    def write(self, number: int) -> None:
        limits = settings.FENCELINE.alerts
        for pk in list(deliver.due_deliveries().values_list("pk", flat=True)[:3]):
            claim = deliver.claim(pk, 1.0)
            if claim is not None:
                taken = number % 3 != 0
                deliver.finish_delivery(
                    claim, SendOutcome(taken, error="" if taken else "500", retry=not taken), limits
                )
        done = Delivery.objects.filter(state="delivered", channel__name="pager", channel__enabled=True)
        for row in done.order_by("-pk")[: number % 5 == 0]:
            deliver.send_again(row)


class Channels(Writer):
    """An operator who adds channels, changes them, and deletes one with its messages."""

    def write(self, number: int) -> None:
        draft = channels.ChannelDraft(f"hook-{number}", "webhook", "https://93.184.216.34/x")
        row = channels.add(draft, by="ada")
        channels.disable(row, by="ada")
        channels.enable(row)
        for old in Channel.objects.filter(name=f"hook-{number - 1}"):
            channels.delete(old)
        channels.enable(Channel.objects.filter(name__in=["pager", "chat"]).order_by("?")[0])

    def lost(self) -> object:
        return Channel.objects.filter(name__startswith="hook-").count() - 1


class Silences(Writer):
    """An operator who makes silences and ends them, and makes tokens."""

    def write(self, number: int) -> None:
        draft = silences.SilenceDraft(
            lambda: [("alertname", "=", "nothing")],
            "deploy",
            lambda: self.now_ms,
            lambda: self.now_ms + 60_000,
        )
        silences.end_silence(
            silences.create_silence(draft, by="ada", now_ms=self.now_ms), by="ada", now_ms=self.now_ms + 1
        )
        Token.objects.create(name=f"t-{number}", role="viewer", digest=secrets.token_hex(32))

    def lost(self) -> object:
        return Silence.objects.count() - self.number, Token.objects.count() - self.number


class SignIns(Writer):
    """Failed sign-ins of one name: one row with a count."""

    def write(self, number: int) -> None:
        request = RequestFactory().post("/login/")
        user_login_failed.send(__name__, credentials={"username": "nobody"}, request=request)

    def lost(self) -> object:
        rows = AuditEntry.objects.filter(event="sign_in.failed", at__gt="2021-01-01T00:00Z")
        return sum(rows.values_list("count", flat=True)) - self.number
