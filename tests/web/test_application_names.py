"""Proves that an application which `[[owners]]` name is called so wherever ids are counted by applications:
lists, events, figures, search, API, flow, alerts' labels; also what was stored before it was configured."""

from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client

from dashboard.flow.queries import subject_node
from dashboard.models import Cluster, Recovery, Tally, Transaction, TransitionRecord
from dashboard.transactions.naming_store import rename_applications
from fenceline.alerts.labels import FindingText, labels_of
from fenceline.flow.graph import NodeId, NodeKind
from fenceline.owners import Owner
from tests.web import factories
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db

NAME = "Ledger service"
OWNERS = (Owner("svc-*", "Payments", application=NAME), Owner("other*", "Ops"))
ASKED = f"application={quote(NAME)}"


@pytest.fixture
def named(prod: Cluster, settings: Any) -> Cluster:
    """Ids of two clients, one of which has a name, as the collector stores their records."""
    settings.FENCELINE = factories.config_with_owners(settings.FENCELINE, *OWNERS)
    for name in (b"svc-7", b"svc-x", b"other-1"):
        factories.takeover_history(prod, name)
    return prod


def test_lists_events_figures_and_search_call_it_by_its_name(page: Client, named: Cluster) -> None:
    for url in (f"/transactions?{ASKED}", f"/events?last=30d&{ASKED}"):
        shown = page_html(page, url)
        assert "svc-7" in shown, url
        assert "svc-x" in shown, url
        assert "other-1" not in shown, url
    assert f"<bdi>{NAME}</bdi>" in page_html(page, "/transactions/prod/svc-7")
    assert f"<bdi>{NAME}</bdi>" in page_html(page, "/find?q=ledger+serv")


def test_the_api_has_the_same_name(page: Client, named: Cluster) -> None:
    def items(url: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = page.get(f"/api/v1/{url}").json()["items"]
        return found

    assert {each["transactional_id"] for each in items(f"transactions?app={quote(NAME)}")} == {
        "svc-7",
        "svc-x",
    }
    assert {each["application"] for each in items("transitions?transactional_id=svc-7")} == {NAME}
    assert {each["application"] for each in items("applications?window_s=2592000")} >= {NAME, "other"}


def test_findings_alerts_and_flow_name_it_and_its_owner(page: Client, named: Cluster) -> None:
    finding = factories.finding(named, "transaction:svc-7", rule="open_too_long")
    alert = FindingText(finding.rule, "prod", finding.subject, "warning", "s", "e", "n")
    assert labels_of(alert, None)["application"] == NAME
    assert subject_node("transaction:svc-7") == NodeId(NodeKind.APPLICATION, NAME)
    factories.finding(named, f"application:{NAME}", rule="timeouts_in_a_row")
    api = page.get("/api/v1/findings").json()["items"]
    assert {each["owner"]["team"] for each in api} == {"Payments"}


@pytest.mark.sql
def test_what_is_stored_follows_a_change_of_the_configuration(prod: Cluster, settings: Any) -> None:
    factories.takeover_history(prod, b"svc-7")
    factories.recovery(prod, "svc-7")

    def stored() -> set[str]:
        return {
            application
            for model in (Transaction, TransitionRecord, Recovery)
            for application in model.objects.values_list("application", flat=True)
        }

    rev = Cluster.objects.get().rev
    assert stored() == {"svc"}
    before = settings.FENCELINE
    settings.FENCELINE = factories.config_with_owners(before, *OWNERS)
    assert rename_applications(OWNERS) == 3
    assert stored() == {NAME}
    assert Cluster.objects.get().rev == rev + 1
    assert rename_applications(OWNERS) == 0
    assert Cluster.objects.get().rev == rev + 1, "nothing has changed"
    settings.FENCELINE = before
    assert rename_applications(before.owners) == 3
    assert stored() == {"svc"}
    assert Tally.objects.filter(application="svc").exists(), "figures stay as they were counted"
