"""Proves that the task polls real manifests in a folder and saves what is violated, that what cannot be read
is a gap and no absence, and the way from a manifest to a finding."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from dashboard.config import ClusterConfig, Config
from dashboard.history import audits
from dashboard.models import AuditViolationRecord, Collector, FindingRecord, GapRecord, Query
from dashboard.runtime import loop
from dashboard.runtime.leases import Lease
from dashboard.tasks import polls
from fenceline.audit.manifest import AuditedBatch, AuditedRange, AuditManifest, AuditVerdict, audits_folder
from fenceline.spark.records import QueryState
from tests.audit_manifests import audit_manifest, leave_audit, proved_batch
from tests.cases import cases
from tests.db import factories
from tests.db.conftest import Take
from tests.turns import take_turns

QUERY_ID = "9e0e48fd-8628-4fc5-ba71-6cd718564ea4"
AT_MS = 1_700_000_000_000
LOSS = AuditedRange("orders", 3, 5, 8)
LOST = AuditedBatch(1_200, AuditVerdict.VIOLATED, AT_MS, 10, 0, 10, 10, 7, 0, 3, (LOSS,))


@pytest.fixture(autouse=True)
def _new_polls() -> Iterator[None]:
    audits.clear_cache()
    yield
    loop.stop_requested.clear()


@pytest.fixture
def folder(tmp_path: Path, settings: Settings) -> Path:
    configure(settings, tmp_path.as_uri())
    return tmp_path


def configure(settings: Settings, url: str) -> None:
    clusters = {"prod": ClusterConfig("prod", {"bootstrap.servers": "x:1"})}
    settings.FENCELINE = Config(clusters=clusters, audit_url=url)


@pytest.fixture
def lease(take: Take) -> Lease:
    return take(audits.NAME)


def violated(pipeline: str = "orders_enrich", **fields: object) -> AuditManifest:
    batches = (proved_batch(1_203), LOST)
    return audit_manifest(pipeline, **{"missing": 3, "batches": batches, "query_id": QUERY_ID, **fields})


def poll(lease: Lease) -> None:
    """Let the task poll once: a slice that is over when it waits for the next poll."""
    audits.clear_cache()
    take_turns(polls.poll_audits(lease), 0.01)


def rows() -> list[tuple[str, int, int]]:
    found = AuditViolationRecord.objects.order_by("pipeline")
    return list(found.values_list("pipeline", "missing", "duplicated"))


def gaps() -> list[tuple[str, str]]:
    return list(GapRecord.objects.filter(source="audits", until_ms=None).values_list("scope", "reason"))


def test_what_is_violated_has_a_row_until_it_is_not(folder: Path, lease: Lease) -> None:
    leave_audit(folder, violated())
    leave_audit(folder, audit_manifest("billing"))
    poll(lease)
    assert rows() == [("orders_enrich", 3, 0)]
    leave_audit(folder, violated(run=13, missing=4, duplicated=1))
    poll(lease)
    assert rows() == [("orders_enrich", 4, 1)]
    leave_audit(folder, audit_manifest(run=14))
    leave_audit(folder, violated("billing", run=14))
    poll(lease)
    assert rows() == [("billing", 3, 0)]
    assert gaps() == []
    assert Collector.objects.get(name="audits").seen_through_ms is not None


def test_a_row_keeps_its_first_instant_and_is_not_written_without_news(folder: Path, lease: Lease) -> None:
    leave_audit(folder, violated())
    poll(lease)
    before = AuditViolationRecord.objects.get()
    assert before.since_ms == AT_MS
    leave_audit(folder, violated(run=13, at_ms=AT_MS + 60_000))
    with CaptureQueriesContext(connection) as captured:
        poll(lease)
    assert not [each for each in captured if "INSERT INTO" in each["sql"]]
    leave_audit(folder, violated(run=14, at_ms=AT_MS + 120_000, batches=(proved_batch(1_299),)))
    poll(lease)
    after = AuditViolationRecord.objects.get()
    assert (after.pk, after.since_ms, after.detail["batches"]) == (before.pk, AT_MS, [])


def test_a_driver_whose_clock_is_ahead_found_nothing_in_the_future(folder: Path, lease: Lease) -> None:
    leave_audit(folder, violated(batches=(), at_ms=loop.now_ms() * 1_000))
    poll(lease)
    assert AuditViolationRecord.objects.get().since_ms <= loop.now_ms()


@pytest.mark.parametrize("gone", ["pipeline=orders_enrich", "pipeline=orders_enrich/log", "."])
def test_a_folder_that_is_gone_has_no_row(folder: Path, lease: Lease, gone: str) -> None:
    leave_audit(folder, violated())
    poll(lease)
    shutil.rmtree(folder / audits_folder("prod") / gone)
    poll(lease)
    assert (rows(), gaps()) == ([], [])


def _tear(file: Path) -> None:
    file.write_text('{"format": 1')


def _outdate(file: Path) -> None:
    file.write_text(json.dumps({"format": 2}))


def _deny(file: Path) -> None:
    file.unlink()
    file.mkdir()


@cases((_tear, "it is torn or no manifest"), (_outdate, "its format is 2"), (_deny, "000000000012.json:"))
def test_a_manifest_that_cannot_be_read_is_a_gap_of_its_pipeline_unless_one_before_it_can(
    folder: Path, lease: Lease, spoil: Callable[[Path], None], reason: str
) -> None:
    file = leave_audit(folder, violated())
    _tear(leave_audit(folder, violated(run=13)))
    poll(lease)
    assert (rows(), gaps()) == ([("orders_enrich", 3, 0)], [])
    spoil(file)
    leave_audit(folder, violated("billing"))
    poll(lease)
    assert rows() == [("billing", 3, 0), ("orders_enrich", 3, 0)]
    ((scope, why),) = gaps()
    assert scope == "pipeline:orders_enrich"
    assert reason in why
    leave_audit(folder, audit_manifest(run=14))
    poll(lease)
    assert (rows(), gaps()) == ([("billing", 3, 0)], [])


def test_pipelines_beyond_those_that_are_read_keep_their_rows(
    folder: Path, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        leave_audit(folder, violated(name))
    poll(lease)
    monkeypatch.setattr(audits, "_MOST_PIPELINES", 1)
    leave_audit(folder, violated("a", run=13, missing=9))
    poll(lease)
    assert rows() == [("a", 9, 0), ("b", 3, 0), ("c", 3, 0)]
    ((scope, reason),) = gaps()
    assert scope == "pipeline:b and 1 more"
    assert "3 pipelines; the first 1 by name are read" in reason


def test_a_store_that_cannot_be_read_is_a_gap_and_rows_stay(
    folder: Path, lease: Lease, settings: Settings
) -> None:
    leave_audit(folder, violated())
    poll(lease)
    seen_ms = Collector.objects.get(name="audits").seen_through_ms
    configure(settings, "nowhere://bucket/x")
    poll(lease)
    assert rows() == [("orders_enrich", 3, 0)]
    ((scope, reason),) = gaps()
    assert scope == "cluster"
    assert "Protocol not known: nowhere" in reason
    row = Collector.objects.get(name="audits")
    assert (row.seen_through_ms, row.error) == (seen_ms, reason)
    since_ms = row.since_ms
    poll(lease)
    assert Collector.objects.get(name="audits").since_ms == since_ms, "the same reason is no news"
    configure(settings, folder.as_uri())
    poll(lease)
    assert (rows(), gaps()) == ([("orders_enrich", 3, 0)], [])
    assert Collector.objects.get(name="audits").error == ""


def test_nothing_runs_without_a_url(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(polls.audits.task, "apply_async", lambda args, **_: sent.append(args[0]))
    configure(settings, "")
    polls.audits.start({audits.NAME: ["prod"]})
    polls.audits.task("prod")
    assert sent == []
    assert not Collector.objects.exists()
    configure(settings, "file:///audits")
    polls.audits.start({audits.NAME: ["prod"]})
    assert sent == ["prod"]


def findings() -> list[FindingRecord]:
    return list(FindingRecord.objects.filter(rule="audit_violated", closed_at=None))


def test_a_manifest_becomes_a_finding_which_stays_until_a_proof_closes_it(
    folder: Path, take: Take, settings: Settings
) -> None:
    lease, judge = take(audits.NAME), take("judge")

    def evaluated() -> list[FindingRecord]:
        poll(lease)
        factories.evaluate_polls(judge, loop.now_ms())
        return findings()

    leave_audit(folder, violated())
    assert [row.affected for row in evaluated()] == [["partition:orders-3"]], "no such query is known"
    names = [QUERY_ID, f"{QUERY_ID}@copy"]
    for ident in names:
        columns = {"ident": ident, "query_id": QUERY_ID, "state": QueryState.UNHEARD, "rev": 1}
        Query.objects.create(cluster_id=lease.cluster_id, **columns)
    (row,) = evaluated()
    assert (row.subject, row.severity, row.since_ms) == ("pipeline:orders_enrich", "critical", AT_MS)
    assert row.summary == "3 records are missing in orders_enriched, compared with orders"
    assert row.evidence.endswith("by counts in batch 1,200; missing: orders-3 at 5 to 7")
    assert row.affected == [*(f"query:{name}" for name in names), "partition:orders-3"]
    configure(settings, "nowhere://bucket/x")
    (row,) = evaluated()
    assert not row.complete, "it cannot be seen now"
    configure(settings, folder.as_uri())
    leave_audit(folder, audit_manifest(run=13))
    assert evaluated() == []
