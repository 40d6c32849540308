"""Proves `/api/v1/history/…`: the same sums by application, id and day, and problems in words."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from dashboard.config import ClusterConfig, Config
from dashboard.history import job_outputs
from fenceline.history.reports import Manifest
from tests.api.client import Ask
from tests.web import history_reports
from tests.web.history_reports import manifest, report

__all__ = ["manifest", "report"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def place(tmp_path: Path, settings: Any) -> Path:
    settings.FENCELINE = Config(
        clusters={"prod": ClusterConfig("prod", {"bootstrap.servers": "127.0.0.1:9092"})},
        history_url=tmp_path.as_uri(),
    )
    job_outputs.clear_cache()
    return tmp_path


def test_three_ways_to_the_same_sums(ask: Ask, manifest: Manifest) -> None:
    span = "first_day=2026-11-01&last_day=2026-12-01"
    by_application = ask(f"history/applications?{span}")
    by_id, by_day = ask(f"history/ids?{span}&limit=500"), ask(f"history/days?{span}")
    for figure in "commits", "aborts", "epochs":
        sums = {sum(each[figure] for each in found["items"]) for found in (by_application, by_id, by_day)}
        assert len(sums) == 1
        assert sums != {0}
    assert [each["application"] for each in by_application["items"]] == ["orders", "payments"]
    for each in by_application["items"]:
        assert each["counts"]["commit"] == each["commits"] >= each["open_times"]["count"] > 0
        times = each["open_times"]
        assert 0 < times["p50_ms"] <= times["p95_ms"] <= times["p99_ms"]
    assert [each["day"] for each in by_day["items"]] == sorted(each["day"] for each in by_day["items"])
    assert (by_id["number"], by_id["whole"], len(by_id["items"])) == (24, True, 24)
    assert by_day["records"] == manifest.records
    assert by_day["undecoded"] == {"value_version": 24}
    assert by_day["batch"] == 1
    assert by_day["as_of"].endswith("Z")


def test_without_days_the_last_thirty_that_are_told(ask: Ask, manifest: Manifest) -> None:
    found = ask("history/days")
    assert found["last_day"] == job_outputs.last_day(manifest)
    assert (date.fromisoformat(found["last_day"]) - date.fromisoformat(found["first_day"])).days == 29
    assert found["items"]


def test_an_application_and_a_rank_narrow_the_ids(ask: Ask, manifest: Manifest) -> None:
    found = ask("history/ids?application=orders&by=aborts&limit=3")
    assert [each["application"] for each in found["items"]] == ["orders"] * 3
    aborts = [each["aborts"] for each in found["items"]]
    assert aborts == sorted(aborts, reverse=True)


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("cluster=nowhere", 404, "No cluster"),
        ("first_day=2026-12-01&last_day=2026-11-01", 400, "begin before they end"),
        ("first_day=2000-01-01", 400, "up to 1100 days"),
        ("first_day=yesterday", 422, "first_day"),
    ],
)
def test_a_bad_question_is_told(ask: Ask, manifest: Manifest, query: str, status: int, said: str) -> None:
    assert said in str(ask(f"history/days?{query}", status))


def test_no_reports_is_a_404_with_the_remedy_and_damage_a_503(ask: Ask, place: Path, settings: Any) -> None:
    assert "Run the history job" in ask("history/days", 404)["detail"]
    manifest = history_reports.history_report(place)
    job_outputs.clear_cache()
    for path in place.glob(f"cluster=prod/parts/part={manifest.parts[0].name}/table=*/day=*/*.parquet"):
        path.write_bytes(b"no parquet")
    assert "cannot be read" in ask("history/days?first_day=2026-11-03", 503)["detail"]
    settings.FENCELINE = Config(clusters=settings.FENCELINE.clusters)
    assert "set [history] url" in ask("history/ids", 404)["detail"]
