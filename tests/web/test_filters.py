"""Proves that each list takes every word there is of its filters, and `from` and `to` where its rows have an
instant, in the API and on its page; that a page takes only what it shows, and a wrong value gets a clear
text."""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboard.actions.store import ActionCriteria
from dashboard.alerts.queries import AlertCriteria, DeliveryCriteria
from dashboard.groups.queries import GroupCriteria
from dashboard.history.events import EventCriteria
from dashboard.labels.transition import NOTABLE
from dashboard.models import (
    Action,
    Alert,
    AuditEntry,
    Cluster,
    Delivery,
    FindingRecord,
    Incident,
    Recovery,
    TransitionRecord,
)
from dashboard.partitions.queries import PartitionCriteria
from dashboard.recoveries.queries import RecoveryCriteria
from dashboard.runtime.criteria import Criteria, parameter_choices
from dashboard.streaming.queries import SINKS, QueryCriteria
from dashboard.system.audit import FAMILIES, AuditCriteria, Event
from dashboard.transactions.queries import SORTS, SortedTransactions
from dashboard.web.forms.lists import ListQuery, parse_query
from dashboard.web.pages.actions import ActionListQuery
from dashboard.web.pages.events import EventListQuery
from dashboard.web.pages.groups import GroupListQuery
from dashboard.web.pages.partitions import PartitionListQuery
from dashboard.web.pages.recoveries import RecoveryListQuery
from dashboard.web.pages.transactions import TransactionListQuery
from fenceline.facts import ABORTS, Severity, TransactionState
from fenceline.history.time_range import format_instant
from fenceline.kafka.groups import GroupStatus
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.losses.recoveries import RecoveryOutcome
from fenceline.plans.plan import Act
from fenceline.spark.records import QueryState
from tests.cases import cases
from tests.web import factories, roles, scenarios

pytestmark = pytest.mark.django_db
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR_MS = 3_600_000
#: Lists: the API's noun with what makes it whole, the model, begin and end of a row, "" for one instant.
LISTS: dict[str, tuple[str, type[Any], str, str]] = {
    "actions": ("actions", Action, "planned_at", ""),
    "alerts": ("alerts?state=all", Alert, "since_ms", "resolved_ms"),
    "audit": ("audit", AuditEntry, "at", ""),
    "deliveries": ("deliveries", Delivery, "created_at", ""),
    "findings": ("findings?state=all", FindingRecord, "since_ms", "closed_at"),
    "incidents": ("incidents?state=all", Incident, "opened_ms", "closed_ms"),
    "recoveries": ("recoveries", Recovery, "opened_ms", "closed_ms"),
    "transitions": ("transitions", TransitionRecord, "at_ms", ""),
}
PAGES = sorted(LISTS.keys() - {"findings", "transitions"})


@cases(
    (ActionCriteria, "act", Act),
    (ActionCriteria, "state", Action.State),
    (AlertCriteria, "severity", Severity),
    (AlertCriteria, "state", (*Alert.State, "active", "all")),
    (AuditCriteria, "event", (*FAMILIES, *Event)),
    (DeliveryCriteria, "origin", Delivery.Origin),
    (DeliveryCriteria, "state", Delivery.State),
    (EventCriteria, "kind", NOTABLE),
    (GroupCriteria, "status", (*GroupStatus, "pending")),
    (PartitionCriteria, "verdict", (*PartitionVerdict, "blocked", "pinned")),
    (QueryCriteria, "sink", SINKS),
    (QueryCriteria, "state", (*QueryState, "prepared")),
    (RecoveryCriteria, "cause", ABORTS & set(NOTABLE)),
    (RecoveryCriteria, "outcome", RecoveryOutcome),
    (SortedTransactions, "sort", (*SORTS, "attention")),
    (SortedTransactions, "state", (*TransactionState, "open")),
)
def test_every_word_there_is_can_be_asked_for(
    criteria: type[Criteria], parameter: str, words: Iterable[str]
) -> None:
    assert set(parameter_choices(criteria, parameter)) == set(map(str, words))


def test_a_page_takes_no_parameter_that_it_does_not_show() -> None:
    query = {"topic": "orders", "transactional_id": "a", "actor": "ada", "ignored": "x", "filter": "x"}
    for form in (PartitionListQuery, RecoveryListQuery, ActionListQuery):
        wanted = parse_query(query, form, "", ["prod"])
        assert wanted == form(ignored=wanted.ignored)
        assert [text.split()[0] for text in wanted.ignored] == [f"“{name}”" for name in query]
        assert not wanted.narrowed


def test_an_unknown_parameter_is_named_with_the_nearest() -> None:
    wanted = parse_query({"stat": "ongoing", "from": "2026-01-01"}, TransactionListQuery, "", [])
    assert wanted.ignored == ("“stat” is not a parameter of this list (nearest: state)",)


@cases(
    (TransactionListQuery, {"page": "-1"}, "page “-1” is not a page number"),
    # Superscript two is a digit to Python.
    (TransactionListQuery, {"page": "²"}, "page “²” is not a page number"),
    (TransactionListQuery, {"page": "99999999999999999999"}, "is not a page number"),
    (TransactionListQuery, {"size": "7"}, "size “7” is none of 50, 100, 200"),
    (TransactionListQuery, {"min_age_s": "nan"}, "min_age_s “nan” is not a number of seconds"),
    (TransactionListQuery, {"min_age_s": "inf"}, "is not a number of seconds"),
    (TransactionListQuery, {"min_age_s": "-5"}, "is not a number of seconds"),
    (TransactionListQuery, {"state": "\0\x1b"}, "state “�” is none of open"),
    (EventListQuery, {"before": "1-1-99999999999999999999999"}, "is not a place"),
)
def test_a_value_beyond_what_can_be_is_ignored_and_named(
    form: type[ListQuery], asked: dict[str, str], said: str
) -> None:
    (problem,) = parse_query(asked, form, "", []).ignored
    assert said in problem


