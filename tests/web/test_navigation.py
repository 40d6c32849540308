"""Proves the sidebar: its entries in their order, each with its own key, one of them current on each page;
and that pages without an entry are reached from the page that their entry leads to."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from dashboard.models import Cluster
from dashboard.web.routes import sidebar_routes
from tests.web import factories, roles, scenarios
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db


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


@pytest.mark.parametrize(
    ("url", "entry"),
    [
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
    ],
)
def test_every_page_has_one_current_entry(admin: Client, prod: Cluster, url: str, entry: str) -> None:
    nav = sidebar(page_html(admin, url.format(recovery=factories.recovery(prod).pk)))
    current = re.findall(r'href="([^"]*)" data-go="\w" aria-current="page"', nav)
    assert current == [reverse(entry)]


@pytest.mark.parametrize(
    ("start", "found"),
    [
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
    ],
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
