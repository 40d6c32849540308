"""Proves that pages and the API name who is behind a transactional id: engine, instance and machine, with
what shows it, what Kafka Streams uses its topics for, and the application that `[[owners]]` name, wherever
ids are counted by applications; also what was stored before that was configured."""

import json
import re
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client

from dashboard.flow.queries import subject_node
from dashboard.models import Cluster, GroupRecord, Recovery, Tally, Transaction, TransitionRecord
from dashboard.transactions.naming_store import rename_applications
from fenceline.alerts.labels import labels_of
from fenceline.flow.graph import NodeId, NodeKind
from fenceline.owners import Owner
from tests.web import factories
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db
PROCESS = "149b939f-9d61-49c9-b661-3d8c4a8e3b01"
ID = f"orders-app-{PROCESS}-2"
PAGE = f"/transactions/prod/{ID}"
APPLICATION = "Ledger service"
OWNERS = (Owner("svc-*", "Payments", application=APPLICATION), Owner("other*", "Ops"))
ASKED = f"application={quote(APPLICATION)}"


def streams_group(prod: Cluster, client_id: str) -> None:
    members = {"member": [client_id, "/10.0.0.5"]}
    GroupRecord.objects.create(
        cluster=prod, key=sha256(b"orders-app").digest(), group_id="orders-app", members=json.dumps(members),
        log_partition=0, log_offset=0,
    )  # fmt: skip


def streams_line(page: Client) -> str:
    return page_html(page, PAGE).split('data-producer="Kafka Streams"')[1].split("</p>")[0]


def test_a_streams_instance_is_named_with_its_machine_and_group(page: Client, prod: Cluster) -> None:
    streams_group(prod, f"orders-app-{PROCESS}-StreamThread-2-consumer")
    factories.transaction(prod, ID, partitions={"orders-app-counts-changelog": [0], "totals": [1]})
    line = streams_line(page)
    assert PROCESS in line
    assert "10.0.0.5" in line
    assert 'href="/groups/prod/orders-app"' in line
    uses = [each.split("<")[0] for each in page_html(page, PAGE).split("data-streams-topic>")[1:]]
    assert uses == ["changelog", "sink"]


def test_the_shape_alone_names_no_machine_and_no_group(page: Client, prod: Cluster) -> None:
    streams_group(prod, "something-else")
    factories.transaction(prod, ID)
    line = streams_line(page)
    assert PROCESS in line
    assert "10.0.0.5" not in line
    assert "href" not in line


def test_a_connect_task_has_the_state_that_a_worker_reports(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "connect-cluster-cdc")
    for task in (0, 3):
        factories.transaction(prod, f"cdc-mysql-source-{task}")
    address = "/transactions/prod/cdc-mysql-source-{}"
    assert "data-connector" not in page_html(page, address.format(0))
    factories.connector(prod)
    factories.raise_revision(prod)
    shown = page_html(page, address.format(0)).split("data-connector")[1]
    assert "FAILED" in shown
    assert "ConnectException: no such table" in shown
    assert "2 tasks, as Connect 4.2.0" in " ".join(shown.split())
    gone = page_html(page, address.format(3)).split("data-connector")[1]
    assert "has no such task now" in gone


def test_an_incident_of_a_connect_task_names_connector_task_and_epoch(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "connect-cluster-cdc")
    factories.transaction(prod, "cdc-mysql-source-0", age_ms=400_000)
    factories.connector(prod)
    subject = "transaction:cdc-mysql-source-0"
    cause = factories.finding(prod, subject)
    row = factories.incident_of(prod, cause, subject=subject)

    def evidence() -> list[str]:
        shown = page_html(page, f"/incidents/{row.pk}").partition('id="cause"')[2].partition("</table>")[0]
        return re.findall(r"<bdi>([^<]+)</bdi>", shown)

    named = "cdc-mysql-source-0 is used by Kafka Connect group cdc: connector mysql-source, task 0"
    began = "cdc-mysql-source-0 began its transaction: producer id 2051, epoch 17"
    state = (
        "connector mysql-source is RUNNING, its task 0 FAILED on w1:8083 (ConnectException: no such table)"
    )
    assert {named, began, state} <= set(evidence())
    row.closed_ms = factories.now_ms()
    row.save()
    factories.raise_revision(prod)
    assert named in evidence()
    assert began not in evidence(), "what is open now is another transaction"


