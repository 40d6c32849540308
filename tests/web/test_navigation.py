"""Proves the sidebar: its entries in their order, each with its own key, one of them current on each page;
that pages without an entry are reached from the page that their entry leads to; and that whoever shortens an
address lands on a page: every parent path of every page is one."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from dashboard.api.list_files import LISTS
from dashboard.models import Cluster
from dashboard.urls import urlpatterns
from dashboard.web.routes import ROUTES, sidebar_routes
from sandbox.scenes.player import ScenePlayer
from tests.cases import cases
from tests.web import factories, roles, scenarios
from tests.web.roles import page_html
from tests.web.route_permissions import ADMINISTER, AUDIT, OPERATE, PAGE, ROUTE_PERMISSIONS

pytestmark = pytest.mark.django_db
#: What answers programs, not people: `/api/v1/docs` is the one page below it.
_FOR_PROGRAMS = ("/api/", "/ingest/")


@pytest.fixture(scope="module")
def prod(rows_of_module: None) -> Cluster:
    of = factories.cluster()
    scenarios.busy_transactions(of, 10)
    scenarios.busy_partitions(of)
    return of


def sidebar(text: str) -> str:
    return text.partition('aria-label="Pages"')[2].partition("</nav>")[0]


def test_the_entries_stand_below_their_headings(admin: Client, prod: Cluster) -> None:
    shown = re.findall(
        r'<span class="nav-heading"[^>]*>([^<]+)<|data-go="\w"[^>]*>([^<]+)<', sidebar(page_html(admin, "/"))
    )
    words = [heading.upper() or entry.strip() for heading, entry in shown]
    known = [each for each in words if each != "Pipelines"]
    assert known == [
        "Incidents", "MONITOR", "Transactions", "Partitions", "Consumer groups", "Spark queries", "Events",
        "RESPOND", "Actions", "Alerts", "ADMIN", "Reports", "Users and access", "Clusters", "System",
        "Coordinators", "Pre-flight",
    ]  # fmt: skip


def test_each_entry_has_a_key_of_its_own_that_the_sheet_names(admin: Client, prod: Cluster) -> None:
    keys = [route.key for route in sidebar_routes()]
    assert len(set(keys)) == len(keys)
    text = page_html(admin, "/")
    for route in sidebar_routes():
        assert f'href="{reverse(route.name)}" data-go="{route.key}"' in text
        assert re.search(rf"<kbd>g</kbd> <kbd>{route.key}</kbd></dt>\s*<dd>\s*Go to {route.title}", text)


@cases(
    ("/", "overview"),
    ("/incidents", "overview"),
    ("/transactions/prod/payments-ledger-7", "transactions"),
    ("/partitions/prod/payments/0", "partitions"),
    ("/groups/prod/billing", "groups"),
    ("/events", "events"),
    ("/flink-jobs", "queries"),
    ("/recoveries", "events"),
    ("/recoveries/prod/{recovery}", "events"),
    ("/audit", "actions"),
    ("/channels", "alerts"),
    ("/channels/new", "alerts"),
    ("/deliveries", "alerts"),
    ("/silences", "alerts"),
    ("/silences/new", "alerts"),
    ("/rules", "alerts"),
    ("/rules/open_too_long", "alerts"),
    ("/reports", "reports"),
    ("/access/new", "access"),
    ("/access/tokens", "access"),
    ("/preflight", "preflight"),
    ("/coordinators", "coordinators"),
    ("/system", "system"),
)
def test_every_page_has_one_current_entry(admin: Client, prod: Cluster, url: str, entry: str) -> None:
    nav = sidebar(page_html(admin, url.format(recovery=factories.recovery(prod).pk)))
    current = re.findall(r'href="([^"]*)" data-go="\w" aria-current="page"', nav)
    assert current == [reverse(entry)]


@cases(
    ("/alerts", ("/channels", "/deliveries", "/silences", "/rules")),
    ("/rules", ("/alerts", "/channels", "/deliveries", "/silences")),
    ("/events", ("/recoveries",)),
    ("/actions", ("/recoveries", "/audit")),
    ("/queries", ("/flink-jobs",)),
    ("/flink-jobs", ("/queries",)),
    ("/recoveries", ("/events",)),
    ("/access", ("/access/tokens", "/access/new")),
    ("/access/tokens", ("/access", "/access/tokens/new")),
    ("/system", ("/rules", "/access", "/audit")),
)
def test_pages_without_an_entry_are_reached_from_another(
    admin: Client, prod: Cluster, start: str, found: tuple[str, ...]
) -> None:
    main = page_html(admin, start).partition('<main id="content"')[2]
    assert all(f'href="{url}"' in main for url in found)


def test_users_and_tokens_are_reached_from_system_by_who_may_see_them(admin: Client, prod: Cluster) -> None:
    addresses = ("/admin/auth/user/", "/admin/dashboard/token/")
    assert not any(f'href="{each}"' in page_html(admin, "/system") for each in addresses)
    User.objects.filter(username="the admin").update(is_staff=True, is_superuser=True)
    text = page_html(admin, "/system")
    for url in addresses:
        assert f'href="{url}"' in text
        assert admin.get(url).status_code == 200


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_whoever_may_not_administer_users_is_shown_no_way_there(prod: Cluster, role: str) -> None:
    client = roles.client_with_role(role)
    assert 'href="/access' not in page_html(client, "/system")
    assert 'href="/access' not in page_html(client, "/find?q=users")


def test_another_cluster_is_chosen_on_the_list_of_what_a_page_is_about(admin: Client, prod: Cluster) -> None:
    factories.cluster("staging")
    for url, path in (
        ("/partitions/prod/payments/0", "/partitions"),
        (f"/recoveries/prod/{factories.recovery(prod).pk}", "/recoveries"),
        ("/rules", "/rules"),
        ("/events", "/events"),
    ):
        assert f'href="{path}?cluster=staging"' in page_html(admin, url), url


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
