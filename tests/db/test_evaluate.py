"""Proves the life of a finding: it opens once, keeps its beginning, updates its texts, closes, reopens."""

from dataclasses import replace

import pytest

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation import finding_queries
from dashboard.models import Cluster, Collector, FindingRecord, Group, GroupOffset, PartitionRecord, PinRecord
from dashboard.runtime import collector_store
from dashboard.runtime.leases import Lease
from dashboard.transactions import store
from fenceline.facts import Finding, Severity, Tombstone
from tests.cases import cases
from tests.db import factories
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import evaluate_polls
from tests.db.test_transaction_store import batch_of, record, save

pytestmark = pytest.mark.sql


def finding(
    subject: str = "transaction:a", severity: Severity = Severity.WARNING, **words: object
) -> Finding:
    text = {"summary": "s", "evidence": "e", "next_step": "n", **words}
    return Finding("open_too_long", "prod", subject, severity, NOW_MS, affected=("partition:p-0",), **text)  # type: ignore[arg-type]


@pytest.fixture
def lease(take: Take) -> Lease:
    return take("judge")


def put(lease: Lease, *found: Finding, blind: bool = False) -> None:
    evaluate_rules.save_findings(lease, found, sees=lambda row: not blind, now_ms=NOW_MS)


def test_a_finding_keeps_one_row_while_it_is_found_or_hidden_and_opens_as_a_new_one(lease: Lease) -> None:
    put(lease, finding())
    before = Cluster.objects.get().rev
    put(lease, finding())
    assert Cluster.objects.get().rev == before
    put(lease, finding(evidence="more", severity=Severity.CRITICAL))
    (row,) = finding_queries.open_findings()
    assert (row.severity, row.evidence, row.affected) == ("critical", "more", ["partition:p-0"])
    put(lease, blind=True)
    (row,) = finding_queries.open_findings()
    assert not row.complete
    put(lease)
    assert finding_queries.open_findings() == []
    put(lease, finding())
    assert (len(finding_queries.open_findings()), FindingRecord.objects.count()) == (1, 2)


def test_findings_come_worst_first(lease: Lease) -> None:
    put(lease, finding("transaction:a"), finding("transaction:b", Severity.CRITICAL))
    assert [row.subject for row in finding_queries.open_findings()] == ["transaction:b", "transaction:a"]


def read_for_an_hour(tail: Lease) -> None:
    """Make the tail one that has been reading for an hour: what it reads now is observed live."""
    store.save_batch(tail, batch_of(), topic_id="topic-1", rate=1.0, now_ms=NOW_MS - 3_600_000)


def subjects() -> set[str]:
    return {row.subject for row in finding_queries.open_findings()}


def test_a_tick_evaluates_what_the_tail_saved_and_keeps_it_while_the_tail_is_stopped(
    lease: Lease, tail: Lease
) -> None:
    read_for_an_hour(tail)
    slow = record("slow")._replace(started_ms=NOW_MS - 120_000)
    save(tail, batch_of(record("quick"), slow, previous=10, end=12))
    evaluate_polls(lease, NOW_MS + 1_000)
    assert subjects() == {"transaction:slow"}
    evaluate_polls(lease, NOW_MS + 120_000)
    assert subjects() == {"transaction:slow"}
    complete = {row.rule: row.complete for row in finding_queries.open_findings()}
    assert complete == {"open_too_long": False, "coordinator_overdue": False}
    save(tail, batch_of(Tombstone("slow"), previous=12, end=13))
    evaluate_polls(lease, NOW_MS + 2_000)
    assert subjects() == set()


def rules() -> set[tuple[str, str]]:
    return {(row.rule, row.subject) for row in finding_queries.open_findings()}


def stuck() -> None:
    """Add one of each problem: two hanging partitions, and a blocked group."""
    factories.collectors()
    factories.position()
    for number in (0, 1):
        factories.partition("orders", number, verdict="hanging")
        factories.lso_blocker("orders", number, verdict="hanging", ground="no_such_producer")
    factories.blocked_group(blockers=[{"producer_id": 7, "transactional_id": ""}])


def end_all() -> None:
    """Let all of that be over."""
    PinRecord.objects.all().delete()
    PartitionRecord.objects.update(verdict="clear", pinned_ms=None)
    GroupOffset.objects.update(waiting="", waiting_ms=None)
    Group.objects.update(blocked=0)


HANGING = {("hanging", "partition:orders-0"), ("hanging", "partition:orders-1")}
PINNED = {("lso_pinned", subject) for _, subject in HANGING}
STALLED = ("group_stalled", "group:billing")


def test_real_tables_open_and_close(lease: Lease) -> None:
    stuck()
    evaluate_polls(lease, NOW_MS)
    assert rules() == {*HANGING, *PINNED, STALLED}
    end_all()
    evaluate_polls(lease, NOW_MS + 1_000)
    assert rules() == set()
    closed = FindingRecord.objects.exclude(closed_at=None)
    assert closed.count() == 5
    assert all(row.complete for row in closed)


