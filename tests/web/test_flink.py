"""Proves that the pages of Flink's jobs show what the newest checkpoint decided to commit and what became of
it, what else is open under a job's prefixes, and what cannot be read; and that the commit of what is pending
is offered to who may act."""

import re
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from dashboard.config import CheckpointRoot, EngineEndpoint
from dashboard.models import Cluster, FlinkJob
from fenceline.engines.flink.records import TransactionOwnership
from fenceline.engines.status import EngineKind
from tests.cases import cases
from tests.web import factories, scenarios
from tests.web.factories import FLINK_IDENT
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db
JOB = f"/flink-jobs/prod/{FLINK_IDENT}"


def rows_of(text: str, table: str) -> list[str]:
    """Return the rows of the table with a hook, without their tags."""
    body = re.search(rf"<table[^>]*data-{table}.*?</table>", text)
    rows = re.findall(r"<tr id=.*?</tr>", body[0]) if body else []
    return [" ".join(re.sub("<[^>]+>", " ", row).split()) for row in rows]


@pytest.fixture
def decided(prod: Cluster) -> FlinkJob:
    """A job whose checkpoint decided four commits, each with another fate."""
    return scenarios.flink_job_of_every_fate(prod)


def test_what_a_checkpoint_decided_is_shown_with_what_became_of_it(page: Client, decided: FlinkJob) -> None:
    text = page_html(page, JOB)
    rows = rows_of(text, "pending")
    assert [row.split()[0] for row in rows] == ["copy-2-41", "copy-0-41", "copy-3-41", "copy-1-41"]
    assert "lost" in rows[0]
    assert "CompleteAbort" in rows[0]
    assert "not yet committed Ongoing" in rows[1]
    assert "unknown" in rows[2]
    assert "committed CompleteCommit" in rows[3]
    # Its timeout is ten minutes, of which 100 seconds are over.
    assert re.search(r'data-until="timed out"[^>]*>8 min', text)


def test_a_restore_is_foretold(page: Client, decided: FlinkJob) -> None:
    fact = re.search(r"data-fact>([^<]+)<", page_html(page, JOB))
    assert fact is not None
    assert fact[1] == (
        "A restore from chk-41 loses the records of 1 transaction, aborted before; commits 1 transaction; "
        "commits 1 transaction if still open, which is not known; finds 1 transaction committed."
    )


def test_what_a_job_manager_reports_is_shown_and_why_it_cannot_be_read(
    page: Client, decided: FlinkJob, settings: Any
) -> None:
    assert "data-run" not in page_html(page, JOB)
    manager = EngineEndpoint(EngineKind.FLINK, "http://jm:8081", "prod")
    settings.FENCELINE = replace(settings.FENCELINE, engines=[manager])
    factories.flink_run(decided)
    text = page_html(page, JOB)
    assert "RESTARTING" in text
    assert "Checkpoint 42 failed: <bdi>Checkpoint expired before completing." in text
    assert rows_of(text, "operators") == ["Source: in -&gt; Sink: Writer RUNNING parallelism 2"]
    assert "data-api-trouble" not in text
    reason = "http://jm:8081 does not answer"
    factories.gap(decided.cluster, source="engines", scope="api:http://jm:8081", reason=reason)
    decided.cluster.__class__.objects.update(rev=decided.cluster.rev + 1)
    trouble = page_html(page, JOB).partition("data-api-trouble>")[2].strip()
    assert trouble.startswith(f"{reason}. Not read for <time")


@pytest.mark.sql
def test_the_list_counts_what_is_pending_and_what_became_of_it(page: Client, decided: FlinkJob) -> None:
    factories.flink_job(decided.cluster, ident="older@1", prefix="other", age_ms=900_000)
    rows = rows_of(page_html(page, "/flink-jobs"), 'list="flink"')
    assert [row.split()[0] for row in rows] == ["copy", "other"]
    assert "checkpoint 41" in rows[0]
    assert "4 pending" in rows[0]
    assert "1 lost 1 not yet committed 1 unknown 1 committed" in rows[0]
    assert "nothing to commit" in rows[1]
    for asked, expected in (("q=OTHER", ["other"]), ("sort=age&dir=desc", ["other", "copy"])):
        found = rows_of(page_html(page, f"/flink-jobs?{asked}"), 'list="flink"')
        assert [row.split()[0] for row in found] == expected


def test_the_commit_is_offered_to_who_may_act(page: Client, operator: Client, decided: FlinkJob) -> None:
    form = re.search(r'<form[^>]*data-act="commit_flink".*?</form>', page_html(operator, JOB))
    assert form is not None
    expected = [("act", "commit_flink"), ("subject", "copy-0-41")]
    assert re.findall(r'name="(act|subject)" value="([^"]+)"', form[0]) == expected
    refused = page_html(page, JOB)
    assert 'data-act="commit_flink"' not in refused
    assert "dashboard.commit_flink" in refused


