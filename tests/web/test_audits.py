"""Proves what is shown of real manifests of the audit job. An unfolded pipeline has the guarantee of each
link, below it the proof of each batch, why there is none, and the proof as a file. An incident has its
figures in the headline, and leads to the audit on the page of pipelines, to its query and to its
partitions."""

import html
import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from django.test import Client
from fsspec import AbstractFileSystem

from dashboard.config import Config
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.history import audits
from dashboard.models import Cluster, Collector, Incident
from dashboard.runtime import leases
from dashboard.tasks import polls
from fenceline.audit.manifest import (
    AuditedBatch,
    AuditedKey,
    AuditedMarker,
    AuditedRange,
    AuditMode,
    AuditObstacle,
    AuditVerdict,
    ObstacleKind,
)
from tests.audit_manifests import audit_manifest, leave_audit, proved_batch
from tests.cases import cases
from tests.turns import take_turns
from tests.web import factories, scenarios
from tests.web.roles import page_html

LINK = re.compile(r'data-link="([^"]+)" data-guarantee="([^"]+)"')
BATCH = re.compile(r'data-batch="([^"]+)" data-verdict="([^"]+)"')
TROUBLE = re.compile(r"data-audit-trouble.*?<b>([^<]+)\.</b>")
OPEN = "/pipelines?pipeline=group:warehouse"
ENRICHED = {"query_id": factories.QUERY_ID, "sources": ("order_events",)}
LOST = AuditedBatch(
    1_203, AuditVerdict.VIOLATED, None, 10, 0, 10, 10, 8, 1, 3,
    (AuditedRange("order_events", 3, 5, 8),), (AuditedRange("orders_enriched", 0, 9, 10),),
)  # fmt: skip
SUMMARY = "3 records are missing and 1 record is duplicated in orders_enriched, compared with order_events"
PAGE = "/pipelines?cluster=prod&amp;pipeline=orders_enrich#pipeline"


@pytest.fixture
def place(tmp_path: Path, settings: Any, prod: Cluster) -> Path:
    """The folder that the configuration names, and a flow with a query that is audited there."""
    audits.clear_cache()
    settings.FENCELINE = Config(audit_url=tmp_path.as_uri())
    scenarios.busy_flow(prod)
    return tmp_path


def statement_of(text: str) -> str:
    words = text.split('data-statement="group:warehouse"')[1].split("<ol")[0]
    return " ".join(re.sub("<[^>]+>", " ", words).split())


def badge_of(text: str, end: str) -> str:
    cell = text.split(f'data-pipeline="{end}"')[1].split("data-proof>")[1].split("</td>")[0]
    return re.sub("<[^>]+>", "", cell).strip()


def links_of(page: Client) -> dict[str, str]:
    """Return the links of all pipelines, each unfolded."""
    ends = "group:warehouse", "group:reports", "group:billing"
    texts = [page_html(page, f"/pipelines?pipeline={end}") for end in ends]
    return {link: guarantee for text in texts for link, guarantee in LINK.findall(" ".join(text.split()))}


def test_each_link_has_a_guarantee_with_its_reason(page: Client, place: Path) -> None:
    found = links_of(page)
    assert found["orders-gateway order_events"] == "exactly_once"
    assert found["order_events orders_enrich"] == "unknown"
    assert found["orders_enrich orders_enriched"] == "exactly_once"
    assert found["orders_enriched warehouse"] == "at_least_once"
    assert found["payments ledger-writer"] == "unknown"
    text = page_html(page, OPEN)
    for reason in ("transactional sink, ledger complete", "isolation of its readers is not known"):
        assert reason in text


def test_what_rows_say_of_links_changes_them(page: Client, prod: Cluster, place: Path) -> None:
    query = prod.query_set.get()
    query.asynchronous = True
    query.save()
    factories.sink_decision(query, 1_200, "lost")
    factories.replica(prod, "order_events", 0, 1, [factories.replica_producer(7)])
    prod.group_set.get(group_id="ledger").groupoffset_set.update(waiting="reads_past")
    found = links_of(page)
    assert found["order_events orders_enrich"] == "at_least_once"
    assert found["orders_enrich orders_enriched"] == "at_most_once"
    assert found["other producers order_events"] == "at_least_once"
    assert found["payments ledger-writer"] == "at_least_once"


def test_the_link_committed_has_the_markers_that_an_audit_found(page: Client, place: Path) -> None:
    marked = replace(proved_batch(1_203), markers=(AuditedMarker("orders_enriched", 1, 70_003),))
    leave_audit(place, audit_manifest(batches=(marked, proved_batch(1_202)), **ENRICHED))
    link = "markers at orders_enriched-1: 70003, by the audit"
    assert link in page_html(page, f"/queries/prod/{factories.QUERY_ID}")
    assert "markers at" not in page_html(page, f"/queries/prod/{factories.QUERY_ID}?batch=1202")


