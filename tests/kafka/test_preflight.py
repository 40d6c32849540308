"""Proves on a real broker that page, API and command of the pre-flight report the settings that are there,
and that what cannot be asked is named."""

import json
import random
from contextlib import closing
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from dashboard.config import ClusterConfig, Config
from dashboard.models import Cluster
from sandbox.kafka import Broker
from tests.brokers import configure_topic, create_topics
from tests.web import factories, roles
from tests.web.roles import page_html
from transaction_admin.kafka_reads import ClusterReads

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


@pytest.fixture
def topic(kafka_42: Broker, prod: Cluster) -> str:
    """A topic that an application writes to, whose settings are mistakes."""
    name = f"preflight-{random.getrandbits(40):x}"
    create_topics(kafka_42.bootstrap, name, partitions=1)
    configure_topic(kafka_42.bootstrap, name, {"unclean.leader.election.enable": "true"})
    factories.topic_tally(prod, "payments", name)
    factories.transaction(prod, "payments-7", timeout_ms=1_000_000)
    return name


def check(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit status and what it prints."""
    out = StringIO()
    try:
        call_command("check_exactly_once", *arguments, stdout=out)
    except SystemExit as status:
        return int(str(status.code)), out.getvalue()
    return 0, out.getvalue()


def test_page_api_and_command_report_the_same(prod: Cluster, topic: str) -> None:
    viewer = roles.client_with_role("viewer")
    answer = viewer.get("/api/v1/clusters/prod/preflight").json()
    found = {(risk["check"], risk["subject"]) for risk in answer["risks"]}
    assert found >= {
        ("one_replica", f"topic:{topic}"),
        ("unclean_election", f"topic:{topic}"),
        # The broker's own maximum is 15 min.
        ("timeout_refused", "application:payments"),
    }
    # The broker may have no internal topics yet.
    assert all("topic __" in reason for reason in answer["unseen"])
    status, printed = check("prod", "--json")
    assert status == 1
    (document,) = json.loads(printed)
    assert {(risk["check"], risk["subject"]) for risk in document["risks"]} == found
    page = page_html(viewer, "/preflight")
    assert all(f'data-check="{name}"' in page for name, _ in found)
    assert "remedy: " in check("prod")[1]


def test_what_cannot_be_asked_is_named(prod: Cluster, settings: Any) -> None:
    settings.FENCELINE = Config(
        clusters={"prod": ClusterConfig("prod", {"bootstrap.servers": "127.0.0.1:1"})}
    )
    status, printed = check("--fail-on", "warning")
    assert (status, "unseen    the brokers' settings" in printed) == (0, True)
    assert "data-unseen" in page_html(roles.client_with_role("viewer"), "/preflight")
    with pytest.raises(CommandError, match="No cluster 'other' is watched; known: prod"):
        check("other")


def test_settings_of_many_topics_come_in_one_request(kafka_42: Broker, topic: str) -> None:
    with closing(ClusterReads({"bootstrap.servers": kafka_42.bootstrap}, 20)) as reads:
        before = reads.cost.requests
        found = reads.topic_settings([topic, "no-such-topic"], ["unclean.leader.election.enable"])
        assert found == {topic: {"unclean.leader.election.enable": "true"}}
        assert reads.cost.requests - before <= 2
