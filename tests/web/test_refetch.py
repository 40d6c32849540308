"""Proves the refetch behind a doorbell: the live part alone, 304 while nothing changed, and no stranger."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dashboard.models import Cluster, Delivery
from sandbox.scenes.player import ScenePlayer
from tests.web import factories, roles

pytestmark = pytest.mark.django_db
#: Live, the timeline and the flow move with the clock: their ranges have ended here.
_ENDED = "from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z"
ROUTES = (
    f"/?{_ENDED}",
    "/transactions?state=open",
    "/transactions/prod/orders-gateway-1",
    "/events?from=2026-11-18&to=2026-11-19",
    "/partitions?internal=1",
    "/partitions/prod/payments/0",
    "/groups?status=OK",
    "/groups/prod/billing",
    "/flink-jobs",
    "/coordinators",
    f"/flink-jobs/prod/{factories.FLINK_IDENT}",
    "/recoveries",
    f"/pipelines?{_ENDED}",
    "/find?q=orders",
    "/system",
    "/scenes",
)


def refetch(page: Client, url: str, **headers: str) -> Any:
    return page.get(url, headers={"HX-Request": "true"} | headers)


@pytest.fixture
def one(page: Client, prod: Cluster, sandbox: ScenePlayer) -> Client:
    factories.transaction(prod)
    factories.partition(prod)
    factories.group_offset(factories.group(prod))
    factories.recovery(prod)
    factories.flink_job(prod)
    return page


def test_a_refetch_is_the_live_part_and_nothing_while_nothing_changes(one: Client) -> None:
    """Nothing new is answered without a look at the rows."""
    rows = (
        "dashboard_trans", "dashboard_partition", "dashboard_group", "dashboard_recovery", "dashboard_topic",
        "dashboard_flink",
    )  # fmt: skip
    tags = {}
    for url in ROUTES:
        whole = one.get(url).content.decode()
        # A page that counts down is made anew every two seconds: the second try is within one step.
        for _ in range(2):
            first = refetch(one, url)
            with CaptureQueriesContext(connection) as asked:
                again = refetch(one, url, **{"If-None-Match": first["ETag"]})
            if again.status_code == 304:
                break
        part, tags[url] = first.content.decode(), first["ETag"]
        assert "<!DOCTYPE html>" in whole, url
        assert "<!DOCTYPE html>" not in part, url
        assert "<title>" in part, url
        assert 'hx-swap-oob="true"' in part, url
        assert 'hx-swap-oob="true"' not in whole, url
        assert again.status_code == 304, url
        assert not again.content, url
        assert again["Fenceline-As-Of"] == first["Fenceline-As-Of"], url
        assert not [each["sql"] for each in asked if any(name in each["sql"] for name in rows)], url
    Cluster.objects.update(rev=2)
    for url, tag in tags.items():
        again = refetch(one, url, **{"If-None-Match": tag})
        assert again.status_code == 200, url
        tags[url] = again["ETag"]
    # Sight that is lost raises no revision.
    Cluster.objects.get().collector_set.update(seen_through_ms=1_795_000_000_000)
    for url, tag in tags.items():
        again = refetch(one, url, **{"If-None-Match": tag})
        assert again.status_code == 200, url
        assert "Data is incomplete" in again.content.decode(), url


def _try(row: Delivery) -> None:
    Delivery.objects.filter(pk=row.pk).update(attempts=row.attempts + 1)


#: Pages of rows that raise no revision of a cluster, with what changes them.
MOVED: dict[str, Callable[[Delivery], object]] = {
    "/access": lambda _: roles.give_role(User.objects.get(username="grace"), "operator"),
    "/alerts": lambda row: factories.delivery(row.channel),
    "/audit": lambda _: factories.audit_entry(),
    "/channels": _try,
    "/channels/{0.channel_id}": _try,
    "/deliveries": _try,
    "/deliveries/{0.pk}": _try,
}


@pytest.mark.parametrize("path", MOVED)
def test_a_change_without_a_revision_is_a_new_page_as_well(admin: Client, prod: Cluster, path: str) -> None:
    User.objects.create_user("grace")
    row = factories.delivery(factories.channel(), "pending")
    url = path.format(row)
    first = refetch(admin, url)
    assert b"<html" not in first.content
    assert refetch(admin, url, **{"If-None-Match": first["ETag"]}).status_code == 304
    MOVED[path](row)
    assert refetch(admin, url, **{"If-None-Match": first["ETag"]}).status_code == 200


def test_another_cluster_s_change_is_none_of_ours(page: Client) -> None:
    for name in ("prod", "staging"):
        factories.tail_collectors(factories.cluster(name))
    first = refetch(page, "/transactions?cluster=prod")
    Cluster.objects.filter(name="staging").update(rev=9)
    assert refetch(page, "/transactions?cluster=prod", **{"If-None-Match": first["ETag"]}).status_code == 304


def test_a_full_page_is_never_304(one: Client) -> None:
    tag = refetch(one, "/")["ETag"]
    assert one.get("/", headers={"If-None-Match": tag}).status_code == 200


def test_a_row_keeps_its_element_id(one: Client) -> None:
    before = refetch(one, "/transactions").content.decode().split('<tr id="')[1].split('"')[0]
    row = Cluster.objects.get().transaction_set.get()
    row.state, row.rev = "CompleteCommit", 5
    row.save()
    Cluster.objects.update(rev=5)
    after = refetch(one, "/transactions").content.decode()
    assert f'<tr id="{before}" data-rev="5">' in after


def test_an_id_that_kafka_forgot_is_told_to_the_open_page(one: Client) -> None:
    Cluster.objects.get().transaction_set.all().delete()
    gone = refetch(one, "/transactions/prod/orders-gateway-1")
    assert gone.status_code == 404
    assert gone["Fenceline-Now"]
    assert "No such transactional id" in gone.content.decode()


def test_a_refetch_after_sign_out_reloads_the_page(client: Client, db: None) -> None:
    for url in ROUTES:
        answer = refetch(client, url)
        assert (answer.status_code, answer["HX-Refresh"], answer.content) == (401, "true", b""), url
