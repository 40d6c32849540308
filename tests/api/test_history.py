"""Proves the API of what happened: transitions with evidence, revisions in order, applications; and of
reports: the same sums by application, id and day, and problems in words."""

from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from dashboard.api.routers import applications
from dashboard.config import ClusterConfig, Config
from dashboard.history import job_outputs
from dashboard.history import queries as history_queries
from dashboard.models import Cluster, Transaction, TransitionRecord
from dashboard.runtime.write_transactions import next_rev
from fenceline.facts import OPEN_STATES
from fenceline.history.reports import Manifest
from tests.api.conftest import Ask, all_items
from tests.cases import cases
from tests.web import factories, history_reports, scenarios
from tests.web.history_reports import manifest, report

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def prod(rows_of_module: None) -> Cluster:
    """A cluster with a day of history."""
    of = factories.cluster()
    scenarios.busy_history(of)
    return of


def places(items: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(item["partition"], item["offset"]) for item in items]


def expected(**wanted: object) -> list[tuple[int, int]]:
    rows = TransitionRecord.objects.filter(**wanted).order_by("-at_ms", "-id")
    return list(rows.values_list("log_partition", "log_offset"))


@pytest.mark.sql
def test_cursors_walk_through_every_transition_once_newest_first(ask: Ask) -> None:
    assert places(all_items(ask, "transitions?limit=7")) == expected()


@pytest.mark.sql
@cases(
    ("kind=takeover", {"kind": "takeover"}),
    ("confidence=ambiguous", {"confidence": "ambiguous"}),
    ("application=payments", {"application": "payments"}),
    ("application=payments&kind=reinit", {"application": "payments", "kind": "reinit"}),
    ("transactional_id=payments-1", {"transactional_id": "payments-1"}),
    ("transactional_id=bad%5Cescape", {"transactional_id": "none"}),
)
def test_filters(ask: Ask, query: str, wanted: dict[str, object]) -> None:
    assert places(all_items(ask, f"transitions?limit=5&{query}")) == expected(**wanted)


@pytest.mark.sql
def test_a_search_cut_short_still_comes_to_everything(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_queries, "MOST_SEARCHED", 10)
    assert places(all_items(ask, "transitions?limit=5&confidence=ambiguous")) == expected(
        confidence="ambiguous"
    )
    told = sorted(places(all_items(ask, "transitions?since_rev=0&limit=5&kind=reinit")))
    assert told == sorted(expected(kind="reinit"))


@pytest.mark.sql
def test_since_rev_tells_what_was_told_or_revised_after_it(ask: Ask) -> None:
    prod = Cluster.objects.get()
    before = prod.rev
    assert ask(f"transitions?since_rev={before}")["items"] == []
    factories.takeover_history(prod, b"fresh")
    told = all_items(ask, f"transitions?since_rev={before}&limit=1")
    assert {item["transactional_id"] for item in told} == {"fresh"}
    assert {item["rev"] for item in told} == {before + 1}
    # One that is revised is told again, at its new revision.
    TransitionRecord.objects.filter(transactional_id="fresh").update(rev=next_rev(prod.pk))
    again = all_items(ask, f"transitions?since_rev={before + 1}&limit=1")
    assert places(again) == places(told)


def test_a_page_of_one_flush_goes_on_within_it(ask: Ask) -> None:
    walked_all = places(all_items(ask, "transitions?since_rev=0&limit=3"))
    assert sorted(walked_all) == sorted(expected())
    assert len(walked_all) == len(set(walked_all))


def test_a_revised_verdict_says_what_it_was(ask: Ask) -> None:
    revised = [item for item in all_items(ask, "transitions?limit=100") if item["revised_from"]]
    assert revised
    assert all(item["revised_at"] for item in revised)


def test_a_transaction_carries_its_last_transitions(ask: Ask) -> None:
    row = Transaction.objects.exclude(state="Empty").first()
    assert row is not None
    recent = ask(f"transactions/prod/{row.transactional_id}")["recent"]
    assert 1 < len(recent) <= 20
    assert recent == sorted(recent, key=lambda fact: -fact["offset"])
    assert all(fact["evidence"] for fact in recent)


def test_applications_have_sizes_counts_and_durations(ask: Ask) -> None:
    items = {item["application"]: item for item in all_items(ask, "applications?limit=2&window_s=604800")}
    ids = Counter(Transaction.objects.values_list("application", flat=True))
    assert {name: item["ids"] for name, item in items.items()} == dict(ids)
    notable = Counter(TransitionRecord.objects.values_list("application", "kind"))
    for name, item in items.items():
        for kind in ("takeover", "timeout", "client_abort"):
            assert item["counts"].get(kind, 0) == notable[name, kind]
        times = item["open_times"]
        assert times["count"] == item["counts"]["commit"]
        assert times["p50_ms"] <= times["p95_ms"] <= times["p99_ms"]
        assert item["marker_times"]["p50_ms"] <= 16


def test_a_long_window_makes_shorter_pages_and_loses_no_application(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [item["application"] for item in all_items(ask, "applications?limit=500")]
    monkeypatch.setattr(applications, "MOST_TALLIES", 100)
    assert len(ask("applications?window_s=3600")["items"]) == 1
    for window_s in (3600, 86_400, 2_592_000):
        assert [item["application"] for item in all_items(ask, f"applications?window_s={window_s}")] == names


def test_open_ids_of_an_application_are_counted(ask: Ask) -> None:
    held = Transaction.objects.filter(state__in=[state.value for state in OPEN_STATES])
    held = Counter(held.values_list("application", flat=True))
    told = {item["application"]: item["open"] for item in all_items(ask, "applications?limit=3")}
    assert {name: n for name, n in told.items() if n} == dict(held)


def test_collectors_tell_what_they_cost_and_what_they_found(ask: Ask) -> None:
    prod = Cluster.objects.get()
    factories.collector(prod, "reconcile", requests=42, broker_ms=1_234, detail={"compared": 7, "agreed": 7})
    told = {item["name"]: item for item in ask("collectors")["items"]}["reconcile"]
    assert (told["requests"], told["broker_ms"]) == (42, 1_234)
    assert told["detail"] == {"compared": 7, "agreed": 7}


__all__ = ["manifest", "report"]


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


@cases(
    ("cluster=nowhere", 404, "No cluster"),
    ("first_day=2026-12-01&last_day=2026-11-01", 400, "begin before they end"),
    ("first_day=2000-01-01", 400, "up to 1100 days"),
    ("first_day=yesterday", 422, "first_day"),
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
