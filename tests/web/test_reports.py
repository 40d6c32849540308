"""Proves the page of reports: the job's figures as they are, or why there are none and how to make them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from dashboard.config import ClusterConfig, Config
from dashboard.history import arrow_rows, job_outputs
from dashboard.history.job_outputs import ReportTrouble
from dashboard.models import Cluster
from fenceline.facts import ABORTS, TransitionKind
from fenceline.history.reports import Manifest, folder_of, sum_figures
from fenceline.owners import Owner
from tests.cases import cases
from tests.web import factories, history_reports
from tests.web.history_reports import manifest, report
from tests.web.roles import page_html

__all__ = ["manifest", "report"]

pytestmark = pytest.mark.django_db

BOOTSTRAP = "broker-1.example:9092,broker-2.example:9092"


@pytest.fixture(autouse=True)
def looked_at_anew() -> None:
    job_outputs.clear_cache()


@pytest.fixture
def place(tmp_path: Path, settings: Any) -> Path:
    """The folder that the configuration names; nothing is in it, and it is not there."""
    folder = tmp_path / "reports"
    properties = {"bootstrap.servers": BOOTSTRAP}
    names = ("prod", "staging")
    settings.FENCELINE = Config(
        clusters={name: ClusterConfig(name, properties) for name in names}, history_url=folder.as_uri()
    )
    factories.tail_collectors(factories.cluster())
    return folder


def whole(place: Path, manifest: Manifest, last: str = "2026-12-31") -> Any:
    days = job_outputs.application_days(place.as_uri(), manifest, "2026-01-01", last)
    assert not isinstance(days, ReportTrouble), days
    return sum_figures(each.figures for each in days)


def test_each_figure_is_the_sum_of_the_reports(page: Client, place: Path, manifest: Manifest) -> None:
    shown, sums = page_html(page, "/reports"), whole(place, manifest)
    ended = sums.commits + sums.aborts
    assert f"% of {ended:,} transactions aborted from 2026-10-2" in shown
    assert f"By day: {sums.commits:,} commits, {sums.aborts:,} aborts." in shown
    assert f"{manifest.records:,} records of" in shown
    assert "value version 99" in shown
    for name in "orders", "payments":
        assert f"<bdi>{name}</bdi>" in shown
    assert sums.counts[TransitionKind.TIMEOUT] > 0
    assert sums.aborts == sum(sums.counts.get(kind, 0) for kind in ABORTS)


def test_an_application_and_a_range_narrow_everything(page: Client, place: Path, manifest: Manifest) -> None:
    shown = page_html(page, "/reports?application=orders&from=2026-11-18&to=2026-11-20&by=aborts")
    assert "transactions of orders aborted from 2026-11-18 to 2026-11-19." in shown
    assert "<bdi>payments</bdi>" not in shown
    assert "by aborts" in shown
    nobody = page_html(page, "/reports?application=nobody")
    assert "No transaction of nobody ended from " in nobody
    assert "Nothing from" in nobody
    assert "Ignored" in page_html(page, "/reports?by=size")
    early = page_html(page, "/reports?from=2026-01-01T22:00:00Z&to=2026-01-02T02:00:00Z")
    assert "Nothing from 2026-01-01 to 2026-01-02" in early
    assert f"Reports end with {job_outputs.last_day(manifest)}." in early


def test_the_busiest_ids_are_those_with_the_most(place: Path, manifest: Manifest) -> None:
    for by in "commits", "aborts", "epochs":
        found = job_outputs.busiest_ids(place.as_uri(), manifest, "2026-01-01", "2026-12-31", by=by, most=500)
        assert not isinstance(found, ReportTrouble)
        numbers = [getattr(each.figures, by) for each in found.items]
        assert numbers == sorted(numbers, reverse=True)
        assert found.whole
        assert found.number == 24
        assert sum_figures(each.figures for each in found.items).commits == whole(place, manifest).commits
    one = job_outputs.busiest_ids(
        place.as_uri(), manifest, "2026-01-01", "2026-12-31", application="orders", by="commits", most=3
    )
    assert not isinstance(one, ReportTrouble)
    assert [each.application for each in one.items] == ["orders"] * 3


def test_no_more_ids_are_ranked_than_memory_has_room_for(
    place: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_rows, "MOST_IDS", 5)
    found = job_outputs.busiest_ids(
        place.as_uri(), manifest, "2026-01-01", "2026-12-30", by="commits", most=500
    )
    assert not isinstance(found, ReportTrouble)
    assert (found.number, found.whole) == (5, False)


def test_only_parts_that_the_manifest_names_count(place: Path, manifest: Manifest) -> None:
    before = whole(place, manifest)
    parts = place / folder_of("prod") / "parts"
    shutil.copytree(parts / f"part={manifest.parts[0].name}", parts / "part=000000000002-died")
    job_outputs.clear_cache()
    assert whole(place, manifest, last="2026-12-29").commits == before.commits


def command() -> str:
    return f"--bootstrap-servers {BOOTSTRAP} \\"


def test_before_the_first_run_the_page_says_how_to_run_the_job(page: Client, place: Path) -> None:
    shown = page_html(page, "/reports")
    assert "No reports yet" in shown
    assert f"{place.as_uri()} does not exist" in shown
    assert command() in shown
    assert f"--cluster prod \\ --output {place.as_uri()} \\ --checkpoint {place.as_uri()}-checkpoint" in shown
    place.mkdir()
    job_outputs.clear_cache()
    assert "is empty" in page_html(page, "/reports")


def test_without_a_place_the_page_says_where_to_name_one(page: Client, prod: Cluster) -> None:
    shown = page_html(page, "/reports")
    assert "Reports are not configured" in shown
    assert "[history] url = " in shown


def test_the_command_has_the_names_of_applications(page: Client, place: Path, settings: Any) -> None:
    assert "--application" not in page_html(page, "/reports")
    owners = Owner("svc-*", "Pay", application="Ledger service"), Owner("*", "Ops")
    settings.FENCELINE = replace(settings.FENCELINE, owners=owners)
    shown = page_html(page, "/reports")
    assert "--application &#x27;svc-*=Ledger service&#x27;" in shown
    assert "--application &#x27;*=&#x27;" in shown


def test_of_a_secured_cluster_the_command_says_so_without_its_secrets(
    page: Client, place: Path, settings: Any
) -> None:
    properties = {
        "bootstrap.servers": BOOTSTRAP, "security.protocol": "SASL_SSL", "sasl.password": "hunter2 in clear",
    }  # fmt: skip
    settings.FENCELINE = Config(
        clusters={"prod": ClusterConfig("prod", properties)}, history_url=place.as_uri()
    )
    shown = page_html(page, "/reports")
    assert "--kafka security.protocol=SASL_SSL @secret.args" in shown
    assert "hunter2" not in shown


def test_whatever_lies_there_is_told_with_path_and_remedy(page: Client, place: Path) -> None:
    (place / "somebody").mkdir(parents=True)
    assert "holds 1 other files and folders, and nothing of the history job" in page_html(page, "/reports")
    history_reports.history_report(place, "staging")
    job_outputs.clear_cache()
    assert "has reports of staging, and none of prod" in page_html(page, "/reports")
    log = place / folder_of("prod") / "log"
    log.mkdir(parents=True)
    (log / "notes.txt").write_text("hello")
    job_outputs.clear_cache()
    assert "holds no manifest" in page_html(page, "/reports")


def test_a_torn_manifest_leaves_the_one_before(page: Client, place: Path, manifest: Manifest) -> None:
    log = place / folder_of("prod") / "log"
    (log / "000000000002.json").write_text('{"format": 1, "clus')
    assert f"{manifest.records:,} records of" in page_html(page, "/reports")
    for path in log.glob("00000000000[01].json"):
        path.unlink()
    job_outputs.clear_cache()
    shown = page_html(page, "/reports")
    assert "The manifest cannot be read" in shown
    assert "000000000002.json: it is torn" in shown
    assert command() in shown


def test_a_newer_layout_is_named_and_not_guessed_at(page: Client, place: Path, manifest: Manifest) -> None:
    path = place / folder_of("prod") / "log" / "000000000003.json"
    path.write_text(json.dumps({"format": 2, "anything": []}))
    shown = page_html(page, "/reports")
    assert "Written by a newer Fenceline" in shown
    assert "its format is 2, this Fenceline knows formats up to 1" in shown


@cases(
    ("no-such-store://bucket/x", "Protocol not known: no-such-store"),
    ("abfs://container@account/x", "Install fsspec’s package"),
)
def test_a_place_that_cannot_be_opened_is_told(
    page: Client, place: Path, settings: Any, url: str, said: str
) -> None:
    settings.FENCELINE = Config(clusters=settings.FENCELINE.clusters, history_url=url)
    shown = page_html(page, "/reports").replace("&#x27;", "’").replace("'", "’")
    assert "The reports cannot be read" in shown
    assert said in shown


def test_parts_that_are_missing_or_foreign_are_told(page: Client, place: Path, manifest: Manifest) -> None:
    part = place / folder_of("prod") / "parts" / f"part={manifest.parts[0].name}"
    for path in part.glob("table=applications/day=*/*.parquet"):
        path.write_bytes(b"no parquet")
    shown = page_html(page, "/reports?from=2026-11-18")
    assert "The reports cannot be read" in shown
    assert command() in shown
    shutil.rmtree(part)
    shown = page_html(page, "/reports?from=2026-11-01")
    assert "A part of the reports is missing" in shown
    assert manifest.parts[0].name in shown
