"""Clusters with a clock of their own: findings and alerts that are evaluated, and a takeover."""

import json
from typing import Any

import pytest

from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.models import (
    Alert,
    AlertChange,
    Channel,
    Cluster,
    Delivery,
    Group,
    GroupOffset,
    PartitionRecord,
    PinRecord,
    Silence,
)
from dashboard.recoveries import store as recovery_store
from dashboard.transactions import store
from fenceline.facts import Finding, Severity, TopicPartitions, TransactionRecord, TransactionState
from tests.db.conftest import NOW_MS, Take
from tests.factories import tail_batch

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


LIMIT_MS = 60_000
BEGUN_MS = NOW_MS - 9_000


def record(state: TransactionState, epoch: int, at_ms: int, name: str = "payments-1") -> TransactionRecord:
    open_now = state in (
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
        TransactionState.PREPARE_COMMIT,
    )
    partitions = (TopicPartitions("payments", (0,)),) if open_now else ()
    return TransactionRecord(name, state, 7, epoch, 60_000, partitions, at_ms, BEGUN_MS)


class TakeoverScenario:
    """A transaction that is taken over while it blocks a group, record by record.

    The local clock is `ahead_ms` ahead of its coordinator's.
    """

    def __init__(self, take: Take, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms
        self.tail, self.lease = take(), take(recovery_store.NAME)
        self.next: int | None = None
        self.read(
            record(TransactionState.EMPTY, 4, BEGUN_MS - 1), record(TransactionState.ONGOING, 4, BEGUN_MS)
        )
        self.block()

    def read(self, *records: TransactionRecord, delay_ms: int = 0) -> None:
        """Let the tail save records so long after they were written; nothing came before them."""
        if self.next is not None:
            self._save(now_ms=records[-1].updated_ms - 1)
        self._save(*map(self._stamped, records), now_ms=records[-1].updated_ms + delay_ms)

    def _stamped(self, record: TransactionRecord) -> TransactionRecord:
        started_ms = None if record.started_ms is None else record.started_ms - self.ahead_ms
        return record._replace(updated_ms=record.updated_ms - self.ahead_ms, started_ms=started_ms)

    def _save(self, *records: TransactionRecord, now_ms: int) -> None:
        end = (self.next or 0) + len(records)
        look = tail_batch(3, *records, previous=self.next, end=end, seen_through_ms=now_ms)
        store.save_batch(self.tail, look, topic_id="t", rate=1.0, now_ms=now_ms)
        self.next = end

    def block(self) -> None:
        """Add the open transaction as its leader reports it, and a group that is blocked by it."""
        cluster = Cluster.objects.get()
        ends = json.dumps([[BEGUN_MS - 20_000, 90, 90], [BEGUN_MS - 10_000, 95, 95], [NOW_MS, 100, 120]])
        where = {"cluster": cluster, "topic": "payments", "partition": 0}
        PartitionRecord.objects.create(
            **where,
            topic_id="old",
            log_start=0,
            lso=100,
            high_watermark=120,
            seen_ms=NOW_MS,
            ends=ends,
            rev=1,
        )
        PinRecord.objects.create(
            **where, producer_id=7, producer_epoch=4, start_offset=100, last_sequence=1, last_timestamp_ms=1,
            first_seen_ms=BEGUN_MS, seen_ms=NOW_MS, verdict="open", ground="owned",
        )  # fmt: skip
        group = Group.objects.create(
            cluster=cluster,
            key=b"k",
            group_id="billing",
            family="billing",
            seen_ms=NOW_MS,
            status="OK",
            rev=1,
        )
        GroupOffset.objects.create(
            group=group, topic="payments", partition=0, offset=100, status="OK", waiting="probably",
            waiting_ms=NOW_MS - 5_000, blockers=[{"producer_id": 7, "transactional_id": "payments-1"}],
        )  # fmt: skip

    def unblock(self) -> None:
        """Let the next polls of the partition and the group find the markers."""
        PinRecord.objects.all().delete()
        PartitionRecord.objects.update(lso=121, high_watermark=121, seen_ms=NOW_MS + 2_000)
        GroupOffset.objects.update(offset=121, waiting="", waiting_ms=None, blockers=[])

    def tick(self, at_ms: int = NOW_MS) -> None:
        recovery_store.update_recoveries(self.lease, limit_ms=LIMIT_MS, now_ms=at_ms)


TAKEOVER = (
    record(TransactionState.PREPARE_ABORT, 5, NOW_MS - 1_000),
    record(TransactionState.COMPLETE_ABORT, 5, NOW_MS - 990),
    record(TransactionState.EMPTY, 6, NOW_MS - 900),
)
AGAIN = (
    record(TransactionState.ONGOING, 6, NOW_MS + 3_000)._replace(started_ms=NOW_MS + 3_000),
    record(TransactionState.PREPARE_COMMIT, 6, NOW_MS + 3_100)._replace(started_ms=NOW_MS + 3_000),
)