@cases("partition:orders-1", "broker:9")
def test_a_gap_suppresses_the_partition_or_those_that_a_broker_leads(lease: Lease, scope: str) -> None:
    stuck()
    PartitionRecord.objects.filter(partition=1).update(leader=9)
    factories.gap("partitions", scope)
    evaluate_polls(lease, NOW_MS)
    assert ("hanging", "partition:orders-0") in rules()
    assert ("hanging", "partition:orders-1") not in rules()
    assert STALLED in rules(), "it waits at orders-0, which is seen"


@cases(
    ("partitions", "cluster", {*HANGING, *PINNED, STALLED}, "no offset is known any more"),
    ("groups", "group:billing", {STALLED}, "the partitions are seen to be free"),
    ("groups", "broker:2", {STALLED}, "its coordinator does not answer"),
    ("groups", "broker:3", set(), "another broker hides nothing of it"),
    ("transaction_state", "cluster", HANGING, "who owns a producer id is not known"),
    (
        "partitions",
        "partition:orders-1",
        {(rule, "partition:orders-1") for rule in ("hanging", "lso_pinned")},
        "that one alone is hidden",
    ),
)
def test_a_tick_with_a_gap_neither_opens_nor_closes_what_it_hides(
    lease: Lease, source: str, scope: str, left: set[tuple[str, str]], why: str
) -> None:
    stuck()
    evaluate_polls(lease, NOW_MS)
    end_all()
    gap = factories.gap(source, scope)
    evaluate_polls(lease, NOW_MS + 1_000)
    assert rules() == left, why
    assert not any(row.complete for row in finding_queries.open_findings())
    gap.until_ms = NOW_MS + 1_500
    gap.save()
    evaluate_polls(lease, NOW_MS + 2_000)
    assert rules() == set()


def test_a_hidden_finding_keeps_its_text_and_changes_once(lease: Lease) -> None:
    stuck()
    evaluate_polls(lease, NOW_MS)
    factories.gap("partitions")
    PartitionRecord.objects.update(high_watermark=10**9)
    evaluate_polls(lease, NOW_MS + 1_000)
    before = Cluster.objects.get().rev
    evaluate_polls(lease, NOW_MS + 2_000)
    assert Cluster.objects.get().rev == before
    assert all(
        "up to 5,000" in row.evidence for row in finding_queries.open_findings() if row.rule == "hanging"
    )


def test_nothing_is_found_without_a_collector(lease: Lease) -> None:
    """Rows that a removed collector left behind do not count."""
    stuck()
    Collector.objects.filter(name__in=["partitions", "groups"]).delete()
    evaluate_polls(lease, NOW_MS)
    assert rules() == set()


def test_since_is_kept_while_found_and_updated_after_a_gap(lease: Lease) -> None:
    put(lease, finding())
    put(lease, replace(finding(), since_ms=NOW_MS + 5_000))
    assert finding_queries.open_findings()[0].since_ms == NOW_MS
    put(lease, replace(finding(), since_ms=NOW_MS - 5_000))
    assert finding_queries.open_findings()[0].since_ms == NOW_MS - 5_000
    put(lease, blind=True)
    put(lease, replace(finding(), since_ms=NOW_MS + 9_000))
    assert finding_queries.open_findings()[0].since_ms == NOW_MS + 9_000, "it may be another one by now"


def test_a_finding_without_a_beginning_and_with_32_kB_counts_from_the_first_tick(lease: Lease) -> None:
    unknown = replace(finding("transaction:" + "x" * 32_000), since_ms=None)
    for now_ms in (NOW_MS, NOW_MS + 60_000):
        evaluate_rules.save_findings(lease, [unknown], sees=bool, now_ms=now_ms)
    assert [row.since_ms for row in finding_queries.open_findings()] == [NOW_MS]


@pytest.mark.parametrize("off_ms", [0, 3_600_000, -3_600_000])
def test_a_transaction_is_found_in_time_although_its_brokers_clock_is_an_hour_off(
    off_ms: int, lease: Lease, tail: Lease
) -> None:
    """By its timestamps it is an hour old, or not begun; by the local clock it has its true age."""
    read_for_an_hour(tail)
    stamped = NOW_MS - off_ms
    save(tail, batch_of(previous=10, end=11))
    begun = record("fresh")._replace(started_ms=stamped, updated_ms=stamped, timeout_ms=600_000)
    save(tail, batch_of(begun, previous=11, end=12))
    for seconds, found in ((2, set()), (62, {("open_too_long", "transaction:fresh")})):
        factories.collectors(seen_ms=NOW_MS + seconds * 1_000)
        evaluate_polls(lease, NOW_MS + seconds * 1_000)
        assert rules() == found, f"{seconds} s after it began"


def test_findings_of_another_cluster_do_not_change(lease: Lease) -> None:
    collector_store.sync_clusters(["prod", "other"])
    other = Cluster.objects.get(name="other")
    fields = {"fingerprint": b"x", "severity": "info", "since_ms": 0, "seen_at": "2026-01-01T00:00Z"}
    FindingRecord.objects.create(cluster=other, rule="r", subject="s", **fields)
    put(lease)
    assert [row.cluster.name for row in finding_queries.open_findings()] == ["other"]