def test_a_transactional_producer_of_a_replica_is_not_outside(
    page: Client, prod: Cluster, place: Path
) -> None:
    producers = [factories.replica_producer(7, 1_200), factories.replica_producer(8, None, "payments-7")]
    factories.replica(prod, "order_events", 0, 1, producers)
    assert "other producers order_events" not in links_of(page)


def test_a_proved_pipeline_has_its_batches_and_its_statement(page: Client, place: Path) -> None:
    prepared = AuditedBatch(1_204, AuditVerdict.PREPARED, None, 18_004, 0, 18_004, 0, 0)
    batches = prepared, proved_batch(1_203), proved_batch(1_202)
    leave_audit(place, audit_manifest(**ENRICHED, batches=batches))
    text = page_html(page, OPEN)
    proved = text.split('data-link="orders_enrich orders_enriched"')[1].split("data-link")[0]
    assert (
        BATCH.findall(" ".join(proved.split()))
        == BATCH.findall(" ".join(text.split()))
        == [
            ("1204", "prepared"),
            ("1203", "proved"),
            ("1202", "proved"),
        ]
    )
    words = statement_of(text)
    assert "Each record of order_events appears exactly once in orders_enriched" in words
    assert "21,640,112 input records since batch 0 · 0 duplicated · 0 missing" in words
    assert "Weakest link: orders_enriched → warehouse (at least once)." in words
    assert links_of(page)["order_events orders_enrich"] == "exactly_once"
    assert f"/queries/prod/{factories.QUERY_ID}?batch=1203#chain" in text
    assert badge_of(text, "group:warehouse") == "weakest link at least once · proved in part"
    assert badge_of(text, "group:billing") == "weakest link at least once · not proved"
    assert "0 of 4 audited and proved exactly once" in text
    assert not TROUBLE.findall(text)


def test_a_pipeline_is_proved_where_each_link_is_exactly_once(
    page: Client, prod: Cluster, place: Path
) -> None:
    leave_audit(place, audit_manifest(**ENRICHED))
    prod.group_set.filter(group_id="warehouse").delete()
    text = page_html(page, "/pipelines")
    assert badge_of(text, "topic:orders_enriched") == "exactly once · proved through batch 1,203"
    assert "1 of 4 audited and proved exactly once" in text


def test_older_batches_are_on_further_pages(page: Client, place: Path) -> None:
    batches = tuple(proved_batch(number) for number in range(1_203, 1_180, -1))
    leave_audit(place, audit_manifest(**ENRICHED, batches=batches))
    shown = [BATCH.findall(" ".join(page_html(page, f"{OPEN}&batches={at}").split())) for at in (1, 2, 3)]
    assert [int(batch) for rows in shown for batch, _ in rows] == list(range(1_203, 1_180, -1))
    assert f"{OPEN.partition('/pipelines')[2]}&amp;batches=2#pipeline".replace(":", "%3A") in page_html(
        page, OPEN
    )


def test_an_audit_of_no_pipeline_is_a_row_of_its_own(page: Client, place: Path) -> None:
    leave_audit(place, audit_manifest("old", sources=("was",), targets=("gone",), missing=2))
    text = page_html(page, "/pipelines")
    assert badge_of(text, "old") == "violated"
    assert 'data-pipeline="old"' in text.split('data-pipeline="group:warehouse"')[1]
    assert 'data-audit="old"' in page_html(page, "/pipelines?pipeline=old")
    assert 'data-pipeline="old"' not in page_html(page, "/pipelines?q=warehouse")


def test_losses_and_duplicates_lead_to_their_partitions(page: Client, place: Path) -> None:
    batch = AuditedBatch(
        1_203, AuditVerdict.VIOLATED, None, 10, 0, 10, 10, 10, 1, 3,
        (AuditedRange("order_events", 3, 5, 8),), (AuditedRange("orders_enriched", 0, 9, 10),),
    )  # fmt: skip
    leave_audit(place, audit_manifest(**ENRICHED, batches=(batch,), missing=3, duplicated=1))
    text = page_html(page, OPEN)
    assert badge_of(text, "group:warehouse") == "3 records missing, 1 record duplicated"
    assert 'href="/partitions/prod/order_events/3">order_events-3: 5–7</a>' in text
    assert 'href="/partitions/prod/orders_enriched/0">orders_enriched-0: 9</a>' in text
    assert "3 records missing and 1 record duplicated of order_events" in statement_of(text)
    assert "1 with missing or duplicated records" in text


def test_keys_of_a_table_are_left_in_the_output_of_the_job(page: Client, place: Path) -> None:
    again = AuditedKey("parquet:/data/out", "customer-4711", 1)
    fields = {"targets": ("parquet:/data/out",), "duplicated": 1, "duplicate_keys": (again,)}
    leave_audit(place, audit_manifest(**ENRICHED, **fields, mode=AuditMode.KEYS, parts=("7-ab",)))
    text = page_html(page, OPEN)
    assert "<code>parts/part=7-ab/table=duplicate_keys</code>" in text
    assert "1 record duplicated of order_events in parquet:/data/out" in statement_of(text)
    assert again.key not in text


