"""Proves what holds for every page in Chromium: by axe, at every width, the same figures on a phone, no other
host asked. `page_checks.py` says what `make test` examines, and `make test-matrix`.
"""

from collections.abc import Mapping

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Examiner, Opener, Server
from tests.browser.page_checks import states
from tests.web.factories import FLINK_IDENT, QUERY_ID

ONE_QUERY = f"/queries/prod/{QUERY_ID}"
STUCK = "/transactions/prod/inventory-sync-stuck-3"
ALERTING = {
    "alerts": "/alerts",
    "channels": "/channels",
    "deliveries": "/deliveries",
    "silences": "/silences",
    "new channel": "/channels/new",
    "new silence": "/silences/new",
}
LISTS = ALERTING | {
    "actions": "/actions",
    "audit": "/audit",
    "incidents": "/incidents?state=all",
    "partitions": "/partitions?internal=1",
    "groups": "/groups",
    "recoveries": "/recoveries",
    "queries": "/queries",
    "pipelines": "/pipelines",
}
READERS = {
    "overview": "/",
    "transactions": "/transactions",
    "no match": "/transactions?q=nothing-like-it&state=open&sort=wrong",
    "system": "/system",
    "coordinators": "/coordinators",
    "scenes": "/scenes",
    "sign-in": "/login/",
    "users": "/access",
    "a user": "/access/1",
    "new user": "/access/new",
    "tokens": "/access/tokens",
}
EVENTS = {"events": "/events?last=24h"}
#: By the kind of data.
PAGES: Mapping[str, Mapping[str, str]] = {
    "busy": {"transaction": STUCK, **READERS},
    "none": LISTS,
    "held": {
        "partitions": "/partitions?internal=1",
        "groups": "/groups",
        "recoveries": "/recoveries",
        "partition, hanging": "/partitions/prod/payments/0",
        "group, waiting": "/groups/prod/billing",
        "rule": "/rules/open_too_long",
        "rules": "/rules",
        "overview": "/",
        "transaction, waited for": STUCK,
        "incidents": "/incidents?state=all",
        **EVENTS,
        "find": "/find?q=pay",
        "find nothing": "/find",
    },
    "queries": {
        "list": "/queries",
        "abandoned": ONE_QUERY,
        "stateful": "/queries/prod/8b3f4c5d-6e7f-4a8b-8c1d-2e3f4a5b6c7d",
        "Flink jobs": "/flink-jobs",
        "Flink job": f"/flink-jobs/prod/{FLINK_IDENT}",
    },
    "acting": {
        "log": "/actions",
        "audit": "/audit",
        "transaction": STUCK,
        "partition": "/partitions/prod/payments/0",
        "events": "/events?source=action",
    },
    "alerts": ALERTING,
    "flow": {"pipelines": "/pipelines"},
}
#: Links to more pages: where they are, and which.
LINKS = {
    "held": {"incident": ("/", "[data-incident] h3 a"), "recovery": ("/recoveries", "a[data-row]")},
    "alerts": {
        "alert": ("/alerts", "a[data-row]"),
        "channel": ("/channels", "a[data-row]"),
        "delivery, failed": ("/deliveries?state=failed", "a[data-row]"),
        "silence": ("/silences", "a[data-row]"),
    },
}
ABOUT_CHANNEL = ("edit", "secret", "delete")
#: Actions are in every state; the gate examines some of them.
ACTIONS, EXAMINED = 11, slice(None, None, 3)
#: What `make test-matrix` examines besides: further states of pages.
FURTHER: dict[str, Mapping[str, str]] = {
    "busy": {
        "complete": "/transactions/prod/orders-gateway-0",
        "lived": "/transactions/prod/payments-1",
        "transitions": "/events?last=24h&source=transition&unfolded=true",
        "events, no match": "/events?kind=rotation&confidence=ambiguous&q=nothing-like-it&last=1h&before=x",
    },
    "none": READERS | EVENTS,
    "held": {
        "partitions, no match": "/partitions?verdict=late&q=nothing-like-it&sort=wrong",
        "partition, clear": "/partitions/prod/orders/0",
        "groups, no match": "/groups?status=STOP&q=nothing-like-it",
        "groups, one family": "/groups?family=spark-kafka-source-*",
        "group, pending": "/groups/prod/inventory-sync",
        "recoveries, no match": "/recoveries?outcome=unseen&cause=takeover",
        "transactions, open": "/transactions?state=open",
        "incidents, no match": "/incidents?severity=info&state=wrong&before=x",
        "events, no match": "/events?from=2020-01-01&to=2020-01-02&source=alert",
        "events, wrong": "/events?from=tomorrow&last=1y&before=x",
    },
    "queries": {
        "unreadable": "/queries/prod/path-1f2e3d4c5b6a7988",
        "overview": "/",
        "no match": "/queries?state=stopped&q=nothing-like-it&sort=wrong",
        "an earlier batch": f"{ONE_QUERY}?batch=1196",
        "listened to": "/queries/prod/9c4a5d6e-7f8a-4b9c-9d2e-3f4a5b6c7d8e",
        "partition": "/partitions/prod/order_events/0",
        "Flink job, unreadable": "/flink-jobs/prod/broken@1",
    },
    "acting": {
        "log, no match": "/actions?state=done&who=nobody&act=wrong",
        "partition, unknown": "/partitions/prod/stock-audit/4",
        "overview": "/",
    },
    "alerts": {"alerts, no match": "/alerts?q=nothing-like-it&state=wrong"},
    "flow": {
        "open": "/pipelines?pipeline=group:warehouse",
        "single": "/pipelines?fold=no&zoom=actual",
        "focus": "/pipelines?focus=topic:payments",
        "no match": "/pipelines?q=nothing-like-it",
        "past": "/pipelines?from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z",
    },
}
FURTHER["large flow"] = {**PAGES["flow"], **FURTHER["flow"]}
EMPTY = {**LISTS, **READERS, **EVENTS, **FURTHER["alerts"]}
FURTHER |= dict.fromkeys(("new", "watched", "blind", "calm"), EMPTY)
#: Figures of their tables have no name on a phone, or their rows have other columns than the head.
NAMELESS = {"pipelines"}
#: By the kind of data: a page whose tables have rows.
WITH_ROWS = {
    "busy": "/transactions",
    "held": "/partitions",
    "queries": "/queries",
    "acting": "/actions",
    "alerts": "/channels",
}
UNKNOWN = {
    "unknown id": "/transactions/prod/never-seen",
    "not found": "/nowhere",
    "no link": "/access/welcome/MQ/never",
}


