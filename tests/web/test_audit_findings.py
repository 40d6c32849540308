"""Proves the way from a manifest of the audit job to the first page: the incident has its figures in the
headline, and leads to the audit on the page of pipelines, to its query and to its partitions."""

import html
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.history import audits
from dashboard.models import Cluster, Collector, Incident
from dashboard.runtime import leases
from dashboard.tasks import polls
from fenceline.audit.manifest import AuditedBatch, AuditedRange, AuditVerdict
from tests.audit_manifests import audit_manifest, leave_audit
from tests.turns import take_turns
from tests.web import factories, scenarios
from tests.web.roles import page_html

LOST = AuditedBatch(
    1_203, AuditVerdict.VIOLATED, None, 10, 0, 10, 10, 8, 1, 3,
    (AuditedRange("order_events", 3, 5, 8),), (AuditedRange("orders_enriched", 0, 9, 10),),
)  # fmt: skip
SUMMARY = "3 records are missing and 1 record is duplicated in orders_enriched, compared with order_events"
PAGE = "/pipelines?cluster=prod&amp;pipeline=orders_enrich#pipeline"


@pytest.fixture
def incident(tmp_path: Path, settings: Any, prod: Cluster) -> Incident:
    """The incident of a violated audit of a known query, found by the collector and the evaluator."""
    audits.clear_cache()
    settings.FENCELINE = replace(settings.FENCELINE, audit_url=tmp_path.as_uri())
    scenarios.busy_flow(prod)
    prod.partitionrecord_set.update(verdict="clear", pinned_ms=None)
    found = {"query_id": factories.QUERY_ID, "sources": ("order_events",), "missing": 3, "duplicated": 1}
    leave_audit(tmp_path, audit_manifest(**found, batches=(LOST,)))
    poller, judge = lease(audits.NAME), lease("judge")
    reader = SnapshotReader("prod")
    for _ in range(3):
        take_turns(polls.poll_audits(poller), 0.01)
        evaluate_rules.evaluate_cluster(judge, reader, now_ms=factories.now_ms())
        audits.clear_cache()
    return Incident.objects.get(rule="audit_violated")


def lease(name: str) -> leases.Lease:
    Collector.objects.filter(name=name).delete()
    taken = leases.acquire("prod", name, holder="test", now_ms=factories.now_ms())
    assert taken is not None
    return taken


def plain(text: str) -> str:
    return html.unescape(" ".join(re.sub("<[^>]+>", " ", text).split()))


def test_the_first_page_has_its_figures_and_leads_to_the_audit(page: Client, incident: Incident) -> None:
    text = page_html(page, "/?cluster=prod")
    headline = re.search(r"<h1[^>]*data-headline[^>]*>(.*?)</h1>", text)
    assert headline
    assert f"{SUMMARY}." in plain(headline[1])
    card = text.partition(f'data-incident="{incident.pk}"')[0].rpartition("<li ")[2]
    card += text.partition(f'data-incident="{incident.pk}"')[2].partition("</li>")[0]
    assert "mark-critical" in card
    assert "blocked" not in plain(card)
    assert re.findall(r'href="([^"]+)" data-primary>([^<]+)<', card) == [(PAGE, "Open pipeline")]
    text = page_html(page, "/pipelines?cluster=prod&pipeline=orders_enrich")
    assert 'data-audit="orders_enrich"' in text.partition('id="pipeline"')[2]


def test_its_page_has_evidence_next_step_and_links(page: Client, incident: Incident) -> None:
    text = page_html(page, f"/incidents/{incident.pk}")
    words = plain(text)
    assert "batch 1,203; missing: order_events-3 at 5 to 7; duplicated: orders_enriched-0 at 9" in words
    assert "spark_pipeline/replay.py" in words
    assert "See which producers write to orders_enriched" in words
    assert "stay blocked" not in words
    assert f"{SUMMARY} audit" in words, "where it was read"
    for link in (PAGE, f"/queries/prod/{factories.QUERY_ID}", "/partitions?cluster=prod&amp;q=order_events"):
        assert f'href="{link}"' in text, link


def test_its_file_has_the_offsets_to_replay(page: Client, incident: Incident) -> None:
    rows = page.get(f"/incidents/{incident.pk}.csv").content.decode().splitlines()
    assert rows[1:] == [
        "order_events,3,5,7,3,missing,,true,",
        "orders_enriched,0,9,9,1,duplicated,,true,",
    ]
