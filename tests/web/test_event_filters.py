"""Proves the filters and sums of the page of events: transitions by kind, confidence and application, folded
or one by one, with counts that are those of the list; and that the former pages lead there."""

import html
import re
from collections import Counter
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from dashboard.history import queries as history_queries
from dashboard.labels.transition import NOTABLE, TRANSITION_STYLES
from dashboard.models import Cluster, Tally, TransitionRecord
from fenceline.facts import TransitionKind
from fenceline.history.time_range import format_instant
from fenceline.history.timeline import ROUTINE
from tests.cases import cases
from tests.web import factories, scenarios

pytestmark = pytest.mark.django_db

_OF_TRANSITIONS = {"source": "transition"}
#: All that is recorded, one by one.
ALL = "?last=7d&source=transition&unfolded=true"


@pytest.fixture(scope="module")
def prod(rows_of_module: None) -> Cluster:
    of = factories.cluster()
    scenarios.busy_history(of)
    return of


def read(page: Client, query: str = "") -> str:
    answer = page.get(f"/events{query}")
    assert answer.status_code == 200
    return html.unescape(" ".join(answer.content.decode().split()))


def listed(text: str) -> list[int]:
    """Return the keys of the transitions that are listed one by one: of stream 0."""
    return [int(row) for row in re.findall(r'<tr id="e-0-(\d+)-', text)]


def kinds(text: str) -> set[str]:
    return set(re.findall(r'data-event="(\w+)"', text))


def walked(page: Client, query: str) -> list[int]:
    """Return what each page of a list has, one after another."""
    found: list[int] = []
    while query:
        text = read(page, query)
        found += listed(text)
        older = re.search(r'rel="next" href="(\?[^"]*)"', text)
        query = older[1] if older else ""
    return found


def test_each_kind_has_its_word_its_shape_and_its_confidence(page: Client, prod: Cluster) -> None:
    text = read(page, ALL)
    assert len(kinds(text)) > 4
    for look in (TRANSITION_STYLES[TransitionKind(kind)] for kind in kinds(text)):
        assert f'mark-{look.tone}" aria-hidden="true"></i>{look.words}' in text
    sure = Counter(re.findall(r'class="sure"><i class="mark mark-(\w+)"', text))
    assert sum(sure.values()) == len(listed(text))


@pytest.mark.parametrize("kind", ["takeover", "timeout", "client_abort", "reinit", "self_recovery"])
def test_a_kind_lists_that_kind_only(page: Client, prod: Cluster, kind: str) -> None:
    folded = read(page, f"?kind={kind}&last=7d")
    assert kinds(folded) == {kind}
    assert bool(listed(folded)) is (kind not in ROUTINE)
    rows = TransitionRecord.objects.filter(kind=kind)
    assert set(walked(page, f"?kind={kind}&last=7d&unfolded=true")) == {row.pk for row in rows}


@pytest.mark.parametrize("confidence", ["certain", "probable", "ambiguous"])
def test_confidence_is_a_filter(page: Client, prod: Cluster, confidence: str) -> None:
    wanted = TransitionRecord.objects.filter(confidence=confidence)
    assert set(walked(page, f"{ALL}&confidence={confidence}")) == {row.pk for row in wanted}
    # Folded lines count those alone.
    api = page.get("/api/v1/events", {"last": "7d", "confidence": confidence, "limit": 1_000}).json()
    assert api["next"] is None
    assert sum(each["count"] or 1 for each in api["items"]) == wanted.count()
    assert {each["confidence"] for each in api["items"] if not each["count"]} <= {confidence}


def test_an_application_and_a_search_narrow_the_list(page: Client, prod: Cluster) -> None:
    payments = TransitionRecord.objects.filter(application="payments")
    assert set(walked(page, f"{ALL}&application=payments")) == {row.pk for row in payments}
    some = payments.first()
    assert some is not None
    mine = TransitionRecord.objects.filter(transactional_id__contains=some.transactional_id)
    assert set(walked(page, f"{ALL}&q={some.transactional_id}")) == {row.pk for row in mine}


def test_every_transition_is_on_one_page_and_newest_first(page: Client, prod: Cluster) -> None:
    rows = TransitionRecord.objects.order_by("-at_ms", "-id").values_list("id", flat=True)
    assert walked(page, ALL) == list(rows)


@pytest.mark.parametrize("filters", ["", "&confidence=probable", "&application=payments", "&q=payments"])
def test_the_chips_count_what_the_list_holds(page: Client, prod: Cluster, filters: str) -> None:
    text = read(page, f"?last=7d{filters}")
    chips = text.partition('aria-label="Filter by kind"')[2].partition("</nav>")[0]
    found = {
        kind: int(n) for kind, n in re.findall(r'mark-(\w+)" [^>]*></i>[^<]* <b class="number">(\d+)<', chips)
    }
    listed_now = TransitionRecord.objects.filter(pk__in=walked(page, f"{ALL}{filters}"))
    assert found == dict(Counter(listed_now.values_list("kind", flat=True)))
    assert list(found) == [kind.value for kind in NOTABLE if kind.value in found]