def test_a_plain_client_is_called_by_its_owner_or_by_its_group(
    page: Client, prod: Cluster, settings: Any
) -> None:
    row = factories.transaction(prod, "svc-7", partitions={"__consumer_offsets": [3], "out": [0]})
    factories.added_offsets(row, "billing")
    GroupRecord.objects.create(
        cluster=prod, key=sha256(b"billing").digest(), group_id="billing", log_partition=0, log_offset=0,
        members=json.dumps({"m": ["billing-client-1", "/10.0.0.9"]}),
    )  # fmt: skip
    line = page_html(page, "/transactions/prod/svc-7").split("data-named")[1].split("</span")[0]
    assert "billing-client-1" in line
    assert "10.0.0.9" in line
    assert "it commits the offsets of this group" in line
    settings.FENCELINE = factories.config_with_owners(settings.FENCELINE, OWNERS[0])
    named = page_html(page, "/transactions/prod/svc-7").split("data-named")[1].split("</span")[0]
    assert APPLICATION in named
    factories.transaction(prod, "other-7")
    assert "data-named" not in page_html(page, "/transactions/prod/other-7")


def test_topics_of_debezium_are_told_apart_by_its_heartbeat(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "connect-cluster-cdc")
    topics = {"__debezium-heartbeat.shop": [0], "shop.public.orders": [0], "other": [0]}
    factories.transaction(prod, "cdc-shop-source-0", partitions=topics)
    shown = page_html(page, "/transactions/prod/cdc-shop-source-0")
    assert "Debezium, topics of" in shown
    expected = ["heartbeat", "rows of a table"]
    assert [each.split("<")[0] for each in shown.split("data-debezium-topic>")[1:]] == expected


def test_a_connect_task_is_named_where_its_leader_is_known(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "cdc-mysql-source-3")
    address = "/transactions/prod/cdc-mysql-source-3"
    assert "data-producer" not in page_html(page, address)
    factories.transaction(prod, "connect-cluster-cdc")
    assert 'data-producer="Kafka Connect"' in page_html(page, address)
    api = page.get(f"/api/v1{address}").json()["producer"]
    expected = ("Kafka Connect", "cdc", "the id connect-cluster-cdc exists")
    assert (api["engine"], api["application"], api["sign"]) == expected
    parts = [{"name": "connector", "value": "mysql-source"}, {"name": "task", "value": "3"}]
    assert api["parts"] == parts


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
    assert f"<bdi>{APPLICATION}</bdi>" in page_html(page, "/transactions/prod/svc-7")
    assert f"<bdi>{APPLICATION}</bdi>" in page_html(page, "/find?q=ledger+serv")


def test_the_api_has_the_same_name(page: Client, named: Cluster) -> None:
    def items(url: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = page.get(f"/api/v1/{url}").json()["items"]
        return found

    expected = {"svc-7", "svc-x"}
    assert {each["transactional_id"] for each in items(f"transactions?app={quote(APPLICATION)}")} == expected
    assert {each["application"] for each in items("transitions?transactional_id=svc-7")} == {APPLICATION}
    assert {each["application"] for each in items("applications?window_s=2592000")} >= {APPLICATION, "other"}


def test_findings_alerts_and_flow_name_it_and_its_owner(page: Client, named: Cluster) -> None:
    finding = factories.finding(named, "transaction:svc-7", rule="open_too_long")
    assert labels_of(finding, None, cluster="prod")["application"] == APPLICATION
    assert subject_node("transaction:svc-7") == NodeId(NodeKind.APPLICATION, APPLICATION)
    factories.finding(named, f"application:{APPLICATION}", rule="timeouts_in_a_row")
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
    assert stored() == {APPLICATION}
    assert Cluster.objects.get().rev == rev + 1
    assert rename_applications(OWNERS) == 0
    assert Cluster.objects.get().rev == rev + 1, "nothing has changed"
    settings.FENCELINE = before
    assert rename_applications(before.owners) == 3
    assert stored() == {"svc"}
    assert Tally.objects.filter(application="svc").exists(), "figures stay as they were counted"
