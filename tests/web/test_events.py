"""Proves that the list of events for a range is what happened in it and nothing else, on the page and in the
API, page by page; that routine ones are folded by the minute; and that a wrong range gets a clear text."""

import random
import re
from collections import Counter
from datetime import UTC, datetime

import pytest
from django.test import Client

from dashboard.history import event_streams
from dashboard.history import events as event_queries
from dashboard.history.events import EventCriteria
from dashboard.models import (
    AlertChange,
    Cluster,
    FindingRecord,
    GapRecord,
    IncidentEvent,
    Recovery,
    TransitionRecord,
)
from fenceline.facts import TransitionKind
from fenceline.history.time_range import TimeRange, format_instant
from fenceline.history.timeline import ROUTINE, EventPlace, TimelineEvent
from tests.web import factories

pytestmark = pytest.mark.django_db

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def prod(rows_of_module: None) -> Cluster:
    """A cluster with an hour of transitions, findings and incidents, whose instants often coincide."""
    of = factories.cluster()
    factories.tail_collectors(of)
    dice, now = random.Random(18), factories.now_ms() // 60_000 * 60_000
    factories.transaction_histories(of, 9, hours=1, trouble=0.5)
    for n in range(40):
        row = factories.finding(of, f"partition:payments-{n}")
        since_ms = now - dice.randrange(60) * 60_000
        closed = datetime.fromtimestamp(since_ms / 1_000 + 60.5, UTC) if n % 2 else None
        FindingRecord.objects.filter(pk=row.pk).update(since_ms=since_ms, closed_at=closed)
        if n % 5 == 0:
            incident = factories.incident_of(of, row)
            IncidentEvent.objects.create(incident=incident, at_ms=since_ms, kind="opened")
    return of


def walked(wanted: EventCriteria, time_range: TimeRange, limit: int) -> list[TimelineEvent]:
    """Every event of a range, `limit` at a time."""
    found: list[TimelineEvent] = []
    before: EventPlace | None = None
    while True:
        page = event_queries.newest_events(wanted, time_range, before=before, limit=limit)
        assert len(page.items) <= limit
        found += page.items
        if page.next is None:
            return found
        assert before is None or page.next < before
        before = page.next


def whole(of: Cluster) -> TimeRange:
    now = factories.now_ms()
    return TimeRange(now - 2 * HOUR_MS, now)


def truth(time_range: TimeRange) -> Counter[tuple[int, str, str]]:
    """What the tables hold of a range, each by instant, word and subject; routine transitions one by one."""
    rows = [
        (row.at_ms, row.kind, f"transaction:{row.transactional_id}") for row in TransitionRecord.objects.all()
    ]
    rows += [
        (row.opened_ms, "opened", f"transaction:{row.transactional_id}") for row in Recovery.objects.all()
    ]
    closed = Recovery.objects.exclude(closed_ms=None)
    rows += [(row.closed_ms or 0, row.outcome, f"transaction:{row.transactional_id}") for row in closed]
    rows += [(row.since_ms, "opened", row.subject) for row in FindingRecord.objects.all()]
    over = [(row, row.closed_at) for row in FindingRecord.objects.all()]
    rows += [(int(at.timestamp() * 1_000), "closed", row.subject) for row, at in over if at]
    rows += [(row.at_ms, row.kind, row.incident.subject) for row in IncidentEvent.objects.all()]
    rows += [(row.at_ms, row.new, row.alert.subject) for row in AlertChange.objects.all()]
    return Counter(row for row in rows if time_range.from_ms <= row[0] < time_range.to_ms)


def told(events: list[TimelineEvent]) -> Counter[tuple[int, str, str]]:
    return Counter((event.at_ms, str(event.what), event.subject) for event in events)


@pytest.mark.sql
@pytest.mark.parametrize("limit", [25, 1_000])
def test_a_range_holds_what_happened_in_it_and_nothing_else(prod: Cluster, limit: int) -> None:
    now = factories.now_ms()
    for time_range in whole(prod), TimeRange(now - 40 * 60_000 - 123, now - 20 * 60_000 + 457):
        events = walked(EventCriteria(unfolded=True), time_range, limit)
        assert told(events) == truth(time_range)
        assert [event.place for event in events] == sorted((event.place for event in events), reverse=True)