def test_a_parameter_has_the_name_that_addresses_use() -> None:
    assert parse_query({"who": "ada"}, ActionListQuery, "", []).actor == "ada"


def test_the_order_follows_what_is_asked() -> None:
    assert parse_query({"state": "open"}, TransactionListQuery, "", []).sort == "started"
    assert parse_query({"state": "Empty"}, TransactionListQuery, "", []).sort == "attention"
    assert parse_query({"sort": "lag"}, GroupListQuery, "", []).descending
    assert not parse_query({"sort": "lag", "dir": "asc"}, GroupListQuery, "", []).descending
    assert not parse_query({"sort": "name"}, GroupListQuery, "", []).descending


def test_one_wrong_value_leaves_the_others_as_they_are() -> None:
    wanted = parse_query(
        {"state": "x", "sort": "epoch", "page": "0", "q": " a "}, TransactionListQuery, "", []
    )
    assert (wanted.state, wanted.sort, wanted.page, wanted.q) == ("", "epoch", 1, "a")
    assert [problem.split()[0] for problem in wanted.ignored] == ["state", "page"]


@pytest.fixture(scope="module")
def prod(rows_of_module: None) -> Cluster:
    """A cluster whose rows are spread over the last ten hours, some of them open."""
    of = factories.cluster()
    scenarios.busy_transactions(of, 60)
    scenarios.busy_partitions(of)
    scenarios.busy_alerts(of)
    factories.transaction_histories(of, 6, hours=10, trouble=0.3)
    pager = factories.channel("ranges")
    for number in range(12):
        factories.planned_action()
        factories.audit_entry()
        factories.delivery(pager)
        factories.recovery(of, f"episode-{number}")
        factories.incident_of(of, factories.finding(of, f"partition:t-{FindingRecord.objects.count()}"))
    now = factories.now_ms()
    for _, model, start, end in LISTS.values():
        for number, row in enumerate(model.objects.order_by("pk")[:40]):
            begun = now - (number * 37 % 600) * 60_000
            columns = {start: _value(start, begun)}
            if end and number % 3:
                columns[end] = _value(end, begun + 20 * 60_000)
            model.objects.filter(pk=row.pk).update(**columns)
    return of


def _value(field: str, ms: int) -> int | datetime:
    return ms if field.endswith("_ms") else EPOCH + timedelta(milliseconds=ms)


def _ms(value: int | datetime | None) -> int | None:
    return (value - EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value


def expected(noun: str, keep: Callable[[int, int | None], bool]) -> int:
    _, model, start, end = LISTS[noun]
    rows = model.objects.all()
    return sum(keep(_ms(getattr(row, start)) or 0, _ms(getattr(row, end)) if end else 0) for row in rows)


@pytest.mark.parametrize("noun", LISTS)
def test_a_list_has_what_was_in_the_range(prod: Cluster, noun: str) -> None:
    admin, now = roles.client_with_role("admin"), factories.now_ms()
    start, end = now - 7 * HOUR_MS, now - 3 * HOUR_MS
    url, _, _, lasts = LISTS[noun]
    sign = "&" if "?" in url else "?"

    def number(**asked: int) -> int:
        query = "&".join(f"{name.rstrip('_')}={format_instant(ms)}" for name, ms in asked.items())
        body = admin.get(f"/api/v1/{url}{sign}limit=500&{query}").json()
        assert body["next"] is None
        return len(body["items"])

    if lasts:
        want = [
            expected(noun, lambda begun, over: begun < end and (over is None or over >= start)),
            expected(noun, lambda _, over: over is None or over >= start),
            expected(noun, lambda begun, _: begun < end),
        ]
    else:
        want = [
            expected(noun, lambda at, _: start <= at < end),
            expected(noun, lambda at, _: at >= start),
            expected(noun, lambda at, _: at < end),
        ]
    assert [number(from_=start, to=end), number(from_=start), number(to=end)] == want
    assert 0 < want[0] < expected(noun, lambda *_: True)


def numbers(text: str) -> list[str]:
    """Return the rows of a list, by the numbers in their elements."""
    return re.findall(r'\sid="(?:a|d|e|incident|r)-(\d+)"', text)


@pytest.mark.parametrize("noun", PAGES)
def test_a_page_has_the_range_of_its_address(prod: Cluster, noun: str) -> None:
    admin, now = roles.client_with_role("admin"), factories.now_ms()
    start, end = now - 7 * HOUR_MS, now - 3 * HOUR_MS
    lasts = LISTS[noun][3]

    def inside(begun: int, over: int | None) -> bool:
        return begun < end and (over is None or over >= start) if lasts else start <= begun < end

    text = admin.get(f"/{noun}", {"from": format_instant(start), "to": format_instant(end)}).content.decode()
    assert len(numbers(text)) == min(50, expected(noun, inside))
    # Before anything was recorded.
    early = admin.get(f"/{noun}", {"from": "2001-01-01", "to": "2001-01-02"}).content.decode()
    assert numbers(early) == []
    shown = re.search(r"data-headline>\s*(No |All incidents|The first read|Deliveries)", early)
    assert shown
