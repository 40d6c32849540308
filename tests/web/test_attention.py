"""Proves that lists show what needs attention first, with finding, application and owner of each; and that
rows are selected for one action where it may be planned, by who may plan it."""

import re
from typing import Any

import pytest
from django.test import Client

from dashboard.models import Cluster
from fenceline.facts import TransactionState
from tests.web import factories, roles, scenarios
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db


def rows(client: Client, url: str) -> list[str]:
    """Return the rows of the list on a page."""
    text = client.get(url).content.decode()
    assert "<tbody>" in text, url
    return re.findall(r"<tr\b.*?</tr>", text.partition("<tbody>")[2].partition("</tbody>")[0], re.S)


def cell(row: str, column: str) -> str:
    """Return the text of a row's cell."""
    inside = re.search(rf'<td class="{column}[^"]*"[^>]*>(.*?)</td>', row, re.S)
    assert inside, (column, row)
    return " ".join(re.sub(r"<[^>]*>", " ", inside[1]).split())


def subjects(client: Client, url: str) -> list[str]:
    """Return what the checkboxes of a page stand for."""
    text = client.get(url).content.decode()
    boxes = re.findall(r"<input[^>]*data-select-row[^>]*>", text)
    return [found[1] for box in boxes if (found := re.search(r'value="([^"]*)"', box))]


def test_transactions_with_a_finding_come_first_the_worst_before_all(operator: Client, prod: Cluster) -> None:
    for name in ("a-1", "b-2", "c-3", "d-4"):
        factories.transaction(prod, name)
    factories.finding(prod, "transaction:c-3", "warning")
    factories.finding(prod, "transaction:d-4", "critical")
    factories.finding(prod, "transaction:gone-9", "critical")
    shown = rows(operator, "/transactions")
    assert [cell(row, "col-name") for row in shown] == ["d-4", "c-3", "a-1", "b-2"]
    assert [cell(row, "col-finding") for row in shown] == ["open too long", "open too long", "—", "—"]
    assert [cell(row, "col-application") for row in shown] == [f"application {name}" for name in "dcab"]
    assert cell(rows(operator, "/transactions?sort=id")[0], "col-name") == "a-1"


def test_queries_with_a_finding_come_first(operator: Client, prod: Cluster) -> None:
    names = ("alpha", "beta", "gamma")
    for number, name in enumerate(names):
        factories.query(prod, name, ident=f"{number}f1d2a3b-4c5d-4e6f-8a9b-0c1d2e3f4a5b")
    factories.finding(prod, "query:2f1d2a3b-4c5d-4e6f-8a9b-0c1d2e3f4a5b", "critical", rule="restart_fails")
    shown = rows(operator, "/queries")
    assert [cell(row, "col-name") for row in shown] == ["gamma", "alpha", "beta"]
    assert cell(shown[0], "col-finding") == "restart fails"
    assert cell(shown[0], "col-application") == "gamma"
    assert [cell(row, "col-name") for row in rows(operator, "/queries?sort=name")] == sorted(names)


def test_partitions_and_groups_have_finding_and_application_and_hanging_ones_are_selected_for_markers(
    operator: Client, prod: Cluster
) -> None:
    scenarios.busy_partitions(prod)
    first = rows(operator, "/partitions")[0]
    assert (cell(first, "col-name"), cell(first, "col-finding")) == ("payments-0", "hanging")
    assert cell(first, "col-application") == "payments-ledger"
    first = rows(operator, "/groups")[0]
    assert (cell(first, "col-name"), cell(first, "col-finding")) == ("billing", "group blocked")
    assert cell(first, "col-application") == "billing"
    assert subjects(operator, "/partitions") == ["payments-0"]
    assert 'name="act" value="abort_marker"' in operator.get("/partitions").content.decode()


def test_owners_have_a_column_where_the_configuration_names_some(
    operator: Client, prod: Cluster, settings: Any
) -> None:
    scenarios.busy_partitions(prod)
    factories.transaction(prod, "payments-7")
    factories.query(prod, "payments")
    lists = ("/transactions?q=payments", "/partitions?q=payments", "/groups", "/queries")
    assert not any("col-owner" in operator.get(url).content.decode() for url in lists)
    settings.FENCELINE = factories.config_with_owners(
        settings.FENCELINE, factories.owner("payments"), factories.owner("billing")
    )
    for url in lists:
        assert cell(rows(operator, url)[0], "col-owner") == "Payments", url


def test_each_page_says_whose_its_subject_is(page: Client, prod: Cluster, settings: Any) -> None:
    owner = factories.owner("payments", runbook="https://runbooks.example/payments")
    settings.FENCELINE = factories.config_with_owners(settings.FENCELINE, owner)
    factories.transaction(prod, "payments-7")
    factories.finding(prod, "transaction:payments-7")
    factories.group(prod, "payments")
    factories.lso_blocker(prod, "payments", transactional_id="payments-7")
    for url, said in {
        "/": "<dt>Owner</dt><dd><b>Payments</b> · #payments-oncall",
        "/transactions/prod/payments-7": "owner: <b>Payments</b> · #payments-oncall",
        "/groups/prod/payments": "Owner: <b>Payments</b>",
        "/partitions/prod/payments/0": "Owner: <b>Payments</b> · #payments-oncall",
    }.items():
        shown = page_html(page, url)
        assert said in shown, url
    assert f'href="{owner.runbook}"' in shown


def test_open_transactions_are_selected_for_one_fence_by_who_may_act(
    operator: Client, prod: Cluster, settings: Any
) -> None:
    factories.transaction(prod, "a-1")
    factories.transaction(prod, "b-2", TransactionState.COMPLETE_COMMIT)
    factories.transaction(prod, "c <3>")
    assert subjects(operator, "/transactions?sort=id") == ["a-1", "c &lt;3&gt;"]
    text = operator.get("/transactions").content.decode()
    form = text.partition('id="selected-rows"')[2].partition("</form>")[0]
    assert 'action="/actions/plan"' in form
    assert 'name="cluster" value="prod"' in form
    assert 'name="act" value="fence"' in form
    assert "csrfmiddlewaretoken" in form
    assert subjects(roles.client_with_role("viewer"), "/transactions") == []
    settings.READ_ONLY = True
    assert subjects(operator, "/transactions") == []


def test_a_list_of_several_clusters_selects_nothing_until_one_is_chosen(
    operator: Client, prod: Cluster
) -> None:
    factories.tail_collectors(factories.cluster("staging"))
    factories.transaction(prod, "a-1")
    assert subjects(operator, "/transactions") == []
    assert subjects(operator, "/transactions?cluster=prod") == ["a-1"]


def test_a_page_without_a_row_to_select_has_no_column_for_it(operator: Client, prod: Cluster) -> None:
    factories.transaction(prod, "b-2", TransactionState.COMPLETE_COMMIT)
    text = operator.get("/transactions").content.decode()
    assert "col-select" not in text
    assert "selected-rows" not in text


def test_the_filter_of_the_header_is_that_of_the_list_in_view(operator: Client, prod: Cluster) -> None:
    lists = (
        "/transactions",
        "/partitions",
        "/groups",
        "/queries",
        "/events",
        "/recoveries",
        "/actions",
        "/alerts",
    )
    for url in lists:
        header = operator.get(url).content.decode().partition('class="search"')[2].partition("</form>")[0]
        assert f'action="{url}"' in header, url
    for url in ("/", "/system", "/transactions/prod/a-1", "/channels", "/rules"):
        assert 'class="search"' not in operator.get(url).content.decode(), url