@pytest.mark.sql
@pytest.mark.parametrize("limit", [25, 1_000])
@pytest.mark.parametrize("most", [5, 10_000])
def test_routine_transitions_are_folded_by_the_minute(
    prod: Cluster, limit: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "_MOST_COUNTED", most)
    time_range = whole(prod)
    events = walked(EventCriteria(source="transition"), time_range, limit)
    rows = list(TransitionRecord.objects.filter(kind__in=[kind.value for kind in ROUTINE]))
    counts = Counter((row.at_ms // 60_000 * 60_000, row.application, row.kind) for row in rows)
    assert {
        (event.at_ms, event.application, str(event.what)): event.count for event in events if event.count
    } == dict(counts)
    assert len(events) == len(counts) + TransitionRecord.objects.count() - len(rows)
    assert sum(counts.values()) == len(rows) > len(counts)


def test_a_search_finds_the_events_of_a_subject(prod: Cluster) -> None:
    events = walked(EventCriteria(q="payments-3"), whole(prod), 50)
    assert events
    assert all("payments-3" in event.subject for event in events)
    application = walked(EventCriteria(application="payments"), whole(prod), 50)
    assert application
    assert {event.application for event in application} == {"payments"}


def test_the_page_and_the_api_show_the_same_events(page: Client, prod: Cluster) -> None:
    time_range = whole(prod)
    asked = {"from": format_instant(time_range.from_ms), "to": format_instant(time_range.to_ms)}
    api = page.get("/api/v1/events", {**asked, "limit": 50}).json()
    text = page.get("/events", asked).content.decode()
    # The events of an incident are together, so that the order is another one.
    assert sorted(re.findall(r'data-event="(\w+)"', text)) == sorted(each["what"] for each in api["items"])
    following = page.get("/api/v1/events", {**asked, "limit": 50, "cursor": api["next"]}).json()
    older = re.search(r'rel="next"\s+href="([^"]+)"', text)
    assert older
    text = page.get("/events" + older[1].replace("&amp;", "&")).content.decode()
    expected = sorted(each["what"] for each in following["items"])
    assert sorted(re.findall(r'data-event="(\w+)"', text)) == expected


def test_what_was_not_seen_in_the_range_is_said(page: Client, prod: Cluster) -> None:
    now = factories.now_ms()
    inside = factories.gap(prod, since_ms=now - 600_000, until_ms=now - 500_000)
    outside = factories.gap(prod, since_ms=now - 4 * HOUR_MS, until_ms=now - 3 * HOUR_MS, scope="9")
    text = page.get("/events", {"last": "1h"}).content.decode()
    assert re.findall(r'data-gap="(\d+)"', text) == [str(inside.pk)]
    found = page.get("/api/v1/events", {"last": "6h"}).json()["gaps"]
    assert {each["scope"] for each in found} >= {outside.scope, inside.scope}
    assert GapRecord.objects.count() >= 2


def test_a_range_that_begins_before_what_is_kept_says_so(page: Client, prod: Cluster) -> None:
    now = factories.now_ms()
    asked = {"from": format_instant(now - 60 * 24 * HOUR_MS), "to": format_instant(now)}
    assert 'data-cut="transition' in page.get("/events", asked).content.decode()
    kept = page.get("/api/v1/events", asked).json()["kept_since"]
    assert set(kept) == {"transition", "recovery", "coordinator", "finding", "alert", "delivery"}
    assert page.get("/api/v1/events").json()["kept_since"] == {}


def test_a_range_before_the_first_record_is_empty(page: Client, prod: Cluster) -> None:
    asked = {"from": "2001-01-01", "to": "2001-01-02"}
    assert page.get("/api/v1/events", asked).json()["items"] == []
    text = page.get("/events", asked).content.decode()
    assert "data-event=" not in text
    assert "data-cut=" in text


def test_a_busy_lane_leaves_the_marks_of_a_rare_one(prod: Cluster) -> None:
    """Timeouts by the hundred since a takeover: it is marked all the same."""
    now = factories.now_ms()
    TransitionRecord.objects.all().delete()
    interruption(prod, TransitionKind.TAKEOVER, now - 20 * 60_000)
    for number in range(50):
        interruption(prod, TransitionKind.TIMEOUT, now - number * 1_000)
    found, complete_since_ms = event_queries.newest_marks(EventCriteria(), whole(prod), limit=20)
    assert Counter(event.what for event in found) == {"takeover": 1, "timeout": 20}
    assert complete_since_ms == now - 19_000
    _, complete_since_ms = event_queries.newest_marks(EventCriteria(), whole(prod), limit=60)
    assert complete_since_ms is None


def test_interruptions_of_the_last_ten_minutes_are_on_the_first_page(page: Client, prod: Cluster) -> None:
    now = factories.now_ms()
    TransitionRecord.objects.all().delete()
    assert "data-recently" not in page.get("/").content.decode()
    interruption(prod, TransitionKind.TIMEOUT, now - 11 * 60_000)
    assert "data-recently" not in page.get("/").content.decode()
    interruption(prod, TransitionKind.TAKEOVER, now - 60_000, "ambiguous")
    interruption(prod, TransitionKind.TAKEOVER, now - 50_000, "probable")
    interruption(prod, TransitionKind.TIMEOUT, now - 9 * 60_000)
    text = " ".join(page.get("/").content.decode().split())
    line = re.sub("<[^>]+>", "", text.partition("data-recently>")[2].partition("</p>")[0])
    expected = "Recently: 2 takeovers (1 of them certain or probable), 1 timeout in the last 10 minutes."
    assert " ".join(line.split()) == expected
    TransitionRecord.objects.update(action=factories.executed_action())
    assert "data-recently" not in page.get("/").content.decode()


def test_events_of_an_incident_are_one_row_at_the_place_of_the_newest(page: Client, prod: Cluster) -> None:
    now = factories.now_ms()
    cause = factories.finding(prod, "transaction:payments-7", since_ms=now - 60_000)
    row = factories.incident_of(prod, cause)
    IncidentEvent.objects.create(incident=row, at_ms=now - 50_000, kind="opened")
    factories.alert_change(factories.alert(prod, finding=cause.pk, fingerprint=b"f" * 32))
    AlertChange.objects.update(at_ms=now - 40_000)
    held = {"firing": [(b"f" * 32).hex()], "resolved": []}
    factories.delivery(factories.channel(), cluster=prod, held=held, ended_at=datetime.now(UTC))
    factories.finding(prod, "transaction:other", since_ms=now - 45_000)
    text = page.get("/events?last=15m").content.decode()
    group = text.partition(f'data-group="{row.pk}"')[2].partition("</ul>")[0]
    assert re.findall(r'data-event="(\w+)"', group) == ["delivered", "firing", "opened", "opened"]
    assert text.index(f'data-group="{row.pk}"') < text.index("other</bdi>")
    # What an alert said before its present finding began is not of that incident.
    AlertChange.objects.update(at_ms=now - 120_000)
    group = page.get("/events?last=15m").content.decode().partition(f'data-group="{row.pk}"')[2]
    assert "firing" not in re.findall(r'data-event="(\w+)"', group.partition("</ul>")[0])


def test_the_headline_counts_kinds(page: Client, prod: Cluster) -> None:
    now = factories.now_ms()
    TransitionRecord.objects.all().delete()
    for age_ms, kind in (
        (1_000, TransitionKind.TAKEOVER),
        (2_000, TransitionKind.TAKEOVER),
        (3_000, TransitionKind.TIMEOUT),
    ):
        interruption(prod, kind, now - age_ms)
    text = page.get("/events?last=1h").content.decode()
    headline = text.partition("data-headline>")[2].partition("</h1>")[0]
    assert "2 takeovers" in headline
    assert "1 timeout" in headline


def interruption(
    of: Cluster, kind: TransitionKind, at_ms: int, confidence: str = "certain"
) -> TransitionRecord:
    return TransitionRecord.objects.create(
        cluster=of, rev=1, key=b"k" * 32, transactional_id="payments-7", application="payments",
        kind=kind.value, confidence=confidence, reason="broker_late", at_ms=at_ms, producer_id=7,
        producer_epoch=1, timeout_ms=60_000, log_partition=3, log_offset=at_ms, topic_id="topic-1",
    )  # fmt: skip
