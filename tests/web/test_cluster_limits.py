"""Proves that who is limited to clusters learns nothing of another one: on no page, in no list, count, search
or export, by no address, by no number; and that what is of all clusters is refused."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.test import AsyncClient, Client

from dashboard.actions import inspect
from dashboard.api import api, list_files
from dashboard.api.list_files import LISTS
from dashboard.config import ClusterConfig, Config
from dashboard.models import AuditEntry, Cluster, Token
from dashboard.models.collecting import visible_clusters
from dashboard.system import access, cluster_limits, users
from dashboard.system.access import AccessRefused
from dashboard.system.tokens import create_token, token_digest
from dashboard.web.routes import sidebar_routes
from tests.cases import cases
from tests.web import factories, roles, scenarios
from tests.web.roles import page_html
from tests.web.route_permissions import ROUTE_PERMISSIONS

pytestmark = pytest.mark.django_db
#: Lists of which these clusters have nothing.
EMPTY = (
    "recoveries", "transitions", "history", "connectors", "events", "incidents", "actions", "applications",
)  # fmt: skip
HIDDEN, MARK = "crypt-7f3", "crypt-7f3"


@pytest.fixture(autouse=True)
def configured(settings: Any) -> None:
    settings.FENCELINE = Config(
        clusters={
            name: ClusterConfig(name, {"bootstrap.servers": "127.0.0.1:1"}) for name in ("prod", HIDDEN)
        }
    )


@pytest.fixture(scope="module")
def clusters(rows_of_module: None) -> tuple[Cluster, Cluster]:
    """Two clusters with the same of everything; ids, topics and groups of the hidden one carry its name."""
    both = factories.cluster(), factories.cluster(HIDDEN)
    for of in both:
        scenarios.busy_transactions(of, 5)
        scenarios.busy_partitions(of)
        scenarios.busy_queries(of)
        scenarios.busy_flink_jobs(of)
        scenarios.busy_actions(of)
        factories.alert(of, "transaction:payments-7")
        factories.finding(of, f"transaction:{of}-1", "critical")
    for number in range(3):
        factories.transaction(both[1], f"{MARK}-{number}")
        factories.group(both[1], f"{MARK}-{number}")
    return both


@pytest.fixture
def limited(clusters: tuple[Cluster, Cluster]) -> Client:
    """An operator who may see prod alone."""
    client = roles.client_with_role("operator")
    cluster_limits.set_clusters(User.objects.get(pk=client.session["_auth_user_id"]), ["prod"])
    return client


@pytest.fixture(autouse=True)
def unlimited_tests() -> Iterator[None]:
    """A test itself sees everything, also after a request."""
    yield
    left = visible_clusters.get()
    visible_clusters.set(None)
    assert left is None


async def read_file(path: str, user: User) -> str:
    """Return a file, of which all but the first rows are read after the view has returned."""
    client = AsyncClient()
    await sync_to_async(client.force_login)(user)
    answer = await client.get(path)
    if not answer.streaming:
        return answer.content.decode()
    return b"".join([part async for part in answer.streaming_content]).decode()


def test_a_list_has_what_the_cluster_alone_has(limited: Client) -> None:
    whole = roles.client_with_role("admin")
    described = api.get_openapi_schema()["paths"].items()
    for path in (path for path, methods in described if "get" in methods and "{" not in path):
        mine = limited.get(path)
        assert MARK not in mine.content.decode(), path
        if mine.status_code == 403:
            assert "limited to prod" in mine.json()["detail"]
        elif (of_prod := whole.get(path, {"cluster": "prod"})).status_code == 200:
            assert mine.json().get("items") == of_prod.json().get("items"), path


def test_no_page_names_another_cluster(limited: Client) -> None:
    pages = sorted({row.path for row in ROUTE_PERMISSIONS if row.method == "GET" and "{" not in row.path})
    for answer in map(limited.get, pages):
        assert answer.streaming or MARK not in answer.content.decode(), answer.request["PATH_INFO"]
    found = limited.get("/find", {"q": MARK}).content.decode().split("<main")[1]
    assert not re.search(rf'href="[^"]*{MARK}-\d', found)


@pytest.mark.parametrize("noun", [*LISTS, "nowhere"])
def test_no_file_names_another_cluster(limited: Client, noun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_files, "_AT_ONCE", 3)
    user = User.objects.get(pk=limited.session["_auth_user_id"])
    content = async_to_sync(read_file)(f"/api/v1/exports/{noun}.csv", user)
    assert MARK not in content
    assert content.count("\n") > 1 or "limited to prod" in content or noun in ("nowhere", *EMPTY)


def test_no_address_leads_to_another_cluster(limited: Client) -> None:
    for row in ROUTE_PERMISSIONS:
        if "/prod" not in row.path or "{" in row.path:
            continue
        path = row.path.replace("/prod", f"/{HIDDEN}")
        answer = limited.generic(row.method, path, "{}", "application/json")
        if answer.status_code == 302:
            # A list, where the name that was asked for filters nothing.
            listed = limited.get(answer["Location"]).content.decode()
            assert f"/{HIDDEN}/" not in listed
        else:
            assert answer.status_code in (400, 403, 404, 405, 422), (row.method, path, answer.status_code)


def test_numbers_of_another_cluster_are_unknown(limited: Client, clusters: tuple[Cluster, Cluster]) -> None:
    hidden = clusters[1]
    for noun, rows in (("alerts", hidden.alert_set), ("findings", hidden.findingrecord_set)):
        number = rows.order_by("pk")[0].pk
        assert limited.get(f"/api/v1/{noun}/{number}").status_code == 404
    action = factories.planned_action(factories.fence_subject(f"{MARK}-0"), cluster=hidden)
    assert limited.get(f"/api/v1/actions/{action.pk}").status_code == 404
    body = {"digest": action.digest, "confirm": action.plan["confirm"], "reason": "ticket 4711"}
    executed = limited.post(f"/api/v1/actions/{action.pk}/execute", json.dumps(body), "application/json")
    assert executed.status_code in (403, 404)


def test_nobody_learns_that_another_cluster_is_read_only(limited: Client, settings: Any) -> None:
    hidden = replace(settings.FENCELINE.clusters[HIDDEN], read_only=True)
    settings.FENCELINE = replace(settings.FENCELINE, clusters={**settings.FENCELINE.clusters, HIDDEN: hidden})
    for name in (HIDDEN, "nowhere"):
        asked = {"cluster": name, "act": "fence", "subject": f"{MARK}-0"}
        answer = limited.post("/actions/plan", asked)
        assert answer.status_code == 404
        assert f"No cluster “{name}” is configured." in answer.content.decode()


def test_an_error_names_no_cluster_of_the_configuration_that_is_hidden(limited: Client) -> None:
    visible_clusters.set(frozenset(Cluster.objects.filter(name="prod").values_list("pk", flat=True)))
    with pytest.raises(inspect.UnknownCluster, match=r"known are: prod$"):
        inspect.connect_cluster("of-yesterday", 0).__enter__()
    visible_clusters.set(None)


def test_the_alerts_do_not_count_channels_and_silences_of_all(limited: Client) -> None:
    factories.channel()
    factories.silence()
    assert "1 silence</a> active" in page_html(roles.client_with_role("admin"), "/alerts")
    page = page_html(limited, "/alerts")
    assert "</a> active" not in page
    assert "Silence…" not in page
    assert "notification channel" not in page


def test_nobody_plans_for_another_cluster(limited: Client) -> None:
    token = create_token("ci", "operator", clusters=["prod"])
    body = json.dumps({"cluster": HIDDEN, "act": "fence", "subjects": [f"{MARK}-0"]})
    answer = Client().post(
        "/api/v1/actions/plan", body, "application/json", headers={"Authorization": f"Bearer {token}"}
    )
    assert answer.status_code == 404
    assert answer.json()["detail"] == f"No cluster “{HIDDEN}” is configured."


def test_a_token_is_limited_as_a_user_is(limited: Client) -> None:
    Token.objects.create(name="t", role="viewer", digest=token_digest("t"), clusters=["prod"])
    bearer = Client(headers={"Authorization": "Bearer t"})
    names = [item["cluster"] for item in bearer.get("/api/v1/clusters").json()["items"]]
    assert names == ["prod"]
    assert bearer.get("/api/v1/channels").status_code == 403
    assert MARK not in bearer.get("/api/v1/transactions").content.decode()
    for address in ("203.0.113.9", "127.0.0.1"):
        assert bearer.get("/metrics", REMOTE_ADDR=address).status_code == 403


def test_a_page_of_late_data_links_to_nothing_that_is_refused(
    limited: Client, clusters: tuple[Cluster, Cluster]
) -> None:
    clusters[0].collector_set.update(seen_through_ms=1)
    page = limited.get("/").content.decode()
    assert 'id="blind"' in page
    for route in sidebar_routes():
        is_shown = f'href="/{route.path}"' in page
        assert is_shown <= (limited.get(f"/{route.path}").status_code == 200), route.name
    assert 'href="/channels"' not in page


def test_a_limit_to_nothing_shows_nothing_and_an_unknown_cluster_is_refused(limited: Client) -> None:
    user = User.objects.get(pk=limited.session["_auth_user_id"])
    cluster_limits.set_clusters(user, [])
    assert limited.get("/api/v1/transactions").json()["items"] == []
    cluster_limits.set_clusters(user, None)
    assert MARK in limited.get("/api/v1/transactions").content.decode()
    with pytest.raises(AccessRefused, match="No cluster nowhere: there are"):
        create_token("ci", "viewer", clusters=["nowhere"])
    # As `--cluster "$CLUSTER"` of a variable that is not set.
    for blank in ([""], [" "], ["", ""]):
        with pytest.raises(AccessRefused, match="No cluster is named"):
            create_token("ci", "viewer", clusters=blank)
    with pytest.raises(AccessRefused, match="listener"):
        create_token("ci", "ingest", clusters=["prod"])


def test_an_admin_limits_a_user_by_the_page(clusters: tuple[Cluster, Cluster]) -> None:
    admin, ada = roles.client_with_role("admin"), User.objects.create_user("ada")
    page = f"/access/{ada.pk}"
    assert (
        "No cluster nowhere"
        in admin.post(f"{page}/clusters", {"clusters": "nowhere"}, follow=True).content.decode()
    )
    assert cluster_limits.clusters_now(ada.pk) is None
    admin.post(f"{page}/clusters", {"clusters": f"{HIDDEN}, prod"})
    assert cluster_limits.clusters_now(ada.pk) == [HIDDEN, "prod"]
    assert f"{HIDDEN}, prod" in admin.get("/access").content.decode()
    admin.post(f"{page}/clusters", {"clusters": ""})
    assert cluster_limits.clusters_now(ada.pk) is None
    rows = AuditEntry.objects.filter(event=AuditEntry.Event.USER_CHANGED, subject_name="ada")
    expected = [[None, [HIDDEN, "prod"]], [[HIDDEN, "prod"], None]]
    assert [row.changes["clusters"] for row in rows.order_by("pk")] == expected


@pytest.mark.parametrize(("name", "why"), [("root", "superuser"), ("the admin", "last active admin")])
def test_the_last_admin_and_a_superuser_are_not_limited(
    clusters: tuple[Cluster, Cluster], name: str, why: str
) -> None:
    roles.client_with_role("admin")
    root = User.objects.create_superuser("root", is_active=False)
    with pytest.raises(AccessRefused, match=why):
        users.set_clusters(User.objects.get(username=name).pk, "prod", by=root)


def test_a_role_counts_on_its_cluster_alone(clusters: tuple[Cluster, Cluster]) -> None:
    token = create_token("ci", "viewer", clusters=["*", "prod = operator"])
    row = Token.objects.get(name="ci")
    assert row.clusters == ["*", "prod=operator"]
    bearer = Client(headers={"Authorization": f"Bearer {token}"})
    assert {item["cluster"] for item in bearer.get("/api/v1/clusters").json()["items"]} == {"prod", HIDDEN}
    incidents = {of.name: factories.incident(of) for of in clusters}
    for name, status in (("prod", 200), (HIDDEN, 403)):
        path = f"/api/v1/incidents/{incidents[name].pk}/acknowledge"
        assert bearer.post(path, content_type="application/json").status_code == status, name
        body = json.dumps({"cluster": name, "act": "fence", "subjects": ["payments-7"], "force": True})
        planned = bearer.post("/api/v1/actions/plan", body, "application/json")
        assert planned.status_code == 403
        needed = "admin" if name == "prod" else "operator"
        assert planned.json()["detail"].startswith(
            f"token ci may not do this: it needs the role {needed} on {name}"
        )


def test_a_page_offers_what_the_role_on_its_cluster_may(clusters: tuple[Cluster, Cluster]) -> None:
    client = roles.client_with_role("operator")
    user = User.objects.get(pk=client.session["_auth_user_id"])
    cluster_limits.set_clusters(user, ["*", f"{HIDDEN}=viewer"])
    refused = "needs the role operator"
    for of, may in zip(clusters, (True, False), strict=True):
        incident = factories.incident(of)
        assert (refused not in page_html(client, f"/incidents/{incident.pk}")) is may
        assert (client.post(f"/incidents/{incident.pk}/acknowledge").status_code == 303) is may
    user = User.objects.get(pk=user.pk)
    assert not access.grants_of(User(is_superuser=True))
    assert access.grants_of(user) == ["*", f"{HIDDEN}=viewer"]


@cases(
    (["prod=chief"], "No such role on a cluster: chief"),
    (["prod=ingest"], "No such role on a cluster: ingest"),
    (["prod", "prod=viewer"], "named twice"),
    (["*=admin"], r"write \* alone"),
    (["nowhere=viewer"], "No cluster nowhere: there are"),
    (["=viewer"], "No cluster : there are"),
)
def test_a_grant_that_means_nothing_is_refused(
    clusters: tuple[Cluster, Cluster], grants: list[str], why: str
) -> None:
    with pytest.raises(AccessRefused, match=why) as refused:
        cluster_limits.checked_grants(grants)
    assert refused.value.field == "clusters"
    assert cluster_limits.checked_grants(["*"]) == []
