"""Proves that whoever shortens an address lands on a page: every parent path of every page is one."""

import pytest
from django.test import Client

from dashboard.api.list_files import LISTS
from dashboard.models import Cluster
from dashboard.urls import urlpatterns
from dashboard.web.routes import ROUTES
from sandbox.scenes.player import ScenePlayer
from tests.web import factories
from tests.web.route_permissions import ADMINISTER, AUDIT, OPERATE, PAGE, ROUTE_PERMISSIONS

pytestmark = pytest.mark.django_db
#: What answers programs, not people: `/api/v1/docs` is the one page below it.
_FOR_PROGRAMS = ("/api/", "/ingest/")


def page_paths() -> list[str]:
    """Paths of pages: of every route that shows or does something for whoever is signed in."""
    found = [door.path for door in ROUTE_PERMISSIONS if door.rule in (PAGE, OPERATE, ADMINISTER, AUDIT)]
    return ["/api/v1/docs", *(path for path in found if not path.startswith(_FOR_PROGRAMS))]


def parents(path: str) -> list[str]:
    """Every shorter path, without its last slash: `/a/b/c` has `/a/b` and `/a`."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:n]) for n in range(1, len(parts))]


#: Routes of files, of forms, of programs and of the sign-in.
WITHOUT_PLACE = {
    "ask-replicas", "bundle", "channel-add", "channel-change", "channel-delete-now",
    "channel-disable", "channel-enable", "channel-end-old", "channel-rotate", "channel-test",
    "delivery-again", "favicon", "find", "healthz", "incident-acknowledge", "incident-html",
    "incident-markdown", "incident-note", "incident-offsets", "ingest", "login", "logout",
    "metrics", "payload", "pipeline-proof", "readyz", "record-by-key", "scene-play", "sign-in-at",
    "sign-in-callback", "silence-end",
    "silence-make", "silence-preview", "timeline", "token-add", "token-revoke", "user-add", "user-disable",
    "user-clusters", "user-enable", "user-link", "user-role", "welcome",
}  # fmt: skip
PARENTS = sorted({parent for path in page_paths() for parent in parents(path)})


def test_the_walk_meets_every_page_of_the_urlconf() -> None:
    walked = {path.split("{")[0].strip("/").split("/")[0] for path in page_paths()}
    routes = {str(each.pattern).lstrip("^").split("(")[0].split("/")[0].split("<")[0] for each in urlpatterns}
    programs = {
        "api", "ingest", "metrics", "healthz", "readyz", "admin", "login", "logout", "sign-in", "static",
        "favicon.ico",
    }  # fmt: skip
    assert routes - programs == walked - {"api"}


def test_every_page_has_its_place_in_the_navigation() -> None:
    names = {route.name for route in urlpatterns if getattr(route, "name", None)}
    placed = {name for name, route in ROUTES.items() if route.key or route.parent}
    assert names - placed == WITHOUT_PLACE


def test_every_list_with_downloads_is_a_list_of_the_api() -> None:
    assert {name for name, route in ROUTES.items() if route.has_files} <= LISTS.keys()


def test_a_parent_of_a_page_is_a_page(admin: Client, prod: Cluster, sandbox: ScenePlayer) -> None:
    factories.partition(prod)
    ids = {
        "query": factories.query(prod).ident,
        "recovery": factories.recovery(prod).pk,
        "flink_job": factories.flink_job(prod).ident,
    }
    # Pages of other rows are asked for in test_permissions.
    walked = [path for path in PARENTS if "{" not in path or path.split("{")[1].rstrip("}") in ids]
    assert len(walked) > 20
    for path in walked:
        answer = admin.get(path.format(**ids), follow=True)
        assert answer.status_code == 200, path
        assert answer["Content-Type"].startswith("text/html"), path


def test_a_cluster_below_a_list_is_the_list_of_that_cluster(page: Client, prod: Cluster) -> None:
    factories.cluster("staging")
    answer = page.get("/partitions/prod/payments")
    assert answer["Location"] == "/partitions?cluster=prod&q=payments"
    assert page.get("/transactions/prod")["Location"] == "/transactions?cluster=prod"
    assert page.get("/groups/a%20b%26c")["Location"] == "/groups?cluster=a+b%26c"
