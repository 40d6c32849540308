"""Proves that each list of what has an instant takes `from` and `to`, in the API and on its page: it has
what was within the range, or lasted in it, and nothing else. A wrong range gets a clear text."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

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
from fenceline.history.time_range import format_instant
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
