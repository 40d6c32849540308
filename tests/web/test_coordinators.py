"""Proves that one page shows all clusters: what is wrong with each, and what cannot be seen; and that System
and the API tell what works on a cluster, what does not, and what would bring it.

Coordinators, their moves and what follows if a broker dies are shown from what polls have saved. A cluster
whose topic may not be read is shown live from its coordinators' lists, which its page says.
"""

from collections.abc import Mapping

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dashboard.models import Cluster, Collector, CoordinatorMoveRecord
from dashboard.runtime import leases
from dashboard.system.capabilities import cluster_capabilities
from dashboard.transactions import coordinators
from dashboard.transactions.coordinators import CoordinatorRows, save_coordinators
from fenceline.facts import TransactionState
from fenceline.kafka.capabilities import CapabilityState
from fenceline.kafka.coordinator import CoordinatorMove, ObservedCoordinators
from tests.web import factories
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db


def rows_of(text: str) -> dict[str, str]:
    """Return the rows of the page by cluster, in their order."""
    found = text.split('data-cluster-row="')[1:]
    return {row.partition('"')[0]: row.partition("</tr>")[0] for row in found}


def test_clusters_that_need_attention_come_first(page: Client) -> None:
    quiet, stuck = factories.cluster("a-quiet"), factories.cluster("b-stuck")
    for each in (quiet, stuck):
        factories.collector(each, "transaction_state")
    factories.finding(stuck, "transaction:pay-1", "critical")
    factories.finding(stuck, "transaction:other")
    text = page.get("/clusters").content.decode()
    rows = rows_of(text)
    assert list(rows) == ["b-stuck", "a-quiet"]
    assert "2 open, worst critical" in rows["b-stuck"]
    assert 'class="muted"' in rows["a-quiet"]
    assert "1 cluster of 2" in text


def test_what_cannot_be_seen_is_named_per_cluster(page: Client) -> None:
    dark, limited = factories.cluster("dark"), factories.cluster("limited")
    for each in (dark, limited):
        factories.collector(each, "transaction_state")
    factories.gap(dark, source="transaction_state", reason="no route to <host>")
    lacking = {"name": "x", "words": "markers", "state": "missing", "why": "old", "remedies": []}
    detail = {"asked_ms": factories.now_ms(), "trouble": "", "checks": [lacking]}
    factories.collector(limited, "capabilities", detail=detail)
    rows = rows_of(page.get("/clusters").content.decode())
    assert "no route to &lt;host&gt;" in rows["dark"]
    assert "data-lacking" in rows["limited"]
    assert "markers" in rows["limited"]
    assert "data-blind" not in rows["limited"]


def test_more_clusters_take_no_more_queries(page: Client) -> None:
    def asked(name: str) -> int:
        factories.collector(factories.cluster(name), "transaction_state")
        with CaptureQueriesContext(connection) as queries:
            page.get("/clusters")
        return len(queries)

    page.get("/clusters")
    first = asked("one")
    assert max(asked(f"more-{number}") for number in range(5)) <= first + 1


WORKS = {"name": "groups", "words": "groups", "state": "works", "why": "", "remedies": []}
MISSING = {
    "name": "log_history", "words": "history", "state": "missing",
    "why": "no READ on topic <log>", "remedies": ["kafka-acls --add …"],
}  # fmt: skip


def looked_over(*checks: dict[str, object], trouble: str = "") -> Cluster:
    cluster = factories.cluster()
    detail = {"asked_ms": factories.now_ms(), "trouble": trouble, "checks": list(checks)}
    factories.collector(cluster, "capabilities", detail=detail)
    return cluster


def fold_of(text: str, cluster: Cluster) -> str:
    """Return the tag of a cluster's table."""
    return text.split(f'data-capabilities="{cluster.name}"')[1].split(">")[0].strip()