def test_an_obstacle_is_named_with_its_consequence(page: Client, place: Path) -> None:
    gone = AuditObstacle(ObstacleKind.COMPACTED, "orders_enriched", "it is compacted", "nothing is proved")
    leave_audit(place, audit_manifest(**ENRICHED, obstacles=(gone,)))
    text = page_html(page, OPEN)
    obstacle = " ".join(text.split('data-obstacle="compacted"')[1].split("</li>")[0].split())
    assert obstacle.endswith("orders_enriched</bdi></b>: it is compacted; nothing is proved")
    assert "exactly once in" not in statement_of(text)


def test_the_newest_run_counts_and_one_before_a_torn_one(page: Client, place: Path) -> None:
    leave_audit(place, audit_manifest(**ENRICHED, run=9, proved_through=900))
    leave_audit(place, audit_manifest(**ENRICHED, run=10, proved_through=1_000))
    leave_audit(place, audit_manifest(run=11)).write_text('{"format": 1')
    assert "through batch 1,000." in page_html(page, OPEN)


def _torn(place: Path) -> None:
    leave_audit(place, audit_manifest()).write_text("{")


def _newer(place: Path) -> None:
    leave_audit(place, audit_manifest()).write_text(json.dumps({"format": 2}))


def _denied(place: Path) -> None:
    file = leave_audit(place, audit_manifest())
    file.unlink()
    file.mkdir()


def _no_manifest(place: Path) -> None:
    leave_audit(place, audit_manifest()).unlink()


@cases(
    (lambda place: None, "No audit yet"),
    (_no_manifest, "No audit yet"),
    (_torn, "The manifest cannot be read"),
    (_newer, "Written by a newer Fenceline"),
    (_denied, "The audits cannot be read"),
)
def test_why_there_is_no_proof_is_named(page: Client, place: Path, make: Any, trouble: str) -> None:
    make(place)
    text = " ".join(page_html(page, OPEN).split())
    assert TROUBLE.findall(text) == [trouble]
    assert "Not proved: no audit of it was read." in text


@cases(("", "The audit is not configured"), ("nowhere://bucket/x", "The audits cannot be read"))
def test_a_store_that_cannot_be_read_is_named(
    page: Client, place: Path, settings: Any, url: str, trouble: str
) -> None:
    settings.FENCELINE = Config(audit_url=url)
    assert TROUBLE.findall(" ".join(page_html(page, "/pipelines").split())) == [trouble]


class SilentStore(AbstractFileSystem):  # type: ignore[misc]
    """A store that answers nothing until the test ends."""

    protocol = "silent"
    ended = threading.Event()

    def ls(self, path: str, **_: Any) -> list[str]:
        self.ended.wait(60)
        raise FileNotFoundError(path)


def test_a_store_that_hangs_holds_up_one_request_for_a_moment(
    page: Client, place: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "PATIENCE_S", 0.05)
    fsspec.register_implementation("silent", SilentStore, clobber=True)
    settings.FENCELINE = Config(audit_url="silent://bucket/x")
    try:
        for _ in range(2):
            text = " ".join(page_html(page, "/pipelines").split())
            assert TROUBLE.findall(text) == ["The audits cannot be read"]
            assert "no answer for " in text
        assert sum(each.name == "read-store" for each in threading.enumerate()) == 1
    finally:
        SilentStore.ended.set()


def test_the_proof_is_a_json_file(page: Client, place: Path) -> None:
    leave_audit(place, audit_manifest(**ENRICHED))
    text = page_html(page, OPEN)
    assert re.search(r'href="/pipelines/proof\.json\?cluster=prod&amp;end=group%3Awarehouse[^"]*"', text)
    answer = page.get("/pipelines/proof.json?cluster=prod&end=group:warehouse")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="proof-prod.json"'
    found = json.loads(answer.content)
    assert found["verdict"] == "proved"
    assert found["audits"][0]["pipeline"] == "orders_enrich"
    assert [each["guarantee"] for each in found["links"]][-1] == "at_least_once"


@pytest.mark.parametrize("query", ["", "?cluster=prod&end=group:nobody", "?cluster=x&end=group:warehouse"])
def test_a_proof_of_no_pipeline_is_not_found(page: Client, place: Path, query: str) -> None:
    assert page.get(f"/pipelines/proof.json{query}").status_code == 404


def test_names_that_break_pages_are_escaped(page: Client, place: Path) -> None:
    evil = "<script>alert(1)</script>"
    gone = AuditObstacle(ObstacleKind.UNREADABLE, evil, evil, evil)
    leave_audit(place, audit_manifest("x", sources=(evil,), targets=(evil,), obstacles=(gone,)))
    text = page_html(page, "/pipelines?pipeline=x")
    assert 'data-audit="x"' in text
    assert "<script>alert" not in text


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
    expected = ["order_events,3,5,7,3,missing,,true,", "orders_enriched,0,9,9,1,duplicated,,true,"]
    assert rows[1:] == expected