def test_a_read_only_cluster_offers_no_commit(operator: Client, decided: FlinkJob, settings: Any) -> None:
    clusters = settings.FENCELINE.clusters
    settings.FENCELINE = replace(
        settings.FENCELINE, clusters={**clusters, "prod": replace(clusters["prod"], read_only=True)}
    )
    text = page_html(operator, JOB)
    assert 'data-act="commit_flink"' not in text
    assert "Cluster prod is read_only" in text


def test_what_a_rule_finds_is_on_the_page_of_the_job(page: Client, decided: FlinkJob) -> None:
    subject = f"flink_job:{decided.ident}"
    found = factories.finding(decided.cluster, subject, rule="flink_commit_pending", summary="copy is late")
    text = page_html(page, JOB)
    assert f'id="finding-{found.pk}"' in text
    assert "copy is late" in text


@cases(
    ("copy-0-41", "chk-41 decided to commit this transaction, and nobody has yet"),
    ("copy-1-41", "and it is committed"),
    ("copy-2-41", "which was aborted: the records are lost"),
    ("copy-0-99", "does not hold this transaction: nothing is decided"),
)
def test_a_transaction_names_its_job_and_what_was_decided(
    page: Client, decided: FlinkJob, name: str, words: str
) -> None:
    if name == "copy-0-99":
        factories.transaction(decided.cluster, name)
    line = page_html(page, f"/transactions/prod/{name}").split('data-producer="Flink"')[1].split("</p>")[0]
    assert f'href="{JOB.replace("@", "%40")}"' in line
    assert words in line


def test_the_page_of_a_decided_transaction_offers_the_commit_beside_the_fence(
    operator: Client, decided: FlinkJob
) -> None:
    text = page_html(operator, "/transactions/prod/copy-0-41")
    forms = re.findall(r'name="act" value="(\w+)"', text)
    assert "commit_flink" in forms
    assert "fence" not in forms


def test_ids_that_count_checkpoints_show_what_is_left_behind(page: Client, prod: Cluster) -> None:
    factories.flink_job(prod, [factories.committable("copy-0-41")])
    for name in ("copy-0-41", "copy-0-42", "copy-5-39", "copying-0-1", "copy-x"):
        factories.transaction(prod, name, age_ms=400_000)
    factories.transaction(prod, "copy-6-2", age_ms=2_000)
    rows = rows_of(page_html(page, JOB), "others")
    expected = [("copy-0-42", "writing"), ("copy-5-39", "left"), ("copy-6-2", "unknown")]
    assert [(row.split()[0], row.split()[1]) for row in rows] == expected


def test_what_is_left_behind_is_fenced_from_the_page_and_what_may_write_is_not(
    page: Client, operator: Client, prod: Cluster
) -> None:
    factories.flink_job(prod, [factories.committable("copy-0-41")])
    for name, age_ms in (("copy-5-39", 400_000), ("copy-6-39", 400_000), ("copy-0-42", 400_000)):
        factories.transaction(prod, name, age_ms=age_ms, timeout_ms=900_000)
    # The planner refuses it: it is open for a moment.
    factories.transaction(prod, "copy-7-40", age_ms=500)
    form = re.search(r'<form[^>]*data-act="fence".*?</form>', page_html(operator, JOB))
    assert form is not None
    assert re.findall(r'name="subject" value="([^"]+)"', form[0]) == ["copy-5-39", "copy-6-39"]
    assert "Fence 2 transactions that no checkpoint will commit" in form[0]
    assert 'data-act="fence"' not in page_html(page, JOB)


@cases(
    (1, "copy-5-39", {}, ["fence"]),
    (2, "copy-0-42", {}, []),
    (3, "copy-0-41", {}, ["commit_flink"]),
    (4, "copy-5-39", {"error": "s3://x/_metadata cannot be decoded"}, []),
    (5, "copy-5-39", {"is_savepoint": True}, []),
    (6, "elsewhere-5-39", {}, []),
    (7, "plain", {}, ["fence"]),
)
def test_an_incident_fences_first_what_no_checkpoint_will_commit(
    operator: Client, prod: Cluster, number: int, name: str, job: dict[str, object], primary: list[str]
) -> None:
    """Writing, decided, not known, decided by a savepoint, of Flink's shape alone: none of these."""
    factories.flink_job(prod, [factories.committable("copy-0-41")], **job)
    factories.transaction(prod, name, age_ms=400_000, timeout_ms=900_000)
    factories.finding(prod, f"transaction:{name}")
    acts = re.findall(r'name="act"\s+value="(\w+)"', operator.get("/").content.decode())
    assert acts == primary, f"case {number}"