def test_a_missing_capability_has_its_reason_and_remedy_on_system_and_in_the_api(page: Client) -> None:
    cluster = looked_over(WORKS, MISSING)
    text = page.get("/system").content.decode()
    assert fold_of(text, cluster).endswith("open")
    assert 'data-capability="log_history"' in text
    assert "1 of 2 work" in text
    assert "no READ on topic &lt;log&gt;" in text
    assert "<code>kafka-acls --add …</code>" in text
    answer = page.get(f"/api/v1/clusters/{cluster.name}/capabilities").json()
    assert answer["items"] == [WORKS, MISSING]
    assert answer["asked_at"]
    assert page.get("/api/v1/clusters/nowhere/capabilities").status_code == 404
    assert {item["state"] for item in answer["items"]} <= set(CapabilityState)


def test_what_works_is_folded(page: Client) -> None:
    cluster = looked_over(WORKS)
    text = page.get("/system").content.decode()
    assert not fold_of(text, cluster).endswith("open")
    assert cluster_capabilities(cluster.name).is_whole


def test_a_failed_look_keeps_what_was_known_and_says_why(page: Client) -> None:
    looked_over(WORKS, trouble="no broker answers")
    text = page.get("/system").content.decode()
    assert "could not be asked: no broker answers" in text
    assert 'data-capability="groups"' in text


def test_partitions_whose_markers_are_not_read_are_counted_by_reason(page: Client) -> None:
    unread = {"orders-1": "no READ on this topic", "orders-0": "no READ on this topic", "pay-0": "too fast"}
    detail = {"alone": True, "unseen": ["broker 2"], "markers_unseen": unread}
    factories.collector(factories.cluster(), "reconcile", detail=detail)
    text = page.get("/system").content.decode()
    assert "broker 2, markers of 2 partitions, as orders-0: no READ on this topic" in text
    assert "markers of 1 partition, as pay-0: too fast" in text


def test_before_the_first_look_nothing_is_claimed(page: Client) -> None:
    cluster = factories.cluster()
    assert "not checked yet" in page.get("/system").content.decode()
    answer = page.get(f"/api/v1/clusters/{cluster.name}/capabilities").json()
    assert (answer["asked_at"], answer["items"]) == (None, [])


def poll(
    leaders: Mapping[int, int],
    *moves: CoordinatorMove,
    sizes: Mapping[int, int] | None = None,
    ago_ms: int = 0,
) -> ObservedCoordinators:
    settings = None if sizes is None else {"transactional.id.expiration.ms": 604_800_000}
    in_sync = dict.fromkeys(leaders, (1, 2, 3))
    return ObservedCoordinators(
        factories.now_ms() - ago_ms, leaders, in_sync, moves, sizes, settings, "", 2, 3.0
    )


@pytest.fixture
def lease(prod: Cluster) -> leases.Lease:
    for number, name in enumerate(("pay-1", "pay-2", "<b>pay</b>")):
        factories.transaction(prod, name, log_partition=number % 2, producer_id=1_000 * number + 7)
    for number in (0, 1):
        factories.partition(prod, "__transaction_state", number, leader=1)
    Collector.objects.filter(name=coordinators.NAME).delete()
    taken = leases.acquire("prod", coordinators.NAME, holder="test", now_ms=factories.now_ms())
    assert taken is not None
    return taken


def test_a_move_is_one_event_that_ends_when_the_new_coordinator_answers(
    page: Client, prod: Cluster, lease: leases.Lease
) -> None:
    seen_ms = factories.now_ms() - 9_000
    begun = CoordinatorMove(seen_ms - 1_000, seen_ms, 1, 2, (0,), 2, 3_000)
    save_coordinators(lease, poll({0: 1, 1: 1}, sizes={0: 3_000, 1: 50}), now_ms=factories.now_ms())
    save_coordinators(lease, poll({0: 2, 1: 1}, begun), now_ms=factories.now_ms())
    assert "2 ids wait for a coordinator" in page.get("/coordinators").content.decode()
    assert list(CoordinatorRows("prod").unanswered()) == [begun]
    ended = begun._replace(answered_ms=begun.seen_ms + 2_000)
    save_coordinators(lease, poll({0: 2, 1: 1}, ended), now_ms=factories.now_ms())
    assert CoordinatorMoveRecord.objects.count() == 1
    (event,) = page.get("/api/v1/events?source=coordinator").json()["items"]
    assert (event["what"], event["subject"]) == ("moved", "broker:2")
    assert event["text"].endswith("which answered within 3.0 s")
    shown = page.get("/events?source=coordinator").content.decode()
    assert "/coordinators?cluster=prod" in shown
    text = page.get("/coordinators").content.decode()
    assert "<td>3 s</td>" in text
    # 3,000 bytes in 3 s, and broker 2 leads just these.
    assert "2 ids wait about 3 s" in text


