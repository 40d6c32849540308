"""Proves that a page refuses a parameter that is too long, with a clear text that does not repeat it."""

import html
import re
from urllib.parse import urlencode

import pytest
from django.test import Client

from dashboard.models import Cluster
from tests.web import factories

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("prod")]

PAGES = (
    "/", "/find", "/transactions", "/partitions", "/groups", "/queries", "/flink-jobs", "/events", "/actions",
    "/alerts", "/recoveries", "/audit", "/pipelines", "/incidents", "/admin/auth/user/", "/login/",
)  # fmt: skip


@pytest.mark.sql
@pytest.mark.parametrize("length", [201, 50_001])
def test_a_search_text_that_is_too_long_is_refused_and_not_repeated(admin: Client, length: int) -> None:
    for path in PAGES:
        answer = admin.get(path, {"q": "x" * length})
        assert answer.status_code == 422, path
        text = answer.content.decode()
        assert f"Its parameter q has {length} characters; at most 200 are used." in text
        assert "x" * 20 not in text
        assert answer["Content-Security-Policy"]


def test_a_search_text_of_200_letters_is_searched_for(admin: Client) -> None:
    for path in PAGES:
        assert admin.get(path, {"q": "x" * 200}).status_code in (200, 302), path


@pytest.mark.parametrize("name", ["cluster", "application", "focus", "from", "nobody-knows"])
def test_any_parameter_that_is_too_long_is_refused(admin: Client, name: str) -> None:
    answer = admin.get("/transactions", {name: "x" * 1_001})
    assert answer.status_code == 422
    assert f"Its parameter {name} has 1001 characters" in answer.content.decode()


def test_links_to_a_search_keep_names_that_are_longer(admin: Client) -> None:
    topic = "t" * 249
    answer = admin.get(f"/partitions/prod/{topic}")
    assert admin.get(answer["Location"]).status_code == 200
    name = "i" * 900
    factories.takeover_history(Cluster.objects.get(), name.encode())
    text = admin.get(f"/transactions/prod/{name}").content.decode()
    links = [html.unescape(each) for each in re.findall(r'href="(/[^"]*\?[^"]*q=[^"]*)"', text)]
    assert links
    for url in links:
        assert admin.get(url).status_code == 200, url


def test_matchers_and_the_way_back_of_a_sign_in_may_be_longer(admin: Client) -> None:
    matchers = ", ".join(f'team!="team-{number}"' for number in range(60))
    assert admin.get("/silences/new", {"matchers": matchers}).status_code == 200
    assert Client().get(f"/login/?{urlencode({'next': '/transactions/' + 'x' * 2_000})}").status_code == 200
