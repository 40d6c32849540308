"""Proves the Fencing page: what happened is told apart, with evidence, filtered by address, and paged."""

from __future__ import annotations

import html
import random
import re
from collections import Counter

import pytest
from django.test import Client

from dashboard.history import queries as history_queries
from dashboard.labels.transition import LOOKS, NOTABLE
from dashboard.models import Cluster, Tally, TransitionRecord
from fenceline.facts import TransitionKind
from tests.web import factories, scenarios

pytestmark = pytest.mark.django_db


@pytest.fixture
def prod() -> Cluster:
    of = factories.cluster()
    scenarios.busy_history(of)
    return of


def read(page: Client, query: str = "") -> str:
    answer = page.get(f"/fencing{query}")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def shown(text: str) -> list[str]:
    return re.findall(r'<tr id="told-(\d+)"', text)


def kinds(text: str) -> set[str]:
    return set(re.findall(r'<td class="col-kind">.*?mark-(\w+)"', text))


def test_each_kind_has_its_word_its_shape_and_its_evidence(page: Client, prod: Cluster) -> None:
    text = read(page, "?since=24h&kind=all")
    assert len(kinds(text)) > 4
    for kind in kinds(text):
        assert f'mark-{kind}" aria-hidden="true"></i>{LOOKS[TransitionKind(kind)].words}</span>' in text
    assert "Nothing was open, and the epoch rose" in text
    assert re.search(r"Revised from [\w ,-]+ at <time", text)


def test_the_headline_says_what_was_done_to_producers(page: Client, prod: Cluster) -> None:
    number = Counter(TransitionRecord.objects.values_list("kind", flat=True))
    assert f"{number['takeover']} takeovers, {number['timeout']} timeouts" in read(page, "?since=7d")


def test_the_chart_and_the_chips_count_what_the_list_holds(page: Client, prod: Cluster) -> None:
    text = read(page, "?since=7d")
    for kind in NOTABLE:
        number = TransitionRecord.objects.filter(kind=kind.value).count()
        chip = rf'kind={kind}&?[^>]*>.*?</i>{LOOKS[kind].words} <b class="number">(\d+)</b>'
        found = re.search(chip, html.unescape(text))
        assert found, kind
        assert int(found[1]) == number


@pytest.mark.parametrize("kind", ["takeover", "timeout", "client_abort", "reinit", "self_recovery"])
def test_a_kind_shows_that_kind_only(page: Client, prod: Cluster, kind: str) -> None:
    assert kinds(read(page, f"?kind={kind}&since=7d")) == {kind}


def test_initialising_again_is_left_out_unless_it_is_asked_for(page: Client, prod: Cluster) -> None:
    """Pooled ids do it before each transaction: among thousands of it nobody would see a takeover."""
    assert "reinit" not in kinds(read(page, "?since=7d"))
    told = TransitionRecord.objects.exclude(kind="reinit").order_by("-at_ms", "-id")
    assert [int(pk) for pk in shown(read(page, "?since=7d"))] == [row.pk for row in told[:50]]
    assert "reinit" in kinds(read(page, "?since=7d&kind=reinit"))


@pytest.mark.parametrize("confidence", ["certain", "probable", "ambiguous"])
def test_how_sure_is_a_filter(page: Client, prod: Cluster, confidence: str) -> None:
    text = read(page, f"?confidence={confidence}&since=7d&kind=all")
    wanted = TransitionRecord.objects.filter(confidence=confidence).count()
    assert len(shown(text)) == min(50, wanted)


def test_an_application_and_a_search_narrow_the_list(page: Client, prod: Cluster) -> None:
    payments = TransitionRecord.objects.filter(application="payments")
    assert len(shown(read(page, "?application=payments&since=7d&kind=all"))) == min(50, payments.count())
    some = payments.first()
    assert some is not None
    mine = TransitionRecord.objects.filter(transactional_id__contains=some.transactional_id)
    assert len(shown(read(page, f"?q={some.transactional_id}&since=7d&kind=all"))) == min(50, mine.count())


def test_every_transition_is_on_one_page_and_newest_first(page: Client, prod: Cluster) -> None:
    seen: list[str] = []
    query = "?since=7d&kind=all"
    while query:
        text = html.unescape(read(page, query))
        seen += shown(text)
        older = re.search(r'rel="next" href="(\?[^"]*before=[^"]*)"', text)
        query = older[1] if older else ""
    everything = TransitionRecord.objects.order_by("-at_ms", "-id").values_list("id", flat=True)
    assert [int(pk) for pk in seen] == list(everything)


def test_clusters_are_merged_by_their_instants(page: Client, prod: Cluster) -> None:
    staging = factories.cluster("staging")
    factories.tail_collectors(staging)
    factories.transaction_histories(staging, 10, hours=20, dice=50)
    everything = TransitionRecord.objects.order_by("-at_ms", "-id").values_list("id", flat=True)
    assert [int(pk) for pk in shown(read(page, "?since=7d&kind=all"))] == list(everything[:50])
    only = TransitionRecord.objects.filter(cluster=staging).count()
    assert len(shown(read(page, "?since=7d&kind=all&cluster=staging"))) == min(50, only)