def test_counts_are_those_of_the_range(page: Client, prod: Cluster) -> None:
    times = sorted(TransitionRecord.objects.values_list("at_ms", flat=True))
    start, end = times[len(times) // 3], times[2 * len(times) // 3]
    asked = {"from": format_instant(start), "to": format_instant(end), "source": "transition"}
    text = html.unescape(" ".join(page.get("/events", asked).content.decode().split()))
    chips = text.partition('aria-label="Filter by kind"')[2].partition("</nav>")[0]
    expected = sum(start <= at < end for at in times)
    assert sum(map(int, re.findall(r'<b class="number">(\d+)<', chips))) == expected
    sums = text.partition('id="by-application"')[2].partition("</details>")[0]
    counted = sum(int(n) for n in re.findall(r'<span class="nowrap">(\d+)', sums))
    assert counted == sum(start <= at < end for at in times)


def test_applications_are_listed_with_most_first(page: Client, prod: Cluster) -> None:
    sums = read(page, "?last=7d").partition('id="by-application"')[2].partition("</details>")[0]
    names = re.findall(r'<tr id="application-[^"]*">.*?<bdi>([^<]+)</bdi>.*?</tr>', sums)
    most = Counter(TransitionRecord.objects.values_list("application", flat=True))
    assert names == sorted(most, key=lambda name: (-most[name], name))


def test_what_other_sources_have_is_left_out_with_a_kind(page: Client, prod: Cluster) -> None:
    factories.finding(prod, "transaction:payments-7")
    assert "opened" in kinds(read(page, "?last=1h"))
    assert "opened" not in kinds(read(page, "?last=1h&confidence=certain"))
    assert page.get("/api/v1/events", {"kind": "timeout", "source": "finding"}).json()["items"] == []


def test_clusters_are_merged_by_their_instants(page: Client, prod: Cluster) -> None:
    staging = factories.watched_cluster("staging")
    factories.transaction_histories(staging, 10, hours=20, dice=50)
    rows = TransitionRecord.objects.order_by("-at_ms", "-id").values_list("id", flat=True)
    assert listed(read(page, ALL)) == list(rows[:50])
    only = TransitionRecord.objects.filter(cluster=staging).values_list("pk", flat=True)
    assert set(walked(page, f"{ALL}&cluster=staging")) == set(only)


def test_a_search_that_is_cut_short_says_how_far_it_came(
    page: Client, prod: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_queries, "MOST_SEARCHED", 20)
    oldest = TransitionRecord.objects.order_by("at_ms", "id").first()
    assert oldest is not None
    query = f"{ALL}&q={oldest.transactional_id}"
    assert "Searched back to" in read(page, query)
    wanted = TransitionRecord.objects.filter(transactional_id__contains=oldest.transactional_id)
    assert set(walked(page, query)) == set(wanted.values_list("id", flat=True))


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


@cases(
    ("/fencing", "/events", {"last": "24h", **_OF_TRANSITIONS}),
    (
        "/fencing?since=7d&kind=timeout&confidence=certain&application=a%20b&q=x&cluster=prod&before=5-5",
        "/events",
        {
            "last": "7d", "kind": "timeout", "confidence": "certain", "application": "a b", "q": "x",
            "cluster": "prod", "source": "transition",
        },
    ),
    ("/fencing?kind=all", "/events", {"last": "24h", "source": "transition", "unfolded": "true"}),
    (
        "/fencing?kind=reinit&from=2026-11-18T02:00:00Z",
        "/events",
        {"from": "2026-11-18T02:00:00Z", "kind": "reinit", "source": "transition", "unfolded": "true"},
    ),
    ("/feed?application=a&last=1h", "/events", {"application": "a", "last": "1h", **_OF_TRANSITIONS}),
    ("/history", "/reports", {}),
    ("/history?since=90d&by=aborts", "/reports", {"last": "90d", "by": "aborts"}),
)  # fmt: skip
def test_a_former_address_leads_to_what_it_showed(
    page: Client, prod: Cluster, former: str, path: str, asked: dict[str, str]
) -> None:
    answer = page.get(former)
    assert answer.status_code == 302
    there = urlsplit(answer["Location"])
    assert there.path == path
    assert {name: values[0] for name, values in parse_qs(there.query).items()} == asked
    text = page.get(answer["Location"]).content.decode()
    assert "Ignored" not in text
