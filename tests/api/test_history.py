"""Proves the API of what happened: transitions with evidence, revisions in order, applications."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from dashboard.api.routers import applications
from dashboard.history import queries as history_queries
from dashboard.models import Cluster, Transaction, TransitionRecord
from dashboard.runtime.write_transactions import next_rev
from fenceline.facts import OPEN_STATES
from tests.api.client import Ask, all_items
from tests.web import factories, scenarios

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
@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("kind=takeover", {"kind": "takeover"}),
        ("confidence=ambiguous", {"confidence": "ambiguous"}),
        ("application=payments", {"application": "payments"}),
        ("application=payments&kind=reinit", {"application": "payments", "kind": "reinit"}),
        ("transactional_id=payments-1", {"transactional_id": "payments-1"}),
        ("transactional_id=bad%5Cescape", {"transactional_id": "none"}),
    ],
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
