"""Proves the life of a finding: it opens once, keeps its beginning, follows its words, closes, opens anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dashboard import judge, queries, store
from dashboard.leases import Lease, LeaseLost
from dashboard.models import Cluster, FindingRecord
from dashboard.snapshots import Reader
from fenceline.facts import Finding, Severity, Tombstone
from tests.db.conftest import NOW_MS
from tests.db.test_store import look, record, save

Take = Callable[..., Lease]


def finding(
    subject: str = "transaction:a", severity: Severity = Severity.WARNING, **words: object
) -> Finding:
    text = {"summary": "s", "evidence": "e", "next_step": "n", **words}
    return Finding("open_too_long", "prod", subject, severity, NOW_MS, affected=("partition:p-0",), **text)  # type: ignore[arg-type]


@pytest.fixture
def lease(take: Take) -> Lease:
    return take("judge")


def put(lease: Lease, *found: Finding, blind: bool = False) -> None:
    judge.save(lease, found, sees=lambda row: not blind, now_ms=NOW_MS)


def test_a_finding_keeps_one_row_while_it_is_found(lease: Lease) -> None:
    put(lease, finding())
    put(lease, finding(evidence="more", severity=Severity.CRITICAL))
    (row,) = queries.findings()
    assert (row.severity, row.evidence, row.affected) == ("critical", "more", ["partition:p-0"])


def test_it_closes_when_it_is_not_found_and_opens_anew(lease: Lease) -> None:
    put(lease, finding())
    put(lease)
    assert queries.findings() == []
    put(lease, finding())
    assert len(queries.findings()) == 1
    assert FindingRecord.objects.count() == 2


def test_a_blind_tick_closes_nothing(lease: Lease) -> None:
    put(lease, finding())
    put(lease, blind=True)
    (row,) = queries.findings()
    assert not row.complete
    put(lease)
    assert queries.findings() == []


def test_a_tick_without_news_leaves_the_revision(lease: Lease) -> None:
    put(lease, finding())
    before = Cluster.objects.get().rev
    put(lease, finding())
    assert Cluster.objects.get().rev == before


def test_findings_come_worst_first(lease: Lease) -> None:
    put(lease, finding("transaction:a"), finding("transaction:b", Severity.CRITICAL))
    assert [row.subject for row in queries.findings()] == ["transaction:b", "transaction:a"]


def test_a_fenced_judge_writes_nothing(lease: Lease, take: Take) -> None:
    take("judge", previous=lease.token)
    with pytest.raises(LeaseLost):
        put(lease, finding())
    assert FindingRecord.objects.count() == 0


def watch_since_an_hour(tail: Lease) -> None:
    """Make the tail one that has been reading for an hour: what it sees now has come before its eyes."""
    store.save_look(tail, look(), topic_id="topic-1", rate=1.0, now_ms=NOW_MS - 3_600_000)


def tick(lease: Lease, now_ms: int) -> None:
    judge.tick(lease, Reader("prod"), now_ms=now_ms)


def subjects() -> set[str]:
    return {row.subject for row in queries.findings()}


def test_a_tick_judges_what_the_tail_saved(lease: Lease, take: Take) -> None:
    tail = take()
    watch_since_an_hour(tail)
    save(
        tail, look(record("quick"), record("slow")._replace(started_ms=NOW_MS - 120_000), previous=10, end=12)
    )
    tick(lease, NOW_MS + 1_000)
    assert subjects() == {"transaction:slow"}
    save(tail, look(Tombstone("slow"), previous=12, end=13))
    tick(lease, NOW_MS + 2_000)
    assert subjects() == set()


def test_a_dead_tail_is_found_and_what_was_found_before_stays(lease: Lease, take: Take) -> None:
    tail = take()
    watch_since_an_hour(tail)
    save(tail, look(record("quick"), record("slow")._replace(started_ms=NOW_MS - 120_000), previous=10))
    tick(lease, NOW_MS + 1_000)
    tick(lease, NOW_MS + 120_000)
    assert subjects() == {"transaction:slow", "collector:transaction_state"}
    complete = {row.rule: row.complete for row in queries.findings()}
    assert complete == {"open_too_long": False, "late": False, "collector_behind": True}


def test_a_subject_of_32_kB_is_a_finding_like_any_other(lease: Lease) -> None:
    put(lease, finding("transaction:" + "x" * 32_000))
    put(lease, finding("transaction:" + "x" * 32_000))
    assert FindingRecord.objects.count() == 1


def test_another_clusters_findings_are_left_alone(lease: Lease) -> None:
    store.sync_clusters(["prod", "other"])
    other = Cluster.objects.get(name="other")
    FindingRecord.objects.create(
        cluster=other,
        rule="r",
        subject="s",
        fingerprint=b"x",
        severity="info",
        since_ms=0,
        seen_at="2026-01-01T00:00Z",
    )
    put(lease)
    assert [row.cluster.name for row in queries.findings()] == ["other"]