def linked(page: Page, kind: str) -> dict[str, str]:
    """Return the pages of a kind of data that links lead to."""
    found = {}
    for name, (path, links) in LINKS.get(kind, {}).items():
        page.goto(path)
        found[name] = page.locator(links).first.get_attribute("href") or ""
    return found | {name: f"{found['channel']}/{name}" for name in ABOUT_CHANNEL if "channel" in found}


def actions(page: Page) -> list[str]:
    """Return the addresses of all actions, the newest first."""
    page.goto("/actions")
    links = page.locator("tr[id^=a-] a[data-row]")
    found: list[str] = links.evaluate_all("links => links.map((each) => each.getAttribute('href'))")
    return found


@pytest.mark.parametrize("kind", states(*PAGES, more=(kind for kind in FURTHER if kind not in PAGES)))
def test_a_page_passes_axe_fits_every_width_and_shows_the_same_on_a_phone(
    server: Server, opened: Opener, problems_of_pages: Examiner, kind: str
) -> None:
    server("reset", kind, 20)
    if kind in ("held", "queries"):
        server("hour")
    page = opened("/")
    paths, further = {**PAGES.get(kind, {}), **linked(page, kind)}, dict(FURTHER[kind])
    if kind == "acting":
        ones = {path: path for path in actions(page)}
        assert len(ones) == ACTIONS
        paths |= dict(list(ones.items())[EXAMINED])
        further |= ones
    assert problems_of_pages(page, paths, further, compared=paths.keys() - NAMELESS) == {}
    if kind in WITH_ROWS:
        page.goto(WITH_ROWS[kind])
        assert page.locator("#content tbody tr").count(), "tables were compared"


@pytest.mark.parametrize("kind", states("busy"))
def test_a_page_of_what_is_not_there_does_too(
    server: Server, opened: Opener, problems_of_pages: Examiner, kind: str
) -> None:
    server("reset", kind, 20)
    assert problems_of_pages(opened("/", faults=True), UNKNOWN) == {}
