"""Proves that a cluster whose topic may not be read is shown live from its coordinators' lists, and says so.

And that System tells how rows hold against coordinators, and what looking costs a cluster.
"""

import pytest
from django.test import Client

from tests.web import factories
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db

NO_READ = "no READ on __transaction_state at kafka:9092; grant it: kafka-acls --add …"


def test_lists_alone_are_live_and_the_page_says_what_is_missing(page: Client) -> None:
    cluster = factories.cluster()
    factories.collector(cluster, error=NO_READ, seen_through_ms=None)
    factories.gap(cluster, reason=NO_READ)
    factories.collector(cluster, "reconcile", detail={"alone": True, "shortest_ms": 2_000})
    factories.collector(cluster, "judge")
    factories.transaction(cluster)
    for path in ("/", "/transactions"):
        text = page_html(page, path)
        assert f'id="listed-{cluster.name}"' in text
        assert 'data-shortest-ms="2000"' in text
        assert "Data is incomplete since" not in text
        assert NO_READ in text
    assert NO_READ in page_html(page, "/system")


def test_trouble_of_the_reconciler_does_not_make_pages_old(page: Client) -> None:
    cluster = factories.cluster()
    factories.tail_collectors(cluster)
    factories.collector(
        cluster, "reconcile", error="cannot reach it", seen_through_ms=factories.now_ms() - 600_000
    )
    assert "Data is incomplete since" not in page_html(page, "/transactions")


def test_system_tells_agreement_and_cost(page: Client) -> None:
    cluster = factories.cluster()
    minute = factories.now_ms() // 60_000 - 1
    # The same in both, since a minute may end while the test runs.
    costs = [[minute, 90, 30], [minute + 1, 90, 30]]
    factories.collector(cluster, costs=[[minute, 30, 0], [minute + 1, 30, 0]])
    detail = {"compared": 20_000, "agreed": 19_999, "corrected": 1, "hidden": 3}
    factories.collector(cluster, "reconcile", detail=detail, costs=costs)
    text = page_html(page, "/system")
    assert "agree: 99.99 %" in text
    assert '<td class="number">2.0</td>' in text, "120 requests in the last full minute"
    assert '<td class="number">0.5 ms/s</td>' in text