def test_the_page_and_the_api_show_brokers_partitions_and_producer_ids(
    page: Client, prod: Cluster, lease: leases.Lease
) -> None:
    save_coordinators(lease, poll({0: 1, 1: 3}, sizes={0: 3_000}, ago_ms=60_000), now_ms=factories.now_ms())
    factories.transaction(prod, "late", log_partition=1, producer_id=9_001)
    save_coordinators(lease, poll({0: 1, 1: 3}, sizes={0: 3_000}), now_ms=factories.now_ms())
    text = page.get("/coordinators").content.decode()
    assert text.count('<tr id="log-prod-') == 2
    assert "7 blocks of 1,000" in text
    told = page.get("/api/v1/clusters/prod/coordinators").json()
    assert [(each["broker"], each["ids"]) for each in told["failovers"]] == [(1, 2), (3, 2)]
    assert told["settings"] == {"transactional.id.expiration.ms": 604_800_000}
    assert page.get("/api/v1/clusters/nowhere/coordinators").status_code == 404


def test_an_ids_page_has_its_limits_and_when_it_is_forgotten(
    page: Client, prod: Cluster, lease: leases.Lease
) -> None:
    factories.transaction(prod, "idle", TransactionState.COMPLETE_COMMIT)
    assert "data-forgotten" not in page.get("/transactions/prod/idle").content.decode()
    save_coordinators(lease, poll({0: 1}, sizes={}), now_ms=factories.now_ms())
    text = page.get("/transactions/prod/idle").content.decode()
    assert "forgotten after 7 d without use" in text
    assert "data-forgotten><time" in text
    assert "data-forgotten>not while it is open" in page.get("/transactions/prod/pay-1").content.decode()


def test_a_restarted_collector_goes_on_from_the_last_leaders(prod: Cluster, lease: leases.Lease) -> None:
    assert CoordinatorRows("prod").last_leaders() == {}
    seen = poll({0: 1, 1: 3})
    save_coordinators(lease, seen, now_ms=factories.now_ms())
    assert CoordinatorRows("prod").last_leaders() == {0: (1, seen.at_ms), 1: (3, seen.at_ms)}
    assert CoordinatorRows("prod").samples([0, 5]) == {0: (2, "<b>pay</b>")}


def test_a_cluster_without_any_transaction_says_so(page: Client, prod: Cluster) -> None:
    text = page.get("/coordinators").content.decode()
    assert "No coordinator is known" in text


def test_ids_of_lists_alone_have_no_known_coordinator(
    page: Client, prod: Cluster, lease: leases.Lease
) -> None:
    factories.transaction(prod, "listed", log_partition=-1, log_offset=-1, producer_epoch=-1)
    save_coordinators(lease, poll({0: 1, 4: 2}, sizes={}), now_ms=factories.now_ms())
    text = page.get("/coordinators").content.decode()
    assert "no id waits" not in text
    assert "1 id of the coordinators' lists" in text.replace("&#x27;", "'")
    save_coordinators(lease, poll({0: 1}, sizes={}), now_ms=factories.now_ms())
    assert "data-forgotten" not in page.get("/transactions/prod/listed").content.decode()


def test_producer_ids_are_counted_though_their_id_is_forgotten(
    page: Client, prod: Cluster, lease: leases.Lease
) -> None:
    row = factories.transaction(prod, "gone", log_partition=1, producer_id=9_001)
    save_coordinators(lease, poll({1: 1}, sizes={}), now_ms=factories.now_ms())
    row.delete()
    save_coordinators(lease, poll({1: 1}, sizes={}), now_ms=factories.now_ms())
    assert page.get("/api/v1/clusters/prod/coordinators").json()["blocks"] == 0


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