def test_a_search_that_is_cut_short_says_how_far_it_came(
    page: Client, prod: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_queries, "MOST_SEARCHED", 20)
    oldest = TransitionRecord.objects.order_by("at_ms", "id").first()
    assert oldest is not None
    query, found, looks = f"?since=7d&kind=all&q={oldest.transactional_id}", set(), 0
    while query:
        text = html.unescape(read(page, query))
        looks += 1
        found |= {int(pk) for pk in shown(text)}
        older = re.search(r'rel="next" href="(\?[^"]*before=[^"]*)"', text)
        assert bool(older) == ("Searched back to" in text or "Older</a>" in text)
        query = older[1] if older else ""
    wanted = TransitionRecord.objects.filter(transactional_id__contains=oldest.transactional_id)
    assert found == set(wanted.values_list("id", flat=True))
    assert looks > 2


def test_more_than_are_counted_are_told_as_more(
    page: Client, prod: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_queries, "MOST_COUNTED", 10)
    assert "10+ in the last 7 d" in read(page, "?since=7d")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?since=2y", "since “2y” is none of 15m, 1h"),
        ("?kind=commit", "kind “commit” is none of takeover"),
        ("?confidence=sure", "confidence “sure” is none of certain"),
        ("?before=yesterday", "before “yesterday” is not a place"),
        ("?before=%C2%B2-1", "is not a place"),
        ("?before=1-99999999999999999999999", "is not a place"),
        ("?cluster=nowhere", "cluster “nowhere” is not configured"),
        ("?kind=<script>alert(1)</script>", "kind “&lt;script&gt;"),
    ],
)
def test_a_bad_value_is_ignored_and_told(page: Client, prod: Cluster, query: str, said: str) -> None:
    text = read(page, query)
    assert said in text
    assert "<script>alert" not in text


@pytest.mark.parametrize(
    "query", ["?q=%00", "?q=%ff", "?q=%25", "?application=%00", "?application=" + "x" * 999]
)
def test_no_search_breaks_the_page(page: Client, prod: Cluster, query: str) -> None:
    assert "No results" in read(page, query) or "Events" in read(page, query)


def test_reasons_for_an_empty_list_read_differently(page: Client) -> None:
    assert "No cluster is configured" in read(page)
    prod = factories.cluster()
    assert "Not collected yet" in read(page)
    factories.gap(prod)
    tail = factories.collector(prod, seen_through_ms=None, error="connection refused")
    assert "Cannot reach prod since" in read(page)
    prod.gaprecord_set.all().delete()
    tail.delete()
    factories.tail_collectors(prod)
    assert "No events in the last 24 h" in read(page)
    assert "No producer was fenced and none timed out" in read(page)
    assert "No results in the last 24 h" in read(page, "?kind=takeover")
    assert "Nothing older" in read(page, "?before=5-5")


@pytest.mark.parametrize("raw", [*factories.HOSTILE_IDS, factories.LONG_ID])
def test_any_id_is_shown_escaped_and_leads_to_its_page(page: Client, raw: bytes) -> None:
    prod = factories.cluster()
    factories.tail_collectors(prod)
    factories.takeover_history(prod, raw)
    text = page.get("/fencing").content.decode()
    link = re.search(r'<a href="([^"]+)" data-row>', text)
    assert link
    assert "<script>alert" not in text
    assert page.get(html.unescape(link[1])).status_code == 200


def test_what_is_counted_for_all_is_the_sum_of_the_applications(prod: Cluster) -> None:
    for span_s in (60, 3600):
        rows = Tally.objects.filter(span_s=span_s)
        every: Counter[TransitionKind] = Counter()
        each: Counter[TransitionKind] = Counter()
        now = factories.now_ms()
        spans = {"since_ms": now - 7 * 86_400_000, "until_ms": now, "step_s": span_s}
        for bucket in history_queries.transition_buckets("prod", **spans):
            every.update(bucket.counts)
        for name in set(rows.exclude(application=Tally.EVERY).values_list("application", flat=True)):
            for bucket in history_queries.transition_buckets("prod", application=name, **spans):
                each.update(bucket.counts)
        assert every == each
        assert every[TransitionKind.COMMIT] > 100


def test_applications_are_listed_with_most_first_and_what_happened(page: Client, prod: Cluster) -> None:
    text = read(page, "?since=7d")
    listed = re.findall(r'<tr id="application-[^"]*">.*?<bdi>([^<]+)</bdi>.*?</tr>', text)
    most = Counter(TransitionRecord.objects.values_list("application", flat=True))
    assert listed == sorted(most, key=lambda name: (-most[name], name))


def test_ids_of_one_name_on_two_clusters_stay_two(page: Client) -> None:
    for name in ("prod", "staging"):
        of = factories.cluster(name)
        factories.tail_collectors(of)
        factories.takeover_history(of, b"same")
    assert len(shown(read(page))) == 2 * len(shown(read(page, "?cluster=prod")))
    assert len(set(re.findall(r'href="(/transactions/[^"]+)" data-row', read(page)))) == 2


def test_histories_are_the_same_for_the_same_dice() -> None:
    walks = [factories.TransactionHistory("a-1", random.Random(4)) for _ in range(2)]
    for walk in walks:
        walk.old = False
        walk.play(walk.now_ms + 100_000, pause_ms=1_000, trouble=0.5)
    assert walks[0].written == walks[1].written