def test_ids_of_a_pool_are_told_apart_by_when_they_began(page: Client, prod: Cluster) -> None:
    pooled = TransactionOwnership.EXPLICIT_BY_WRITER_STATE
    job = factories.flink_job(prod, age_ms=60_000)
    job.flinkcheckpointrecord_set.all().delete()
    completed_ms = job.completed_ms or 0
    factories.flink_checkpoint(job, "chk-41", ownership=pooled, completed_ms=completed_ms)
    factories.flink_checkpoint(job, "chk-40", ownership=pooled, completed_ms=completed_ms - 60_000)
    for name, age_ms in (("copy-0-0", 1_000), ("copy-0-1", 90_000), ("copy-0-2", 300_000)):
        factories.transaction(prod, name, age_ms=age_ms)
    rows = rows_of(page_html(page, JOB), "others")
    assert [row.split()[1] for row in rows] == ["writing", "unknown", "left"]


def test_the_older_sink_shows_its_pool_and_what_a_restore_leaves_open(page: Client, prod: Cluster) -> None:
    job = scenarios.job_of_older_sink(prod)
    text = page_html(page, JOB)
    assert "<bdi>copy-</bdi>" in text
    expected = [["copy-3", "not"], ["copy-6", "superseded"]]
    assert [row.split()[:2] for row in rows_of(text, "pending")] == expected
    others = rows_of(text, "others")
    assert [row.split()[0] for row in others] == ["copy-30", "copy-4"]
    assert "not in its pool: open until its timeout" in others[0]
    assert "not in its pool" not in others[1]
    (pool,) = re.findall(r"data-pool>(.*?)</p>", text)
    assert "2 subtasks with 10 ids, copy-0 to copy-9. New subtasks take ids from copy-10 on." in pool
    assert "A restore aborts them" not in text
    found = page.get(f"/api/v1{JOB}").json()
    assert [(each["transactional_id"], each["is_aborted_by_restore"]) for each in found["other_open"]] == [
        ("copy-30", False),
        ("copy-4", True),
    ]
    (api_pool,) = found["producer_pools"]
    assert (api_pool["prefix"], api_pool["next_free"], api_pool["safe_parallelism"]) == ("copy-", 10, 1)
    assert [each["fate"] for each in found["commits"]] == ["pending", "superseded"]
    assert str(job) == "copy-"


def test_a_checkpoint_that_cannot_be_read_is_named_and_nothing_is_concluded(
    page: Client, operator: Client, prod: Cluster
) -> None:
    reason = "s3://checkpoints/x/chk-42/_metadata cannot be decoded (version: 9): update Fenceline"
    job = factories.flink_job(
        prod, [factories.committable("copy-0-41")], checkpoint_id=None, error=reason, pending=0
    )
    factories.flink_checkpoint(
        job, "chk-42", error=reason, completed_ms=factories.now_ms(), checkpoint_id=None
    )
    factories.transaction(prod, "copy-0-41", age_ms=100_000)
    factories.transaction(prod, "copy-7-1")
    text = page_html(page, JOB)
    fact = re.search(r"data-fact>([^<]+)<", text)
    assert fact is not None
    assert fact[1] == reason
    assert rows_of(text, "others") == rows_of(text, "pending") == []
    assert "not known" in rows_of(page_html(page, "/flink-jobs"), 'list="flink"')[0]
    assert 'data-act="commit_flink"' not in page_html(operator, JOB)


def test_an_empty_list_names_the_configuration_that_is_missing(
    page: Client, prod: Cluster, settings: Any
) -> None:
    assert 'kind = "flink"' in page_html(page, "/flink-jobs").replace("&quot;", '"')
    root = CheckpointRoot("s3://checkpoints", "prod")
    settings.FENCELINE = replace(settings.FENCELINE, flink_checkpoints=[root])
    assert "No completed checkpoint was found below the configured folders" in page_html(
        page, "/flink-jobs?cluster=prod"
    )


def test_a_page_costs_a_bounded_number_of_queries(
    page: Client, decided: FlinkJob, django_assert_max_num_queries: Any
) -> None:
    for number in range(20):
        some = [factories.committable(f"other{number}-0-41")]
        factories.flink_job(decided.cluster, some, ident=f"job@{number}", prefix=f"other{number}")
    page.get("/flink-jobs")
    for url in ("/flink-jobs", JOB):
        with django_assert_max_num_queries(22):
            page.get(url)
